"""Laws of a classifier that changes while it is certified: no record rests on an answer of the changed one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import pytest
import torch
import typer
from torch import Tensor, nn
from toys import Buckets

import ringfence as rf
from ringfence.classifiers import Aces, Classifier, EntropySelector, Scored
from ringfence.data import Input
from ringfence.errors import ClassifierError
from ringfence.procedures import AcesCertify, Procedure
from ringfence.sampling import ForwardPlan
from ringfence.sampling.remembered import LEAST_BATCHES

INPUTS = [Input(k, torch.tensor([(k - 3) / 4, 0.5, 0.5]), None, "") for k in range(5)]
PROCEDURES: list[Procedure] = [rf.Fixed(n0=20, n=200), rf.Sequential(0.1, n=1000), rf.Anytime(n=400, tolerance=0.3)]
EVERY = pytest.mark.parametrize("procedure", PROCEDURES, ids=lambda one: one.name)


class Changing(nn.Module):
    """Buckets until it has been called so often, something else from then on."""

    def __init__(self, calls: int, otherwise: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.inner, self.left, self.otherwise = Buckets(), calls, otherwise

    def forward(self, x: Tensor) -> Any:
        self.left -= 1
        scores = self.inner(x)
        return scores if self.left >= 0 else self.otherwise(scores)


def facts(record: rf.Record) -> str:
    stages = [(s.stage, s.start, s.draws, s.cells["votes"].tolist()) for s in record.stages]
    return repr((record.input_id, record.prediction, record.radius, record.p_a, stages))


def certified(classifier: nn.Module, procedure: Procedure, batch: int) -> tuple[list[str], str]:
    """The records that came, and the error that ended them."""
    found: list[str] = []
    try:
        for record in rf.certify(
            classifier.eval(),
            INPUTS,
            noise=rf.Gaussian(0.5),
            procedure=procedure,
            seed=11,
            execution=rf.Execution(device="cpu", plan=ForwardPlan(batch)),
        ):
            found.append(facts(record))
    except ClassifierError as error:
        return found, str(error)
    return found, ""


def calls(procedure: Procedure, batch: int) -> tuple[int, int]:
    """Calls of the classifier in a whole run: before the first draw, and in all."""
    counting = Changing(10**9, lambda scores: scores)
    seen: list[int] = []
    for _ in rf.certify(
        counting.eval(),
        INPUTS,
        noise=rf.Gaussian(0.5),
        procedure=procedure,
        seed=11,
        execution=rf.Execution(
            device="cpu", plan=ForwardPlan(batch), on_plan=lambda plan: seen.append(10**9 - counting.left)
        ),
    ):
        pass
    return seen[0], 10**9 - counting.left


@EVERY
@pytest.mark.parametrize("batch", [7, 64])
def test_a_network_that_changed_stops_the_run_and_leaves_no_record(procedure: Procedure, batch: int) -> None:
    whole, error = certified(Buckets(), procedure, batch)
    assert len(whole) == len(INPUTS)
    assert error == ""
    before, total = calls(procedure, batch)
    step = max(1, (total - before) // 8)
    kept: set[int] = set()
    for number in [before, *range(before + 1, total, step), total - 1]:
        found, error = certified(Changing(number, lambda scores: scores.roll(1, 1)), procedure, batch)
        assert "must stay the same while it is certified" in error, number
        assert set(found) < set(whole), number
        kept.add(len(found))
    assert certified(Changing(total, lambda scores: scores.roll(1, 1)), procedure, batch) == (whole, "")
    if total - before > 3 * max(LEAST_BATCHES, 200 // batch):
        assert max(kept) > 0, "what was found unchanged is not dropped"


OTHERWISE: dict[str, Callable[[Tensor], Any]] = {
    "fewer classes": lambda scores: scores[:, :3],
    "more classes": lambda scores: torch.cat([scores, scores], 1),
    "one row": lambda scores: scores[:1],
    "more rows": lambda scores: torch.cat([scores, scores]),
    "lanes": lambda scores: torch.stack([scores, scores], 1),
    "no classes at all": lambda scores: scores[:, 0],
    "whole numbers": lambda scores: scores.long(),
    "a list": lambda scores: scores.tolist(),
}


@EVERY
@pytest.mark.parametrize("name", OTHERWISE)
def test_answers_of_another_shape_are_never_counted(procedure: Procedure, name: str) -> None:
    whole, _ = certified(Buckets(), procedure, 32)
    before, total = calls(procedure, 32)
    for number in {before, before + 1, (before + total) // 2, total - 1}:
        found, error = certified(Changing(number, OTHERWISE[name]), procedure, 32)
        assert "must return, for every batch, floating-point scores of shape (32, 4)" in error
        assert set(found) < set(whole)


def test_a_classifier_that_ends_the_program_is_an_error_at_any_time() -> None:
    def leave(_: Tensor) -> Any:
        raise SystemExit(0)

    before, total = calls(PROCEDURES[0], 32)
    for number in (0, 1, before - 1, before, total - 1):
        _, error = certified(Changing(number, leave), PROCEDURES[0], 32)
        assert "SystemExit(0) while it ran" in error


@pytest.mark.parametrize("error", [typer.Exit(0), RuntimeError("no"), StopIteration("no")], ids=lambda one: repr(one))
def test_whatever_a_classifier_raises_is_an_error_at_any_time(error: Exception) -> None:
    def leave(_: Tensor) -> Any:
        raise error

    before, total = calls(PROCEDURES[0], 32)
    for number in (0, 1, before - 1, before, total - 1):
        _, told = certified(Changing(number, leave), PROCEDURES[0], 32)
        assert f"got {type(error).__name__}: {error}" in told


def test_a_network_that_changes_during_the_checks_is_told_to_keep_state() -> None:
    """From the fourth call on: the ones before only count classes, and nothing is compared with them."""
    before, _ = calls(PROCEDURES[0], 32)
    told = [certified(Changing(n, lambda scores: scores.roll(1, 1)), PROCEDURES[0], 32)[1] for n in range(3, before)]
    assert all(told)
    assert any("depends on the size of a batch, and for state kept between calls" in one for one in told)


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("number", [3, 10, 30])
def test_a_network_that_changes_while_it_is_measured_is_refused(number: int) -> None:
    """The checks come later, and would find one function only: that which it became."""
    network = Changing(number, lambda scores: scores.roll(1, 1)).eval()
    measured = rf.Execution(device="cpu", draws=10**9)
    records = rf.certify(network, INPUTS, noise=rf.Gaussian(0.5), procedure=rf.Fixed(n=200), execution=measured)
    with pytest.raises(ClassifierError, match="it answers differently when asked twice"):
        next(iter(records))


class KnownElsewhere(nn.Module):
    """What it computes is written down beside it, where no copy is known."""

    signs: ClassVar[WeakKeyDictionary[nn.Module, float]] = WeakKeyDictionary()

    def __init__(self, sign: float) -> None:
        super().__init__()
        self.signs[self] = sign

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)[:, :2] * self.signs.get(self, 1.0)


@pytest.mark.parametrize("around", [rf.SoftVote, lambda members: rf.KConsensus(members, 2)])
def test_a_network_whose_copy_is_another_one_is_refused(around: Callable[[Sequence[nn.Module]], nn.Module]) -> None:
    """Members are copied before they run, and all forms are compared with that copy."""
    for sign in (1.0, -1.0):
        network = around([KnownElsewhere(sign).eval(), KnownElsewhere(sign).eval()])  # whose own mode says nothing
        records = rf.certify(network, INPUTS, noise=rf.Gaussian(0.5), procedure=rf.Fixed(n=200))
        if sign > 0:
            assert next(iter(records)).draws
            continue
        with pytest.raises(ClassifierError, match="must be the same function once it is copied; got a copy of it with"):
            next(iter(records))


def test_a_wrapper_of_a_users_own_is_certified_in_evaluation_mode() -> None:
    class Louder(Classifier):
        """May ask for its mode, as no wrapper of the house does."""

        def score(self, x: Tensor) -> Scored:
            scores = x.flatten(1)[:, :2]
            return Scored(-scores if self.training else scores, 1)

    records = rf.certify(Louder(), INPUTS[-1:], noise=rf.Gaussian(0.05), procedure=rf.Fixed(n=200))
    assert [one.prediction for one in records] == [1]


def test_a_slow_drift_is_found() -> None:
    class Drifts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.shift = nn.Linear(3, 4), 0.0

        def forward(self, x: Tensor) -> Tensor:
            self.shift += 1e-6
            scores: Tensor = self.inner(x + self.shift * torch.tensor([1.0, 0.0, 0.0]))
            return scores

    torch.manual_seed(0)
    _, error = certified(Drifts(), rf.Fixed(n=20_000), 32)
    assert "must stay the same" in error


def test_a_loud_input_hides_no_change_of_the_others() -> None:
    class Switches(nn.Module):
        calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            level = torch.where(x.mean(1, keepdim=True) > 2, 1e6, 1.0 if self.calls < 60 else -1.0)
            return torch.cat([level, -level], 1)

    inputs = [torch.full((64,), 3.0), *[torch.full((64,), 0.5)] * 15]
    execution = rf.Execution(device="cpu", plan=ForwardPlan(100))
    with pytest.raises(ClassifierError, match="must stay the same"):
        list(rf.certify(Switches(), inputs, noise=rf.Gaussian(0.25), procedure=rf.Fixed(n=1000), execution=execution))


def test_a_change_of_a_member_that_few_rows_ask_is_found() -> None:
    """Where the first two agree nobody hears the third, and they agreed on every row that was remembered."""

    class At(nn.Module):
        def __init__(self, edge: float, calls: int) -> None:
            super().__init__()
            self.edge, self.left = edge, calls

        def forward(self, x: Tensor) -> Tensor:
            self.left -= 1
            scores = torch.cat([self.edge - x, x - self.edge], 1)
            return scores if self.left > 0 else scores.flip(1)

    def certified(calls: int) -> list[rf.Record]:
        members = rf.KConsensus([At(0.0, 10**9), At(0.08, 10**9), At(0.0, calls)], 2)
        inputs, execution = torch.linspace(-1, 1, 8)[:, None], rf.Execution(device="cpu", plan=ForwardPlan(100))
        given: dict[str, Any] = {"sigma": 0.5, "n": 5000, "num_classes": 2, "check": False, "execution": execution}
        return list(rf.certify(members.eval(), inputs, **given))

    assert len(certified(10**9)) == 8
    with pytest.raises(ClassifierError, match="must stay the same"):
        certified(200)


class ChangesForBrightOnes(nn.Module):
    """Another function of bright inputs after so many calls; of dark ones it stays the same."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self.left = calls

    def forward(self, x: Tensor) -> Tensor:
        self.left -= 1
        light = x.mean(1, keepdim=True)
        level = torch.where((light > 0.6) & torch.tensor(self.left < 0), -light, light)
        return torch.cat([level, -level, torch.zeros_like(level)], 1)


@pytest.mark.parametrize("batch", [100, 400])
def test_a_change_that_only_later_inputs_show_is_found(batch: int) -> None:
    inputs = [torch.full((64,), 0.2 if number < 8 else 0.8) for number in range(16)]
    options: dict[str, Any] = {"noise": rf.Gaussian(0.1), "procedure": rf.Fixed(n=6400), "seed": 1}
    execution = rf.Execution(device="cpu", plan=ForwardPlan(batch))
    found: list[rf.Record] = []
    with pytest.raises(ClassifierError, match="must stay the same"):
        found.extend(rf.certify(ChangesForBrightOnes(14 * 6500 // batch), inputs, execution=execution, **options))
    same = ChangesForBrightOnes(10**9)
    assert len(list(rf.certify(same, inputs, execution=execution, **options))) == len(inputs)


def test_a_short_last_batch_is_asked_for_nothing() -> None:
    """Remembered rows fill it up: their scores are there, and no further forward is needed to confirm it."""
    before, total = calls(rf.Fixed(n0=10, n=110), 400)
    assert total - before == 3  # 50 draws to select, then 550


def test_asking_again_costs_less_than_a_percent() -> None:
    for batch in (1, 7, 64):
        each = max(200, 10 * batch)
        before, total = calls(rf.Fixed(n0=100, n=each), batch)
        drawn = len(INPUTS) * (100 + each)
        # The last batch may be short, and rows are asked once more at the end.
        assert drawn <= (total - before) * batch <= 1.01 * drawn + 2 * batch


def aces_run(core: nn.Module, count: int = 40) -> tuple[list[tuple[int, int]], str]:
    """(input, its core class) of the records that came, and the error that ended them."""
    aces = Aces(Buckets(), EntropySelector(0.5), core).eval()
    inputs = [torch.tensor([number / 40, 0.5]) for number in range(count)]
    found: list[tuple[int, int]] = []
    options: dict[str, Any] = {"noise": rf.Gaussian(0.5), "procedure": AcesCertify(n0=20, n=300), "lanes": aces.names}
    try:
        for record in rf.certify(aces, inputs, execution=rf.Execution(device="cpu", plan=ForwardPlan(50)), **options):
            found.append((record.input_id, record.facts["core"]))
    except ClassifierError as error:
        return found, str(error)
    return found, ""


def test_a_core_that_changed_stops_the_run_and_leaves_no_record() -> None:
    steady = Changing(10**9, lambda scores: scores)
    whole, error = aces_run(steady)
    assert (len(whole), error) == (40, "")
    total = 10**9 - steady.left
    for number in (1, 2, total // 2, total - 1):
        found, error = aces_run(Changing(number, lambda scores: scores.roll(1, 1)))
        assert "must stay the same while it is certified; got clean inputs" in error, number
        assert set(found) < set(whole), number
    assert aces_run(Changing(total, lambda scores: scores.roll(1, 1))) == (whole, "")


def test_a_core_that_is_no_fixed_function_of_a_row_is_found() -> None:
    class Dropping(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return Buckets()(x) * torch.rand(len(x), 1)

    assert "must stay the same" in aces_run(Dropping())[1]


class BySize(nn.Module):
    """Its classes are others where it is asked about several rows at once."""

    def forward(self, x: Tensor) -> Tensor:
        return Buckets()(x).roll(int(len(x) > 1), 1)


class Ranked(nn.Module):
    """The class is the number of smaller rows."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.eye(4)[x[:, 0].argsort(stable=True).argsort().clamp(max=3)]


@pytest.mark.parametrize(("core", "count"), [(BySize(), 1), (BySize(), 40), (Ranked(), 3)], ids=["1", "40", "company"])
def test_a_core_that_says_something_else_of_an_input_by_itself_is_refused(core: nn.Module, count: int) -> None:
    """Asked again it always says the same: few inputs always stand in one group, and groups have one size."""
    found, error = aces_run(core, count)
    assert found == []
    assert "must give one row the same scores in every batch; got clean inputs" in error
