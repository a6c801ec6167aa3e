"""Loggers: numbers of trainings and certifications where people watch them: W&B, MLflow, Python's own logging."""

from __future__ import annotations

import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, final

from ringfence.errors import ArgumentError

if TYPE_CHECKING:
    from ringfence.analysis.metrics import RunMetrics
    from ringfence.driver import Progress
    from ringfence.training.checkpoints import Status

EVERY = 10.0
"""Seconds between two lines about the progress of a certification."""


class Logger(ABC):
    """Takes named numbers; a subclass is final and writes ``log``.

    ``rf.certify(..., loggers=[logger])`` tells it of progress and of the metrics at the end;
    ``run_training(run, report=logger.training)`` of every epoch.
    """

    _last: float | None = None

    @abstractmethod
    def log(self, values: Mapping[str, float], step: int) -> None:
        """Keep the values; step counts inputs of a certification, epochs of a training."""

    @final
    def progress(self, progress: Progress) -> None:
        """How far a certification is, at most every few seconds."""
        now = time.monotonic()
        if self._last is None or now - self._last < EVERY:  # the first call only starts the clock
            self._last = now if self._last is None else self._last
            return
        self._last = now
        values = {"inputs": progress.inputs, "draws": progress.draws, "seconds": progress.seconds}
        self.log({f"certify/{name}": float(value) for name, value in values.items()}, progress.inputs)

    @final
    def metrics(self, found: RunMetrics) -> None:
        """What a certification reached."""
        lane = "" if found.lane is None else f"{found.lane}/"
        values: dict[str, float | None] = {"inputs": found.count, "draws": found.draws, "acr": found.acr}
        values |= {"accuracy": found.accuracy, "abstention": found.abstention}
        values |= {f"certified_accuracy_at_{radius:g}": share for radius, share in found.certified_accuracy.items()}
        self.log({f"certify/{lane}{k}": float(v) for k, v in values.items() if v is not None}, found.count)

    @final
    def training(self, place: int, status: Status) -> None:
        """How far a training is, once an epoch; place: its number among those that go together."""
        if status.step < status.steps:
            return
        values = {"loss": status.loss, "noisy_accuracy": status.accuracy, "lr": status.rate, **status.terms}
        values |= {} if status.held_out is None else {"held_out_accuracy": status.held_out}
        kept = {f"train/{place}/{k}": float(v) for k, v in values.items() if not math.isnan(v)}
        self.log(kept, status.epoch)


@final
class PythonLogger(Logger):
    """Lines of Python's ``logging``, by default of the logger ``ringfence`` at the level INFO."""

    def __init__(self, logger: logging.Logger | None = None, level: int = logging.INFO) -> None:
        self.logger, self.level = logger or logging.getLogger("ringfence"), level

    def log(self, values: Mapping[str, float], step: int) -> None:
        """One line."""
        listed = ", ".join(f"{name} {value:.6g}" for name, value in values.items())
        self.logger.log(self.level, "step %d: %s", step, listed)


@final
class WandbLogger(Logger):
    """Weights & Biases: the run given, the one that is active, or a new one of these settings (``mode="offline"``)."""

    def __init__(self, run: Any = None, **settings: Any) -> None:
        wandb = _package("wandb")
        self.run = run or wandb.run or wandb.init(**settings)

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Under a step of each series' own: W&B allows one counter of steps only, and it may not go back."""
        series = next(iter(values), "certify/").partition("/")[0]
        self.run.log({**values, f"{series}/step": step})


@final
class MlflowLogger(Logger):
    """MLflow: the run with this id, or the active one, which MLflow begins where there is none."""

    def __init__(self, run_id: str | None = None) -> None:
        self.mlflow, self.run_id = _package("mlflow"), run_id

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Metrics of one step."""
        self.mlflow.log_metrics(dict(values), step=step, run_id=self.run_id)


def _package(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ArgumentError("logger", f"needs the package {name}", "not installed", f"pip install {name}.") from error


def tell_metrics(loggers: Sequence[Logger], reached: Iterable[RunMetrics]) -> None:
    """Tell every logger what each lane of a certification reached."""
    for found in reached:
        for one in loggers:
            one.metrics(found)


LOGGERS: dict[str, type[Logger]] = {"logging": PythonLogger, "wandb": WandbLogger, "mlflow": MlflowLogger}
"""By the names that ``--log`` takes."""


def logger_named(name: str) -> Logger:
    """A logger with its defaults."""
    if name not in LOGGERS:
        raise ArgumentError("log", f"must be one of {', '.join(LOGGERS)}", repr(name), "Choose one of those.")
    return LOGGERS[name]()
