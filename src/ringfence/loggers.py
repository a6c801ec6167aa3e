"""Loggers: numbers of trainings and certifications where people watch them: W&B, MLflow, Python's own logging."""

from __future__ import annotations

import logging
import math
import re
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, final

from ringfence.errors import ArgumentError, check_word, package

if TYPE_CHECKING:
    from ringfence.analysis.metrics import RunMetrics
    from ringfence.driver import Progress
    from ringfence.training.checkpoints import Status

What = ParamSpec("What")

EVERY = 10.0
"""Seconds between two lines about the progress of a certification."""


class LoggerWarning(UserWarning):
    """A logger failed, and hears no more."""


class Logger(ABC):
    """Takes named numbers; a subclass is final and writes ``log``.

    ``rf.certify(..., loggers=[logger])`` tells it of progress and of the metrics at the end;
    ``run_training(run, report=logger.training)`` of every epoch. One that raises is warned of and told nothing more:
    whoever only watches must not end hours of work.
    """

    _last: float | None = None
    _lost = False

    @abstractmethod
    def log(self, values: Mapping[str, float], step: int) -> None:
        """Keep the values; step counts inputs of a certification, epochs of a training."""

    def log_text(self, values: Mapping[str, str]) -> None:  # noqa: B027
        """Keep words: the norm of all radii of a certification, and its run folder where it has one."""

    def failed(self) -> None:  # noqa: B027
        """What it heard of did not come to its end; for places that would call it finished."""

    @final
    def _tell(self, log: Callable[What, None], *values: What.args, **named: What.kwargs) -> None:
        if self._lost:
            return
        try:
            log(*values, **named)
        except Exception as error:
            self._lost = True
            told = f"{type(self).__name__} failed and is told nothing more, the rest goes on: {error}"
            warnings.warn(told, LoggerWarning, stacklevel=2)

    @final
    def progress(self, progress: Progress) -> None:
        """How far a certification is, at most every few seconds."""
        now = time.monotonic()
        if self._last is None or now - self._last < EVERY:  # the first call only starts the clock
            self._last = now if self._last is None else self._last
            return
        self._last = now
        values = {"inputs": progress.inputs, "draws": progress.draws, "seconds": progress.seconds}
        self._tell(self.log, {f"certify/{name}": float(value) for name, value in values.items()}, progress.inputs)

    @final
    def metrics(self, found: RunMetrics) -> None:
        """What a certification reached, at which alpha, and whether it is proved (1) or a paper's form (0)."""
        lane = "" if found.lane is None else f"{found.lane}/"
        values: dict[str, float | None] = {"inputs": found.count, "draws": found.draws, "acr": found.acr}
        values |= {"accuracy": found.accuracy, "abstention": found.abstention}
        values |= {"alpha": found.alpha, "sound": found.sound}
        values |= {f"certified_accuracy_at_{radius:g}": share for radius, share in found.certified_accuracy.items()}
        self._tell(self.log, {f"certify/{lane}{k}": float(v) for k, v in values.items() if v is not None}, found.count)

    @final
    def about(self, found: RunMetrics) -> None:
        """What holds for all lanes of a certification."""
        folder = {"certify/run": str(Path(found.path).absolute())} if found.path else {}
        self._tell(self.log_text, {"certify/norm": found.norm, **folder})

    @final
    def training(self, place: int, status: Status) -> None:
        """How far a training is, once an epoch; place: its number among those that go together."""
        if status.step < status.steps:
            return
        values = {"loss": status.loss, "noisy_accuracy": status.accuracy, "lr": status.rate, **status.terms}
        values |= {} if status.held_out is None else {"held_out_accuracy": status.held_out}
        kept = {f"train/{place}/{k}": float(v) for k, v in values.items() if not math.isnan(v)}
        self._tell(self.log, kept, status.epoch)


@final
class PythonLogger(Logger):
    """Lines of Python's ``logging``, by default of the logger ``ringfence`` at the level INFO."""

    def __init__(self, logger: logging.Logger | None = None, level: int = logging.INFO) -> None:
        self.logger, self.level = logger or logging.getLogger("ringfence"), level

    def log(self, values: Mapping[str, float], step: int) -> None:
        """One line."""
        listed = ", ".join(f"{name} {value:.6g}" for name, value in values.items())
        self.logger.log(self.level, "step %d: %s", step, listed)

    def log_text(self, values: Mapping[str, str]) -> None:
        """One line."""
        self.logger.log(self.level, "%s", ", ".join(f"{name} {value}" for name, value in values.items()))


@final
class WandbLogger(Logger):
    """Weights & Biases: the run given, the one that is active, or a new one of these settings (``mode="offline"``)."""

    def __init__(self, run: Any = None, **settings: Any) -> None:
        wandb = package("wandb", "logger", "pip install wandb.")
        try:
            self.run = run or wandb.run or wandb.init(**settings)
        except Exception as error:
            remedy = "Log in (`wandb login`), or keep it here: WANDB_MODE=offline."
            raise ArgumentError("logger", "needs a run of W&B", str(error).rstrip("."), remedy) from error

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Under a step of each series' own: W&B allows one counter of steps only, and it may not go back."""
        series = next(iter(values), "certify/").partition("/")[0]
        self.run.log({**values, f"{series}/step": step})

    def log_text(self, values: Mapping[str, str]) -> None:
        """Into the summary, where the last numbers stand too."""
        self.run.summary.update(dict(values))


@final
class MlflowLogger(Logger):
    """MLflow: the run with this id, or the active one, which MLflow begins where there is none."""

    def __init__(self, run_id: str | None = None) -> None:
        self.mlflow, self.run_id = package("mlflow", "logger", "pip install mlflow."), run_id

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Metrics of one step; a lane theta=0.50 is theta:0.50, as MLflow takes few characters in names."""
        named = {re.sub(r"[^\w\-. :/]", ":", name): value for name, value in values.items()}
        self.mlflow.log_metrics(named, step=step, run_id=self.run_id)

    def log_text(self, values: Mapping[str, str]) -> None:
        """Tags, which a second certification of the run may set anew; parameters it may not."""
        run_id = self.run_id or self.mlflow.active_run().info.run_id
        for name, value in values.items():
            self.mlflow.MlflowClient().set_tag(run_id, name, value)

    def failed(self) -> None:
        """MLflow itself would say FINISHED, however the process ends."""
        if self.run_id is None and self.mlflow.active_run() is not None:
            self.mlflow.end_run("FAILED")


def tell_metrics(loggers: Sequence[Logger], reached: Iterable[RunMetrics]) -> None:
    """Tell every logger what each lane of a certification reached, and what holds for all of them."""
    lanes = list(reached)
    for one in loggers:
        for found in lanes:
            one.metrics(found)
        one.about(lanes[0])


def _on_screen() -> PythonLogger:
    """For a command, of which nobody else says where its lines go: to stderr."""
    found = logging.getLogger("ringfence")
    found.setLevel(min(found.getEffectiveLevel(), logging.INFO))
    if not found.hasHandlers():
        logging.basicConfig(format="%(asctime)s %(name)s: %(message)s")
    return PythonLogger(found)


LOGGERS: dict[str, Callable[[], Logger]] = {"logging": _on_screen, "wandb": WandbLogger, "mlflow": MlflowLogger}
"""By the names that ``--log`` takes."""


def loggers_named(names: Iterable[str]) -> AbstractContextManager[list[Logger]]:
    """The loggers of a command, opened where it is entered; a wrong name is told at once."""
    names = list(names)
    for name in names:
        check_word("log", name, LOGGERS, "Choose one of those.")
    return _opened(names)


@contextmanager
def _opened(names: list[str]) -> Iterator[list[Logger]]:
    """They hear if the command does not come to its end."""
    ours = logging.getLogger("ringfence")
    level, loggers = ours.level, [LOGGERS[name]() for name in names]
    try:
        yield loggers
    except BaseException:
        for one in loggers:
            with suppress(Exception):  # why it ended is what must be told
                one.failed()
        raise
    finally:
        ours.setLevel(level)
