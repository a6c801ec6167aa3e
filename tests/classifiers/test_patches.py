"""Patches agree with the plain loop over patches, count their work, and never hide an invalid patch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from ringfence.classifiers import KConsensus, Lanes, SoftVote
from ringfence.classifiers.base import Classifier
from ringfence.classifiers.patches import Crops, Patches
from ringfence.errors import ArgumentError, ClassifierError
from ringfence.lift import MODES, noise_place
from ringfence.operators import AlreadyCut

CROPS = Crops(size=8, resize=11, count=4)


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(2 * 8 * 8, 5)).eval()


@pytest.fixture
def x() -> Tensor:
    torch.manual_seed(1)
    return torch.rand(6, 2, 10, 10)


LOOPS: dict[str, Callable[[list[Tensor]], Tensor]] = {
    "mean": lambda parts: sum(parts[1:], parts[0]) / len(parts),
    "max": lambda parts: torch.stack([part.softmax(-1) for part in parts]).amax(0),
}


@pytest.mark.parametrize("reduce", ["mean", "max"])
def test_reducing_is_the_loop(reduce: str, x: Tensor) -> None:
    net = network()
    patches = CROPS(x)
    expected = LOOPS[reduce]([net(patches[:, i]) for i in range(4)])
    scored = Patches(net, CROPS, reduce).score(x)  # type: ignore[arg-type]
    torch.testing.assert_close(scored.scores, expected)
    assert scored.work == 4
    torch.testing.assert_close(Patches(net, AlreadyCut(), reduce)(patches), expected)  # type: ignore[arg-type]


def test_all_patches_run_as_one_batch(x: Tensor) -> None:
    seen: list[int] = []

    class Spy(nn.Module):
        def forward(self, batch: Tensor) -> Tensor:
            seen.append(len(batch))
            return batch.flatten(1)[:, :3]

    Patches(Spy(), CROPS)(x)
    assert seen == [24]


@pytest.mark.parametrize("sampling", ["dense", "random"])
@pytest.mark.parametrize("mode", MODES)
def test_what_follows_the_noise_compiles_as_one_graph(mode: str, sampling: str, x: Tensor) -> None:
    crops = Crops(size=8, resize=11, count=4, sampling=sampling)  # type: ignore[arg-type]
    lift, rest = noise_place(mode, crops, (2, 10, 10))
    lifted = torch.stack([lift.at(one, key) for key, one in enumerate(x)])
    patches = Patches(network(), rest)
    compiled = torch.compile(patches, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(lifted), patches(lifted))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("reduce", ["mean", "max"])
def test_one_invalid_patch_makes_the_row_invalid(bad: float, reduce: str) -> None:
    class Echo(nn.Module):
        def forward(self, batch: Tensor) -> Tensor:
            return batch

    scores = torch.rand(3, 4, 5)
    scores[1, 2, 3] = bad
    found = Patches(Echo(), AlreadyCut(), reduce)(scores)  # type: ignore[arg-type]
    assert torch.isfinite(found).all(1).tolist() == [True, False, True]
    assert not torch.isfinite(found[1]).any()


def test_ensembles_nest_and_their_work_adds_up(x: Tensor) -> None:
    members = [network(seed) for seed in range(3)]
    assert Patches(SoftVote(members), CROPS).score(x).work == 12
    lanes = Patches(Lanes(members, prefixes=True), CROPS).score(x)
    assert lanes.scores.shape == (6, 3, 5)
    assert isinstance(lanes.work, Tensor)
    assert lanes.work.tolist() == [[4, 8, 12]] * 6
    torch.testing.assert_close(lanes.scores[:, 2], Patches(SoftVote(members), CROPS)(x))
    consensus: Classifier = Patches(KConsensus(members, 2), CROPS)
    work = consensus.score(x).work
    assert isinstance(work, Tensor)
    assert work.shape == (6,)
    assert 8 <= int(work.min()) <= int(work.max()) <= 12


def test_bad_input(x: Tensor) -> None:
    with pytest.raises(ArgumentError, match="reduce: must be mean or max; got 'median'"):
        Patches(network(), CROPS, "median")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="must not be larger than the image"):
        Patches(network(), Crops(size=12))(x)
    with pytest.raises(ClassifierError, match="must be a batch of stacked patches"):
        Patches(network(), AlreadyCut())(x[:, 0, 0])
