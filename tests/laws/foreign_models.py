"""Small networks in the forms in which other libraries keep them."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn


def small_network(classes: int = 3, seed: int = 0) -> nn.Sequential:
    """(B, 3, 16, 16) -> (B, classes), with a batch norm that knows some statistics."""
    torch.manual_seed(seed)
    head = (nn.AvgPool2d(7), nn.Flatten(), nn.Linear(16, classes))
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), *head)
    network.train()(torch.rand(8, 3, 16, 16))
    return network.eval()


def saved_onnx(path: Path, network: nn.Sequential, batch: int | None = None) -> Path:
    """The file of a small network, written layer by layer (torch's exporter takes seconds); batch: the only one."""
    from onnx import TensorProto, helper, numpy_helper, save

    kinds = {
        nn.Conv2d: ("Conv", {}), nn.BatchNorm2d: ("BatchNormalization", {}), nn.ReLU: ("Relu", {}),
        nn.AvgPool2d: ("AveragePool", {"kernel_shape": [7, 7], "strides": [7, 7]}), nn.Flatten: ("Flatten", {}),
        nn.Linear: ("Gemm", {"transB": 1}),
    }  # fmt: skip
    nodes, weights = [], []
    for place, layer in enumerate(network):
        kind, settings = kinds[type(layer)]
        named = [(key, value) for key, value in layer.state_dict().items() if value.dim()]
        weights += [numpy_helper.from_array(value.numpy(), f"{place}.{key}") for key, value in named]
        output = "logits" if place == len(network) - 1 else f"x{place + 1}"
        inputs = [f"x{place}", *(f"{place}.{key}" for key, _ in named)]
        nodes.append(helper.make_node(kind, inputs, [output], **settings))
    given = helper.make_tensor_value_info("x0", TensorProto.FLOAT, [batch or "batch", 3, 16, 16])
    classes = network[-1].out_features
    asked = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [batch or "batch", classes])
    graph = helper.make_graph(nodes, "net", [given], [asked], weights)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(path))
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
