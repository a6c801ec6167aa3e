"""Resizing inside the classifier: noise and radii stay those of the image that was given, whatever its size."""

from __future__ import annotations

from typing import Final, final

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from ringfence.classifiers.base import Classifier, Scored, score
from ringfence.errors import ArgumentError, ClassifierError, check_word

INTERPOLATIONS: Final = ("bicubic", "bilinear", "nearest")


@final
class Resized(Classifier):
    """module(resize(x)): images (B, C, H, W) of any size -> scores of a module that sees one size, (height, width).

    Antialiased where images become smaller, as image libraries do it; images of that size are left alone.
    """

    wraps = "module"

    def __init__(self, module: nn.Module, size: tuple[int, int], kind: str = "bicubic") -> None:
        super().__init__()
        if min(size) < 1:
            raise ArgumentError("size", "must be at least 1", min(size), "Give the network's side in pixels.")
        check_word("kind", kind, INTERPOLATIONS, "Use bicubic.")
        self.module, self.size, self.kind = module, size, kind

    def score(self, x: Tensor) -> Scored:
        """Scores of the resized batch."""
        if x.dim() != 4:
            rule, received = "resizes images (B, C, H, W)", f"inputs of shape {tuple(x.shape[1:])}"
            raise ClassifierError("classifier", rule, received, "Give images, or a network for these inputs.")
        if tuple(x.shape[-2:]) != self.size:
            smooth = {} if self.kind == "nearest" else {"antialias": True, "align_corners": False}
            precise = x.to(torch.promote_types(x.dtype, torch.float32))  # half precision has no such filter
            x = interpolate(precise, self.size, mode=self.kind, **smooth).to(x.dtype)
        return score(self.module, x)
