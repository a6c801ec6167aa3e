"""Laws of wrappers: each agrees with the plain loop over its members, they nest, and none of them breaks soundness."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import by_hand
import numpy as np
import pytest
import torch
from by_hand import Linear2, Sometimes
from hypothesis import given, settings
from hypothesis import strategies as st
from simulate import most_failures
from torch import Tensor, nn
from toys import draws_of, votes_of

import ringfence as rf
from ringfence.classifiers import (
    PROBABILITIES,
    HardVote,
    KConsensus,
    Lanes,
    MaxMargin,
    Members,
    Normalize,
    SoftmaxVote,
    SoftVote,
    Weighted,
    score,
)
from ringfence.classifiers.base import Classifier
from ringfence.classifiers.denoised import Denoised
from ringfence.classifiers.patches import Chunks, Clips
from ringfence.data import Input
from ringfence.procedures import Procedure
from ringfence.sampling import ForwardPlan

WEIGHTS = [0.5, 0.0, 1.5, 1.0, 2.0]
MEMBERS = [Linear2(4, seed) for seed in range(5)]

Vote = Callable[[Sequence[by_hand.Row]], int]
Build = Callable[[Sequence[nn.Module]], Classifier]


def in_waves(ensemble: KConsensus) -> KConsensus:
    """As a forward plan with fused members sets it."""
    ensemble.wave = 3
    return ensemble


WRAPPERS: dict[str, tuple[Build, Vote]] = {
    "soft": (SoftVote, by_hand.soft),
    "softmax": (SoftmaxVote, by_hand.softmax_vote),
    "hard": (HardVote, by_hand.hard),
    "max-margin": (MaxMargin, by_hand.max_margin),
    "weighted logits": (
        lambda m: Weighted(m, WEIGHTS[: len(m)]),
        lambda r: by_hand.weighted(r, WEIGHTS[: len(r)], "logits"),
    ),
    "weighted softmax": (
        lambda m: Weighted(m, WEIGHTS[: len(m)], "softmax"),
        lambda r: by_hand.weighted(r, WEIGHTS[: len(r)], "softmax"),
    ),
    "consensus 1": (lambda m: KConsensus(m, 1), lambda r: by_hand.consensus(r, 1)[0]),
    "consensus 2": (lambda m: KConsensus(m, 2, micro_batch=3), lambda r: by_hand.consensus(r, 2)[0]),
    "consensus 2 in waves": (lambda m: in_waves(KConsensus(m, 2)), lambda r: by_hand.consensus(r, 2)[0]),
    "consensus all": (lambda m: KConsensus(m, len(m)), by_hand.soft),
}
EVERY = pytest.mark.parametrize("name", WRAPPERS)
READS_PROBABILITIES = ("softmax", "hard", "max-margin", "weighted softmax")


def points(count: int, seed: int = 0) -> Tensor:
    return torch.randn(count, 1, 1, 2, generator=torch.Generator().manual_seed(seed))


@torch.inference_mode()
def classes(classifier: nn.Module, x: Tensor) -> list[int]:
    return classifier.eval()(x).argmax(-1).tolist()  # type: ignore[no-any-return]


@EVERY
@pytest.mark.parametrize("count", [1, 2, 5])
def test_every_wrapper_is_the_plain_loop(name: str, count: int) -> None:
    if name.startswith("consensus 2") and count == 1:
        pytest.skip("one member cannot be two that agree")
    build, vote = WRAPPERS[name]
    x = points(300, seed=count)
    assert classes(build(MEMBERS[:count]), x) == [vote(rows) for rows in by_hand.rows_of(MEMBERS[:count], x)]


@given(
    agree=st.integers(1, 5),
    micro_batch=st.one_of(st.none(), st.integers(1, 80)),
    parts=st.integers(1, 6),
    count=st.integers(1, 70),
    seed=st.integers(0, 9),
)
@settings(max_examples=60, deadline=None)
def test_consensus_asks_whom_it_says_at_any_micro_batch(
    agree: int, micro_batch: int | None, parts: int, count: int, seed: int
) -> None:
    x = points(count, seed)
    ensemble = KConsensus(MEMBERS, agree, micro_batch).eval()
    ensemble.parts = parts
    with torch.inference_mode():
        answer = score(ensemble, x)
    expected = [by_hand.consensus(rows, agree) for rows in by_hand.rows_of(MEMBERS, x)]
    asked = torch.as_tensor(answer.work).expand(count)
    assert list(zip(answer.scores.argmax(-1).tolist(), asked.tolist(), strict=True)) == expected


def test_lanes_are_the_separate_classifiers() -> None:
    x = points(200)
    votes = ["soft", "softmax", "hard", "max-margin", "weighted"]
    lanes = Lanes(MEMBERS, votes, prefixes=True, singles=True, consensus=(1, 2, 5), weights=WEIGHTS, on="softmax")
    alone: dict[str, nn.Module] = {f"member-{i + 1}": member for i, member in enumerate(MEMBERS)}
    for vote in votes[:-1]:
        alone |= {f"{vote}-{k}": WRAPPERS[vote][0](MEMBERS[:k]) for k in range(1, 6)}
    alone["weighted-5"] = Weighted(MEMBERS, WEIGHTS, "softmax")
    alone |= {f"consensus-{k}": KConsensus(MEMBERS, k) for k in (1, 2, 5)}
    assert list(lanes.names) == list(alone)
    with torch.inference_mode():
        together = score(lanes.eval(), x)
        for place, module in enumerate(alone.values()):
            apart = score(module.eval(), x)
            torch.testing.assert_close(together.scores[:, place], apart.scores, rtol=1e-6, atol=1e-6)
            work = torch.as_tensor(apart.work).expand(len(x))
            assert (torch.as_tensor(together.work)[:, place] == work).all()


@EVERY
@pytest.mark.parametrize("inner", WRAPPERS)
def test_everything_nests_with_everything(name: str, inner: str) -> None:
    """A wrapper around wrappers around normalised members is the loop around loops around loops."""
    groups = [MEMBERS[:2], MEMBERS[2:4], MEMBERS[1:4]]
    members = [WRAPPERS[inner][0]([Normalize(one, [0.2], [0.7]) for one in group]) for group in groups]
    outer = Normalize(WRAPPERS[name][0](members), [0.1], [1.3])
    x = points(40, seed=3)
    level = (x - 0.1) / 1.3
    with torch.inference_mode():
        # Scores of the inner level by the wrapper itself, row by row: its own law is above.
        rows = by_hand.rows_of([one.eval() for one in members], level)
        if members[0].kinds == PROBABILITIES and name in READS_PROBABILITIES:
            # The logarithms of probabilities are logits, of which the loops take the softmax.
            rows = [[[math.log(max(value, 1e-30)) for value in row] for row in each] for each in rows]
        assert classes(outer, x) == [WRAPPERS[name][1](row) for row in rows]
        work = torch.as_tensor(score(outer.eval(), x).work).expand(len(x))
    assert (work <= 7).all()
    assert (work >= 1).all()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@EVERY
def test_a_row_is_invalid_where_a_member_that_was_asked_is(name: str, bad: float) -> None:
    members = [*MEMBERS[:4], Sometimes(MEMBERS[4], 0.3, bad)]
    x = points(300)
    broken = x.flatten(1)[:, 0] > 0.3
    with torch.inference_mode():
        answer = score(WRAPPERS[name][0](members).eval(), x)
        healthy = WRAPPERS[name][0](MEMBERS).eval()(x)
    asked = torch.as_tensor(answer.work).expand(len(x)) == 5
    invalid = ~torch.isfinite(answer.scores).all(1)
    assert (invalid == (broken & asked)).all()
    assert bool(invalid.any()) == (name != "consensus 1")
    torch.testing.assert_close(answer.scores[~invalid], healthy[~invalid])


@pytest.mark.parametrize("normalised", [False, True])
def test_stacked_is_the_loop_up_to_rounding(normalised: bool) -> None:
    networks: list[nn.Module] = [rf.load_model(f"default:{k}").module for k in range(3)]
    if normalised:
        networks = [Normalize(one, [0.1 * k], [1 + 0.2 * k]) for k, one in enumerate(networks)]
    members = Members(networks).eval()
    x = torch.rand(20, 1, 28, 28, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        loop = score(members, x)
        members.use_stack(True)
        stacked = score(members, x)
    torch.testing.assert_close(stacked.scores, loop.scores, rtol=1e-4, atol=1e-4)
    assert stacked.work == loop.work == 3


# Soundness through torch ---------------------------------------------------------------------------------------

ALPHA, SIGMA, INPUTS = 0.1, 0.5, 300
PLACE = torch.tensor([[[0.25, 0.1]]])


def truth(classifier: nn.Module, sigma: float) -> Tensor:
    """P(class k) under noise at PLACE, (lanes, K), by brute force on a fine grid of the plane."""
    axis = torch.linspace(-5, 5, 501, dtype=torch.float64)
    weight = torch.exp(-0.5 * axis**2)
    weight = weight / weight.sum()
    grid = torch.cartesian_prod(axis, axis).float() * sigma
    with torch.inference_mode():
        scores = classifier.eval()((PLACE.flatten() + grid).reshape(-1, 1, 1, 2))
    scores = scores.unsqueeze(1) if scores.dim() == 2 else scores
    mass = (weight[:, None] * weight).flatten()
    votes = torch.nn.functional.one_hot(scores.argmax(-1), scores.shape[-1]).double()
    return torch.einsum("r,rlk->lk", mass, votes)


def _frames() -> nn.Module:
    """Classifies a single frame of a single pixel."""
    torch.manual_seed(3)
    return nn.Sequential(nn.Flatten(), nn.Linear(1, 4))


def _on_video(classifier: Classifier) -> nn.Module:
    """The plane's two coordinates as a video of two frames of one pixel."""
    return nn.Sequential(nn.Flatten(), nn.Unflatten(1, (2, 1, 1, 1)), classifier)


SINGLES: dict[str, Callable[[], nn.Module]] = {
    "lanes": lambda: Lanes(MEMBERS[:3], ("soft", "hard"), True),
    "denoised": lambda: Denoised(nn.Hardtanh(-0.3, 0.6), SoftVote(MEMBERS[:3])),
    "chunks": lambda: _on_video(Chunks(_frames(), 1)),
    "clips": lambda: _on_video(Clips(Chunks(_frames(), 1), 1, 2, reduce="max")),
}
"""What wraps one classifier, or gives several answers."""


@pytest.mark.parametrize("name", [*WRAPPERS, *SINGLES])
def test_wrapped_classifiers_fail_at_most_at_alpha(name: str) -> None:
    """p_a exceeds the true probability of the answer, or the answer is not the top class, at most at rate alpha."""
    classifier = SINGLES[name]() if name in SINGLES else WRAPPERS[name][0](MEMBERS[:3])
    known = truth(classifier, SIGMA).numpy()
    found = rf.certify(
        classifier,
        [Input(k, PLACE, None, "") for k in range(INPUTS)],
        noise=rf.Gaussian(SIGMA),
        procedure=rf.Fixed(ALPHA, n0=10, n=40),
        lanes=tuple(map(str, range(len(known)))),
        seed=7,
        execution=rf.Execution(device="cpu", plan=ForwardPlan(128)),
    )
    wrong = np.zeros(len(known))
    claimed = np.zeros(len(known))
    for record in found:
        lane = int(record.lane)
        p = known[lane]
        claimed[lane] += not record.abstained
        wrong[lane] += not record.abstained and record.p_a > p[record.prediction] + 3e-3
    assert claimed.sum() > 0
    assert wrong.max() <= most_failures(INPUTS, ALPHA)


# Draws are counted by index --------------------------------------------------------------------------------------


class Says(nn.Module):
    """Class 1 where the first coordinate is below the edge, else the given class."""

    def __init__(self, otherwise: int, edge: float = 0.0) -> None:
        super().__init__()
        self.otherwise, self.edge = otherwise, edge

    def forward(self, x: Tensor) -> Tensor:
        answer = torch.where(x.flatten(1)[:, 0] < self.edge, 1, self.otherwise)
        return torch.eye(3, device=x.device)[answer]


@pytest.mark.parametrize(
    "procedure",
    [rf.Fixed(n=730), rf.Anytime(n=2000, look=50), rf.Sequential(0.1, n=3000, look=50)],
    ids=lambda one: one.name,
)
@pytest.mark.parametrize("batch", [7, 128])
def test_agreeing_draws_that_finish_first_are_not_counted_first(procedure: Procedure, batch: int) -> None:
    """Where the first two agree the class is always 1, elsewhere never: completion order would only see class 1."""
    ensemble = KConsensus([Says(0), Says(2), Says(2)], agree=2, micro_batch=5)
    x = torch.full((1, 1, 2), 0.3)
    items = [Input(k, x, None, "") for k in range(4)]
    noise = rf.Gaussian(0.5)
    found = rf.certify(
        ensemble, items, noise=noise, procedure=procedure, seed=5,
        execution=rf.Execution(device="cpu", plan=ForwardPlan(batch)),
    )  # fmt: skip
    for record in found:
        for stage in record.stages:
            drawn = draws_of(noise, (1, 1, 2), 5, record.input_id, stage.stage, stage.start, stage.draws)
            with torch.inference_mode():
                expected = votes_of(ensemble, x + drawn, 3)
                asked = score(ensemble, x + drawn).work
            assert (stage.cells["votes"] == expected).all()
            assert 0 < expected[1] < stage.draws
            assert stage.cells["forwards"][0] == int(torch.as_tensor(asked).sum())
        assert record.forwards == sum(int(stage.cells["forwards"][0]) for stage in record.stages)
