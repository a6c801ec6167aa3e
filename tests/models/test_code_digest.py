"""The digest of a model covers the code that computes its scores, wherever that lies."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from ringfence.classifiers import Aces, KConsensus, Normalize, SoftVote
from ringfence.classifiers.aces import NetworkSelector
from ringfence.classifiers.architectures.lenet import LeNet
from ringfence.classifiers.architectures.resnet import resnet
from ringfence.digests import changes, difference, joined, read_digest
from ringfence.models import code as code_module
from ringfence.models import load_model, model_digest

NETS = """
from torch import nn
class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 2)
        nn.init.ones_(self.inner.weight), nn.init.zeros_(self.inner.bias)
    def forward(self, x):
        return self.inner(x) * 2
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """nets.py holds a class, make.py a factory that imports it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "nets_of_mine.py").write_text(NETS)
    (tmp_path / "make.py").write_text("from nets_of_mine import Scaled\ndef build():\n    return Scaled()\n")
    return tmp_path


def digest(project: Path) -> str:
    sys.modules.pop("nets_of_mine", None)
    return load_model(f"{project / 'make.py'}:build").digest


def test_the_class_that_computes_is_covered_though_its_weights_stay(project: Path) -> None:
    before = digest(project)
    assert digest(project) == before
    (project / "nets_of_mine.py").write_text(NETS.replace("* 2", "* -2"))
    assert changes(digest(project), before) == "model code"


def test_the_file_of_the_factory_is_covered(project: Path) -> None:
    before = digest(project)
    (project / "make.py").write_text((project / "make.py").read_text() + "# another word\n")
    assert changes(digest(project), before) == "model code"


def test_a_module_is_covered_like_a_file(project: Path) -> None:
    before = load_model("nets_of_mine:Scaled").digest
    sys.modules.pop("nets_of_mine", None)
    (project / "nets_of_mine.py").write_text(NETS.replace("* 2", "* -2"))
    assert changes(load_model("nets_of_mine:Scaled").digest, before) == "model code"
    sys.modules.pop("nets_of_mine", None)


def test_weights_are_named_apart_from_code(project: Path) -> None:
    before = digest(project)
    (project / "nets_of_mine.py").write_text(NETS.replace("ones_", "zeros_"))
    assert changes(digest(project), before) == "weights, model code"


def test_hooks_and_functions_in_the_place_of_methods_are_code() -> None:
    plain = nn.Linear(2, 2)
    hooked, patched = nn.Linear(2, 2), nn.Linear(2, 2)
    for one in (hooked, patched):
        one.load_state_dict(plain.state_dict())
    hooked.register_forward_hook(lambda module, x, y: -y)
    patched.forward = lambda x: x  # type: ignore[method-assign]
    assert "code" not in (read_digest(model_digest(plain)) or {})
    for one in (hooked, patched):
        assert changes(model_digest(one), model_digest(plain)) == "model code"


def test_classes_without_a_file_are_covered_by_their_bytecode() -> None:
    def built(factor: str) -> nn.Module:
        space: dict[str, type[nn.Module]] = {"nn": nn, "__name__": "__main__"}  # type: ignore[dict-item]
        source = f"class Net(nn.Module):\n    def forward(self, x):\n        return x * {factor}\n"
        exec(compile(source, "<cell>", "exec"), space)
        space["Net"].__module__ = "no_such_module"
        return space["Net"]()

    assert model_digest(built("2")) == model_digest(built("2"))
    assert changes(model_digest(built("3")), model_digest(built("2"))) == "model code"


def test_our_own_networks_count_by_name_and_version_never_by_source(monkeypatch: pytest.MonkeyPatch) -> None:
    before = load_model("default").digest
    assert "code" not in (read_digest(before) or {})
    monkeypatch.setattr(code_module, "OURS", "another")
    assert changes(load_model("default").digest, before) == "Ringfence's own networks (another kind or version)"


@pytest.mark.parametrize(
    ("made", "ours"),
    [
        (LeNet, "9c7baf523c54a500fdb75d818b9a5f23"),
        (lambda: Normalize(resnet(8), (0.0,) * 3, (1.0,) * 3), "e7d3924f121cc83c4d71b03bd156827c"),
        (lambda: SoftVote([LeNet(), LeNet()]), "c69492c609c1e7a49563a61dc4fe64d3"),
        (lambda: Aces(LeNet(), LeNet(), NetworkSelector(LeNet(2), 0.5)), "8a8a2c564550377125dba8d260b99501"),
    ],
)
def test_a_change_of_how_our_classes_are_built_leaves_runs_that_exist(made: Callable[[], nn.Module], ours: str) -> None:
    assert (read_digest(model_digest(made())) or {})["ours"] == ours


def test_what_a_consensus_holds_stays_as_it_is_in_runs_that_exist() -> None:
    """Of one that a program made all attributes are part of the digest: another one, and no run could be continued."""
    held = vars(KConsensus([LeNet(), LeNet(), LeNet()], 2)).keys() - vars(nn.Module()).keys()
    assert held == {"_gives", "micro_batch", "undecided", "parts", "wave"}


def test_a_program_is_its_file(tmp_path: Path) -> None:
    for name, factor in (("a", 2.0), ("b", -2.0)):

        class Net(nn.Module):
            factor: float

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return x.flatten(1)[:, :2] * self.factor

        net = Net()
        net.factor = factor
        torch.export.save(torch.export.export(net, (torch.zeros(2, 1, 2, 2),)), tmp_path / f"{name}.pt2")
    found = changes(load_model(str(tmp_path / "a.pt2")).digest, load_model(str(tmp_path / "b.pt2")).digest)
    assert found is not None
    assert "exported program" in found


def test_digests_of_earlier_runs_are_compared_where_they_covered_everything() -> None:
    now = load_model("default").digest
    assert changes(now, "5fba0dd43e9098af250ad35720d2d7e6") is None  # what committed runs of this network hold
    assert changes(now, "a" * 32) == "its contents"
    both = joined([now, now], "".join)
    assert read_digest(both)
    assert joined([now, load_model("default:1").digest], "".join) != both
    foreign = model_digest(nn.Sequential(_Mine()))
    told = difference("the model", foreign, "a" * 32) or ""
    assert "the model cannot be compared: the run is of an earlier version" in told
    assert "v1" not in (read_digest(joined([now, foreign], "".join)) or {})


class _Mine(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def test_code_without_a_file_has_one_digest_in_every_process() -> None:
    program = (
        "import sys; from torch import nn; from ringfence.models import model_digest\n"
        "class Net(nn.Module):\n"
        "    def forward(self, x): return x if 'b' in {'a', 'b', 'c', 'd', 'e'} else -x\n"
        "print(model_digest(Net()))"
    )
    run = [sys.executable, "-c", program]
    found = {
        subprocess.run(
            run, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1


@pytest.mark.parametrize(
    "kind", ["array", "scalar", "dict", "tensors", "set", "namespace", "partial", "closure", "hook"]
)
def test_what_the_instances_of_a_program_hold_is_part_of_it(kind: str) -> None:
    """A run continued with a network of other attributes would mix two classifiers."""

    def built(factor: float) -> nn.Module:
        kinds = {
            "array": np.array([factor]),
            "scalar": np.float32(factor),
            "dict": {"scale": {"by": [np.array(factor)]}},
            "tensors": [torch.tensor(factor)],
            "set": {factor},
            "namespace": SimpleNamespace(scale=factor),
            "partial": partial(torch.mul, other=factor),
            "closure": lambda x: x * factor,
        }
        net = nn.Identity()
        if kind == "hook":
            net.register_forward_hook(lambda module, x, y: y * factor)
        else:
            net.scale = kinds[kind]  # type: ignore[assignment]
        return net

    assert model_digest(built(2.0), structured=True) == model_digest(built(2.0), structured=True)
    found = changes(model_digest(built(3.0), structured=True), model_digest(built(2.0), structured=True))
    assert str(found).startswith("layers or attributes of the network")


def test_containers_that_hold_themselves_end() -> None:
    net, inside = nn.Identity(), list[object]()
    inside.append(inside)
    net.inside = inside  # type: ignore[assignment]
    assert model_digest(net, structured=True) == model_digest(net, structured=True)


def test_a_file_that_was_changed_within_a_second_is_the_file_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python takes the bytecode it kept for it: the old network would be certified under the digest of the new one."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "nets.py"
    text = NETS + "def build():\n    return Scaled()\n"
    scores = []
    for factor in (2, 3):
        file.write_text(text.replace("* 2", f"* {factor}"))
        os.utime(file, (1e9, 1e9))
        scores.append(load_model(f"{file}:build").module(torch.ones(1, 4))[0, 0].item())
    assert scores == [8.0, 12.0]


@pytest.mark.parametrize("edit", [("return x", "return -x"), ("return 1 + 0 * y", "return 2 + 0 * y")])
def test_a_file_that_was_edited_since_it_was_imported_is_not_what_runs(
    edit: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    file = tmp_path / "edited_since.py"
    text = "from torch import nn\nclass Net(nn.Module):\n    def forward(self, x):\n        return x\n"
    text += "def beside(y):\n    return 1 + 0 * y\n"
    file.write_text(text)
    imported = importlib.import_module("edited_since")
    monkeypatch.setitem(sys.modules, "edited_since", imported)
    before = model_digest(imported.Net())
    file.write_text(text.replace(*edit))
    old = model_digest(imported.Net())
    importlib.invalidate_caches()
    new = model_digest(importlib.reload(imported).Net())
    assert changes(old, new) == "model code"  # the next process runs the new one
    assert changes(new, before) == "model code"
    file.write_text(text)
    assert model_digest(importlib.reload(imported).Net()) == before
