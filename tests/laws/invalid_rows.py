"""What a value that is no number does to the batch it stands in."""

from __future__ import annotations

import torch
from torch import Tensor

from ringfence.sampling import Forward


def assert_only_its_row_is_invalid(forward: Forward, x: Tensor, row: int, bad: float) -> None:
    """Put it into a row of pictures (B, C, H, W): its scores are not valid, all others are the same to the bit."""
    before = forward(x).scores
    x[row, -1, 7, 20] = bad
    after = forward(x).scores
    valid = torch.isfinite(after).all(-1).squeeze(1)
    assert (~valid).nonzero().flatten().tolist() == [row]
    assert torch.equal(after[valid], before[valid])
