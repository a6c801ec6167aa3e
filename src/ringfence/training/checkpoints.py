"""What a training leaves behind: checkpoints, a JSON file that points at the last good one, and a log of epochs."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from ringfence.errors import StoreError, package
from ringfence.store import StoreWarning
from ringfence.store.atomic import read_json, write_atomically, write_json, writing_errors

POINTER = "last.json"


@final
@dataclass(frozen=True)
class Progressed:
    """Where a training stands: epochs and steps done, the best noisy accuracy and the epoch it was reached in."""

    epoch: int
    step: int
    best_accuracy: float = -1.0
    best_epoch: int = -1


def module_tensors(members: Sequence[nn.Module], prefix: str = "member") -> dict[str, Tensor]:
    """``member.0.conv.weight`` -> tensor, over all members."""
    return {f"{prefix}.{i}.{key}": value for i, one in enumerate(members) for key, value in one.state_dict().items()}


def restore_modules(members: Sequence[nn.Module], tensors: Mapping[str, Tensor], prefix: str = "member") -> None:
    """The inverse of module_tensors, in place."""
    wanted = module_tensors(members, prefix)
    strange = [key for key, value in wanted.items() if key not in tensors or tensors[key].shape != value.shape]
    if strange:
        rule, remedy = "must hold the members of this training", "Train into another folder."
        raise StoreError("checkpoint", rule, f"other weights for {strange[0]}", remedy)
    for key, value in wanted.items():
        value.copy_(tensors[key])


@contextmanager
def undone(members: Sequence[nn.Module]) -> Iterator[None]:
    """What happens inside leaves the members' tensors as they were, in place."""
    kept = {key: value.clone() for key, value in module_tensors(members).items()}
    try:
        yield
    finally:
        with torch.no_grad():
            restore_modules(members, kept)


@final
class Checkpoints:
    """One training's folder. A crash between two writes leaves the previous checkpoint in force."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with writing_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)

    def save(self, progress: Progressed, tensors: Mapping[str, Tensor]) -> None:
        """Write the tensors, then point at them, then drop what nothing points at."""
        name = f"epoch-{progress.epoch:05d}.safetensors"
        write_atomically(self.folder / name, _bytes(tensors))
        write_json(self.folder / POINTER, {"file": name, **vars(progress)})
        for old in self.folder.glob("epoch-*.safetensors"):
            if old.name != name:
                old.unlink(missing_ok=True)

    @property
    def epochs_done(self) -> int:
        """Epochs behind the last checkpoint, without reading it."""
        pointer = self.folder / POINTER
        return int(read_json(pointer).get("epoch", 0)) if pointer.exists() else 0

    def load(self) -> tuple[Progressed, dict[str, Tensor]] | None:
        """The last checkpoint; None before the first."""
        pointer = self.folder / POINTER
        if not pointer.exists():
            return None
        content: dict[str, Any] = read_json(pointer)
        try:
            path = self.folder / str(content.pop("file"))
            return Progressed(**content), load(path.read_bytes())
        except Exception as error:  # of any kind: safetensors has its own, and the pointer may hold anything
            remedy = "Delete this folder to train anew."
            raise StoreError(pointer, "must name a readable checkpoint", error, remedy) from error

    def save_best(self, tensors: Mapping[str, Tensor]) -> None:
        """The members' weights at the best epoch so far, as ``module_tensors`` names them."""
        write_atomically(self.folder / "best.safetensors", _bytes(tensors))

    def load_best(self) -> dict[str, Tensor] | None:
        """What save_best wrote; None where nothing was held out."""
        path = self.folder / "best.safetensors"
        return load(path.read_bytes()) if path.exists() else None


def export(path: Path, member: nn.Module, metadata: Mapping[str, str]) -> None:
    """Weights rounded to half precision, for the zoo: small files that load into any precision exactly.

    Where one is beyond half precision (running variances of deep networks), all stay in float32, with a warning.
    """
    whole = member.state_dict()
    broken = [key for key, value in whole.items() if value.is_floating_point() and not torch.isfinite(value).all()]
    if broken:
        raise StoreError(
            path, "weights must be finite", broken[0], "Lower the learning rate, or train with weight decay."
        )
    state = {key: value.half() if value.is_floating_point() else value for key, value in whole.items()}
    beyond = [key for key, value in state.items() if value.is_floating_point() and not torch.isfinite(value).all()]
    if beyond:
        warnings.warn(f"{path} is in float32: {beyond[0]} is beyond half precision.", StoreWarning, stacklevel=2)
    write_atomically(path, _bytes(whole if beyond else state, metadata))


def _bytes(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    return _in_order(save(on_host(tensors), dict(metadata))) if metadata else save(on_host(tensors))


def _in_order(content: bytes) -> bytes:
    """The same file with its metadata by name: safetensors writes them in any order, and the same training would leave
    other bytes each time."""
    begin = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:begin])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[begin:]


def on_host(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Contiguous copies on the host. A device is waited for once per kind of number, not once per tensor: deep
    networks and their momentum are a thousand tensors.
    """
    kinds: dict[tuple[torch.device, torch.dtype], list[str]] = {}
    for key, value in tensors.items():
        kinds.setdefault((value.device, value.dtype), []).append(key)
    found = dict[str, Tensor]()
    for keys in kinds.values():
        flat = torch.cat([tensors[key].detach().flatten() for key in keys]).cpu()
        parts = torch.split(flat, [tensors[key].numel() for key in keys])
        found.update({key: part.view(tensors[key].shape) for key, part in zip(keys, parts, strict=True)})
    return found


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
    remedy = "Install it: pip install 'ringfence[train]', or leave it out."
    package("tensorboard", "tensorboard", remedy)
    return package("torch.utils.tensorboard", "tensorboard", remedy).SummaryWriter(str(folder / "tensorboard"))
