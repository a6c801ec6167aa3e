"""What networks return, as scores: a tensor, a tuple, a mapping or object with ``logits``; one logit is two classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ringfence.errors import ClassifierError


def scores_in(answer: Any, rows: int) -> Tensor:
    """The scores (B, K) or (B, lanes, K) of an answer to so many rows; whoever asks checks their shape.

    Of a tuple or list the first entry, of a mapping or an object its ``logits`` (``ModelOutput`` of transformers is
    both). A single logit z, (B,) or (B, 1), is the classes (0, z): z > 0 is class 1, and softmax is the sigmoid of z.
    """
    found = getattr(answer, "logits", answer)
    if isinstance(found, Mapping):
        if "logits" not in found:
            received = f"a {type(found).__name__} with {', '.join(map(repr, list(found)[:5])) or 'nothing'}"
            rule = "must return scores: a tensor, a tuple that begins with one, or a mapping with 'logits'"
            raise ClassifierError("classifier", rule, received, "Return the logits alone, or under 'logits'.")
        found = found["logits"]
    if isinstance(found, tuple | list) and found:
        found = found[0]
    if isinstance(found, Tensor) and tuple(found.shape) in ((rows,), (rows, 1)):
        single = found.reshape(-1)
        return torch.stack([torch.zeros_like(single), single], dim=1)
    return found  # type: ignore[no-any-return]
