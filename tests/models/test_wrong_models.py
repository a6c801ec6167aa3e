"""What users write wrongly, and what they are told: the argument, the rule, what was found, and what to do."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from foreign_models import saved_diffusion, saved_onnx, saved_vit, small_network
from torch import nn

from ringfence.classifiers.architectures import LeNet, resnet
from ringfence.errors import ModelError
from ringfence.models import load_model
from ringfence.models.compose import tree_of

HUB = "huggingface_hub"

FACTORIES = """
from torch import nn

def made(**settings):
    return nn.Linear(4, settings["num_classes"])

def strict(width):
    return nn.Linear(4, width)

def named(**settings):
    return nn.Linear(4, 2, **settings)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of every kind, most of them with a mistake."""
    folder = tmp_path_factory.mktemp("wrong")
    (folder / "nets.py").write_text(FACTORIES)
    (folder / "empty").mkdir()
    (folder / "trained").mkdir()
    for name in ("config.json", "final-0.safetensors"):
        (folder / "trained" / name).write_text("{}")
    (folder / "text.onnx").write_text("not a graph")
    (folder / "text.pt2").write_text("not a program")
    (folder / "text.ts").write_text("not a script")
    saved_onnx(folder / "net.onnx", small_network())
    saved_vit(folder / "vit", classes=4)
    saved_vit(folder / "other")
    config = folder / "other" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "model_type": "nothing-known"}))
    saved_vit(folder / "torn")
    (folder / "torn" / "config.json").write_text("{")
    saved_diffusion(folder / "ddpm")
    (folder / "bare").mkdir()
    for name in ("config.json", "diffusion_pytorch_model.safetensors"):
        (folder / "bare" / name).write_bytes((folder / "ddpm" / "unet" / name).read_bytes())
    torch.save(LeNet().state_dict(), folder / "lenet.pt")
    torch.save(resnet(8).state_dict(), folder / "resnet8.pt")
    torch.save({"weights": LeNet().state_dict()}, folder / "elsewhere.pt")
    torch.save({"model": nn.Linear(2, 2)}, folder / "module.pt")
    torch.save({"arch": "vgg99", "state_dict": LeNet().state_dict()}, folder / "arch.pt")
    torch.save({"arch": "cifar_dncnn", "state_dict": {"dncnn.0.weight": torch.ones(1)}}, folder / "denoiser.pt")
    return folder


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("timm:resnet81@random", {}, r"must name an image classifier of timm; got 'resnet81'. Did you mean timm:resnet"),
    ("timm:", {}, r"must name an image classifier of timm; got ''. timm.list_models\(\) lists them"),
    ("timm:hf-hub:somebody/net", {}, r"must name an image classifier of timm; got 'hf-hub:somebody/net'"),
    ("timm:resnet18.no_such_tag@random", {}, r"must be built by timm.*tag"),
    ("timm:resnet18@{}/no.pt", {}, r"followed by the file of its weights, or one of random; got no file"),
    ("timm:resnet18@{}/lenet.pt", {}, r"must fit the model; got key 'conv1.weight' missing"),
    ("torchvision:resnet5000", {}, r"classifier of torchvision.*Did you mean torchvision:resnet50"),
    ("torchvision:fasterrcnn_resnet50_fpn", {}, r"must name an image classifier of torchvision"),
    ("torchvision:resnet18@V7", {}, r"one of random, IMAGENET1K_V1; got no file 'V7'"),
    ("hf:{}/no", {}, r"must be a folder, or a model in the cache of Hugging Face.*hf download"),
    (
        "hf:somebody/some-net",
        {},
        r"got neither \('somebody/some-net'\). Fetch it where there is a network: hf download",
    ),
    ("hf:{}/empty", {}, r"must hold config.json; got a folder without one. Save it by model.save_pretrained"),
    ("hf:{}/other", {}, r"must hold an image classifier of transformers.*nothing-known"),
    ("hf:{}/torn", {}, r"config.json: must be a JSON file"),
    ("hf:{}/vit", {"num_classes": 10}, r"num_classes: hf:.*/vit has 4 classes; got 10. Leave it out"),
    ("hf:{}/vit", {"weights": "w.pt"}, r"hf:.*/vit@w.pt.*must be a folder"),
    ("onnx:{}/no.onnx", {}, r"must be an existing file; got no such file. Check the path of the graph"),
    ("onnx:{}/text.onnx", {}, r"must be a graph that onnxruntime can run.*Export the model again"),
    ("onnx:{}/net.onnx", {"num_classes": 10}, r"num_classes: onnx:.* returns 3 scores; got 10"),
    ("{}/text.pt2", {}, r"must be a program saved by torch.export.save"),
    ("{}/text.ts", {}, r"must be a program saved by torch.jit.save"),
    ("{}/no.ts", {}, r"must be an existing file; got no such file"),
    ("{}/text.ts", {"weights": "w.pt"}, r"weights: does not go with .*text.ts, which has its own"),
    (
        "diffusion:{}/ddpm",
        {},
        r"must be a classifier; got a denoiser. Put a classifier behind it: denoised\(diffusion:",
    ),
    ("denoised(diffusion:{}/no, default)", {"sigma": 0.5}, r"must be a folder of diffusers; got no folder"),
    ("denoised(diffusion:{}/empty, default)", {"sigma": 0.5}, r"must hold a UNet2DModel and its schedule"),
    ("denoised(diffusion:{}/bare, default)", {"sigma": 0.5}, r"must hold a UNet2DModel and its schedule"),
    (
        "denoised(diffusion:{}/ddpm@loud, default)",
        {},
        r"followed by @ and a noise level above 0; got 'loud'.*ddpm@0.25",
    ),
    ("denoised(diffusion:{}/ddpm, default)", {}, r"is told the noise level, which is not known here"),
    ("denoised(diffusion:{}/ddpm@-1, default)", {}, r"followed by @ and a noise level above 0; got '-1'"),
    ("{}/nets.py:strict", {"num_classes": 3}, r"the factory must build the model; got TypeError.*width"),
    ("{}/nets.py:mad", {}, r"no callable 'mad'.*found: made, strict, named"),
    ("{}/elsewhere.pt", {}, r"state dict, alone or under one of 'state_dict', 'model', 'net'"),
    ("{}/module.pt", {}, r"must hold plain tensors \(it is read without running code\); got a pickle of torch\.nn"),
    ("{}/nets.py", {}, r"Did you mean '.*nets\.py:NAME'"),
    ("{}/net.onnx", {}, r"Did you mean 'onnx:.*net\.onnx'"),
    ("{}/vit", {}, r"Did you mean 'hf:.*vit'"),
    ("{}/trained", {}, r"Did you mean '.*trained/final-0\.safetensors'"),
    ("{}/ddpm", {}, r"Did you mean 'denoised\(diffusion:.*ddpm, CLASSIFIER\)'"),
    ("{}/arch.pt", {}, r"must name an architecture known here under 'arch'; got 'vgg99'"),
    ("{}/denoiser.pt", {}, r"must hold a classifier; got a denoiser, 'dncnn'"),
    ("resnet50", {}, r"an architecture needs trained weights.*resnet50@FILE"),
    ("resnt50", {}, r"Did you mean 'resnet50'"),
    ("resnet50@{}/resnet8.pt", {}, r"must fit the model; got key.*These are weights of resnet8: give that"),
    (
        "resnet8-pad@{}/resnet8.pt",
        {},
        r"must fit the model; got unexpected key.*These are weights of resnet8: give that",
    ),
    ("resnet8@{}/lenet.pt", {"num_classes": 7}, r"must fit the model.*Choose the architecture these weights belong to"),
    (
        "resnet8@{}/resnet8.pt",
        {"num_classes": 100},
        r"\(10, 64\) where the model has \(100, 64\).*`classes`, where given",
    ),
    ("timn:resnet18", {}, r"Did you mean timm:resnet18\?"),
    ("HF:{}/vit", {}, r"Did you mean hf:"),
    ("resized(default, size=0)", {}, r"resized\(size=\): must be at least 1; got 0"),
    ("resized(default, size=28, kind=lanczos)", {}, r"kind.*must be one of bicubic, bilinear, nearest; got 'lanczos'"),
    ("resized(default)", {}, r"resized\(...\): needs size; got none. Write resized\(MODEL, size="),
]


@pytest.mark.parametrize(("spec", "given", "message"), WRONG, ids=[spec for spec, _, _ in WRONG])
def test_mistakes_are_told_with_their_remedy(place: Path, spec: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        load_model(spec.replace("{}", str(place)), **given)
    assert caught.value.remedy.endswith((".", "?", ")"))


def test_a_factory_takes_classes_through_its_keywords(place: Path) -> None:
    loaded = load_model(f"{place}/nets.py:made", num_classes=7)
    assert loaded.module(torch.ones(1, 4)).shape == (1, 7)
    # Not everything that takes keywords takes this one.
    assert load_model(f"{place}/nets.py:named", num_classes=3).module(torch.ones(1, 4)).shape == (1, 2)
    assert load_model("torch.nn:Identity", num_classes=3).module(torch.ones(1, 4)).shape == (1, 4)


@pytest.mark.parametrize(
    ("module", "spec", "extra"),
    [
        ("timm", "timm:resnet18", "timm"),
        ("torchvision", "torchvision:resnet18", "timm"),
        ("transformers", "hf:{}/vit", "hf"),
        ("onnxruntime", "onnx:{}/net.onnx", "onnx"),
        ("diffusers", "denoised(diffusion:{}/ddpm@0.5, default)", "diffusion"),
    ],
)
def test_a_missing_library_is_told_with_its_pip_command(
    place: Path, monkeypatch: pytest.MonkeyPatch, module: str, spec: str, extra: str
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)  # as if it were not installed
    with pytest.raises(ModelError, match=rf"needs {module}.*pip install 'ringfence\[{extra}\]'"):
        load_model(spec.replace("{}", str(place)))


def test_weights_that_cannot_be_fetched_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from ringfence.models.extras import needed

    def offline(*names: Any, **how: Any) -> None:
        raise OSError("no route to the hub\nmore lines")

    monkeypatch.setattr(needed("timm", "timm", ""), "create_model", offline)
    enumeration = needed("torchvision.models", "timm", "").get_model_weights("resnet18")
    monkeypatch.setattr(enumeration, "get_state_dict", offline)
    for spec in ("timm:resnet18.a1_in1k", "torchvision:resnet18"):
        told = rf"with its weights; got OSError: no route to the hub\. Fetch them where.*{spec.split('.')[0]}.*@FILE"
        with pytest.raises(ModelError, match=told):
            load_model(spec)


@pytest.mark.parametrize("reachable", [True, False])
def test_a_hub_that_does_not_answer_is_asked_once(monkeypatch: pytest.MonkeyPatch, reachable: bool) -> None:
    from ringfence.models.extras import needed

    timm, constants, network = (needed(one, "timm", "") for one in ("timm", f"{HUB}.constants", f"{HUB}.utils"))
    asked, offline = [], []

    class Session:
        def head(self, address: str, timeout: float) -> None:
            asked.append(timeout)
            if not reachable:
                raise OSError("no route")

    def create(name: str, pretrained: bool) -> Any:
        offline.append(constants.is_offline_mode())
        raise OSError("not there")

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(network, "get_session", Session)
    monkeypatch.setattr(timm, "create_model", create)
    with pytest.raises(ModelError, match="not there"):
        load_model("timm:resnet18.a1_in1k")
    assert (len(asked), offline, constants.HF_HUB_OFFLINE) == (1, [not reachable], False)
    assert 1 <= asked[0] <= 10, "seconds"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            nn.Linear(2, 2).state_dict(),
            r"got the weights of one \(a dict of 2 tensors\)\. Load them: net.load_state_dict",
        ),
        (lambda x: x, "got a function, <lambda>. Put it into the forward of an nn.Module"),
        (3, "got 3. Give the nn.Module itself"),
    ],
)
def test_what_is_no_network_is_named(given: Any, told: str) -> None:
    with pytest.raises(ModelError, match=told):
        tree_of(given)
