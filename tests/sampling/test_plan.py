"""Plans: what is plainer, what is stored, and batches that no memory holds."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from toys import Buckets

import ringfence as rf
from ringfence.errors import ArgumentError
from ringfence.sampling import ForwardPlan, fastest_plan
from ringfence.sampling.agreement import tolerance
from ringfence.sampling.plan import check_memory, free_memory, plainer
from ringfence.sampling.remembered import FIRST, Remembered

CPU = torch.device("cpu")


def test_forms_become_plainer_until_nothing_is_left_but_the_network() -> None:
    every = ForwardPlan(8, "bf16", channels_last=True, compile=True, fold=True, autotune=True, parts=2, fused=True)
    steps = list(plainer(every))
    assert [name for name, _ in steps] == ["fused", "fold", "compile", "channels_last", "parts"]
    assert steps[-1][1] == every.plain == ForwardPlan(8, "bf16")
    assert not steps[2][1].autotune
    assert [name for name, _ in plainer(ForwardPlan(8, stacked=True, fold=True))] == ["fold", "stacked"]
    assert [name for name, _ in plainer(ForwardPlan(8, fold=True, joined=True))] == ["joined", "fold"]
    assert list(plainer(ForwardPlan(8))) == []


def test_reasons_are_stored_and_read_back() -> None:
    plan = ForwardPlan(8, refused=("fold: no", "stacked: no"))
    assert plan.settings()["refused"] == ["fold: no", "stacked: no"]
    assert ForwardPlan(**plan.settings()) == plan
    assert ForwardPlan(batch=20) == ForwardPlan(20)


def test_plans_of_earlier_versions_are_read_and_forms_of_later_ones_refused() -> None:
    """Before forms could be joined, no plan said so; a form that is not known here is not left out in silence."""
    plan = ForwardPlan(20, "bf16", fold=True)
    before = {key: value for key, value in plan.settings().items() if key != "joined"}
    assert ForwardPlan.stored(before) == plan
    with pytest.raises(ArgumentError, match=r"plan: must have forms that this version knows; got woven\."):
        ForwardPlan.stored(before | {"woven": True})


def test_a_batch_that_no_memory_holds_is_refused_before_anything_is_allocated() -> None:
    free = free_memory(CPU)
    assert free is not None
    fits = free // 2 // (4 * 3 * 3072)
    check_memory(fits, (3, 32, 32), CPU)
    message = r"batch: batches of inputs must fit into the .* GiB .* free; got 1000000000 rows, .* Use auto, or at most"
    with pytest.raises(ArgumentError, match=message):
        check_memory(10**9, (3, 32, 32), CPU)
    with pytest.raises(ArgumentError, match=message):
        fastest_plan(Buckets(), (3, 32, 32), 4, CPU, batch=10**9)
    for execution in (rf.Execution("cpu", batch=10**9), rf.Execution("cpu", plan=ForwardPlan(10**9))):
        options = {"noise": rf.Gaussian(1.0), "procedure": rf.Fixed(), "execution": execution}
        with pytest.raises(ArgumentError, match=message):
            list(rf.certify(Buckets(), torch.rand(1, 3, 32, 32), **options))  # type: ignore[arg-type]


@pytest.mark.parametrize("batch", [1, 2, 7, 20, 64, 100, 400, 8192])
def test_rows_are_asked_again_soon_and_for_little(batch: int) -> None:
    scores = torch.randn(8, 1, 4)
    remembered = Remembered(torch.randn(8, 3), scores, tolerance(scores))
    left = [remembered.next(batch).asked for _ in range(1000)]
    times = [number for number, rows in enumerate(left) if rows]
    assert all(later - earlier <= max(10, -(-200 // batch)) for earlier, later in pairwise(times))
    assert sum(left) <= 0.0051 * 1000 * batch
    now = remembered.next(batch, now=True)
    assert now.asked == len(now.places) >= min(4, batch)
    assert min(now.places) < FIRST


def test_every_row_has_its_turn_however_small_the_batch() -> None:
    remembered = Remembered(torch.randn(8, 3), torch.randn(8, 1, 4), tolerance(torch.randn(8, 1, 4)))
    fillings = [remembered.next(20) for _ in range(200)]
    assert {place for one in fillings for place in one.places[: one.asked]} == set(range(FIRST))
