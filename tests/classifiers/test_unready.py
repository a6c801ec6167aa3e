"""Lazy modules, and iterators that end inside a model: refused with a remedy, wherever the module comes from."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import ringfence as rf
from ringfence.errors import ClassifierError, ModelError


def certified(network: nn.Module) -> list[rf.Record]:
    x = torch.rand(2, 1, 2, 2)
    return list(rf.certify(network, x, noise=rf.Gaussian(0.5), procedure=rf.Fixed(n=50, n0=10)))


@pytest.mark.parametrize("training", [False, True])
def test_lazy_weights_are_refused_until_a_batch_has_made_them(training: bool) -> None:
    network = nn.Sequential(nn.Flatten(), nn.LazyLinear(3)).train(training)
    with pytest.raises(ClassifierError, match=r"'1\.weight' of a lazy module .* Run one batch through it first"):
        certified(network)
    network(torch.rand(1, 1, 2, 2))
    assert len(certified(network)) == 2


@pytest.mark.parametrize("tree", ["{}", "denoised({}, default)"])
def test_lazy_weights_of_a_factory_are_refused(tree: str, tmp_path: Path) -> None:
    path = tmp_path / "lazy.py"
    path.write_text("from torch import nn\ndef build():\n    return nn.Sequential(nn.Flatten(), nn.LazyLinear(3))\n")
    with pytest.raises(ModelError, match="Run one batch through it first"):
        rf.load_model(tree.format(f"{path}:build"))


class Exhausted(nn.Module):
    """Reads one more value from an iterator at every batch."""

    def __init__(self, batches: int) -> None:
        super().__init__()
        self.left = iter(range(batches))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        next(self.left)
        return x.flatten(1)


@pytest.mark.parametrize("batches", [0, 1, 3, 10])
def test_an_iterator_that_ends_inside_the_model_is_an_error_of_the_model(batches: int) -> None:
    with pytest.raises(ClassifierError, match="StopIteration"):
        certified(Exhausted(batches).eval())
