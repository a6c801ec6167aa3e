"""The logits of an ensemble's members at one input, clean and under shared noise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

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

    if not members:
        raise ArgumentError("members", "must not be empty", "no members", "Give at least two.")
    for member in members:
        member.eval()
    with torch.inference_mode():
        clean = _stack([member(x.float().unsqueeze(0)) for member in members])[:, 0]
        noisy = noisy_copies(x, sigma, draws, seed, input_id)
        logits = torch.cat([_stack([member(batch) for member in members]) for batch in noisy], dim=1)
    return logits.numpy(), clean.numpy()


def noisy_copies(x: Tensor, sigma: float, draws: int, seed: int, input_id: int = 0) -> Iterator[Tensor]:
    """x (*shape) plus Gaussian noise: draws rows in batches (at most CHUNK, *shape), repeatable."""
    import torch

    from ringfence.noise import Gaussian
    from ringfence.sampling.draws import CHUNK, chunk_key

    if draws < 1:
        raise ArgumentError("draws", "must be at least 1", draws, "A few thousand give a stable model.")
    noise, buffer = Gaussian(sigma), torch.empty((CHUNK, *x.shape), device=x.device)
    for first in range(0, draws, CHUNK):
        noise.fill(buffer, chunk_key(seed, input_id, DIAGNOSTIC_STAGE, first // CHUNK))
        yield x.float() + buffer[: draws - first]


def _stack(scores: list[Tensor]) -> Tensor:
    """Scores (members, B, K) in double precision on the host; all members must return the same shape."""
    import torch

    shapes = {tuple(score.shape) for score in scores}
    if len(shapes) != 1 or scores[0].dim() != 2:
        rule = "must all return scores of one shape (B, K)"
        raise ClassifierError("members", rule, sorted(shapes), "Use members with the same classes.")
    return torch.stack(scores).double().cpu()
