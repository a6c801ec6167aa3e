"""Law: whatever reads probabilities sees those of the classifier, once, whether its scores are logits or probabilities.

Every vote and wrapper x every reader (the score histogram, both selectors, attacks, losses, learned weights), against
distributions written out row by row. A softmax too many flattens them: ten classes then lie between .09 and .22.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import by_hand
import pytest
import torch
from by_hand import Linear2, Row, Sometimes
from torch import Tensor, nn

import ringfence as rf
from ringfence.analysis.holdout import Holdout, equal_weights
from ringfence.attacks import smoothed_loss
from ringfence.classifiers import (
    Chunks,
    Classifier,
    Clips,
    Denoised,
    HardVote,
    KConsensus,
    Lanes,
    MaxMargin,
    Members,
    NetworkSelector,
    Normalize,
    Patches,
    Resized,
    SoftmaxVote,
    SoftVote,
    Weighted,
    kinds_of,
    score,
)
from ringfence.classifiers.aces import Aces
from ringfence.errors import ArgumentError
from ringfence.procedures import Softmax
from ringfence.sampling import ForwardPlan, readouts
from ringfence.training.data import Batch, TrainingNoise
from ringfence.training.objectives import build_objective
from ringfence.types import BINS, SCORE_EDGES

CLASSES = 10
MEMBERS = [Linear2(CLASSES, seed, spread=3.0) for seed in range(3)]
WEIGHTS = [0.5, 1.5, 1.0]
PIECES = ((0.0, 0.0), (0.2, -0.1), (-0.3, 0.4))
"""What the toy patches add to a point of the plane."""

Build = Callable[[Sequence[nn.Module]], nn.Module]
Distribution = Callable[[Sequence[Row]], Row]


def normalised(shares: Row) -> Row:
    return [share / sum(shares) for share in shares]


def hard(rows: Sequence[Row]) -> Row:
    ballots = [by_hand.top(row) for row in rows]
    ties = by_hand.mean([by_hand.softmax(row) for row in rows])
    return normalised([ballots.count(k) / len(rows) + ties[k] / (2 * len(rows)) for k in range(CLASSES)])


def max_margin(rows: Sequence[Row]) -> Row:
    def gap(shares: Row) -> float:
        first, second = sorted(shares, reverse=True)[:2]
        return first - second

    return max([by_hand.softmax(row) for row in rows], key=gap)


def weighted(rows: Sequence[Row]) -> Row:
    return [sum(w * v for w, v in zip(WEIGHTS, col, strict=True)) / sum(WEIGHTS) for col in zip(*rows, strict=True)]


def consensus(rows: Sequence[Row]) -> Row:
    agreed = by_hand.top(rows[0]) == by_hand.top(rows[1])
    return by_hand.softmax(by_hand.mean(rows[:2] if agreed else rows))


def softmaxes(rows: Sequence[Row]) -> list[Row]:
    return [by_hand.softmax(row) for row in rows]


VOTES: dict[str, tuple[Build, Distribution]] = {
    "plain network": (lambda m: m[0], lambda r: by_hand.softmax(r[0])),
    "soft": (SoftVote, lambda r: by_hand.softmax(by_hand.mean(r))),
    "softmax": (SoftmaxVote, lambda r: by_hand.mean(softmaxes(r))),
    "hard": (HardVote, hard),
    "max-margin": (MaxMargin, max_margin),
    "weighted logits": (lambda m: Weighted(m, WEIGHTS), lambda r: by_hand.softmax(weighted(r))),
    "weighted softmax": (lambda m: Weighted(m, WEIGHTS, "softmax"), lambda r: weighted(softmaxes(r))),
    "consensus": (lambda m: KConsensus(m, 2), consensus),
    "soft of probabilities": (
        lambda m: SoftVote([SoftmaxVote([m[0], m[1]]), SoftmaxVote([m[2]])]),
        lambda r: by_hand.mean([by_hand.mean(softmaxes(r[:2])), by_hand.softmax(r[2])]),
    ),
    "softmax of both kinds": (
        lambda m: SoftmaxVote([m[0], SoftmaxVote([m[1], m[2]])]),
        lambda r: by_hand.mean([by_hand.softmax(r[0]), by_hand.mean(softmaxes(r[1:]))]),
    ),
    "consensus of probabilities": (
        lambda m: KConsensus([SoftmaxVote([one]) for one in m], 3),
        lambda r: by_hand.mean(softmaxes(r)),
    ),
}


def pieces(x: Tensor) -> Tensor:
    """(B, 1, 1, 2) -> patches (B, 3, 1, 1, 2)."""
    return torch.stack([x + torch.tensor(piece) for piece in PIECES], 1)


def largest(distributions: Sequence[Row]) -> Row:
    return normalised([max(column) for column in zip(*distributions, strict=True)])


def video(x: Tensor) -> Tensor:
    """Every point as a video of two equal frames (B, 2, 1, 1, 2)."""
    return x.unsqueeze(1).expand(-1, 2, -1, -1, -1)


class Seen(Classifier):
    """A classifier of what a function makes of a batch."""

    def __init__(self, inner: nn.Module, made: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.inner, self.made = inner, made

    @property
    def kinds(self):  # type: ignore[no-untyped-def]
        return kinds_of(self.inner)

    def score(self, x: Tensor):  # type: ignore[no-untyped-def]
        return score(self.inner, self.made(x))


def chunked(inner: nn.Module) -> Chunks:
    """A classifier of points, made one of videos by its first frames."""
    return Chunks(Seen(inner, lambda x: x[:, 0]), 1)


WRAPPERS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "alone": lambda inner: inner,
    "normalised": lambda inner: Normalize(inner, [0.0], [1.0]),
    "resized": lambda inner: Resized(inner, (1, 2)),
    "denoised": lambda inner: Denoised(nn.Identity(), inner),
    "one patch, mean": lambda inner: Patches(inner, lambda x: x.unsqueeze(1)),
    "one patch, max": lambda inner: Patches(inner, lambda x: x.unsqueeze(1), "max"),
    "chunks": lambda inner: Seen(chunked(inner), video),
    "clips, mean": lambda inner: Seen(Clips(chunked(inner), 1, 2), video),
    "clips, max": lambda inner: Seen(Clips(chunked(inner), 1, 2, reduce="max"), video),
}
"""What leaves a distribution as it is: over equal parts the mean and the max are both the part's."""

CASES = [
    (vote, wrapper) for vote in VOTES for wrapper in WRAPPERS if wrapper in ("alone", "normalised") or "of" not in vote
]


def points(count: int = 200) -> Tensor:
    return torch.randn(count, 1, 1, 2, generator=torch.Generator().manual_seed(2))


def expected(vote: str, x: Tensor) -> Tensor:
    rows = by_hand.rows_of(MEMBERS, x)
    return torch.tensor([VOTES[vote][1](row) for row in rows], dtype=torch.float64)


def built(vote: str, wrapper: str = "alone") -> nn.Module:
    return WRAPPERS[wrapper](VOTES[vote][0](MEMBERS)).eval()


def in_bins(cells: Tensor, shares: Tensor) -> None:
    """Cells (B, K) of the histogram hold the shares (B, K), up to rounding at an edge."""
    bins = cells - torch.arange(CLASSES) * BINS
    edges = torch.as_tensor(SCORE_EDGES)
    assert (bins >= 0).all()
    assert (bins < BINS).all()
    assert (edges[bins] <= shares + 1e-6).all()
    assert (shares <= edges[bins + 1] + 1e-6).all()


def entropies(shares: Tensor) -> Tensor:
    return torch.special.entr(shares).sum(-1) / math.log(CLASSES)


@pytest.mark.parametrize(("vote", "wrapper"), CASES)
def test_the_score_histogram_holds_the_probabilities(vote: str, wrapper: str) -> None:
    classifier, x = built(vote, wrapper), points()
    (readout,) = readouts(("scores",), classifier)
    with torch.inference_mode():
        cells = readout.cells(classifier(x).unsqueeze(1))
    in_bins(cells.squeeze(1), expected(vote, x))


@pytest.mark.parametrize(("vote", "wrapper"), CASES)
def test_the_entropy_selector_measures_the_probabilities(vote: str, wrapper: str) -> None:
    classifier, x = built(vote, wrapper), points()
    with torch.inference_mode():
        value = score(Aces(classifier, rf.EntropySelector(0.5), classifier), x).scores[:, 1, 0]
    wanted = entropies(expected(vote, x))
    torch.testing.assert_close(value.double(), wanted, atol=2e-6, rtol=0)
    assert (wanted < 0.5).any()  # with a softmax too many every entropy of probabilities is above .9


@pytest.mark.parametrize("vote", VOTES)
def test_attacks_and_losses_use_the_probabilities(vote: str) -> None:
    classifier, x = built(vote), points(40)
    y, noise = torch.arange(40) % CLASSES, torch.zeros(1, *x.shape)
    wanted = -expected(vote, x).gather(1, y[:, None]).squeeze(1).log()
    certain = wanted < 60  # float32 has no smaller probabilities
    with torch.inference_mode():
        found = smoothed_loss(classifier, x, y, noise).double()
    torch.testing.assert_close(found[certain], wanted[certain], atol=1e-3, rtol=1e-4)
    objective = build_objective("gaussian", {})
    keep = certain.nonzero().squeeze(1)
    terms = objective([classifier], Batch(x[keep], y[keep]), TrainingNoise(0.0), torch.Generator().manual_seed(0))
    assert float(terms.total.detach()) == pytest.approx(float(wanted[keep].mean()), rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("on", ["logits", "softmax"])
@pytest.mark.parametrize("inner", ["soft", "softmax"])
def test_learned_weights_are_judged_by_the_probabilities(inner: str, on: str) -> None:
    members = Members([VOTES[inner][0](MEMBERS[:2]), VOTES[inner][0](MEMBERS[1:])]).eval()
    x, y = points(40), torch.arange(40) % CLASSES
    with torch.inference_mode():
        scores = members(x).unsqueeze(1)
        vote = Weighted(list(members.members), [1, 1], on).eval()
        shares = rf.classifiers.probabilities(vote(x), vote.kinds).double()
    wanted = -shares[torch.arange(40), y].clamp_min(1e-12).log().mean()
    assert equal_weights(Holdout(scores, y, members.kinds), on).loss == pytest.approx(float(wanted), rel=1e-4)


def test_lanes_of_both_kinds_are_read_each_by_its_own() -> None:
    names = ("soft", "softmax", "hard", "max-margin", "weighted")
    lanes = Lanes(MEMBERS, names, singles=True, consensus=(2,), weights=WEIGHTS, on="softmax").eval()
    x = points()
    (readout,) = readouts(("scores",), lanes)
    with torch.inference_mode():
        cells = readout.cells(lanes(x))
    votes = {f"{name}-3": name for name in names[:-1]} | {"weighted-3": "weighted softmax", "consensus-2": "consensus"}
    assert len(lanes.kinds) == len(lanes.names)
    for lane, name in enumerate(lanes.names):
        if name in votes:
            in_bins(cells[:, lane], expected(votes[name], x))
        else:
            rows = by_hand.rows_of([MEMBERS[int(name.removeprefix("member-")) - 1]], x)
            in_bins(cells[:, lane], torch.tensor([by_hand.softmax(row[0]) for row in rows], dtype=torch.float64))


@pytest.mark.parametrize("vote", ["plain network", "softmax"])
def test_the_max_over_patches_is_a_distribution(vote: str) -> None:
    """Its largest scores sum to more than 1: read as they are, 1 - p_a would not bound the other classes."""
    classifier, x = Patches(built(vote), pieces, "max").eval(), points(100)
    (readout,) = readouts(("scores",), classifier)
    with torch.inference_mode():
        cells, raw = readout.cells(classifier(x).unsqueeze(1)), classifier(x)
    parts = [[expected(vote, piece[None])[0].tolist() for piece in patches] for patches in pieces(x)]
    wanted = torch.tensor([largest(part) for part in parts], dtype=torch.float64)
    in_bins(cells.squeeze(1), wanted)
    assert (raw.sum(-1) > 1.01).any()
    assert (raw.argmax(-1) == wanted.argmax(-1)).all()


@pytest.mark.parametrize("vote", ["soft", "softmax", "hard"])
def test_a_network_selector_may_give_either_kind(vote: str) -> None:
    two = [Linear2(2, seed) for seed in range(3)]
    x = points(50)
    inner = VOTES[vote][0](two).eval()
    with torch.inference_mode():
        value = NetworkSelector(inner, 0.5).measure(x, torch.zeros(50, CLASSES)).value
        raw = inner(x).double()
    wanted = raw.softmax(-1) if vote == "soft" else raw / raw.sum(-1, keepdim=True)
    torch.testing.assert_close(value.double(), wanted[:, 0], atol=1e-6, rtol=0)


class Declared(Classifier):
    """Says that its scores are probabilities, right or wrong."""

    kinds = ("probabilities",)  # type: ignore[assignment]

    def __init__(self, scores: Sequence[Row]) -> None:
        super().__init__()
        self.rows = torch.tensor(scores)

    def score(self, x: Tensor):  # type: ignore[no-untyped-def]
        return rf.classifiers.Scored(self.rows[: len(x)], 1)


def test_what_is_no_distribution_is_made_one_or_counted_as_invalid() -> None:
    nan, inf = math.nan, math.inf
    rows = [[0.6, 0.4], [0.6, 0.2], [1.2, 0.8], [-0.1, 1.1], [nan, 0.5], [inf, 0.0]]
    (readout,) = readouts(("scores",), Declared(rows))
    cells = readout.cells(torch.tensor(rows).unsqueeze(1)).squeeze(1)
    edges = torch.as_tensor(SCORE_EDGES)
    for row, shares in ((0, (0.6, 0.4)), (1, (0.6, 0.2)), (2, (0.6, 0.4))):
        for k, share in enumerate(shares):
            at = int(cells[row, k]) - k * BINS
            assert edges[at] - 1e-6 <= share <= edges[at + 1] + 1e-6
    assert (cells[3:] == 2 * BINS).all()


@pytest.mark.parametrize("vote", VOTES)
def test_the_score_procedure_bounds_the_mean_probability(vote: str) -> None:
    """Through the engine: at a clear point p_a lies just below the mean of the probabilities written out by hand."""
    x, n = torch.tensor([[[2.0, 0.5]]]), 2000
    noise, seed = rf.Gaussian(0.25), 3
    found = rf.certify(
        built(vote), [x], noise=noise, procedure=Softmax(0.01, n=n), seed=seed,
        execution=rf.Execution(device="cpu", plan=ForwardPlan(500)),
    )  # fmt: skip
    (record,) = found
    copies = x + 0.25 * torch.randn(4000, 1, 1, 2, generator=torch.Generator().manual_seed(0))
    mean = expected(vote, copies).mean(0)
    assert record.prediction == int(mean.argmax())
    assert float(mean.max()) - 0.1 < record.p_a < float(mean.max()) + 0.02
    assert record.radius > 0


def test_scores_of_both_kinds_are_never_added_up() -> None:
    both = [MEMBERS[0], SoftmaxVote(MEMBERS[1:])]
    for build in (SoftVote, lambda m: Weighted(m, [1, 1]), lambda m: KConsensus(m, 1), lambda m: Lanes(m, ("soft",))):
        with pytest.raises(ArgumentError, match=r"one kind.*member 1: logits, member 2: probabilities.*softmax"):
            build(both)
    assert Lanes(both, ("softmax",), singles=True).kinds == ("logits", "probabilities", "probabilities")


def test_invalid_members_make_probabilities_invalid() -> None:
    x = points()
    for vote in ("softmax", "hard", "max-margin"):
        classifier = VOTES[vote][0]([*MEMBERS[:2], Sometimes(MEMBERS[2], 0.3, -math.inf)]).eval()
        (readout,) = readouts(("scores",), classifier)
        with torch.inference_mode():
            cells = readout.cells(classifier(x).unsqueeze(1)).squeeze(1)
            value = score(Aces(classifier, rf.EntropySelector(0.5), MEMBERS[0]), x).scores[:, 1, 0]
        broken = x.flatten(1)[:, 0] > 0.3
        assert ((cells == CLASSES * BINS).all(1) == broken).all()
        assert (torch.isnan(value) == broken).all()


def test_every_classifier_is_under_the_law() -> None:
    """A new wrapper that forgets to pass on the kind of what it wraps is not listed here."""
    known = {SoftVote, SoftmaxVote, HardVote, MaxMargin, Weighted, KConsensus, Lanes, Members, Aces}
    known |= {Normalize, Denoised, Patches, Chunks, Clips, Resized}

    def below(kind: type[Classifier]) -> set[type[Classifier]]:
        return {kind, *(one for sub in kind.__subclasses__() for one in below(sub))}

    ours = {one for one in below(Classifier) if one.__module__.startswith("ringfence.classifiers.")}
    abstract = {one for one in ours if one.__name__ in ("Classifier", "Vote")}
    assert ours - abstract == known


@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")  # torch, while it loads its compiler
def test_compiling_does_not_hide_the_kind() -> None:
    assert kinds_of(torch.compile(SoftmaxVote(MEMBERS))) == ("probabilities",)
    assert kinds_of(torch.compile(MEMBERS[0])) == kinds_of(nn.Sequential(SoftmaxVote(MEMBERS))) == ("logits",)
