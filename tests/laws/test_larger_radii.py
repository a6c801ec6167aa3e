"""Law: further radii on one sequential path are claimed falsely with probability at most alpha, and provable ones are
proved. All figures are exact: the procedure's own decisions, over every path of successes at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from configs import small_config
from dishonest import Dishonest
from scipy.special import ndtr
from scipy.stats import binom
from simulate import SIGMA
from toys import Buckets

import ringfence as rf
from ringfence.errors import ArgumentError
from ringfence.mechanisms import neyman_pearson
from ringfence.procedures import Given, Procedure, Sequential, claims
from ringfence.sampling import ForwardPlan
from ringfence.store import RunConfig
from ringfence.types import ABSTAIN, FloatArray, Tally

GIVEN = Given(2, SIGMA, neyman_pearson)


@dataclass(frozen=True)
class Outcomes:
    """Probability of every claimed radius (-1: nothing), and the mean number of draws."""

    claimed: dict[float, float]
    draws: float

    def at_least(self, radius: float) -> float:
        return sum(share for claim, share in self.claimed.items() if claim >= radius)


def outcomes(procedure: Procedure, p: float) -> Outcomes:
    """Exact, for a class of probability p: (successes, the rest of the state) carry their probabilities from look to
    look, and the procedure itself decides what becomes of each."""
    chosen = procedure.update(
        procedure.start(1, GIVEN), Tally({"votes": np.array([[10, 0, 0]])}, np.array([10])), GIVEN
    )
    paths: list[tuple[np.ndarray, FloatArray]] = [(chosen, np.ones(1))]  # one entry per rest of the state
    claimed: dict[float, float] = defaultdict(float)
    draws = 0.0
    while paths:
        arrived: dict[bytes, tuple[np.ndarray, FloatArray]] = {}
        for state, weights in paths:
            wanted = int(procedure.request(state)[0])
            draws += wanted * float(weights.sum())
            ends = np.convolve(weights, binom.pmf(np.arange(wanted + 1), wanted, p))
            here = np.repeat(state, len(ends))
            votes = np.stack([np.arange(len(ends)), wanted - np.arange(len(ends)), np.zeros(len(ends), int)], 1)
            here["hits"] = 0
            after = procedure.update(here, Tally({"votes": votes}, np.full(len(ends), wanted)), GIVEN)
            done = after["done"]
            prediction, radius, _ = claims(procedure.conclude(after[done], GIVEN), GIVEN)
            for claim, share in zip(np.where(prediction == ABSTAIN, -1.0, radius), ends[done], strict=True):
                claimed[float(claim)] += float(share)
            for at in np.flatnonzero(~done & (ends > 1e-18)):
                rest = after[at : at + 1].copy()
                rest["hits"] = 0
                found = arrived.setdefault(rest.tobytes(), (rest, np.zeros(len(ends))))
                if len(found[1]) < len(ends):
                    found = arrived[rest.tobytes()] = (rest, np.pad(found[1], (0, len(ends) - len(found[1]))))
                found[1][at] += ends[at]
        paths = list(arrived.values())
    return Outcomes(dict(claimed), draws)


ALPHA = 0.02
GRIDS = {
    "near": Sequential(0.25, ALPHA, beta=0.01, n0=10, n=1000, look=50, larger=(0.3, 0.35)),
    "far": Sequential(0.25, ALPHA, beta=0.01, n0=10, n=1000, look=50, larger=(0.5, 0.9)),
    "nobody gives up": Sequential(0.1, ALPHA, beta=1e-9, n0=10, n=800, look=50, larger=(0.15, 0.2, 0.6)),
    "everybody gives up": Sequential(0.25, ALPHA, beta=0.4, n0=10, n=800, look=25, larger=(0.3, 0.6)),
    "few draws": Sequential(0.0, ALPHA, beta=0.1, n0=10, n=60, look=7, larger=(0.1, 0.2)),
}


@pytest.mark.parametrize("name", GRIDS)
def test_no_false_radius_is_claimed_more_often_than_alpha(name: str) -> None:
    """At the hardest places, just short of each radius, and in between."""
    procedure = GRIDS[name]
    for radius in (procedure.radius, *procedure.larger):
        for short in (1e-12, 0.003, 0.02):
            p = float(ndtr(radius / SIGMA)) - short
            found = outcomes(procedure, p)
            assert sum(found.claimed.values()) == pytest.approx(1, abs=1e-9)
            assert found.at_least(radius) <= ALPHA
    hardest = outcomes(procedure, float(ndtr(procedure.larger[0] / SIGMA)) - 1e-12).at_least(procedure.larger[0])
    assert hardest > ALPHA / 20  # the boundary is used, not avoided


@dataclass(frozen=True)
class AnyCrossed(Dishonest):
    """Wrong on purpose: a radius counts as soon as one look beats a bound made for a single look."""

    honest: Sequential

    def update(self, state, tally, given):  # type: ignore[no-untyped-def]
        before, state = state, self.honest.update(state, tally, given)
        hits = before["hits"] + tally.votes[:, 0]
        lucky = rf.stats.clopper_pearson_lower(hits, before["drawn"] + tally.draws, ALPHA)
        state["crossed"] |= (state["drawn"] > 0)[:, None] & (lucky[:, None] >= state["grid"])
        return state


def test_the_law_catches_a_fixed_bound_at_every_look() -> None:
    procedure = GRIDS["nobody gives up"]
    p = float(ndtr(procedure.larger[1] / SIGMA)) - 1e-12
    assert outcomes(AnyCrossed(ALPHA, procedure), p).at_least(procedure.larger[1]) > ALPHA
    assert outcomes(procedure, p).at_least(procedure.larger[1]) <= ALPHA


def test_provable_radii_are_proved_at_the_default_look() -> None:
    """A class of probability .995 has the radius 1.29 at sigma .5: all of .5, .75 and 1 are to be proved."""
    procedure = Sequential(0.5, n=8000, larger=(0.75, 1.0))
    found = outcomes(procedure, 0.995)
    assert found.at_least(1.0) > 0.98
    assert found.at_least(0.5) > 0.998
    alone = outcomes(Sequential(0.5, n=8000), 0.995)
    assert found.at_least(0.5) >= alone.at_least(0.5) - 1e-12  # nothing is lost on the way
    assert found.draws > alone.draws
    middle = outcomes(procedure, 0.95)  # radius .82: the second is proved, and drawing ends when the third gives up
    assert middle.at_least(0.75) > 0.9
    assert middle.at_least(1.0) < 1e-3
    assert middle.draws < 8000 / 2


def test_each_radius_is_claimed_as_its_own_test_would() -> None:
    """Up to what the smaller ones lose, a radius of the grid has the power of a test for it alone."""
    procedure = Sequential(0.25, n=3000, look=50, larger=(0.5, 0.75))
    for p in (0.9, 0.95, 0.97):
        together = outcomes(procedure, p)
        for radius in (0.25, 0.5, 0.75):
            alone = outcomes(replace(procedure, radius=radius, larger=()), p).at_least(radius)
            assert alone - 2 * procedure.beta <= together.at_least(radius) <= alone + 2 * procedure.beta


def test_drawing_ends_when_the_smallest_open_radius_gives_up() -> None:
    procedure = Sequential(0.25, n=5000, look=100, larger=(0.5, 1.0))
    state = procedure.update(procedure.start(1, GIVEN), Tally({"votes": np.array([[10, 0, 0]])}, np.array([10])), GIVEN)
    small, middle, large = (procedure.design(float(p0)) for p0 in state["grid"][0])
    drawn = hits = 0
    open_though_the_last_is_hopeless = False
    for share in (0.86, 0.86, 0.86, 0.84, 0.84, 0.84, *[0.84] * 40):
        wanted = int(procedure.request(state)[0])
        if not wanted:
            break
        got = round(share * wanted)
        drawn, hits = drawn + wanted, hits + got
        look = int(state["look"][0])
        state = procedure.update(state, Tally({"votes": np.array([[got, wanted - got, 0]])}, np.array([wanted])), GIVEN)
        crossed = bool(state["crossed"][0, 0])
        testing = middle if crossed else small
        assert bool(state["done"][0]) == (hits <= testing.give_up_at[look] or drawn == testing.looks[-1])
        open_though_the_last_is_hopeless |= bool(hits <= large.give_up_at[look] and not state["done"][0])
    assert procedure.conclude(state, GIVEN).radius.tolist() == [0.25]  # type: ignore[union-attr]
    assert open_though_the_last_is_hopeless
    assert state["done"][0]


# Refused ---------------------------------------------------------------------------------------------------------


def test_radii_that_no_count_could_reach_are_refused() -> None:
    with pytest.raises(
        ArgumentError,
        match=r"larger: .*prove more than 1\.917 by neyman-pearson under gaussian noise of sigma 0\.5; got 2",
    ):
        Sequential(0.5, larger=(1.0, 2.0)).start(1, GIVEN)
    with pytest.raises(ArgumentError, match=r"larger: .*prove more than 0\.9"):
        Sequential(0.25, larger=(1.0,)).start(1, replace(GIVEN, norm_bound=2.0))
    for wrong in ((float("nan"),), (float("inf"),)):
        with pytest.raises(ArgumentError, match="larger"):
            Sequential(0.25, larger=wrong)


# Replayed --------------------------------------------------------------------------------------------------------

PROCEDURE = Sequential(0.2, n=3000, larger=(0.3, 0.5))


def run_of(path: Path, rows: list[rf.Record], procedure: Sequential = PROCEDURE) -> rf.RunFolder:
    config = config_of(procedure)
    run = rf.RunFolder.create_or_resume(path, config)
    run.append([replace(one, config_hash=config.digest) for one in rows])
    return rf.RunFolder.open(path)


def config_of(procedure: Sequential) -> RunConfig:
    return small_config(
        model="buckets",
        data="line",
        num_classes=4,
        sigma=SIGMA,
        procedure=procedure.name,
        procedure_settings=procedure.settings(),
        mechanisms=["neyman_pearson"],
        lift=rf.Identity().settings(),
        lanes=["main"],
    )


def records() -> list[rf.Record]:
    found = rf.certify(
        Buckets(),
        [(x, 1) for x in torch.linspace(-2.5, 3, 12)[:, None]],
        noise=rf.Gaussian(SIGMA),
        procedure=PROCEDURE,
        execution=rf.Execution(device="cpu", plan=ForwardPlan(100)),
    )
    return sorted(found, key=lambda record: record.input_id)


def ended_at(record: rf.Record, stop: Callable[[np.ndarray], bool]) -> rf.Record:
    """The record of a run that ended where stop says, with what had crossed by then."""
    state = PROCEDURE.start(1, Given(4, SIGMA, neyman_pearson))
    kept = []
    for stage in record.stages:
        cells = {"votes": np.asarray(stage.cells["votes"])[None]}
        state = PROCEDURE.update(state, Tally(cells, np.array([stage.draws])), GIVEN)
        kept.append(stage)
        if stop(state):
            break
    found = PROCEDURE.conclude(state, GIVEN)
    assert found.radius is not None
    drawn = sum(one.draws for one in kept)
    return replace(
        record, stages=tuple(kept), draws=drawn, forwards=drawn, prediction=int(found.prediction[0]),
        radius=float(found.radius[0]), p_a=float(found.p_a[0]), p_b=float(found.p_b[0]),
    )  # fmt: skip


def test_a_run_that_stopped_at_its_target_still_verifies(tmp_path: Path) -> None:
    """As runs did before larger radii were pursued: what had crossed by then is proved all the same."""
    new = records()
    old = [ended_at(one, lambda state: bool(state["done"][0] or state["crossed"][0, 0])) for one in new]
    assert rf.verify(run_of(tmp_path / "new", new)) == []
    assert rf.verify(run_of(tmp_path / "old", old)) == []
    assert sum(one.radius for one in new) > sum(one.radius for one in old) > 0
    assert sum(one.draws for one in new) > sum(one.draws for one in old)


def test_a_run_that_stopped_before_its_target_does_not(tmp_path: Path) -> None:
    def at_target(record: rf.Record) -> rf.Record:
        return ended_at(record, lambda state: bool(state["crossed"][0, 0]))

    victim = next(one for one in records() if at_target(one).radius < one.radius)
    early = ended_at(victim, lambda state: bool(state["stage"][0] == 1 and state["drawn"][0] == 0))
    found = rf.verify(run_of(tmp_path / "run", [early]))
    assert {one.what for one in found} == {"draws still wanted"}
    boast = replace(at_target(victim), radius=victim.radius)
    assert "radius" in {one.what for one in rf.verify(run_of(tmp_path / "boast", [boast]))}


def test_a_stored_run_with_an_unreachable_radius_still_verifies(tmp_path: Path) -> None:
    beyond = replace(PROCEDURE, larger=(0.3, 0.5, 2.5))
    old = [ended_at(one, lambda state: bool(state["done"][0] or state["crossed"][0, 0])) for one in records()]
    assert rf.verify(run_of(tmp_path / "run", old, beyond)) == []
