"""Which normalisation stands in front of a network: the one it brings, or the one that is given; never both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from torch import Tensor, nn

from ringfence.classifiers.normalize import Normalize
from ringfence.classifiers.resized import Resized
from ringfence.errors import ModelError

Normalization = tuple[Sequence[float], Sequence[float]]
"""Channel means and deviations."""

GIVEN, REMEDY = "mean, std", "Leave `mean` and `std` out."

_NAMES = (("mean", "std"), ("means", "sds"))
"""What normalising layers call their numbers: ours, torchvision's and Cohen's."""


def chosen_normalization(
    given: Normalization | None, brought: Normalization | None, source: str
) -> Normalization | None:
    """What is given, or else what the trained network brings; two that differ are refused."""
    if given is not None and brought is not None and not _agree(given, brought):
        raise _refused(given, brought, source)
    return given or brought


def refuse_second(
    given: Normalization | None, module: nn.Module, source: str, argument: str = GIVEN, remedy: str = REMEDY
) -> None:
    """Refuse normalisation in front of a module that normalises by itself: even the same numbers would act twice."""
    inside = normalization_inside(module)
    if given is not None and inside is not None:
        raise _refused(given, inside, source, argument, remedy)


def normalization_inside(module: nn.Module) -> Normalization | None:
    """The numbers of the first normalising layer in a module, None where there is none."""
    for part in module.modules():
        for names in _NAMES:
            mean, std = (_numbers(getattr(part, name, None)) for name in names)
            if mean and std:
                return mean, std
    return None


def preprocessing_in_words(module: nn.Module, given: tuple[int, ...] = ()) -> str | None:
    """What a classifier does to its inputs before its networks see them, in one line; None where it does nothing.

    given: shape of the inputs, which are not resized to a size that they have.
    """
    sizes = [one for one in module.modules() if isinstance(one, Resized) and one.size != given[-2:]]
    numbers = [one for one in module.modules() if isinstance(one, Normalize)]
    told = [f"resized to {one.size[0]} x {one.size[1]} ({one.kind})" for one in sizes]
    told += [f"normalised by {_written((_numbers(one.mean), _numbers(one.std)))}" for one in numbers]
    return f"behind the noise, inputs are {', '.join(dict.fromkeys(told))}" if told else None


def _numbers(value: object) -> list[float]:
    """A few numbers, one per channel; nothing for whatever else bears such a name."""
    if isinstance(value, Tensor):
        return value.detach().float().flatten().tolist()
    plain = isinstance(value, Iterable) and not isinstance(value, str | bytes)
    numbers = list(value) if plain else []  # type: ignore[call-overload]
    return [float(one) for one in numbers] if all(isinstance(one, int | float) for one in numbers) else []


def _agree(one: Normalization, other: Normalization) -> bool:
    """Whether both mean the same, a single number standing for all channels; weights store them in float32."""
    pairs = list(zip(one, other, strict=True))
    fitting = all(len(a) == len(b) or 1 in (len(a), len(b)) for a, b in pairs)
    return fitting and all(np.allclose(np.array(a), np.array(b), rtol=1e-6, atol=1e-7) for a, b in pairs)


def _refused(
    given: Normalization, brought: Normalization, source: str, argument: str = GIVEN, remedy: str = REMEDY
) -> ModelError:
    rule = f"{source} brings its own normalisation, {_written(brought)}"
    return ModelError(argument, rule, _written(given), remedy)


def _written(normalization: Normalization) -> str:
    mean, std = (",".join(f"{value:.6g}" for value in part) for part in normalization)
    return f"mean {mean} and std {std}"
