"""Models as transformers, onnxruntime, torch.jit and torch.export keep them."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import torch
from foreign_models import saved_onnx, saved_vit, small_network
from torch import Tensor, nn

import ringfence as rf
from ringfence.classifiers import Normalize, Resized
from ringfence.errors import ClassifierError, ModelError
from ringfence.models import load_model
from ringfence.models.exported import Exported, is_torchscript
from ringfence.models.extras import needed
from ringfence.models.onnx_graph import OnnxGraph
from ringfence.models.source import Kind, source_of

PROCESSOR = {
    "do_normalize": True, "image_mean": [0.1, 0.2, 0.3], "image_std": [0.5, 0.6, 0.7], "do_rescale": True,
    "rescale_factor": 1 / 255, "do_resize": True, "size": {"height": 16, "width": 16}, "resample": 3,
}  # fmt: skip

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore:.*:UserWarning")


def test_a_transformers_folder_is_classifier_and_preprocessing(tmp_path: Path) -> None:
    model = saved_vit(tmp_path / "vit", processor=json.dumps(PROCESSOR))
    loaded = load_model(f"hf:{tmp_path / 'vit'}")
    assert loaded.num_classes == 4
    x = torch.rand(2, 3, 32, 32)
    smaller = torch.nn.functional.interpolate(x, (16, 16), mode="bicubic", antialias=True)
    mean, std = (torch.tensor(PROCESSOR[name]).view(3, 1, 1) for name in ("image_mean", "image_std"))
    torch.testing.assert_close(loaded.module(x), model(pixel_values=(smaller - mean) / std).logits)
    [record] = rf.certify(f"hf:{tmp_path / 'vit'}", x[:1], noise=rf.Gaussian(0.1), procedure=rf.Fixed(n=100))
    assert record.stages[1].cells["votes"].sum() == 100


def test_what_a_processor_multiplies_by_is_part_of_the_normalisation(tmp_path: Path) -> None:
    """Some are trained on pixels in [-1, 1]: factor 1/127.5, then minus 1."""
    told = {**PROCESSOR, "rescale_factor": 1 / 127.5, "image_mean": [1.0, 1.0, 1.0], "image_std": [1.0, 1.0, 1.0]}
    model = saved_vit(tmp_path / "vit", processor=json.dumps(told))
    x = torch.rand(2, 3, 16, 16)
    torch.testing.assert_close(load_model(f"hf:{tmp_path / 'vit'}").module(x), model(pixel_values=2 * x - 1).logits)


def test_a_network_of_bytes_is_given_bytes(tmp_path: Path) -> None:
    told = {"do_normalize": False, "do_rescale": False, "do_resize": False}
    model = saved_vit(tmp_path / "vit", processor=json.dumps(told))
    x = torch.rand(2, 3, 16, 16)
    expected = model(pixel_values=255 * x).logits
    torch.testing.assert_close(load_model(f"hf:{tmp_path / 'vit'}").module(x), expected, atol=1e-4, rtol=1e-4)
    plain = {"do_normalize": False, "do_resize": False}
    (tmp_path / "vit" / "preprocessor_config.json").write_text(json.dumps(plain))
    torch.testing.assert_close(load_model(f"hf:{tmp_path / 'vit'}").module(x), model(pixel_values=x).logits)


@pytest.mark.parametrize("step", ["do_flip_channel_order", "include_top", "rescale_offset", "do_pad"])
def test_a_processor_with_unknown_steps_is_refused(tmp_path: Path, step: str) -> None:
    """Left out, the network would see other images than it was trained on."""
    saved_vit(tmp_path / "vit", processor=json.dumps({**PROCESSOR, step: True}))
    with pytest.raises(ModelError, match=f"steps that are not known here; got {step}. Write a factory"):
        load_model(f"hf:{tmp_path / 'vit'}")


def test_a_processor_that_normalises_by_numbers_it_does_not_tell_is_refused(tmp_path: Path) -> None:
    """transformers has defaults for every class: without any the network would see other images."""
    told = {name: value for name, value in PROCESSOR.items() if name != "image_mean"}
    saved_vit(tmp_path / "vit", processor=json.dumps({**told, "do_normalize": True}))
    with pytest.raises(ModelError, match="must tell image_mean and image_std if do_normalize; got a processor without"):
        load_model(f"hf:{tmp_path / 'vit'}")


def test_a_network_of_timm_in_a_folder_of_transformers_brings_its_preprocessing(tmp_path: Path) -> None:
    """Its folder has no processor: what belongs in front stands in its configuration, as timm writes it."""
    transformers = needed("transformers", "hf", "")
    cfg = {"mean": [0.4, 0.5, 0.6], "std": [0.2, 0.3, 0.4], "input_size": [3, 64, 64], "interpolation": "bilinear"}
    config = transformers.TimmWrapperConfig.from_dict(
        {"architecture": "resnet10t", "num_classes": 4, "pretrained_cfg": cfg}
    )
    torch.manual_seed(0)
    model = transformers.TimmWrapperForImageClassification(config).eval()
    model.save_pretrained(tmp_path / "timm")
    x = torch.rand(2, 3, 64, 64)
    loaded = load_model(f"hf:{tmp_path / 'timm'}")
    mean, std = (torch.tensor(cfg[name]).view(3, 1, 1) for name in ("mean", "std"))
    expected = model(pixel_values=(x - mean) / std).logits  # of fresh weights, and small
    torch.testing.assert_close(loaded.module(x), expected, atol=float(expected.detach().abs().max()) / 1e3, rtol=1e-4)
    assert loaded.side == 64


def test_a_configuration_is_part_of_the_digest(tmp_path: Path) -> None:
    saved_vit(tmp_path / "vit")
    digests = {load_model(f"hf:{tmp_path / 'vit'}").digest}
    config = tmp_path / "vit" / "config.json"
    config.write_text(config.read_text().replace('"gelu"', '"relu"'))
    digests.add(load_model(f"hf:{tmp_path / 'vit'}").digest)
    for processor in (PROCESSOR, {**PROCESSOR, "resample": 2}, {**PROCESSOR, "size": {"height": 8, "width": 8}}):
        (tmp_path / "vit" / "preprocessor_config.json").write_text(json.dumps(processor))
        digests.add(load_model(f"hf:{tmp_path / 'vit'}").digest)
    assert len(digests) == 5


def test_a_folder_without_a_head_is_no_classifier(tmp_path: Path) -> None:
    """transformers would make one up."""
    from safetensors.torch import load_file, save_file

    saved_vit(tmp_path / "vit")
    file = tmp_path / "vit" / "model.safetensors"
    kept = {key: value for key, value in load_file(file).items() if not key.startswith("classifier")}
    save_file(kept, file, {"format": "pt"})
    with pytest.raises(ModelError, match=r"all weights of the classifier; got 2 weights missing.*classifier\.bias"):
        load_model(f"hf:{tmp_path / 'vit'}")


@pytest.mark.parametrize("batch", [None, 4])
def test_an_onnx_graph_answers_any_batch(tmp_path: Path, batch: int | None) -> None:
    network = small_network()
    loaded = load_model(f"onnx:{saved_onnx(tmp_path / 'n.onnx', network, batch)}")
    assert loaded.num_classes == 3
    for count in (1, 4, 9):
        x = torch.rand(count, 3, 16, 16)
        torch.testing.assert_close(loaded.module(x), network(x), atol=1e-5, rtol=1e-5)
    half = loaded.module(torch.rand(2, 3, 16, 16).bfloat16())
    assert half.shape == (2, 3)
    # A graph of one size is given it.
    small, large = torch.rand(2, 3, 8, 8), torch.rand(2, 3, 16, 16)
    assert loaded.module(small).shape == loaded.module(large).shape


def test_an_onnx_graph_is_known_by_its_files(tmp_path: Path) -> None:
    import onnx

    path = saved_onnx(tmp_path / "n.onnx", small_network())
    first = load_model(f"onnx:{path}").digest
    assert load_model(f"onnx:{path}").digest == first
    other = saved_onnx(tmp_path / "m.onnx", small_network(seed=1))
    assert load_model(f"onnx:{other}").digest != first
    # Large weights stand in a file of their own.
    onnx.save_model(
        onnx.load(path), tmp_path / "big.onnx", save_as_external_data=True, location="big.data", size_threshold=100
    )
    before = load_model(f"onnx:{tmp_path / 'big.onnx'}").digest
    data = bytearray((tmp_path / "big.data").read_bytes())
    data[3] ^= 64
    (tmp_path / "big.data").write_bytes(data)
    assert load_model(f"onnx:{tmp_path / 'big.onnx'}").digest != before


class _WithFeatures(nn.Module):
    """(features (B, 5), scores (B, 3))."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.flatten(1)[:, :5], x.mean((2, 3))


def test_features_beside_the_scores_of_a_graph_are_not_taken_for_them(tmp_path: Path) -> None:
    x = torch.rand(2, 3, 8, 8)
    for name in ("scores", "logits"):
        kept = {"input_names": ["x"], "output_names": ["features", name], "dynamo": False}
        torch.onnx.export(_WithFeatures(), (x,), tmp_path / f"{name}.onnx", **kept)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=r"one output of them; got features: .*, scores: "):
        load_model(f"onnx:{tmp_path / 'scores.onnx'}")
    for loaded in (
        load_model(f"onnx:{tmp_path / 'scores.onnx'}", num_classes=3),
        load_model(f"onnx:{tmp_path / 'logits.onnx'}"),
    ):
        torch.testing.assert_close(loaded.module(x), x.mean((2, 3)))


def test_a_graph_of_single_numbers_is_no_classifier(tmp_path: Path) -> None:
    import onnx

    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, []) for name in "xy")
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["x"], ["y"])], "g", [x], [y])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "number.onnx")
    with pytest.raises(ModelError, match="must take one batch of floating-point inputs"):
        load_model(f"onnx:{tmp_path / 'number.onnx'}")


def test_an_onnx_graph_has_no_gradients_and_is_copied_with_its_session(tmp_path: Path) -> None:
    module = load_model(f"onnx:{saved_onnx(tmp_path / 'n.onnx', small_network())}", mean=[0.5], std=[0.5]).module
    x = torch.rand(2, 3, 16, 16)
    torch.testing.assert_close(copy.deepcopy(module)(x), module(x))
    with pytest.raises(ClassifierError, match="an ONNX graph, which has none"):
        module(x.requires_grad_())


def test_members_that_are_graphs_are_never_run_as_one_another(tmp_path: Path) -> None:
    """Neither has weights that could be stacked: stacked, both would be the first."""
    for place in (0, 1):
        saved_onnx(tmp_path / f"{place}.onnx", small_network(seed=place))
        torch.jit.trace(small_network(seed=place), torch.rand(2, 3, 16, 16)).save(str(tmp_path / f"{place}.pt"))
    x = torch.rand(3, 3, 16, 16)
    for ending in ("onnx:{}/0.onnx, onnx:{}/1.onnx", "{}/0.pt, {}/1.pt"):
        vote = load_model(f"soft({ending.format(tmp_path, tmp_path)})").module
        assert not vote.members.stackable
        expected = (small_network(seed=0)(x) + small_network(seed=1)(x)) / 2
        torch.testing.assert_close(vote(x), expected, atol=1e-5, rtol=1e-5)


def test_torchscript_is_found_by_what_is_in_the_file(tmp_path: Path) -> None:
    network = small_network()
    torch.jit.script(network).save(str(tmp_path / "net.pt"))
    torch.save(network.state_dict(), tmp_path / "code.pt")
    assert is_torchscript(tmp_path / "net.pt")
    assert not is_torchscript(tmp_path / "code.pt")
    assert source_of(str(tmp_path / "net.pt")).kind is Kind.PROGRAM
    assert source_of(str(tmp_path / "code.pt")).kind is Kind.CHECKPOINT
    loaded = load_model(str(tmp_path / "net.pt"), mean=[0.2], std=[0.4])
    x = torch.rand(3, 3, 16, 16)
    torch.testing.assert_close(loaded.module(x), network((x - 0.2) / 0.4))
    torch.jit.script(small_network(seed=1)).save(str(tmp_path / "other.pt"))
    assert load_model(str(tmp_path / "other.pt")).digest != load_model(str(tmp_path / "net.pt")).digest


class Branch(nn.Module):
    """Two programs of the same weights that differ in their code alone."""

    def __init__(self, sign: float) -> None:
        super().__init__()
        self.linear, self.sign = nn.Linear(4, 2), sign
        nn.init.ones_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.linear(x) * self.sign
        return scores


def test_the_code_of_a_program_is_part_of_its_digest(tmp_path: Path) -> None:
    digests = set()
    for sign in (1.0, -1.0):
        torch.jit.trace(Branch(sign), torch.rand(2, 4)).save(str(tmp_path / "b.ts"))
        digests.add(load_model(str(tmp_path / "b.ts")).digest)
    assert len(digests) == 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
@pytest.mark.parametrize("form", ["ts", "pt2"])
def test_programs_of_other_precisions_keep_them(tmp_path: Path, form: str, dtype: torch.dtype) -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 3)).to(dtype).eval()
    x = torch.rand(4, 3, 2, 2)
    path = tmp_path / f"net.{form}"
    if form == "ts":
        torch.jit.trace(network, x.to(dtype)).save(str(path))
    else:
        shapes = {"input": {0: torch.export.Dim("batch")}}
        torch.export.save(torch.export.export(network, (x.to(dtype),), dynamic_shapes=shapes), path)
    loaded = load_model(str(path)).module
    torch.testing.assert_close(loaded(x), network(x.to(dtype)))
    records = list(rf.certify(str(path), x, noise=rf.Gaussian(0.1), procedure=rf.Fixed(n=50)))
    assert len(records) == 4
    assert isinstance(loaded, Exported)
    assert next(loaded.float().parameters()).dtype == dtype


def test_parts_are_what_they_are_called(tmp_path: Path) -> None:
    module = load_model(f"onnx:{saved_onnx(tmp_path / 'n.onnx', small_network())}", mean=[0.5], std=[0.5]).module
    assert isinstance(module, Resized)
    assert isinstance(module.module, Normalize)
    assert isinstance(module.module.module, OnnxGraph)
