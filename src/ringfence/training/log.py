"""How far a training is, and log.csv, which keeps it: one line per epoch, also to TensorBoard where asked for."""

from __future__ import annotations

import csv
import io
import math
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from ringfence.errors import ArgumentError
from ringfence.store.atomic import write_atomically


@final
@dataclass(frozen=True)
class Status:
    """How far a training is: epoch of epochs, step within the epoch, mean loss terms and noisy accuracy so far.

    accuracy is that of the training batches; held_out is known after an epoch where inputs were held out;
    left: expected seconds to the end.
    """

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float
    accuracy: float
    terms: dict[str, float] = field(default_factory=dict)
    held_out: float | None = None
    rate: float = 0.0
    seconds: float = 0.0
    left: float = 0.0


@final
class EpochLog:
    """The log of one training; epochs after the checkpoint it continues from are dropped and made again."""

    def __init__(self, folder: Path, epochs_done: int, tensorboard: bool = False) -> None:
        self.path = folder / "log.csv"
        self._lines: list[dict[str, Any]] = []
        if self.path.exists():
            with self.path.open(newline="") as file:
                self._lines = [line for line in csv.DictReader(file) if _number(line.get("epoch")) <= epochs_done]
        self._board = _board(folder) if tensorboard else None

    def add(self, status: Status) -> None:
        """One more epoch."""
        line: dict[str, Any] = {
            "epoch": status.epoch,
            "loss": f"{status.loss:.6g}",
            **{name: f"{value:.6g}" for name, value in status.terms.items()},
            "noisy_accuracy": "" if math.isnan(status.accuracy) else f"{status.accuracy:.5f}",
            "held_out_accuracy": "" if status.held_out is None else f"{status.held_out:.5f}",
            "lr": f"{status.rate:.6g}",
            "seconds": f"{status.seconds:.2f}",
        }
        self._lines.append(line)
        text = io.StringIO()
        writer = csv.DictWriter(text, list(line), extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(self._lines)
        write_atomically(self.path, text.getvalue().encode())
        if self._board is not None:
            for name in line:
                if name not in ("epoch", "seconds") and line[name]:
                    self._board.add_scalar(name, float(line[name]), status.epoch)
            self._board.flush()


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() else sys.maxsize


def _board(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        remedy = "Install it: pip install 'ringfence[train]', or leave it out."
        raise ArgumentError("tensorboard", "needs the package tensorboard", error, remedy) from None
    return SummaryWriter(str(folder / "tensorboard"))
