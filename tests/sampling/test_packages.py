from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ringfence.classifiers import fold_batch_norm
from ringfence.classifiers.architectures import resnet
from ringfence.classifiers.reshaping import reshaped
from ringfence.sampling import ForwardPlan, packages
from ringfence.sampling.packages import Packaged


class Own(nn.Module):
    """Code of a user, which may call what no digest sees."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.network(x)
        return scores


def refused(x: Tensor) -> Tensor:
    raise AssertionError(f"the compiler was asked about {tuple(x.shape)}")


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> nn.Module:
    monkeypatch.setenv(packages.FOLDER, str(tmp_path / "kept"))
    torch.manual_seed(0)
    return resnet(8).eval()


PLAN, X = ForwardPlan(4, compile=True, fold=True), torch.rand(4, 3, 32, 32)


def made_by_hand(one: Packaged, x: Tensor, path: Path) -> None:
    """What a compiler would have made."""
    path.parent.mkdir(exist_ok=True)
    path.write_text("a package")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="packages need a compiler for C++")
def test_a_package_answers_as_its_network_and_is_made_once(network: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    form = fold_batch_norm(reshaped(network), joined=True)
    with torch.inference_mode():
        first = Packaged(form, network, PLAN, refused)(X)
        monkeypatch.setattr(Packaged, "_make", refused)
        again = Packaged(form, network, PLAN, refused)(X)
        torch.testing.assert_close(first, network(X))
        assert torch.equal(again, first)


def test_a_package_is_of_one_network_one_form_and_one_batch(network: nn.Module) -> None:
    names = {Packaged(network, network, PLAN, refused)._name(X)}
    names.add(Packaged(network, network, ForwardPlan(4, compile=True), refused)._name(X))
    names.add(Packaged(network, network, PLAN, refused)._name(X[:2]))
    names.add(Packaged(network, network, PLAN, refused)._name(X.contiguous(memory_format=torch.channels_last)))
    assert Packaged(network, network, PLAN, refused)._name(X.clone()) in names
    with torch.no_grad():
        network.linear.bias[0] += 1  # type: ignore[operator, index]
    names.add(Packaged(network, network, PLAN, refused)._name(X))
    assert len(names) == 5


def test_what_no_package_can_be_made_of_or_was_not_made_for_is_compiled(
    network: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*given: object) -> None:
        raise RuntimeError("no compiler here")

    asked: list[int] = []

    def compiled(x: Tensor) -> Tensor:
        asked.append(len(x))
        return x

    monkeypatch.setattr(Packaged, "_make", fails)
    one = Packaged(network, network, PLAN, compiled)
    assert [len(one(X)), len(one(X))] == [4, 4]
    monkeypatch.setattr(Packaged, "_make", made_by_hand)
    monkeypatch.setattr(packages, "loaded", lambda path, device: lambda x: x + 1)
    two = Packaged(network, network, PLAN, compiled)
    assert torch.equal(two(X), X + 1)
    assert torch.equal(two(X[:3]), X[:3])
    assert asked == [4, 4, 3]
    assert torch.equal(two(grey := X.contiguous(memory_format=torch.channels_last)), grey)
    assert asked == [4, 4, 3, 4]


def test_of_a_users_own_code_no_package_is_kept(network: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Packaged, "_make", made_by_hand)
    monkeypatch.setattr(packages, "loaded", lambda path, device: lambda x: x + 1)
    assert torch.equal(Packaged(network, network, PLAN, refused)(X), X + 1)
    own = Own(network)
    assert torch.equal(Packaged(own, own, PLAN, lambda x: x)(X), X)


def test_how_a_side_of_one_is_laid_out_makes_no_difference() -> None:
    grey = torch.rand(4, 1, 5, 5)
    other = torch.empty_like(grey, memory_format=torch.channels_last)
    assert grey.stride() != other.stride()
    assert packages.kind_of(grey) == packages.kind_of(other) != packages.kind_of(grey.transpose(2, 3))


def test_where_nothing_is_to_be_kept_nothing_is(network: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(packages.FOLDER, "")
    monkeypatch.setattr(Packaged, "_make", refused)
    assert torch.equal(Packaged(network, network, PLAN, lambda x: x)(X), X)
