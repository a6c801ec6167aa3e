"""Plans are measured, and shrink where memory ends."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn
from toys import Buckets, LittleMemory

import ringfence as rf
from ringfence.classifiers import KConsensus, SoftVote
from ringfence.classifiers.architectures import resnet
from ringfence.errors import ArgumentError, ClassifierError
from ringfence.sampling import Forward, ForwardPlan, fastest_plan, probe
from ringfence.sampling import plan as plans
from ringfence.sampling.plan import out_of_memory, smaller
from ringfence.sampling.probe import CONSENSUS_PARTS, CPU_BATCHES, LONG_PARTS, LONG_RUN, MANY_ROWS, consensus_parts

CPU = torch.device("cpu")
ROWS = (*CPU_BATCHES, probe.FEATURES_BATCH, probe.LARGE_FEATURES_BATCH)
LONG = probe.SHORT_RUN + 1
pytestmark = pytest.mark.usefixtures("measured")


def test_a_given_batch_is_kept_and_a_measured_one_is_of_the_list() -> None:
    assert fastest_plan(Buckets(), (2,), 4, CPU, batch=37, draws=LONG).batch == 37
    assert fastest_plan(Buckets(), (2,), 4, CPU, draws=LONG).batch in ROWS


@pytest.mark.parametrize(
    ("shape", "draws", "batch", "expected"),
    [
        ((3, 32, 32), 0, None, 100),
        ((3, 32, 32), probe.WORTH_TIMING * 100 - 1, None, 100),
        ((3, 32, 32), probe.SMALL_RUN, None, 50),
        ((3, 224, 224), 0, None, 20),
        ((3, 224, 224), probe.SMALL_RUN, None, 20),
        ((16, 3, 224, 224), 0, None, 10),
        ((30,), 0, None, probe.FEATURES_USUAL),
        ((30,), probe.SMALL_RUN, None, probe.FEATURES_USUAL),
        ((30,), probe.SMALL_RUN + 1, None, probe.FEATURES_BATCH),
        ((30,), probe.LARGE_FEATURES_RUN, None, probe.FEATURES_BATCH),
        ((30,), probe.LARGE_FEATURES_RUN + 1, None, probe.LARGE_FEATURES_BATCH),
        ((784,), probe.LARGE_FEATURES_RUN + 1, None, probe.FEATURES_BATCH),
        ((3, 32, 32), 0, 37, 37),
    ],
)
def test_before_a_run_that_is_not_known_to_be_long_nothing_is_measured(
    shape: tuple[int, ...], draws: int, batch: int | None, expected: int
) -> None:
    class Unasked(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise AssertionError("asked")

    plan = fastest_plan(Unasked(), shape, 10, CPU, batch=batch, draws=draws)
    assert plan == ForwardPlan(expected, channels_last=len(shape) == 3, maxima=len(shape) > 1)


def test_a_start_costs_a_small_part_of_a_small_run() -> None:
    """So that nobody is slower than with a loop of his own; rows, not seconds, which other programs take too."""
    rows: list[int] = []
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 5)).eval()
    network.register_forward_pre_hook(lambda module, given: rows.append(len(given[0])))
    before: list[int] = []
    execution = rf.Execution(device="cpu", on_plan=lambda plan: before.append(sum(rows)))
    list(rf.certify(network, torch.rand(2, 3, 8, 8), sigma=0.25, n=1000, execution=execution))
    assert before[0] <= 2200 // 6
    assert sum(rows) <= 2200 + 2200 // 5


@pytest.mark.parametrize("limit", [30, 1])
def test_a_plan_that_was_not_measured_shrinks_where_memory_ends(limit: int) -> None:
    plans: list[ForwardPlan] = []
    execution = rf.Execution(device="cpu", on_plan=plans.append)
    (record,) = rf.certify(LittleMemory(limit), torch.rand(1, 2), sigma=0.25, n=200, execution=execution)
    assert record.draws == 300
    assert plans[-1].batch <= limit


@pytest.mark.parametrize(("limit", "batch", "expected"), [(50, 100, 50), (30, 100, 25), (1, 100, 1), (100, 100, 100)])
def test_a_batch_that_does_not_fit_is_halved(limit: int, batch: int, expected: int) -> None:
    assert fastest_plan(LittleMemory(limit), (2,), 4, CPU, batch=batch, draws=LONG).batch == expected


def test_measured_batches_stop_where_memory_ends() -> None:
    assert fastest_plan(LittleMemory(150), (2,), 4, CPU, draws=LONG).batch <= 150


@pytest.mark.parametrize("plain_rate", [900.0, 1100.0])
def test_the_other_layout_is_tried_at_the_best_size_alone(monkeypatch: pytest.MonkeyPatch, plain_rate: float) -> None:
    asked: list[tuple[int, bool]] = []

    def fitting(classifier: nn.Module, plan: ForwardPlan, *_: object) -> tuple[ForwardPlan, float]:
        asked.append((plan.batch, plan.channels_last))
        return plan, {20: 500.0, 100: 1000.0}.get(plan.batch, 700.0) if plan.channels_last else plain_rate

    monkeypatch.setattr(probe, "_fitting", fitting)
    found = fastest_plan(nn.Identity(), (1, 8, 8), 3, CPU, draws=LONG)
    assert asked == [(20, True), (100, True), (200, True), (100, False)]
    assert found == ForwardPlan(100, channels_last=plain_rate < 1000, maxima=True)


def test_small_batches_are_timed_several_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many rows as the largest: one small batch fits between the interruptions of a busy machine."""
    monkeypatch.setattr(probe, "FAIR_SECONDS", 1e9)
    monkeypatch.setattr(probe, "ENOUGH_SECONDS", 1e9)
    rows: list[int] = []
    network = Buckets()
    network.register_forward_pre_hook(lambda module, given: rows.append(len(given[0])))
    fastest_plan(network, (2,), 4, CPU, draws=LONG)
    for size in CPU_BATCHES:
        assert rows.count(size) == 3 * probe.FAIR_ROWS // size


@pytest.mark.parametrize("draws", [0, 1000, LONG])
def test_a_consensus_gets_several_batches_at_a_time_unless_the_size_is_given(draws: int) -> None:
    ensemble = KConsensus([Buckets(), Buckets()], 1)
    plan = fastest_plan(ensemble, (2,), 4, CPU, draws=draws)
    assert plan.parts == CONSENSUS_PARTS
    assert plan.batch // CONSENSUS_PARTS in ROWS
    assert fastest_plan(ensemble, (2,), 4, CPU, batch=40, draws=draws) == ForwardPlan(40)
    Forward(ensemble, plan, CPU, 4)
    assert ensemble.parts == 1, "a plan is carried out on a copy"


def test_not_even_one_input_fits() -> None:
    with pytest.raises(ArgumentError, match="batch: a single input must fit into memory"):
        fastest_plan(LittleMemory(0), (2,), 4, CPU, batch=8, draws=LONG)


def test_other_errors_are_not_taken_for_a_lack_of_memory() -> None:
    class Broken(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("shapes do not match")

    with pytest.raises(ClassifierError, match="RuntimeError: shapes do not match"):
        fastest_plan(Broken(), (2,), 4, CPU, batch=8, draws=LONG)
    assert out_of_memory(torch.OutOfMemoryError("x"))
    assert out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate"))
    assert not out_of_memory(RuntimeError("shapes"))


def test_a_smaller_plan_keeps_the_rest() -> None:
    assert smaller(ForwardPlan(101, "bf16", True, True)) == ForwardPlan(50, "bf16", True, True)


@pytest.mark.parametrize(("draws", "tuned"), [(0, False), (59_000, False), (61_000, True)])
def test_kernels_are_tried_where_the_run_is_long(monkeypatch: pytest.MonkeyPatch, draws: int, tuned: bool) -> None:
    """At 100 rows a second uncompiled, 60,000 draws are the ten minutes from which on it pays."""
    monkeypatch.setattr(probe, "_fitting", lambda classifier, plan, *_: (plan, 100.0))
    plan = fastest_plan(nn.Identity(), (1, 8, 8), 3, torch.device("cuda"), compile=True, draws=draws)
    assert plan.autotune is tuned
    assert not fastest_plan(nn.Identity(), (1, 8, 8), 3, torch.device("cpu"), compile=True, draws=10**9).autotune
    for asked in (True, False):
        plan = fastest_plan(
            nn.Identity(), (1, 8, 8), 3, torch.device("cuda"), compile=True, autotune=asked, draws=draws
        )
        assert plan.autotune is asked


def test_a_gpu_that_lacks_cupy_alone_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def plan() -> ForwardPlan:
        return fastest_plan(resnet(8), (3, 32, 32), 10, torch.device("cuda"), "bf16", compile=True)

    monkeypatch.setattr(probe, "why_not", lambda device: "ModuleNotFoundError: No module named 'cupy'")
    with pytest.warns(UserWarning, match="if CuPy were installed"):
        assert not plan().fused
    monkeypatch.setattr(probe, "why_not", lambda device: "an older GPU")
    assert not plan().fused


def test_long_runs_of_a_compiled_consensus_take_more_batches_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "free_memory", lambda device: 10**11)
    cuda, shape, long = torch.device("cuda"), (3, 32, 32), LONG_RUN * LONG_PARTS * 8192
    assert consensus_parts(8192, shape, cuda, long) == LONG_PARTS
    assert consensus_parts(8192, shape, cuda, long - 1) == CONSENSUS_PARTS
    assert consensus_parts(8192, shape, torch.device("cpu"), long) == CONSENSUS_PARTS
    monkeypatch.setattr(probe, "free_memory", lambda device: 10**9)
    assert consensus_parts(8192, shape, cuda, long) == CONSENSUS_PARTS


@pytest.mark.parametrize(("draws", "asked"), [(0, False), (50_000, False), (100_000, True)])
def test_whether_trying_kernels_pays_is_only_measured_where_it_may(
    monkeypatch: pytest.MonkeyPatch, draws: int, asked: bool
) -> None:
    monkeypatch.setattr(probe, "_takes_long", lambda *given: True)
    plan = probe.fastest_plan(nn.Linear(12, 3), (12,), 3, torch.device("cuda"), "bf16", compile=True, draws=draws)
    assert plan.autotune == asked


@pytest.mark.parametrize(
    ("width", "side", "draws", "rows"),
    [
        (3, 28, LONG_RUN * MANY_ROWS, MANY_ROWS),
        (3, 28, LONG_RUN * MANY_ROWS - 1, 8192),
        (3, 33, LONG_RUN * MANY_ROWS, 8192),
        (3000, 28, LONG_RUN * MANY_ROWS, 8192),
    ],
)
def test_long_runs_of_small_networks_on_small_inputs_take_many_rows(
    width: int, side: int, draws: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "_takes_long", lambda *given: False)
    monkeypatch.setattr(plans, "free_memory", lambda device: 10**9)
    network = nn.Sequential(nn.Flatten(), nn.Linear(side * side, width))
    plan = partial(fastest_plan, network, (1, side, side), width, torch.device("cuda"), compile=True, draws=draws)
    assert plan().batch == rows
    assert plan(batch=100).batch == 100


def test_members_that_cannot_be_stacked_are_asked_one_by_one() -> None:
    class Asks(nn.Module):
        """Looks at its own numbers, as no network can while it is run with the weights of several."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(2, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scores: torch.Tensor = self.inner(x)
            return scores if float(scores.abs().max()) < 1e9 else scores / 2

    class Tries(Asks):
        """Goes on where it cannot."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            try:
                return super().forward(x)
            except Exception:
                return self.inner(x)  # type: ignore[no-any-return]

    for members in ([Asks(), Asks()], [Tries(), Tries()], [nn.Flatten(), nn.Flatten()]):  # the last have no weights
        vote = SoftVote(members)
        assert vote.members.stackable
        assert not fastest_plan(vote, (2,), 4 if isinstance(members[0], Asks) else 2, CPU, batch=20, draws=LONG).stacked
