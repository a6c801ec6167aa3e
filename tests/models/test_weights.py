from __future__ import annotations

import pickle
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from ringfence.classifiers.architectures import LeNet
from ringfence.errors import ModelError
from ringfence.models.identity import state_digest
from ringfence.models.weights import WeightsWarning, fit_weights, read_weights, split_weights


def test_first_differing_key_is_named() -> None:
    state = LeNet().state_dict()
    del state["features.3.bias"]
    with pytest.raises(ModelError, match=r"w\.pt: must fit.*'features\.3\.bias' missing"):
        fit_weights(LeNet(), state, "w.pt")
    with pytest.raises(ModelError, match=r"'head\.5\.weight' of shape \(7, 84\) where the model has \(10, 84\)"):
        fit_weights(LeNet(), LeNet(7).state_dict(), "w.pt")
    with pytest.raises(ModelError, match=r"unexpected key 'extra'"):
        fit_weights(LeNet(), {**LeNet().state_dict(), "extra": torch.ones(1)}, "w.pt")


def test_nothing_is_copied_when_weights_do_not_fit() -> None:
    model, other = LeNet(), LeNet()
    before = state_digest(model)
    with pytest.raises(ModelError):
        fit_weights(model, {**other.state_dict(), "extra": torch.ones(1)}, "w.pt")
    assert state_digest(model) == before


def test_batch_counters_may_be_missing() -> None:
    model = nn.BatchNorm2d(2)
    state = {key: value + 1 for key, value in model.state_dict().items() if key != "num_batches_tracked"}
    fit_weights(model, state, "w.pt")
    assert model.running_var is not None
    assert model.running_var.tolist() == [2, 2]


def test_half_precision_weights_become_the_models_own() -> None:
    model = LeNet()
    fit_weights(model, {key: value.half() for key, value in LeNet().state_dict().items()}, "w.pt")
    assert all(value.dtype == torch.float32 for value in model.state_dict().values())


class Trap:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (Path.touch, (Path("sprung"),))  # type: ignore[return-value]


def test_pickle_of_something_else_is_refused_and_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"state_dict": {"w": torch.ones(1)}, "trap": Trap()}, "trap.pt")
    Path("raw.pt").write_bytes(pickle.dumps(Trap()))
    torch.save(LeNet(), "module.pt")
    for name in ("trap.pt", "raw.pt", "module.pt"):
        with pytest.raises(ModelError, match=r"plain tensors|PyTorch checkpoint"):
            read_weights(Path(name))
    assert not Path("sprung").exists()


@pytest.mark.parametrize("name", ["w.pt", "w.safetensors"])
@pytest.mark.parametrize("content", [b"", b"not weights at all", b"PK\x03\x04 torn"])
def test_damaged_files_are_model_errors(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ModelError, match=name):
        read_weights(tmp_path / name)


@pytest.mark.parametrize("content", [[1, 2], {"state_dict": {"epoch": 3}}, {}])
def test_files_without_a_state_dict_are_refused(tmp_path: Path, content: object) -> None:
    torch.save(content, tmp_path / "w.pt")
    with pytest.raises(ModelError, match="state dict"):
        read_weights(tmp_path / "w.pt")


def test_digest_sees_names_types_shapes_and_bytes() -> None:
    linear = nn.Linear(2, 2)
    digests = {state_digest(linear), state_digest(nn.Sequential(linear)), state_digest(linear, b"graph")}
    digests.add(state_digest(nn.Linear(2, 2).double()))
    with torch.no_grad():
        linear.bias[1] += 1e-6
    digests.add(state_digest(linear))
    assert len(digests) == 5
    assert state_digest(nn.BatchNorm1d(1).to(torch.bfloat16))


def test_one_word_names_a_network_and_its_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for spec, parts in {
        "resnet20@w.pt": ("resnet20", "w.pt"),
        "lenet@/a@b/c:d/w.pt": ("lenet", "/a@b/c:d/w.pt"),
        "fdncnn-0.25@w.pt": ("fdncnn-0.25", "w.pt"),
        "/a@b/nets.py:make@w.pt": ("/a@b/nets.py:make", "w.pt"),
        "/a@b/nets.py:make": ("/a@b/nets.py:make", None),
        "/a@b/w.safetensors": ("/a@b/w.safetensors", None),
        "default": ("default", None),
        "lenet@": ("lenet@", None),
    }.items():
        assert split_weights(spec) == parts
    monkeypatch.chdir(tmp_path)
    Path("mine@home.pt").touch()
    assert split_weights("mine@home.pt") == ("mine@home.pt", None)


@pytest.mark.parametrize("beside", ["ema", "state_dict_ema", "model_ema"])
def test_which_of_several_weights_is_certified_is_said(tmp_path: Path, beside: str) -> None:
    """A running average is another network than the last weights; a certificate is about one of them."""
    last, average = nn.Linear(2, 2).state_dict(), nn.Linear(2, 2).state_dict()
    torch.save({"state_dict": last, beside: {**average, "n_averaged": torch.tensor(3)}}, tmp_path / "both.pt")
    with pytest.warns(WeightsWarning, match=f"under 'state_dict' are taken, not those under '{beside}'"):
        found = read_weights(tmp_path / "both.pt")
    assert torch.equal(found.state["weight"], last["weight"])
    torch.save({"state_dict": last, "optimizer": {"state": {0: average["bias"]}}, "epoch": 3}, tmp_path / "one.pt")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_weights(tmp_path / "one.pt")
