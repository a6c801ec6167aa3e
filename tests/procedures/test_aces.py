"""ACES through the driver: its two ends are the certification network and the core, its records can be replayed."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from configs import small_config
from scipy.stats import binom
from torch import Tensor, nn
from toys import Buckets

import ringfence as rf
from ringfence.analysis.aces import compose
from ringfence.analysis.aces_runs import AcesRun
from ringfence.classifiers import Aces, EntropySelector, score
from ringfence.errors import ArgumentError
from ringfence.mechanisms import neyman_pearson
from ringfence.procedures import AcesCertify, AcesPredict, AcesSequential, Given, Procedure
from ringfence.sampling import ForwardPlan
from ringfence.store import RunConfig
from ringfence.types import ABSTAIN, Tally

GRID = (0.0, 0.05, 0.1, 0.2, 0.35, 0.5, 1.0)
FAST = rf.Execution(device="cpu", plan=ForwardPlan(200))
PROCEDURES: list[Procedure] = [
    AcesCertify(n=600),
    AcesCertify(n=600, form="paper"),
    AcesCertify(n=600, lower_share=0.5),
    AcesPredict(n=300),
    AcesSequential(0.3, n=1000),
    AcesSequential(0.3, n=1000, form="paper"),
]
ALONE: list[Procedure] = [
    rf.Fixed(n=600),
    rf.Fixed(alpha=0.0005, n=600),
    rf.TwoSided(n=600),
    rf.Predict(alpha=0.0005, n=300),  # half of alpha is kept for the selector
    rf.Sequential(0.3, n=1000),
    rf.Sequential(0.3, alpha=0.0005, n=1000),
]
"""The certification network alone, at the level that its class has in each of PROCEDURES."""


@pytest.fixture(scope="module")
def digits() -> Any:
    return rf.load_dataset("default", skip=50)


class Rolled(nn.Module):
    """Another network's scores moved by one class, so that it never answers as the others do."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.net(x)
        return scores.roll(1, -1)


def aces(core: nn.Module | None = None) -> Aces:
    return Aces(rf.load_model("default").module, EntropySelector(GRID), core or rf.load_model("default:1").module)


def run(
    procedure: Procedure, digits: Any, sigma: float = 1.0, config_hash: str = "", core: nn.Module | None = None
) -> list[rf.Record]:
    model = aces(core)
    options: Any = {"noise": rf.Gaussian(sigma, "float"), "execution": FAST, "lanes": model.names}
    found = rf.certify(model, digits, procedure=procedure, **options)
    return sorted(
        (replace(one, config_hash=config_hash) for one in found), key=lambda record: (record.input_id, record.lane)
    )


def config(procedure: Procedure) -> RunConfig:
    return small_config(
        model="in-memory:Aces",
        data="default",
        num_classes=10,
        sigma=1.0,
        procedure=procedure.name,
        procedure_settings=procedure.settings(),
        mechanisms=["neyman_pearson"],
        lift=rf.Identity().settings(),
        lanes=list(aces().names),
    )


@pytest.mark.parametrize("procedure", PROCEDURES, ids=lambda one: f"{one.name} {one.settings()}")
def test_records_are_replayed_from_their_counts_and_facts(tmp_path: Path, procedure: Procedure, digits: Any) -> None:
    digest = config(procedure).digest
    records = run(procedure, digits, config_hash=digest)
    folder = rf.RunFolder.create_or_resume(tmp_path / "run", config(procedure))
    folder.append(records)
    assert rf.verify(rf.RunFolder.open(tmp_path / "run")) == []
    answered_by_core = [r for r in records if r.lane == "theta=0.00" and not r.abstained]
    assert answered_by_core
    core = answered_by_core[0].facts["core"]
    forged: dict[str, tuple[dict[str, int], set[str]]] = {
        "another": ({"core": (core + 1) % 10}, {"prediction", "facts"}),
        "no class": ({"core": 10}, {"fact core", "facts"}),
        "none": ({}, {"facts"}),
        "more": ({"core": core, "radius": 3}, {"facts"}),
    }
    for name, (facts, found) in forged.items():
        victim = replace(answered_by_core[0], facts=facts)
        others = [r for r in records if (r.input_id, r.lane) != (victim.input_id, victim.lane)]
        rf.RunFolder.create_or_resume(tmp_path / name, config(procedure)).append([*others, victim])
        assert {one.what for one in rf.verify(rf.RunFolder.open(tmp_path / name))} == found


def test_a_core_is_the_same_in_all_lanes(tmp_path: Path, digits: Any) -> None:
    """Where the certification network answers, no claim tells that another core stands there."""
    procedure = AcesCertify(n=600)
    records = run(procedure, digits, config_hash=config(procedure).digest)
    by_class = next(r for r in records if r.radius > 0)
    victim = replace(by_class, facts={"core": (by_class.prediction + 1) % 10})
    others = [r for r in records if (r.input_id, r.lane) != (victim.input_id, victim.lane)]
    rf.RunFolder.create_or_resume(tmp_path / "run", config(procedure)).append([*others, victim])
    found = rf.verify(rf.RunFolder.open(tmp_path / "run"))
    assert {(one.what, one.input_id) for one in found} == {("facts", victim.input_id)}


class Told(rf.Classifier):
    """A network that tells what no procedure asks."""

    tells_facts = True

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def score(self, x: Tensor) -> Any:
        return score(self.net, x)

    def clean_scores(self, x: Tensor) -> Tensor:
        return self.score(x).scores  # type: ignore[no-any-return]

    def facts(self, scores: Tensor) -> list[Any]:
        return [{"loudest": 1} for _ in scores]


def test_what_no_procedure_knows_is_not_kept() -> None:
    data = torch.rand(2, 1, 4, 4)
    net = Told(nn.Sequential(nn.Flatten(), nn.Linear(16, 2)))
    records = list(rf.certify(net, data, sigma=0.5, n=50, check=False, execution=FAST))
    assert [record.facts for record in records] == [{}, {}]


@pytest.mark.parametrize(("together", "alone"), list(zip(PROCEDURES, ALONE, strict=True)), ids=str)
def test_theta_1_is_the_certification_network_and_theta_0_the_core(
    together: Procedure, alone: Procedure, digits: Any
) -> None:
    network, core = rf.load_model("default").module, Rolled(rf.load_model("default:1").module)
    records = run(together, digits, core=core)
    plain = rf.certify(network, digits, noise=rf.Gaussian(1.0, "float"), procedure=alone, execution=FAST)
    everything = [r for r in records if r.lane == "theta=1.00"]
    for ours, theirs in zip(everything, sorted(plain, key=lambda r: r.input_id), strict=True):
        assert ours.prediction == theirs.prediction
        assert ours.radius == pytest.approx(theirs.radius, rel=1e-8)
        for mine, other in zip(ours.stages, theirs.stages, strict=True):
            assert mine.cells["votes"].tolist() == other.cells["votes"].tolist()
    clean = [int(core(item.x[None]).argmax()) for item in digits]
    nothing = [r for r in records if r.lane == "theta=0.00"]
    assert [r.prediction for r in nothing] == clean
    assert {r.radius for r in nothing} == {0.0}


def test_in_between_acr_rises_and_natural_accuracy_falls_within_noise() -> None:
    """ACR: the thresholds share their draws, so that no noise is allowed for: the bit's share, hence every radius, can
    only rise with theta. Natural accuracy falls because the network under noise is worse than the core; single inputs
    may go the other way. If it never rose in truth, more gains than losses between two thresholds would be fair coin
    flips at best: exact sign tests over all pairs of thresholds, one false alarm in a thousand."""
    inputs = rf.load_dataset("default", skip=10)
    records = run(AcesCertify(n0=20, n=300), inputs, sigma=1.5)
    state = [[r for r in records if r.lane == name] for name in aces().names]
    acr = [np.mean([r.radius * r.correct for r in lane]) for lane in state]
    assert acr == sorted(acr)
    assert acr[0] == 0 < acr[2] < acr[-1]
    right = np.array([[r.correct for r in lane] for lane in map(natural, state)])
    pairs = list(combinations(right, 2))
    gains = np.array([(later & ~earlier).sum() for earlier, later in pairs])
    losses = np.array([(earlier & ~later).sum() for earlier, later in pairs])
    assert (binom.sf(gains - 1, gains + losses, 0.5) > 0.001 / len(pairs)).all()
    # The same test on the way back fails, so it can.
    assert (binom.sf(losses - 1, gains + losses, 0.5) < 0.001 / len(pairs)).any()


def natural(lane: list[rf.Record]) -> list[rf.Record]:
    """PREDICT's answers from the draws that certified."""
    test = AcesPredict(n=300)
    facts = {"core": np.array([r.facts["core"] for r in lane])}
    cells = {name: np.stack([r.stages[1].cells[name] for r in lane]) for name in ("votes", "bits")}
    given = Given(10, 1.5, neyman_pearson, facts=facts)
    state = test.update(test.start(len(lane), given), Tally(cells, np.full(len(lane), 300)), given)
    answers = test.conclude(state, given).prediction.tolist()
    return [replace(r, prediction=answer) for r, answer in zip(lane, answers, strict=True)]


def test_an_input_goes_from_the_core_to_the_class_and_never_back(digits: Any) -> None:
    """As theta rises, PREDICT answers with the core, then perhaps not at all, then with the class: exactly so, because
    the thresholds share their draws."""
    records = run(AcesPredict(n=300), digits, sigma=1.5)
    for path in zip(*[iter(records)] * len(GRID), strict=True):
        answers = [r.prediction for r in path]
        changes = [one for at, one in enumerate(answers) if at == 0 or one != answers[at - 1]]
        assert len(changes) <= 3
        assert changes[0] == path[0].facts["core"]
        assert len(changes) < 3 or changes[1] == ABSTAIN


def test_counts_are_those_of_the_same_draws(digits: Any) -> None:
    """Lanes differ in bits, never in votes; the bit of theta = 1 is every draw."""
    for records in zip(*[iter(run(AcesCertify(n=300), digits))] * len(GRID), strict=True):
        votes = {tuple(r.stages[1].cells["votes"].tolist()) for r in records}
        assert len(votes) == 1
        bits = np.array([r.stages[1].cells["bits"] for r in records])
        assert (np.diff(bits[:, 1]) >= 0).all()
        assert bits[0].tolist() == [300, 0, 0]
        assert bits[-1].tolist() == [0, 300, 0]
        assert {r.forwards for r in records} == {400}


def test_a_run_taken_apart_composes_to_itself(tmp_path: Path, digits: Any) -> None:
    procedure = AcesCertify(n=600, form="paper")
    folder = rf.RunFolder.create_or_resume(tmp_path / "run", config(procedure))
    folder.append(run(procedure, digits, config_hash=config(procedure).digest))
    whole = AcesRun.read(folder)
    joined = compose(whole.certification(), whole.selection(), whole.core())
    for ours, theirs in zip(whole.answers(), joined, strict=True):
        assert ours.prediction.tolist() == theirs.prediction.tolist()
        np.testing.assert_allclose(ours.radius, theirs.radius, rtol=1e-8)
        assert ours.bit.tolist() == theirs.bit.tolist()
        assert ours.natural is not None
        assert theirs.natural is not None
        assert ours.natural.tolist() == theirs.natural.tolist()
    medians = whole.medians()
    assert set(medians.tolist()) <= set(GRID)
    assert len(medians) == len(digits)
    some = AcesRun.read(folder, GRID[1:3]).answers()
    assert [one.theta for one in some] == list(GRID[1:3])
    for one, same in zip(some, whole.answers()[1:3], strict=True):
        assert one.prediction.tolist() == same.prediction.tolist()
        assert one.radius.tolist() == same.radius.tolist()


def decide(procedure: AcesCertify | AcesPredict, core: int, *tallies: tuple[list[int], list[int]]) -> tuple[int, float]:
    """Prediction and radius of one input from hand-made counts (votes, bits)."""
    given = Given(3, 0.5, neyman_pearson, facts={"core": np.array([core])})
    state = procedure.start(1, given)
    for votes, bits in tallies:
        cells = {"votes": np.array([[*votes, 0]]), "bits": np.array([[*bits, 0]])}
        state = procedure.update(state, Tally(cells, np.array([sum(votes)])), given)
    decisions = procedure.conclude(state, given)
    assert decisions.radius is not None
    return int(decisions.prediction[0]), float(decisions.radius[0])


def test_certify_case_by_case() -> None:
    test = AcesCertify(n0=10, n=1000)
    for_1, for_0 = ([9, 1, 0], [2, 8]), ([9, 1, 0], [8, 2])
    both = decide(test, 2, for_1, ([990, 10, 0], [30, 970]))
    weaker = rf.stats.clopper_pearson_lower(970, 1000, 0.001)
    assert both[0] == 0
    assert both[1] == pytest.approx(float(rf.mechanisms.one_sided(weaker, 1 - weaker, 0.5)), rel=1e-8)
    assert decide(test, 2, for_0, ([990, 10, 0], [970, 30])) == (2, 0.0)
    assert decide(test, 0, for_1, ([990, 10, 0], [500, 500])) == (0, 0.0)
    assert decide(test, 0, for_0, ([990, 10, 0], [500, 500])) == (0, 0.0)
    assert decide(test, 2, for_1, ([990, 10, 0], [500, 500])) == (ABSTAIN, 0.0)
    assert decide(test, 2, for_1, ([400, 300, 300], [30, 970])) == (ABSTAIN, 0.0)
    # No class has a majority, but the runner-up is bounded too: two-sided helps.
    two = AcesCertify(n0=10, n=1000, lower_share=0.5)
    assert decide(two, 2, for_1, ([480, 260, 260], [30, 970]))[0] == 0
    assert decide(test, 2, for_1, ([480, 260, 260], [30, 970]))[0] == ABSTAIN


def test_predict_case_by_case() -> None:
    test = AcesPredict(n=100)
    assert decide(test, 2, ([90, 10, 0], [10, 90])) == (0, 0.0)
    assert decide(test, 2, ([90, 10, 0], [90, 10])) == (2, 0.0)
    assert decide(test, 2, ([50, 50, 0], [10, 90])) == (ABSTAIN, 0.0)
    assert decide(test, 0, ([90, 10, 0], [50, 50])) == (0, 0.0)
    # Algorithm 4 as printed (OR) would answer with the core here, on no evidence.
    assert decide(test, 2, ([90, 10, 0], [51, 49])) == (ABSTAIN, 0.0)


def test_levels_of_the_two_accountings() -> None:
    half = AcesCertify(n=1000, form="paper")
    assert half.spent == {"selection": 0.0005, "class": 0.0005}
    assert half.sound
    assert half.best_bounds[0] < AcesCertify(n=1000).best_bounds[0]
    for name, wrong in (("form", "loose"), ("lower_share", 0.0), ("alpha", 0.0), ("n", 0)):
        with pytest.raises(ArgumentError, match=name):
            AcesCertify(**{name: wrong})
    sharp, paper = (AcesSequential(0.3, n=1000, form=form) for form in ("sharp", "paper"))  # type: ignore[arg-type]
    assert paper.spent == half.spent
    assert sharp.spent == AcesCertify().spent == {"selection or class, whichever decides": 0.001}
    assert paper.design(0.7).certify_at.tolist() == rf.Sequential(0.3, 0.0005, n=1000).design(0.7).certify_at.tolist()
    assert (paper.design(0.7).certify_at > sharp.design(0.7).certify_at).any()
    with pytest.raises(ArgumentError, match="form"):
        AcesSequential(0.3, form="loose")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="radius: no outcome"):
        AcesSequential(5.0).start(1, Given(3, 0.5, neyman_pearson))


def test_without_a_core_class_nothing_is_claimed_from_it() -> None:
    state = AcesPredict(n=10).start(1, Given(3, 0.5, neyman_pearson))
    assert state["core"].tolist() == [ABSTAIN]


def test_other_classifiers_are_refused() -> None:
    with pytest.raises(ArgumentError, match="ACES procedures certify an Aces classifier"):
        list(rf.certify(Buckets(), torch.zeros(1, 1), noise=rf.Gaussian(0.5), procedure=AcesCertify(n=10)))
