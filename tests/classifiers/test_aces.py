"""ACES as a classifier: what is measured, what is counted for every threshold, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from toys import Buckets

from ringfence.classifiers import Aces, EntropySelector, NetworkSelector, score
from ringfence.errors import ArgumentError, ClassifierError
from ringfence.sampling import Selection, readouts

GRID = [round(0.05 * k, 2) for k in range(21)]


class Constant(nn.Module):
    """The same scores for every row."""

    def __init__(self, *scores: float) -> None:
        super().__init__()
        self.scores = torch.tensor(scores)

    def forward(self, x: Tensor) -> Tensor:
        return self.scores.expand(len(x), -1)


def counted(scores: Tensor, thetas: list[float]) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
    """What the engine would count, by the plain way: add one per cell."""
    readout = Selection(tuple(thetas))
    cells = readout.cells(scores)
    assert cells.shape == (len(scores), 1, 2)
    width = readout.width(scores.shape[2], 2)
    return dict(readout.unfold(np.bincount(cells.flatten().numpy(), minlength=width)[None]))


def test_entropy_has_base_k_and_lies_in_0_1() -> None:
    selector = EntropySelector(0.5)
    scores = torch.tensor([[0.0, 0.0, 0.0], [100.0, 0.0, 0.0], [math.log(2), math.log(2), -1e4], [1e30, 0.0, 0.0]])
    value, work = selector.measure(torch.zeros(4, 1), scores)
    assert value.tolist() == pytest.approx([1.0, 0.0, math.log(2) / math.log(3), 0.0], abs=1e-6)
    assert ((value >= 0) & (value <= 1)).all()
    assert work == 0
    assert value.dtype == torch.float32
    invalid = selector.measure(torch.zeros(2, 1), torch.tensor([[math.nan, 0.0], [math.inf, 0.0]])).value
    assert invalid.isnan().all()


def test_a_network_selects_by_its_core_output() -> None:
    value, work = NetworkSelector(Constant(0.0, math.log(3)), 0.5).measure(torch.zeros(2, 1), torch.zeros(2, 10))
    assert value.tolist() == pytest.approx([0.25, 0.25])
    assert work == 1


def test_counts_agree_with_one_classifier_per_theta() -> None:
    torch.manual_seed(0)
    logits = 4 * torch.randn(5000, 3)
    aces = Aces(nn.Identity(), EntropySelector(GRID), nn.Identity())
    found = counted(score(aces, logits).scores, GRID)
    entropy = EntropySelector(GRID).measure(logits, logits).value
    for lane, theta in enumerate(GRID):
        selected = int((entropy <= torch.tensor(theta)).sum()) if theta else 0
        assert found["bits"][lane].tolist() == [5000 - selected, selected, 0]
        assert found["votes"][lane].tolist() == [*np.bincount(logits.argmax(1).numpy(), minlength=3), 0]


def test_theta_0_selects_nothing_and_theta_1_everything() -> None:
    scores = torch.zeros(4, 2, 5)
    scores[:, 1] = torch.tensor([0.0, 0.5, 1.0, 1e-38])[:, None]
    found = counted(scores, [0.0, 0.5, 1.0])
    assert found["bits"].tolist() == [[4, 0, 0], [1, 3, 0], [0, 4, 0]]


def test_invalid_values_are_neither_bit_and_no_class() -> None:
    scores = torch.zeros(3, 2, 4)
    scores[0], scores[1, 0, 0] = math.nan, math.inf
    found = counted(scores, [0.0, 1.0])
    assert found["bits"].tolist() == [[2, 0, 1], [0, 2, 1]]
    assert found["votes"][0].tolist() == [1, 0, 0, 0, 2]


def test_many_rows_unfold_with_thetas_fastest() -> None:
    readout = Selection((0.2, 0.6))
    rows = np.array([[5, 5, 0, 3, 4, 2, 1], [1, 9, 0, 10, 0, 0, 0]])
    cells = readout.unfold(rows)
    assert cells["bits"].tolist() == [[6, 3, 1], [2, 7, 1], [0, 10, 0], [0, 10, 0]]
    assert cells["votes"].tolist() == [[5, 5, 0], [5, 5, 0], [1, 9, 0], [1, 9, 0]]


def test_lanes_are_named_after_their_theta() -> None:
    assert Aces(nn.Identity(), EntropySelector([0, 0.35, 0.125, 1][::2]), nn.Identity()).names == (
        "theta=0.00",
        "theta=0.125",
    )
    assert Aces(nn.Identity(), EntropySelector(0.35), nn.Identity()).names == ("theta=0.35",)


def test_the_core_sees_the_clean_input() -> None:
    aces = Aces(Buckets(), EntropySelector(0.5), Buckets((0.2, 0.4, 0.6)))
    assert aces.facts(aces.clean_scores(torch.tensor([[0.5], [0.1]]))) == [{"core": 2}, {"core": 0}]


@pytest.mark.parametrize("thetas", [[-0.1], [0.5, 1.01], [math.nan], []])
def test_thetas_lie_between_0_and_1(thetas: list[float]) -> None:
    with pytest.raises(ArgumentError, match=r"thetas: must lie in \[0, 1\]"):
        EntropySelector(thetas)


def test_thetas_ascend() -> None:
    with pytest.raises(ArgumentError, match="must ascend"):
        EntropySelector([0.5, 0.2])


def test_parts_that_do_not_fit_are_refused() -> None:
    x = torch.zeros(1)
    with pytest.raises(ClassifierError, match=r"select: must return two scores .* got shape \(1, 3\)"):
        score(Aces(Buckets(), NetworkSelector(Constant(0.0, 1.0, 2.0), 0.5), Buckets()), x[None])
    with pytest.raises(ClassifierError, match="core: must have the certification network's 4 classes"):
        Aces(Buckets(), EntropySelector(0.5), Buckets((0.0,))).clean_scores(x[None])
    with pytest.raises(ClassifierError, match="core: must return finite scores"):
        Aces(Buckets(), EntropySelector(0.5), Constant(math.nan, 0.0, 0.0, 0.0)).clean_scores(x[None])
    with pytest.raises(ArgumentError, match="ACES procedures certify an Aces classifier; got Buckets"):
        readouts(("selection",), Buckets())
