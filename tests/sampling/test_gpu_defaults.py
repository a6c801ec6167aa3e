"""What is chosen without flags on a GPU, decided here with a pretended one: precision, compiling, and what is told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ringfence as rf
from ringfence.classifiers import Scored
from ringfence.errors import ArgumentError, ClassifierError
from ringfence.job_file import Job
from ringfence.named_parts import resolved_precision
from ringfence.sampling import ForwardPlan, check, forward, probe
from ringfence.sampling.check import checked_forward

CUDA, CPU = torch.device("cuda"), torch.device("cpu")
SHAPE = (3, 8, 8)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """A GPU of a capability that a test may change."""
    capability = [(9, 0)]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability[0])
    return capability


def test_auto_is_tf32_on_a_gpu_that_has_it_and_fp32_elsewhere(gpu: list[tuple[int, int]]) -> None:
    assert resolved_precision("auto") == "tf32"
    assert resolved_precision("auto", "cpu") == "fp32"
    assert [resolved_precision(name) for name in ("fp32", "bf16", "fp8")] == ["fp32", "bf16", "fp8"]
    gpu[0] = (7, 5)
    assert resolved_precision("auto") == "fp32"


def test_the_value_holds_what_auto_became(gpu: list[tuple[int, int]]) -> None:
    assert rf.Certification("default", noise=rf.Gaussian(0.5)).precision == "tf32"
    job: dict[str, Any] = {"noise": {"sigma": 0.5}}
    assert Job.of(job).certification.precision == "tf32"
    assert Job.of({**job, "execution": {"device": "cpu"}}).certification.precision == "fp32"
    assert Job.of({**job, "precision": "bf16"}).certification.precision == "bf16"
    assert Job.of(job).written()["precision"] == "tf32", "a saved job asks for what this one meant"


def test_a_processor_computes_nothing_in_tf32() -> None:
    inputs = torch.rand(1, *SHAPE)
    with pytest.raises(ArgumentError, match="tf32 is arithmetic of CUDA devices"):
        list(rf.certify(_net(), inputs, sigma=0.5, precision="tf32", check=False, execution=rf.Execution("cpu")))


def test_nor_by_a_plan_that_a_gpu_left_in_the_folder_or_sent_along() -> None:
    """A run begun on a GPU and continued here, or a worker without one: its records would be of fp32 and say tf32."""
    execution = rf.Execution("cpu", plan=ForwardPlan(8, "tf32"), check=False)
    with pytest.raises(ArgumentError, match="tf32 is arithmetic of CUDA devices"):
        list(rf.certify(_net(), torch.rand(1, *SHAPE), sigma=0.5, precision="tf32", execution=execution))


@pytest.mark.parametrize(("precision", "while_it_runs"), [("fp32", False), ("tf32", True), ("bf16", False)])
def test_tf32_is_on_only_while_a_forward_that_says_so_runs(
    monkeypatch: pytest.MonkeyPatch, precision: Any, while_it_runs: bool
) -> None:
    state: list[bool] = []
    seen: list[bool] = []

    @contextmanager
    def arithmetic(device: torch.device, tf32: bool, tried: bool = False) -> Iterator[None]:
        assert not tried
        state.append(tf32)
        yield
        state.pop()

    monkeypatch.setattr(forward, "arithmetic", arithmetic)

    class Watched(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(state[-1])
            if len(seen) > 1:
                raise RuntimeError("broken")
            return x.flatten(1)[:, :3]

    made = forward.Forward(Watched(), ForwardPlan(2, precision), CPU, 3)
    made(torch.rand(2, *SHAPE))
    with pytest.raises(ClassifierError, match="broken"):
        made(torch.rand(2, *SHAPE))
    assert seen == [while_it_runs] * 2


def flags() -> tuple[bool, bool]:
    return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32


@pytest.fixture
def kept_flags() -> Iterator[None]:
    before, tried = flags(), torch.backends.cudnn.benchmark
    yield
    torch.backends.cudnn.benchmark = tried
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def test_algorithms_are_tried_only_while_a_forward_that_says_so_runs(kept_flags: None) -> None:
    device, seen = torch.device("cuda"), list[bool]()  # of which nothing is asked here
    for wished in (False, True):
        torch.backends.cudnn.benchmark = wished
        with forward.arithmetic(device, tf32=False, tried=True), forward.arithmetic(device, tf32=False, tried=True):
            seen.append(torch.backends.cudnn.benchmark)
        seen.append(torch.backends.cudnn.benchmark)
        with forward.arithmetic(device, tf32=False):
            seen.append(torch.backends.cudnn.benchmark)
    assert seen == [True, False, False, True, True, True]


@pytest.mark.parametrize(("joined", "autotune"), [(True, True), (True, False), (False, True)])
def test_a_plan_says_that_algorithms_are_tried(monkeypatch: pytest.MonkeyPatch, joined: bool, autotune: bool) -> None:
    seen: list[bool] = []

    @contextmanager
    def arithmetic(device: torch.device, tf32: bool, tried: bool = False) -> Iterator[None]:
        seen.append(tried)
        yield

    monkeypatch.setattr(forward, "arithmetic", arithmetic)
    plan = ForwardPlan(2, joined=joined, autotune=autotune)
    forward.Forward(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), plan, CPU, 3)(torch.rand(2, 3, 2, 2))
    assert seen == [False, joined and autotune]


def test_the_flags_are_those_of_products_and_convolutions(kept_flags: None) -> None:
    torch.backends.cudnn.allow_tf32 = True  # what a user may have set
    for use in (False, True, False):
        with forward.arithmetic(CUDA, tf32=use):
            assert flags() == (use, use)
        assert flags() == (False, False)
    with pytest.raises(ValueError, match="broken"), forward.arithmetic(CUDA, tf32=True):
        raise ValueError("broken")
    assert flags() == (False, False), "also after an error"


def test_models_that_are_served_side_by_side_keep_their_arithmetic(kept_flags: None) -> None:
    """The flags are the whole process's: one in float32 waits for those in TF32, and one that ends leaves them on."""
    begun, ending, done = threading.Event(), threading.Event(), list[tuple[str, tuple[bool, bool]]]()

    def run(name: str, tf32: bool, until: threading.Event | None = None) -> None:
        with forward.arithmetic(CUDA, tf32=tf32):
            begun.set()
            if until is not None:
                until.wait()
            done.append((name, flags()))

    first = threading.Thread(target=run, args=("first", True, ending), daemon=True)
    first.start()
    begun.wait()
    other = threading.Thread(target=run, args=("other", False), daemon=True)
    other.start()
    run("beside", True)
    assert done == [("beside", (True, True))]
    assert flags() == (True, True)
    ending.set()
    first.join()
    other.join()
    assert done[1:] == [("first", (True, True)), ("other", (False, False))]


@pytest.mark.parametrize(
    ("device", "asked", "draws", "compiled"),
    [
        (CUDA, None, 10_000, False),  # ten seconds
        (CUDA, None, 1_000_000, True),  # a quarter of an hour
        (CUDA, None, 0, False),  # nobody knows
        (CUDA, False, 1_000_000, False),
        (CUDA, True, 0, True),
        (CPU, None, 1_000_000, True),
        (CPU, None, 150_000, False),
        (CPU, None, 0, False),
        (CPU, False, 1_000_000, False),
    ],
)
def test_a_network_is_compiled_where_the_run_is_long_enough(
    monkeypatch: pytest.MonkeyPatch, device: torch.device, asked: bool | None, draws: int, compiled: bool
) -> None:
    monkeypatch.setattr(probe, "_fitting", lambda classifier, plan, *rest: (plan, 1000.0 + plan.compile))
    plan = probe.fastest_plan(_net(), SHAPE, 3, device, "fp32", asked, draws=draws)
    assert plan.compile is compiled
    assert plan.precision == "fp32"


def test_plan_and_reason_are_told_in_a_line() -> None:
    long = rf.Execution("cuda", draws=2_000_000)
    told = long.in_words(ForwardPlan(4096, "tf32", channels_last=True, compile=True), CUDA)
    expected = "plan on cuda: tf32, 4,096 rows a forward, channels last, compiled (compiling pays for 2,000,000 draws)"
    assert told == expected
    assert "too short to compile" in rf.Execution("cuda", draws=7).in_words(ForwardPlan(64, "tf32"), CUDA)
    refused = ForwardPlan(64, "bf16", refused=("fold: scores differ",))
    assert (
        rf.Execution("cuda", compile=False).in_words(refused, CUDA).endswith("(as asked); without fold: scores differ")
    )


def test_forms_are_compared_up_to_the_rounding_of_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another form rounds products elsewhere: in tf32 that is no other function, in fp32 it would be."""
    real = forward.Forward

    def rounding(classifier: nn.Module, plan: ForwardPlan, device: torch.device, classes: int) -> Any:
        made = real(classifier, plan, device, classes)
        if plan.precision == "fp32" and not plan.fold:
            return made
        run, cut = made._run, 0x1000 if plan.fold else 0

        def rounded(x: Tensor) -> Scored:
            scores, work = run(x)
            bits = (scores.view(torch.int32) + cut) & ~0x1FFF  # ten bits of mantissa, cut off or to the nearest
            return Scored(bits.view(torch.float32), work)

        made._run = rounded
        return made

    monkeypatch.setattr(check, "Forward", rounding)
    torch.manual_seed(0)
    inputs = torch.rand(64, *SHAPE)
    for precision, form in (("tf32", True), ("fp32", False)):
        plan = ForwardPlan(64, precision, fold=True)  # type: ignore[arg-type]
        found = checked_forward(_net(), plan, CPU, 3, lambda rows: inputs[:rows])
        assert found.forward.plan.fold is form, precision


def _net() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)).eval()
