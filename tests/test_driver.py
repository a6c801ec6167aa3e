"""The driver: whatever inputs, one record per (input, lane), and nothing that depends on how they were packed."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from toys import BucketLanes, Buckets, Double, LittleMemory, SomeInvalid, draws_of, votes_of

import ringfence as rf
from ringfence.classifiers import Aces, EntropySelector
from ringfence.data import Input
from ringfence.errors import ArgumentError, ClassifierError, DataError
from ringfence.lift import Paper
from ringfence.mechanisms import mechanisms_named, neyman_pearson, one_sided, renyi
from ringfence.procedures import AcesCertify, Procedure
from ringfence.sampling import ForwardPlan
from ringfence.sampling.remembered import ASKED_AT_ONCE

NOISE = rf.Gaussian(0.5)
SHAPE = (2,)
X = torch.tensor([[0.25, 0.0], [0.75, 0.0], [1.6, 0.0], [-0.9, 0.0], [0.5, 0.0]])
FAST = rf.Execution(device="cpu", plan=ForwardPlan(64))


def run(classifier: nn.Module, inputs: Any, procedure: Procedure, **options: Any) -> list[rf.Record]:
    options = {"noise": NOISE, "execution": FAST, **options}
    found = list(rf.certify(classifier, inputs, procedure=procedure, **options))
    return sorted(found, key=lambda record: (record.input_id, record.lane))


def test_records_hold_what_the_draws_prove() -> None:
    records = run(Buckets(), X, rf.Fixed(n0=50, n=700), seed=3)
    assert [record.input_id for record in records] == list(range(5))
    for record, x in zip(records, X, strict=True):
        select, estimate = record.stages
        assert (select.stage, select.start, select.draws) == (0, 0, 50)
        assert (estimate.stage, estimate.start, estimate.draws) == (1, 0, 700)
        for stage in record.stages:
            noisy = x + draws_of(NOISE, SHAPE, 3, record.input_id, stage.stage, stage.start, stage.draws)
            assert stage.cells["votes"].tolist() == votes_of(Buckets(), noisy, 4).tolist()
        top = int(select.cells["votes"][:4].argmax())
        bound = rf.stats.clopper_pearson_lower(estimate.cells["votes"][top], 700, 0.001)
        assert record.p_a == pytest.approx(float(bound), rel=1e-12)
        if record.p_a > 0.5:
            assert record.prediction == top
            assert 0 < record.radius <= 0.5 * 3.3
        else:
            assert (record.prediction, record.radius) == (rf.ABSTAIN, 0.0)
        assert (record.draws, record.forwards, record.seed, record.lane) == (750, 750, 3, "main")
        assert (record.alpha, record.procedure, record.sound, record.target) == (0.001, "fixed", True, None)
        assert record.spent == {"lower bound": 0.001}
        assert record.seconds > 0
    assert {record.abstained for record in records} == {True, False}


@pytest.mark.parametrize(
    "inputs",
    [
        X,
        list(X),
        [(x, 1) for x in X],
        [Input(number, x, 1, f"input {number}") for number, x in enumerate(X)],
        iter(list(X)),
        X.double(),
    ],
    ids=["tensor", "tensors", "pairs", "inputs", "iterator", "doubles"],
)
def test_all_kinds_of_inputs_mean_the_same(inputs: Any) -> None:
    expected = run(Buckets(), X, rf.Fixed(n=300))
    labelled = isinstance(inputs, list) and not isinstance(inputs[0], Tensor)
    found = run(Buckets(), inputs, rf.Fixed(n=300))
    assert [record.radius for record in found] == [record.radius for record in expected]
    assert [record.prediction for record in found] == [record.prediction for record in expected]
    assert {record.label for record in found} == ({1} if labelled else {None})


def test_no_inputs_no_records() -> None:
    assert run(Buckets(), [], rf.Fixed(n=100)) == []


def test_inputs_that_do_not_belong_together_are_refused() -> None:
    twice = [Input(4, X[0], None, "a"), Input(4, X[1], None, "b")]
    with pytest.raises(DataError, match="inputs: ids must be distinct; got 4"):
        run(Buckets(), twice, rf.Fixed(n=100))
    with pytest.raises(DataError, match=r"input 1: all inputs of a run have one shape, \(2,\); got \(3,\)"):
        run(Buckets(), [X[0], torch.zeros(3)], rf.Fixed(n=100))
    with pytest.raises(DataError, match=r"each must be an Input, a picture, .* got str"):
        run(Buckets(), ["x"], rf.Fixed(n=100))


class Wrong(nn.Module):
    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x.sum(), r"must map .* got \(\)"),
        (lambda x: [1.0], "must map .* got float"),
        (lambda x: x @ torch.zeros(7, 3), r"batch of shape \(1, 2\); got a network for inputs of 7 numbers"),
        (lambda x: torch.cat([x, x]), r"scores of shape \(1, 2\); got \(2, 2\)"),
        (lambda x: x * float("nan"), "finite scores"),
        (lambda x: x - x.mean(0), "every row alone"),
    ],
    ids=["number", "list", "raises", "rows", "nan", "coupled"],
)
def test_classifiers_that_cannot_be_certified_are_refused(function: Callable[[Tensor], Any], message: str) -> None:
    with pytest.raises(ClassifierError, match=message):
        run(Wrong(function), X, rf.Fixed(n=100))


def test_the_number_of_classes_must_be_right() -> None:
    with pytest.raises(ClassifierError, match="must return 10 scores per input; got 4 scores"):
        run(Buckets(), X, rf.Fixed(n=100), num_classes=10)


def test_seeds_change_the_draws_and_nothing_else_does() -> None:
    same, again, other = (run(Buckets(), X, rf.Fixed(n=500), seed=seed) for seed in (1, 1, 2))
    counts = [[record.stages[1].cells["votes"].tolist() for record in records] for records in (same, again, other)]
    assert counts[0] == counts[1] != counts[2]
    with pytest.raises(ArgumentError, match="seed: must fit"):
        run(Buckets(), X, rf.Fixed(n=100), seed=2**70)


def test_further_mechanisms_read_the_same_bounds() -> None:
    others = tuple(one for one in mechanisms_named("all") if one is not neyman_pearson)
    alone = run(Buckets(), X, rf.TwoSided(n=2000))
    for record, plain in zip(run(Buckets(), X, rf.TwoSided(n=2000), also=others), alone, strict=True):
        assert (record.radius, record.p_a, record.p_b) == (plain.radius, plain.p_a, plain.p_b)
        assert set(record.radii) == {one.name for one in mechanisms_named("all")}
        assert record.radius == record.radii["neyman_pearson"] == max(record.radii.values())
    decided = run(Buckets(), X, rf.TwoSided(n=2000), mechanism=renyi, also=(one_sided,))
    assert [record.radius for record in decided] == [record.radii["renyi"] for record in decided]


def test_invalid_scores_count_against_every_class() -> None:
    # Half of the draws of this input are NaN, nearly all others vote for class 3: it has no rival among the classes.
    x = torch.tensor([[2.0, 0.0]])
    for procedure in (rf.Fixed(n=2000), rf.TwoSided(n=2000), rf.Anytime(n=2000), rf.Predict(n=2000)):
        (record,) = run(SomeInvalid(limit=2.0), x, procedure)
        votes = sum(stage.cells["votes"] for stage in record.stages)
        assert votes[-1] > 0.4 * record.draws < votes[3] + 0.1 * record.draws
        assert record.prediction == rf.ABSTAIN
    # And one class may still win against them.
    (record,) = run(SomeInvalid(limit=1.9), torch.tensor([[1.3, 0.0]]), rf.TwoSided(n=2000))
    assert record.prediction == 3
    assert record.stages[1].cells["votes"][-1] > 100


def test_lanes_are_records_of_the_same_draws() -> None:
    records = run(BucketLanes(), X, rf.Fixed(n=400), lanes=("plain", "shifted"))
    assert [(record.input_id, record.lane) for record in records] == [
        (number, lane) for number in range(5) for lane in ("plain", "shifted")
    ]
    plain = run(Buckets(), X, rf.Fixed(n=400))
    shifted = run(BucketLanes().two, X, rf.Fixed(n=400))
    assert [record.radius for record in records[::2]] == [record.radius for record in plain]
    assert [record.radius for record in records[1::2]] == [record.radius for record in shifted]
    assert {record.lane for record in run(BucketLanes(), X, rf.Fixed(n=100))} == {"0", "1"}


@pytest.mark.parametrize(
    "procedure", [rf.Sequential(0.2, n=3000), rf.Anytime(n=3000, tolerance=0.3)], ids=lambda one: one.name
)
def test_a_lane_that_is_decided_takes_no_part_in_further_looks(procedure: Procedure) -> None:
    records = run(BucketLanes(), X, procedure)
    alone = [run(Buckets(), X, procedure), run(BucketLanes().two, X, procedure)]
    differ = 0
    for record in records:
        single = alone[int(record.lane)][record.input_id]
        assert (record.prediction, record.radius, record.draws) == (single.prediction, single.radius, single.draws)
        assert (record.p_a, record.p_b) == (single.p_a, single.p_b)
        assert [s.cells["votes"].tolist() for s in record.stages] == [s.cells["votes"].tolist() for s in single.stages]
    for number in range(5):
        differ += records[2 * number].draws != records[2 * number + 1].draws
    assert differ  # else this test shows nothing


def test_sequential_with_larger_radii() -> None:
    grid, longer = (0.3, 0.6, 1.5), 0
    for record, plain in zip(
        run(Buckets(), X, rf.Sequential(0.1, n=20_000, larger=grid)),
        run(Buckets(), X, rf.Sequential(0.1, n=20_000)),
        strict=True,
    ):
        assert record.draws >= plain.draws  # the path of the target alone, and on from there
        longer += record.draws > plain.draws
        assert record.prediction == plain.prediction
        assert record.radius in (0.0, 0.1, *grid[:2])
        assert record.radius >= plain.radius
        assert record.target == 0.1
    assert longer
    assert max(r.radius for r in run(Buckets(), X, rf.Sequential(0.1, n=20_000, larger=grid))) > 0.1


def test_a_radius_out_of_reach_is_refused_before_anything_is_sampled() -> None:
    with pytest.raises(ArgumentError, match="radius: no outcome of these draws can prove more than"):
        run(Buckets(), X, rf.Sequential(2.0, n=500))


def test_the_seconds_of_all_records_are_no_more_than_the_time_that_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes share their draws, and so the time these took: counted for every lane they would be 20 times as much."""
    passed = [0.0]

    class Slow(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            passed[0] += 1.0
            return Buckets()(x).unsqueeze(1).expand(-1, 20, -1)

    monkeypatch.setattr("ringfence.sampling.sampler.time", SimpleNamespace(perf_counter=lambda: passed[0]))
    records = run(Slow(), X, rf.Fixed(n0=10, n=200), lanes=tuple(map(str, range(20))))
    assert len(records) == 20 * len(X)
    assert 0 < sum(record.seconds for record in records) <= passed[0]


def test_a_time_budget_stops_at_a_look_with_a_valid_answer() -> None:
    (record,) = run(Buckets(), X[:1], rf.Anytime(n=10**9, seconds=0.05))
    assert record.stages[0].stage == 0
    looks = np.cumsum([stage.draws for stage in record.stages[1:]])
    assert len(looks) >= 1
    assert looks[-1] < 10**9
    assert record.prediction == 1 or record.abstained
    ahead = run(Buckets(), X[:1], rf.Anytime(n=int(looks[-1])))[0]
    assert ahead.stages[1].cells["votes"].tolist() == record.stages[1].cells["votes"].tolist()


def test_a_lift_divides_the_radii() -> None:
    wide = run(Buckets((0.0, 1.0, 2.0)), X, rf.Fixed(n=500), lift=Double())
    plain = run(Buckets((0.0, 1.0, 2.0)), 2 * X, rf.Fixed(n=500))
    for record, other in zip(wide, plain, strict=True):
        assert record.lift_norm == 2.0
        assert record.p_a == other.p_a
        assert record.radius == pytest.approx(other.radius / 2, rel=1e-8)
        assert record.radius <= other.radius / 2


def test_a_lift_that_leaves_out_its_factor_makes_no_sound_record() -> None:
    assert all(record.sound for record in run(Buckets(), X, rf.Fixed(n=100), lift=rf.Identity()))
    assert not any(record.sound for record in run(Buckets(), X, rf.Fixed(n=100), lift=Paper(rf.Identity())))


def test_progress_and_plans_are_reported() -> None:
    seen: list[rf.Progress] = []
    plans: list[ForwardPlan] = []
    execution = rf.Execution(device="cpu", batch=32, on_progress=seen.append, on_plan=plans.append)
    records = run(Buckets(), X, rf.Fixed(n=300), execution=execution)
    assert seen[-1].inputs == len(X)
    assert seen[-1].draws == sum(record.draws for record in records)
    assert [one.draws for one in seen] == sorted(one.draws for one in seen)
    assert [plan.batch for plan in plans] == [32]


def test_facts_are_read_of_groups_of_one_size() -> None:
    """ACES asks its core network about clean inputs; the size of a batch may change what a network says."""
    asked: list[int] = []

    class Core(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            asked.append(len(x))
            return Buckets()(x)

    aces = Aces(Buckets(), EntropySelector([0.2, 0.9]), Core())
    x = torch.linspace(-1, 1, 21)[:, None]
    found = run(aces, x, AcesCertify(n=200), lanes=aces.names)
    assert set(asked) == {ASKED_AT_ONCE, 1}  # a few by themselves, before all others
    groups = asked.count(ASKED_AT_ONCE)
    assert 2 + 2 <= groups <= 2 + 4  # when they come, and some at a time before their records leave
    wanted = Buckets()(x).argmax(1).tolist()
    assert [dict(record.facts) for record in found[::2]] == [{"core": number} for number in wanted]
    with pytest.raises(DataError, match="shape"):
        run(aces, [torch.zeros(1), torch.zeros(2)], AcesCertify(n=200), lanes=aces.names)


def test_out_of_memory_on_the_way_gives_the_same_records() -> None:
    plans: list[ForwardPlan] = []
    execution = rf.Execution(device="cpu", plan=ForwardPlan(400), on_plan=plans.append)
    found = run(LittleMemory(130), X, rf.Fixed(n=900), execution=execution)
    expected = run(Buckets(), X, rf.Fixed(n=900))
    assert [record.radius for record in found] == [record.radius for record in expected]
    assert plans[-1].batch == 100
