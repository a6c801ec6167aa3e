"""The logits of an ensemble's members at one input, clean and under shared noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ringfence.errors import ArgumentError, ClassifierError
from ringfence.types import FloatArray

if TYPE_CHECKING:
    from torch import Tensor, nn

DIAGNOSTIC_STAGE = -1
"""The stream of these draws: certification counts stages from 0, so a prediction and its test never share noise."""


def collect_logits(
    members: Sequence[nn.Module], x: Tensor, sigma: float, draws: int, seed: int, input_id: int = 0
) -> tuple[FloatArray, FloatArray]:
    """(logits (members, draws, K), clean (members, K)) at x (*shape): every member sees the same noise.

    The noise of draw i depends only on (seed, input_id, i); members are put in eval mode and run on x's device.
    """
    import torch

    from ringfence.noise import Gaussian
    from ringfence.sampling.seeds import CHUNK, chunk_key

    if not members or draws < 1:
        received = f"{len(members)} members, {draws} draws"
        raise ArgumentError("members, draws", "must both be at least 1", received, "Give members and draws.")
    noise, buffer = Gaussian(sigma), torch.empty((CHUNK, *x.shape), device=x.device)
    for member in members:
        member.eval()
    parts: list[Tensor] = []
    with torch.inference_mode():
        clean = _stack([member(x.unsqueeze(0)) for member in members])[:, 0]
        for chunk in range(-(-draws // CHUNK)):
            noise.fill(buffer, chunk_key(seed, input_id, DIAGNOSTIC_STAGE, chunk))
            noisy = x.float() + buffer
            parts.append(_stack([member(noisy) for member in members]).double().cpu())
    logits = torch.cat(parts, dim=1)[:, :draws].numpy()
    return np.asarray(logits, np.float64), np.asarray(clean.double().cpu().numpy(), np.float64)


def _stack(scores: list[Tensor]) -> Tensor:
    """Member scores (members, B, K); all members must return the same shape."""
    import torch

    shapes = {tuple(score.shape) for score in scores}
    if len(shapes) != 1 or scores[0].dim() != 2:
        rule = "must all return scores of one shape (B, K)"
        raise ClassifierError("members", rule, sorted(shapes), "Use members with the same classes.")
    return torch.stack(scores)
