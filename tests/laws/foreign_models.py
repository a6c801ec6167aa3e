"""Small networks in the forms in which other libraries keep them."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch
from torch import nn


def small_network(classes: int = 3, side: int = 16, seed: int = 0) -> nn.Module:
    """(B, 3, side, side) -> (B, classes), with a batch norm that knows some statistics."""
    torch.manual_seed(seed)
    flat = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(64, classes))
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), flat)
    network.train()(torch.rand(8, 3, side, side))
    return network.eval()


def saved_onnx(path: Path, network: nn.Module, batch: int | None = None, side: int = 16) -> Path:
    """The file, with its weights inside; batch: the only batch it takes."""
    shapes = None if batch else ({0: torch.export.Dim("batch")},)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        example = (torch.rand(batch or 2, 3, side, side),)
        torch.onnx.export(
            network, example, str(path), dynamo=True, dynamic_shapes=shapes, external_data=False, verbose=False
        )
    return path


def saved_vit(folder: Path, classes: int = 4, processor: str | None = None) -> nn.Module:
    """A tiny vision transformer in a folder of transformers."""
    from ringfence.models.extras import needed

    transformers = needed("transformers", "hf", "")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.ViTConfig(**sizes, image_size=16, patch_size=8, num_labels=classes)
    model: nn.Module = transformers.ViTForImageClassification(config).eval()
    model.save_pretrained(folder)  # type: ignore[operator]
    if processor is not None:
        (folder / "preprocessor_config.json").write_text(processor)
    return model


def saved_diffusion(folder: Path, predicts: str = "epsilon", channels: int = 3) -> tuple[nn.Module, object]:
    """A tiny UNet and its schedule, as a pipeline of diffusers."""
    from ringfence.models.extras import needed

    diffusers = needed("diffusers", "diffusion", "")
    torch.manual_seed(0)
    blocks = {"down_block_types": ("DownBlock2D",) * 2, "up_block_types": ("UpBlock2D",) * 2}
    unet = diffusers.UNet2DModel(
        sample_size=16, in_channels=channels, out_channels=channels, block_out_channels=(8, 8), layers_per_block=1,
        norm_num_groups=4, **blocks,
    )  # fmt: skip
    schedule = diffusers.DDPMScheduler(prediction_type=predicts)
    unet.save_pretrained(folder / "unet")
    schedule.save_pretrained(folder / "scheduler")
    return unet.eval(), schedule
