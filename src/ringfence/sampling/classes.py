"""How many classes a network tells apart, and what its layers say of inputs that they cannot take."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ringfence.classifiers import score
from ringfence.classifiers.base import is_classifier
from ringfence.errors import ClassifierError, RingfenceError
from ringfence.sampling.devices import in_front
from ringfence.sampling.forward import left_early
from ringfence.sampling.preparing import on_device

_CHANNELS = (
    re.compile(r"to have (?P<wanted>\d+) channels, but got (?P<given>\d+)"),
    re.compile(r"[Ee]xpected (?P<wanted>\d+) but got (?P<given>\d+)"),
    re.compile(r"running_mean should contain (?P<given>\d+) elements not (?P<wanted>\d+)"),
    re.compile(r"weight of shape \[(?P<wanted>\d+)\] and input of shape \[\d+, (?P<given>\d+)"),
)
_PICTURES = re.compile(r"channels, but got|input to conv2d|expected 4D input")
_FEATURES = re.compile(r"cannot be multiplied \(\d+x(?P<given>\d+) and (?P<wanted>\d+)x\d+\)")
_BATCH = re.compile(r"[Ee]xpected more than 1 (value|spatial)")
"""What convolutions, norms and linear layers of torch say of inputs they cannot take."""


@torch.inference_mode()
def count_classes(classifier: nn.Module, x: Tensor, device: torch.device, lanes: Sequence[str] = ()) -> int:
    """K, read off the scores of one input. lanes: their names, without which only a Ringfence classifier has any."""
    batch = x.unsqueeze(0).to(device, torch.float32, copy=True)  # the user's stays as it is
    try:
        with in_front(device):
            scores = score(on_device(classifier, device), batch).scores
    except RingfenceError:
        raise
    except (SystemExit, GeneratorExit) as error:
        raise left_early(error) from error
    except Exception as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        rule = f"must accept a batch of shape {tuple(batch.shape)}"
        raise ClassifierError("classifier", rule, *_misfit(error, batch.shape)) from error
    if not isinstance(scores, Tensor) or scores.dim() not in (2, 3):
        received: object = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        raise ClassifierError("classifier", "must map (B, *shape) to scores (B, K)", received, "Return logits.")
    if scores.shape[-1] < 2:
        rule, remedy = "must return at least two scores per input", "Return one score for each class."
        raise ClassifierError("classifier", rule, f"scores of shape {tuple(scores.shape)}", remedy)
    if scores.dim() == 3 and not is_classifier(classifier) and scores.shape[1] != len(lanes):
        rule = "must map (B, *shape) to scores (B, K), or to (B, lanes, K) with as many names of lanes"
        received = f"scores of shape {tuple(scores.shape)} and {len(lanes)} names"
        raise ClassifierError("classifier", rule, received, "Return (B, K), or name the lanes: certify(..., lanes=).")
    return int(scores.shape[-1])


def _misfit(error: Exception, shape: Sequence[int]) -> tuple[str, str]:
    """What was found and what to do, where a layer's complaint tells that it sees other channels or sizes."""
    told = str(error)
    if len(shape) < 4 and _PICTURES.search(told):
        remedy = (
            "Give inputs (N, C, H, W): x[None] is a batch of a single picture, x[:, None] adds a channel,"
            " x.reshape(-1, 1, 28, 28) makes pictures of rows."
        )
        return "a network for pictures, which have channels, height and width", remedy
    if _BATCH.search(told):
        remedy = "Give it running statistics (track_running_stats=True), or a norm that needs none of the batch's."
        return "a layer that takes statistics of what it is given, where there is one value of each", remedy
    found = next((one for pattern in _CHANNELS if (one := pattern.search(told))), None)
    found = found or _FEATURES.search(told)
    wanted, given = (int(found["wanted"]), int(found["given"])) if found else (0, 0)
    if found and len(shape) == 4 and found.re is not _FEATURES:
        repeated = "Give colour pictures, or repeat the grey channel: rf.Data(..., channels=3)."
        grey = "Give grey pictures, of one channel, or a network for colours."
        usual = f"Give inputs of {wanted} channels, or a network for {given}."
        remedy = {(3, 1): repeated, (1, 3): grey}.get((wanted, given), usual)
        if given == 4:
            remedy = f"Leave out the fourth channel, which says how transparent pixels are. {usual}"
        return f"a network whose layers take {wanted} channels where {given} come", remedy
    if len(shape) == 1:  # a vector is taken for a batch of single numbers
        remedy = f"Of a single input x of {wanted or 'several'} numbers give x[None], a batch of one."
        return "a batch of single numbers, which a network for more does not take", remedy
    if found and len(shape) == 2:
        return (
            f"a network for inputs of {wanted} numbers where {given} come",
            f"Give {wanted}, or a network for {given}.",
        )
    if found and len(shape) == 4:
        remedy = "Give `size`, the pixels it was trained on, or write resized(MODEL, size=...)."
        return f"a network with a layer for {wanted} numbers where pictures of this size give {given}", remedy
    remedy = f"Give inputs of the shape that it was made for: net.eval()(torch.rand{tuple(shape)}) must work."
    if len(shape) == 3:  # a batch of pictures without channels, or the channels of one picture
        remedy = f"Of a single picture x give x[None], a batch of one. {remedy}"
    return f"{type(error).__name__}: {told}", remedy
