"""certify: a network and data in, records out; the certification it describes is made, checked and run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, Unpack, final, overload

from torch import Tensor, nn

from ringfence.analysis.metrics import metrics_by_lane
from ringfence.bars import bar
from ringfence.certification import Certification, Mechanisms, listed
from ringfence.driver import Progress
from ringfence.errors import ArgumentError, Collected, DataError
from ringfence.lift import Lift
from ringfence.loggers import Logger, PythonLogger, tell_metrics
from ringfence.mechanisms import Mechanism
from ringfence.models.compose import Part
from ringfence.named_parts import resolved_precision
from ringfence.noise import Gaussian, Noise, noise_with
from ringfence.procedures import Fixed, Predict, Procedure, Sequential
from ringfence.progress import all_of
from ringfence.record import Record
from ringfence.runs import Run
from ringfence.sampling import ForwardPlan
from ringfence.work import Execution


class Options(TypedDict, total=False):
    """What ``certify`` is told beside classifier, data and folder, for those who check types."""

    sigma: float | None
    radius: float | None
    n: int | None
    alpha: float | None
    noise: Noise | None
    procedure: Procedure | None
    mechanism: Mechanisms | None
    also: Mechanisms
    lift: Lift | None
    num_classes: int | None
    lanes: Sequence[str]
    precision: str
    split_alpha: bool
    seed: int
    device: str | None
    execution: Execution | None
    check: bool
    on_record: Callable[[Record], None] | None
    on_progress: Callable[[Progress], None] | None
    progress: bool
    loggers: Sequence[Logger]


@overload
def certify(classifier: Part, data: Any, *, out: None = None, **asked: Unpack[Options]) -> Iterator[Record]: ...
@overload
def certify(classifier: Part, data: Any, *, out: str | Path, **asked: Unpack[Options]) -> Run: ...
def certify(
    classifier: Part,
    data: Any,
    *,
    sigma: float | None = None,
    radius: float | None = None,
    n: int | None = None,
    alpha: float | None = None,
    noise: Noise | None = None,
    procedure: Procedure | None = None,
    mechanism: Mechanisms | None = None,
    also: Mechanisms = (),
    lift: Lift | None = None,
    num_classes: int | None = None,
    lanes: Sequence[str] = (),
    precision: str = "auto",
    split_alpha: bool = False,
    seed: int = 0,
    device: str | None = None,
    execution: Execution | None = None,
    check: bool = True,
    on_record: Callable[[Record], None] | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    loggers: Sequence[Logger] = (),
    progress: bool = True,
    out: str | Path | None = None,
) -> Iterator[Record] | Run:
    """Certify every input; records come as inputs are decided, all lanes of an input together.

    classifier: a network (B, *shape) -> scores (B, K) or (B, lanes, K) with names of the lanes, or a tree of models.
    data: a source, Dataset, DataLoader, tensor or array (N, *shape) in [0,1] or of bytes, (inputs, labels), or rows
    (data/adapters.py). precision: fp32, tf32 (on CUDA) or bf16, part of what is claimed; auto is tf32 where the device
    has it, else fp32. sigma: of Gaussian noise; radius: tried by the sequential test, without it the largest one that
    n draws prove (100,000 if not said), both at alpha (0.001); or noise and procedure themselves. mechanism decides,
    None is the tight one for the noise; also adds further radii from the same bounds at no cost. check: refuse data and
    classifier that are hardly made for each other (``unit_check``).
    device: cpu, cuda or cuda:N; execution says more about where.
    on_record, on_progress, loggers: are told on the way; Python's logger ``ringfence`` is too, at the level INFO.
    out: certify into this run folder, now and to the end, and return the run; again, it goes on where it stopped.
    progress: a bar with the time left while out is written, on terminals and in notebooks with ipywidgets.
    The noise of draw i of an input depends on (seed, its id, stage, i) alone.
    """
    wrong = Collected()
    drawn = wrong.ask(lambda: _noise(sigma, noise))
    test = wrong.ask(lambda: _procedure(procedure, radius=radius, n=n, alpha=alpha))
    where = wrong.ask(lambda: _execution_on(execution, device)) or Execution()
    wrong.ask(lambda: _check_loggers(loggers))
    with wrong:
        value = Certification(
            classifier,
            data,
            noise=drawn or Gaussian(1.0),
            procedure=test,
            mechanism=[*listed(mechanism), *listed(also)],
            precision=resolved_precision(precision, where.device),
            split_alpha=split_alpha,
            seed=seed,
            classes=num_classes,
            lift=lift,
            lanes=lanes,
        )
    wrong.tell()
    how = _with_listeners(where, check, on_progress, loggers)
    if out is None:
        return _telling_loggers(value.stream(how), on_record, loggers)
    return _certify_into(value, out, how, on_record, loggers, progress)


def _with_listeners(
    how: Execution, check: bool, on_progress: Callable[[Progress], None] | None, loggers: Sequence[Logger]
) -> Execution:
    """The same execution, which tells everybody how far it is."""
    told = [how.on_progress, *(one.progress for one in (PythonLogger(), *loggers))]
    told += [] if on_progress is None else [on_progress]
    return replace(how, check=check and how.check, on_progress=all_of(*told))


def _certify_into(
    value: Certification,
    out: str | Path,
    how: Execution,
    on_record: Callable[[Record], None] | None,
    loggers: Sequence[Logger],
    progress: bool,
) -> Run:
    """The run in this folder, certified to its end."""
    started = value.start(out, how)
    with bar(*started.outlook, shown=progress) as report:
        for record in _telling_loggers(started.records(all_of(how.on_progress, report)), on_record, ()):
            del record
    run = Run(started.run)
    tell_metrics((PythonLogger(), *loggers), run.metrics())
    return run


def _noise(sigma: float | None, noise: Noise | None) -> Noise:
    if noise is not None and sigma is None:
        return noise
    if sigma is not None and noise is None:
        return Gaussian(sigma)
    received, remedy = "both" if noise is not None else "neither", "Give sigma=0.25, in [0,1] pixel units."
    raise ArgumentError("sigma, noise", "one of them must be given", received, remedy)


def _check_loggers(loggers: Sequence[Logger]) -> None:
    for one in loggers:
        if not isinstance(one, Logger):
            raise ArgumentError("loggers", "each must be a Logger", repr(one), "Write e.g. [rf.loggers.WandbLogger()].")


def _execution_on(execution: Execution | None, device: str | None) -> Execution:
    if not isinstance(execution, Execution | None):
        remedy = "Write e.g. execution=rf.Execution(batch=400), or device='cpu'."
        raise ArgumentError("execution", "must be an Execution", repr(execution), remedy)
    if device is None or execution is None:
        return execution or Execution(device="auto" if device is None else str(device))
    if execution.device not in ("auto", str(device)):
        remedy = "Leave one of them out."
        raise ArgumentError("device", "must be that of the execution", f"{device} and {execution.device}", remedy)
    return replace(execution, device=str(device))


def _procedure(procedure: Procedure | None, **settings: float | None) -> Procedure:
    """The one given, or the usual one with these settings: of a radius the sequential test, else the fixed one."""
    said = {name: value for name, value in settings.items() if value is not None}
    if procedure is None:
        kind: Any = Sequential if "radius" in said else Fixed
        return kind(**said)  # type: ignore[no-any-return]
    if said:
        rule = "belong to the procedure where one is given" if len(said) > 1 else "is a setting of the given procedure"
        received = " and ".join([*(f"{name}={value}" for name, value in said.items()), f"procedure {procedure.name}"])
        written = ", ".join(f"{name}={value}" for name, value in said.items())
        remedy = f"Write e.g. rf.{type(procedure).__name__}({written}), or leave out procedure."
        raise ArgumentError(", ".join(said), rule, received, remedy)
    return procedure


def _telling_loggers(
    records: Iterator[Record], on_record: Callable[[Record], None] | None, loggers: Sequence[Logger]
) -> Iterator[Record]:
    """The same records; who wants to know is told of each, and loggers of what all of them reached."""
    kept: list[Record] = []
    for record in records:
        if on_record is not None:
            on_record(record)
        if loggers:
            kept.append(record)
        yield record
    if kept:
        tell_metrics(loggers, metrics_by_lane(kept, None))


Batch = Tensor | Sequence[Tensor]
"""A tensor (N, *shape), or a sequence of N tensors (*shape): never a single input, which is x[None] or [x]."""


@final
class Smoothed:
    """g(x) = the class that model most probably returns on x + e, e of standard deviation sigma in every coordinate.

    noise: gaussian, with radii in l2; uniform or laplace, in l1.

    >>> smoothed = Smoothed(net, sigma=0.25, num_classes=10)
    >>> [record.radius for record in smoothed.certify(batch)]
    """

    def __init__(
        self,
        model: nn.Module,
        sigma: float,
        num_classes: int | None = None,
        *,
        noise: str = "gaussian",
        execution: Execution | None = None,
    ) -> None:
        self.model = model
        self.noise = noise_with(noise, sigma)
        self.num_classes = num_classes
        self._execution = execution or Execution()
        self._measured = self._execution.plan

    def certify(
        self,
        batch: Batch,
        *,
        radius: float | None = None,
        alpha: float | None = None,
        n: int | None = None,
        procedure: Procedure | None = None,
        mechanism: Mechanism | None = None,
        seed: int = 0,
    ) -> list[Record]:
        """A certificate per input: for a known radius by the sequential test, else the largest radius n draws prove.

        batch: (N, *shape) in [0,1], or N inputs one by one; a single input is a batch of one, x[None]. What takes
        longer than a moment shows a bar, on terminals and in notebooks with ipywidgets.
        """
        return self._run(batch, _procedure(procedure, radius=radius, n=n, alpha=alpha), mechanism, seed)

    def predict(self, batch: Batch, *, n: int = 1000, alpha: float = 0.001, seed: int = 0) -> list[Record]:
        """The smoothed prediction (or ABSTAIN) per input, wrong with probability at most alpha; no radius."""
        return self._run(batch, Predict(alpha=alpha, n=n), None, seed)

    def _run(self, batch: Batch, procedure: Procedure, mechanism: Mechanism | None, seed: int) -> list[Record]:
        if isinstance(batch, Tensor) and batch.dim() < 2:
            received, remedy = f"shape {tuple(batch.shape)}", "A single input x is the batch x[None]."
            raise DataError("batch", "must be a batch (N, *shape)", received, remedy)
        if not len(batch):
            raise DataError("batch", "needs at least one input", "an empty one", "Pass a tensor or a list of tensors.")
        how = self._execution.expecting(len(batch), procedure)
        if how.measures:
            how = replace(how, plan=self._measured, on_plan=self._keep_plan)
        draws = None if procedure.stops_early else procedure.most_draws
        with bar("certifying" if procedure.claims_radius else "predicting", len(batch), draws=draws) as report:
            records = list(
                certify(
                    self.model,
                    list(batch),
                    noise=self.noise,
                    procedure=procedure,
                    mechanism=mechanism,
                    num_classes=self.num_classes,
                    lanes=("main",),  # one record per input: more lanes than one are refused
                    seed=seed,
                    execution=replace(how, on_progress=all_of(how.on_progress, report)),
                )
            )
        return sorted(records, key=lambda record: record.input_id)

    def _keep_plan(self, plan: ForwardPlan) -> None:
        """Measure the forward shape once per object, not once per call."""
        self._measured = plan
