"""What a certification on a CPU does by itself: folds, pools by maxima and compiles where that pays."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ringfence as rf
from ringfence.classifiers import KConsensus
from ringfence.errors import ClassifierError
from ringfence.sampling import ForwardPlan, fastest_plan, preparing, probe

CPU, SHAPE = torch.device("cpu"), (3, 8, 8)
LONG = 10**9


def network() -> nn.Module:
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3))
    return nn.Sequential(*layers).eval()


def rates(monkeypatch: pytest.MonkeyPatch, **faster: float) -> list[ForwardPlan]:
    """Plans run at a thousand rows a second, times what their forms bring; those that were measured."""
    asked: list[ForwardPlan] = []

    def fitting(classifier: nn.Module, plan: ForwardPlan, *_: object) -> tuple[ForwardPlan, float]:
        asked.append(plan)
        rate = 1000.0
        for name, times in faster.items():
            rate *= times if getattr(plan, name) else 1.0
        return plan, rate

    monkeypatch.setattr(probe, "_fitting", fitting)
    return asked


@pytest.mark.parametrize(("times", "kept"), [(0.9, False), (1.5, True)])
def test_the_faster_of_both_is_kept(monkeypatch: pytest.MonkeyPatch, times: float, kept: bool) -> None:
    told: list[str] = []
    asked = rates(monkeypatch, compile=times)
    plan = fastest_plan(network(), SHAPE, 3, CPU, compile=None, draws=LONG, tell=told.append)
    assert plan.compile is kept
    assert plan.fold is kept
    assert plan.maxima, "what runs where what is compiled is refused"
    assert [one.compile for one in asked[-2 * probe.ROUNDS :]] == [True, False] * probe.ROUNDS
    assert told == ["compiling the network for this processor: some seconds, of a large one minutes"]
    assert plan.refused == (() if kept else ("compile: no faster here",))


def test_batch_norms_are_folded_where_that_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    rates(monkeypatch, fold=1.1)
    assert fastest_plan(network(), SHAPE, 3, CPU, draws=LONG).fold
    rates(monkeypatch, fold=0.9)
    assert not fastest_plan(network(), SHAPE, 3, CPU, draws=LONG).fold
    for draws in (probe.WORTH_FOLDING, probe.SMALL_RUN, probe.SMALL_RUN + 1):
        assert fastest_plan(network(), SHAPE, 3, CPU, draws=draws).fold
    assert not fastest_plan(network(), SHAPE, 3, CPU, draws=probe.WORTH_FOLDING - 1).fold
    assert not fastest_plan(nn.Flatten(), SHAPE, 192, CPU, draws=probe.SMALL_RUN + 1).fold


@pytest.mark.parametrize(("layers", "draws", "compiled"), [(1, 186_000, True), (9, 186_000, False), (9, 230_000, True)])
def test_large_networks_are_compiled_for_longer_runs(
    monkeypatch: pytest.MonkeyPatch, layers: int, draws: int, compiled: bool
) -> None:
    """A thousand rows a second: three minutes, and five seconds for each layer."""
    rates(monkeypatch, compile=2.0)
    monkeypatch.setattr(probe, "SHORT_RUN", 0)
    deep = nn.Sequential(nn.Flatten(), nn.Linear(192, 3), *(nn.Linear(3, 3) for _ in range(layers - 1)))
    assert fastest_plan(deep, SHAPE, 3, CPU, compile=None, draws=draws).compile is compiled


@pytest.mark.parametrize("batch", [None, 40])
def test_a_consensus_is_not_compiled_unasked(monkeypatch: pytest.MonkeyPatch, batch: int | None) -> None:
    """The rows that are left undecided differ in number."""
    rates(monkeypatch, compile=2.0)
    vote = KConsensus([network(), network()], 1)
    assert not fastest_plan(vote, SHAPE, 3, CPU, compile=None, batch=batch, draws=LONG).compile


class Slow(nn.Module):
    """Takes its time, by a clock of the test's own."""

    def __init__(self, clock: list[float], seconds_of_row: float, channels_last: float = 1.0) -> None:
        super().__init__()
        self.clock, self.each, self.rows, self.last = clock, seconds_of_row, 0, channels_last

    def __deepcopy__(self, known: object) -> Slow:
        return self  # there is one clock

    def forward(self, x: Tensor) -> Tensor:
        self.rows += len(x)
        last = x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
        self.clock[0] += self.each * len(x) * (self.last if last else 1.0)
        return x.flatten(1)[:, :3]


@pytest.mark.parametrize(
    ("of_row", "draws", "long"), [(1e-2, 20_000, True), (1e-3, 20_000, False), (1e-2, 9999, False)]
)
@pytest.mark.usefixtures("measured")
def test_a_slow_network_makes_a_run_long(
    monkeypatch: pytest.MonkeyPatch, of_row: float, draws: int, long: bool
) -> None:
    """Two batches are asked of each layout; then sizes, of which the first takes long enough to need no others."""
    clock = [0.0]
    monkeypatch.setattr(probe.time, "perf_counter", lambda: clock[0])
    slow = Slow(clock, of_row).eval()
    plan = fastest_plan(slow, SHAPE, 3, CPU, draws=draws)
    timed = 4 * 100 + 4 if draws >= probe.WORTH_TIMING * 100 else 0  # and a row of each that shows whether it pools
    assert (slow.rows > timed) is long
    assert long or slow.rows <= timed
    assert plan.batch == (20 if long else 100)


@pytest.mark.parametrize(("times", "draws", "kept"), [(1.3, 20_000, False), (1.05, 20_000, True), (1.3, 9999, True)])
@pytest.mark.usefixtures("measured")
def test_images_are_not_channels_last_where_that_is_slower(
    monkeypatch: pytest.MonkeyPatch, times: float, draws: int, kept: bool
) -> None:
    """Clearly so, and in a run that is long enough to ask."""
    clock = [0.0]
    monkeypatch.setattr(probe.time, "perf_counter", lambda: clock[0])
    plan = fastest_plan(Slow(clock, 1e-3, channels_last=times).eval(), SHAPE, 3, CPU, draws=draws)
    assert plan.channels_last is kept
    assert plan.batch == 100


@pytest.mark.parametrize(
    ("times", "draws", "weights", "kept", "asked"),
    [
        (1.3, 2000, 1, False, 32),
        (1.3, 0, 1, False, 32),
        (1.05, 2000, 1, True, 32),
        (1.3, probe.WORTH_FOLDING - 1, 1, True, 0),
        (1.3, 2000, 0, True, 0),
    ],
)
@pytest.mark.usefixtures("measured")
def test_a_few_rows_tell_the_layout_of_large_networks_in_short_runs(
    monkeypatch: pytest.MonkeyPatch, times: float, draws: int, weights: int, kept: bool, asked: int
) -> None:
    clock = [0.0]
    monkeypatch.setattr(probe.time, "perf_counter", lambda: clock[0])
    slow = Slow(clock, 1e-3, channels_last=times).eval()
    slow.weight = nn.Parameter(torch.zeros(weights * (probe.SMALL_NETWORK + 1)))
    plan = fastest_plan(slow, (3, 32, 32), 3, CPU, draws=draws)
    assert plan.channels_last is kept
    assert plan.batch == (50 if draws else 100)
    assert slow.rows == asked + (2 if asked else 0)  # and a row of each that shows whether it pools


@pytest.mark.parametrize(("of_row", "batch", "rows"), [(8e-6, None, 200), (15e-6, None, 100), (8e-6, 100, 100)])
@pytest.mark.usefixtures("measured")
def test_brief_forwards_take_twice_as_many_rows(
    monkeypatch: pytest.MonkeyPatch, of_row: float, batch: int | None, rows: int
) -> None:
    """What a batch takes beside its forward is felt then."""
    clock = [0.0]
    monkeypatch.setattr(probe.time, "perf_counter", lambda: clock[0])
    assert fastest_plan(Slow(clock, of_row).eval(), SHAPE, 3, CPU, batch=batch, draws=20_000).batch == rows


@pytest.mark.usefixtures("measured")
def test_the_time_that_compiling_takes_is_not_that_of_a_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(probe.time, "perf_counter", lambda: clock[0])

    def compiled(run: Any, mode: str | None = None) -> Any:
        took = [1000.0]

        def faster(x: Tensor) -> Any:
            before = clock[0]
            answer = run(x)
            clock[0] = before + (clock[0] - before) / 2 + took[0]
            took[0] = 0.0
            return answer

        return faster

    monkeypatch.setattr(preparing, "compiled", compiled)
    plan = fastest_plan(Slow(clock, 1e-3).eval(), SHAPE, 3, CPU, compile=None, draws=LONG)
    assert plan.compile
    assert plan.refused == ()


def certified(monkeypatch: pytest.MonkeyPatch, **more: Any) -> tuple[list[rf.Record], list[ForwardPlan], list[str]]:
    plans: list[ForwardPlan] = []
    told: list[str] = []
    monkeypatch.setattr(probe, "COMPILE_SECONDS", -1e9)
    monkeypatch.setattr(probe, "SHORT_RUN", 10)
    how = rf.Execution(device="cpu", on_plan=plans.append, on_remark=told.append, **more)
    found = rf.certify(network(), torch.rand(2, *SHAPE), sigma=0.25, n=100, execution=how, check=False)
    return list(found), plans, told


def test_where_compiling_fails_the_run_goes_on_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(*given: Any, **more: Any) -> Any:
        raise RuntimeError("No working C++ compiler found\nand more lines")

    wanted, _, none = certified(monkeypatch, compile=False)
    assert none == []
    monkeypatch.setattr(preparing, "compiled", compiled)
    records, plans, told = certified(monkeypatch)
    assert [one.radius for one in records] == [one.radius for one in wanted]
    why = "compile: RuntimeError: No working C++ compiler found"
    assert not plans[-1].compile
    assert plans[-1].maxima
    assert plans[-1].refused == (why,)
    assert len(told) == 2
    assert told[1].startswith("plan on cpu: fp32, ")
    assert told[1].endswith(f" (measured); without {why}")


def test_what_is_compiled_and_is_another_function_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what was measured as the faster one: nothing was compared until then."""

    def compiled(run: Any, mode: str | None = None, **more: Any) -> Any:
        if run.__name__ != "run":
            return run
        return lambda x: (run(x).scores.flip(-1), 1)

    wanted, _, _ = certified(monkeypatch, compile=False)
    monkeypatch.setattr(preparing, "compiled", compiled)
    monkeypatch.setattr("ringfence.sampling.forward.compiled", compiled)
    rates(monkeypatch, compile=2.0)
    records, plans, told = certified(monkeypatch)
    assert [one.radius for one in records] == [one.radius for one in wanted]
    assert plans[-1].maxima
    assert [one.partition(":")[0] for one in plans[-1].refused] == ["fold", "compile"]
    assert "without compile: scores of " in told[-1]


def test_a_compiled_run_goes_on_compiled_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(*given: Any, **more: Any) -> Any:
        raise RuntimeError("No working C++ compiler found")

    monkeypatch.setattr(preparing, "compiled", compiled)
    stored = ForwardPlan(100, channels_last=True, compile=True, fold=True, maxima=True)
    with pytest.raises(ClassifierError, match=r"form in the given plan.*No working C\+\+ compiler"):
        certified(monkeypatch, plan=stored)
