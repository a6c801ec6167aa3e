"""What the numbers of a few inputs tell without a network: whether they are pixels, and of which units."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from ringfence.errors import DataError

FEWEST = 64
"""Values of an input that can be a picture; units of points and features are whatever their owner says."""
FINEST = 1 / 16
"""Of sigma: the step of float32 at an input, above which its noise has too few values to be noise."""
LOUDEST = 5.0
"""Sigmas above it are hardly in [0, 1] pixels: those of the literature end at 2, for uniform noise at 3.5."""
UNEVEN = 100.0
"""Between the deviations of features, or these and sigma: standardised ones, and embeddings, stay well below."""
FEWEST_ROWS = 8
"""From which a deviation of features is told."""
OVERSHOT = 0.2
"""How far resized pixels may leave [0, 1]; the usual normalisations go further."""
GO_ON = "Or go on all the same: `check=False`."


class NoiseWarning(UserWarning):
    """A network that is lost, under the noise or on all that it was shown: certificates will be few, or wrong."""


def is_picture(shape: Sequence[int]) -> bool:
    """Whether inputs of this shape have pixels, which have units."""
    return len(shape) in (3, 4) and math.prod(shape) >= FEWEST


def check_range(inputs: Sequence[Tensor]) -> None:
    """Refuse pictures whose values are hardly pixels in [0, 1], and say what they look like."""
    # Of tensors, not of numbers: Python's min passes over a NaN.
    low, high = (float(ends) for ends in torch.stack([x.detach().float().cpu() for x in inputs]).aminmax())
    found = f"values from {low:.4g} to {high:.4g}"
    if not (math.isfinite(low) and math.isfinite(high)):
        raise DataError("data", "inputs must be finite", found, "Remove the inputs with NaN or infinity.")
    if low >= 0 and high > 2:
        whole = all(bool((x == x.round()).all()) for x in inputs)
        likely = "pixels from 0 to 255" if whole or high > 64 else "pixels on another scale"
        top = 255 if high > 64 or whole else f"{high:.4g}"
        remedy = f"Give `range` 0..{top}, or divide by {top}; sigma and radii are then in [0, 1] units. {GO_ON}"
        raise DataError("data", f"must lie in [0, 1]; these look like {likely}", found, remedy)
    if -1.001 <= low <= -0.9 and 0.5 <= high <= 1.001:
        remedy = f"Give `range` -1..1 and, for a network that expects that, `mean` 0.5 and `std` 0.5. {GO_ON}"
        raise DataError("data", "must lie in [0, 1]; these look like pixels from -1 to 1", found, remedy)
    if low < -OVERSHOT or high > 1 + OVERSHOT:
        remedy = (
            "Take the normalisation out of the data and give it to the model, as `mean` and `std` (in Python: "
            f"rf.normalize(net, mean=..., std=...)), so that sigma and radii are in pixels. {GO_ON}"
        )
        raise DataError("data", "must lie in [0, 1]; these look normalised already", found, remedy)
    if 0 < high < 0.02:
        remedy = f"Bytes are divided by 255 by themselves: leave out `range`, or a second division. {GO_ON}"
        raise DataError("data", "must lie in [0, 1]; these look divided by 255 twice", found, remedy)


def is_rounded_away(sigma: float, largest: float) -> bool:
    """Whether float32, in which noise is added, has too few steps for it at inputs of that size."""
    return FINEST * sigma < largest * torch.finfo(torch.float32).eps < math.inf


def check_resolution(inputs: Sequence[Tensor], sigma: float) -> None:
    """Refuse numbers so large that float32, in which noise is added, rounds it away: all draws would be the input."""
    largest = max((float(x.detach().abs().max()) for x in inputs if x.numel()), default=0.0)
    if is_rounded_away(sigma, largest):
        rule = f"must be numbers beside which noise of sigma {sigma:g} is not rounded away in float32"
        remedy = f"Scale the features before (x - mean) / std, and give sigma in those units. {GO_ON}"
        raise DataError("data", rule, f"values up to {largest:.4g}", remedy)


def warn_of_scales(inputs: Sequence[Tensor], sigma: float) -> None:
    """That features (features,) hardly share a unit, or that sigma is hardly in it, as in tables not standardised."""
    if len(inputs) < FEWEST_ROWS or inputs[0].dim() != 1:
        return
    deviations = torch.stack([x.detach().double().cpu() for x in inputs]).std(0)
    moving = deviations[deviations > 0]
    if not len(moving) or not bool(moving.isfinite().all()):
        return
    low, middle, high = (float(one) for one in (moving.min(), moving.median(), moving.max()))
    remedy = (
        "Standardise the data, (x - mean) / deviation of every feature, for a network of standardised features too:"
        " sigma and radii are then in deviations."
    )
    if high > UNEVEN * low:
        told = f"features have deviations from {low:.2g} to {high:.2g}, and noise of the one sigma {sigma:g}."
    elif middle > UNEVEN * sigma:
        told = f"features have a deviation of about {middle:.2g}, beside which sigma {sigma:g} is next to nothing."
    else:
        return
    warnings.warn(f"{told} {remedy}", NoiseWarning, stacklevel=3)


def warn_of_sigma(sigma: float) -> None:
    """That it is hardly in [0, 1] pixels."""
    if sigma > LOUDEST:
        warnings.warn(
            f"sigma {sigma:g} is {sigma:g} times the way from black to white: sigma and radii are in [0, 1] pixels. If"
            f" it is for pixels from 0 to 255, give {sigma / 255:.3g}, and radii divided by 255 too.",
            NoiseWarning,
            stacklevel=3,
        )
