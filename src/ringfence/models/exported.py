"""Programs that hold their own code, ``.pt2`` of torch.export and TorchScript, as ordinary modules."""

from __future__ import annotations

import hashlib
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, final

import torch
from torch import Tensor, nn
from torch.export.passes import move_to_device_pass
from torch.nn.functional import pad

from ringfence.classifiers.base import scores_in
from ringfence.errors import ModelError, first_line

PROGRAMS = (".pt2", ".ts", ".torchscript")
"""Endings of programs; TorchScript is often called .pt too."""


def is_program(path: Path) -> bool:
    """Whether a file holds a program: by its ending, or because it is an archive with the code of TorchScript."""
    return path.suffix in PROGRAMS or is_torchscript(path)


def is_torchscript(path: Path) -> bool:
    """Whether an archive holds code beside its tensors, as torch.jit.save writes it and torch.save never does."""
    if not path.is_file() or not zipfile.is_zipfile(path):
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            return any("/code/" in name for name in archive.namelist())
    except (zipfile.BadZipFile, OSError):
        return False


@final
class Exported(nn.Module):
    """A program: batch (B, ...) -> scores (B, K).

    fixed_batch: the only batch size the program takes, None where any will do; dtype: the precision it was made in,
    which may stand in its code: one other than float32 is kept, and inputs are brought to it.
    """

    def __init__(self, program: nn.Module, fixed_batch: int | None, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.program, self.fixed_batch, self.dtype = program, fixed_batch, dtype

    def train(self, mode: bool = True) -> Self:
        """Unchanged: training and evaluation were told apart when the program was made."""
        self.training = mode
        return self

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Moves go through; another precision only where the program is of the usual one."""
        kept = fn if self.dtype == torch.float32 else lambda value: fn(value).to(value.dtype)
        super()._apply(kept, recurse)  # type: ignore[no-untyped-call]
        return self

    def forward(self, x: Tensor) -> Any:
        """Scores (B, K) for any B, or whatever else the program returns."""
        ready = x if self.dtype == torch.float32 else x.to(self.dtype)
        return in_pieces(self.program, ready, self.fixed_batch)


def in_pieces(run: Callable[[Tensor], Any], x: Tensor, size: int | None) -> Any:
    """run(x), in pieces of the only batch size that it takes; the last one is padded with zeros, whose scores are
    dropped. None: it takes any."""
    if size is None or len(x) == size:
        return run(x)
    padded = pad(x, (0, 0) * (x.dim() - 1) + (0, -len(x) % size))
    return torch.cat([scores_in(run(piece), size) for piece in torch.split(padded, size)])[: len(x)]


def load_exported(path: Path, device: str | torch.device) -> tuple[Exported, bytes]:
    """The program and a hash of its file. Opening one can run code: trust its origin as you would a Python file's."""
    if not path.is_file():
        raise ModelError(path, "must be an existing file", "no such file", "Check the path of the program.")
    load = _exported if path.suffix == ".pt2" else _scripted
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of TorchScript, which people have all the same
            module = load(path, device)
    except ModelError:
        raise
    except Exception as error:
        made = "torch.export.save" if path.suffix == ".pt2" else "torch.jit.save"
        rule, remedy = f"must be a program saved by {made}", "Export the model again."
        raise ModelError(path, rule, first_line(error), remedy) from error
    return module, hashlib.blake2b(path.read_bytes(), digest_size=16).digest()


def _exported(path: Path, device: str | torch.device) -> Exported:
    program = torch.export.load(path)
    names = program.graph_signature.user_inputs
    if len(names) != 1:
        raise ModelError(
            path, "must take one batch of inputs", f"{len(names)} inputs", "Export a module of one argument."
        )
    node = next(node for node in program.graph.nodes if node.name == names[0])
    batch = node.meta["val"].shape[0]
    if torch.device(device).type != "cpu":
        program = move_to_device_pass(program, device)
    return Exported(program.module(), batch if isinstance(batch, int) else None, node.meta["val"].dtype)


def _scripted(path: Path, device: str | torch.device) -> Exported:
    program = torch.jit.load(str(path), map_location=device).eval()  # type: ignore[no-untyped-call]
    floating = [one.dtype for one in (*program.parameters(), *program.buffers()) if one.is_floating_point()]
    return Exported(program, None, floating[0] if floating else torch.float32)
