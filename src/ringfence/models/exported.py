"""Exported programs (``.pt2``) as ordinary modules."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Self

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.export.passes import move_to_device_pass
from torch.nn.functional import pad

from ringfence.errors import ModelError


class Exported(nn.Module):
    """A program of torch.export: batch (B, ...) -> scores (B, K).

    fixed_batch: the only batch size the program takes, None where any will do; other batches are cut into
    pieces of that size, the last one padded with zeros whose scores are dropped.
    """

    def __init__(self, program: ExportedProgram, fixed_batch: int | None) -> None:
        super().__init__()
        self.program = program.module()
        self.fixed_batch = fixed_batch

    def train(self, mode: bool = True) -> Self:
        """Unchanged: training and evaluation were told apart when the program was exported."""
        self.training = mode
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Scores (B, K) for any B."""
        if self.fixed_batch is None or len(x) == self.fixed_batch:
            scores: Tensor = self.program(x)
            return scores
        missing = -len(x) % self.fixed_batch
        padded = pad(x, (0, 0) * (x.dim() - 1) + (0, missing))
        return torch.cat([self.program(piece) for piece in torch.split(padded, self.fixed_batch)])[: len(x)]


def load_exported(path: Path, device: str | torch.device) -> tuple[Exported, bytes]:
    """The program and a hash of its file. Opening one can run code: trust its origin as you would a Python file's."""
    if not path.is_file():
        raise ModelError(str(path), "must be an existing file", "no such file", "Check the path of the program.")
    try:
        program = torch.export.load(path)
    except Exception as error:
        raise ModelError(
            str(path), "must be a program saved by torch.export.save", error, "Export the model again."
        ) from error
    names = program.graph_signature.user_inputs
    if len(names) != 1:
        raise ModelError(
            str(path), "must take one batch of inputs", f"{len(names)} inputs", "Export a module of one argument."
        )
    node = next(node for node in program.graph.nodes if node.name == names[0])
    batch = node.meta["val"].shape[0]
    if torch.device(device).type != "cpu":
        program = move_to_device_pass(program, device)
    module = Exported(program, batch if isinstance(batch, int) else None)
    return module, hashlib.blake2b(path.read_bytes(), digest_size=16).digest()
