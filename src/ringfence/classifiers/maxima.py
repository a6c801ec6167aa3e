"""Maxima of pooling windows along one side, then along the other: on CPUs far faster than torch's, the same numbers.

torch's max_pool2d goes through a window number by number: of 2 x 2 windows it takes two to twenty times as long as
maxima of whole strided lines. Which poolings there are is seen while the network runs, by a mode of torch's functions,
whatever code calls them: modules, their hooks and kinds stay as they are. Another form of the network, checked as all
are: of zeros the sign may be another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d
from torch.overrides import TorchFunctionMode

from ringfence.classifiers.base import Scored, unheard

POOLINGS = (torch.max_pool2d, max_pool2d)
SIDES = (2, 3)
"""Of a window: nobody has measured others, and a side of one would give its input itself."""

Pair = tuple[int, int]


@final
class Maxima(TorchFunctionMode):
    """While it is on, windows that stay within their image are pooled side by side; found: how many poolings were."""

    def __init__(self) -> None:
        super().__init__()
        self.found = 0

    def __torch_function__(
        self, function: Any, types: Any, given: tuple[Any, ...] = (), named: Mapping[str, Any] | None = None
    ) -> Any:
        """The function itself, but for such poolings."""
        if function in POOLINGS and (exchanged := _windows(*given, **(named or {}))) is not None:
            self.found += 1
            return maxima(*exchanged)
        return function(*given, **(named or {}))


def _windows(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> tuple[Tensor, Pair, Pair] | None:
    """Images, sides and steps of windows, as max_pool2d takes them; None where it is to pool them itself.

    So where gradients are wanted: of equal numbers it names the first alone.
    """
    if type(input) is not Tensor or input.device.type != "cpu" or input.requires_grad or input.dim() not in (3, 4):
        return None
    sides = _pair(kernel_size)
    steps = _pair(stride) if stride is not None and stride != [] and stride != () else sides
    if not sides or not steps or min(steps) < 1 or any(one not in SIDES for one in sides):
        return None
    if ceil_mode or return_indices or _pair(padding) != (0, 0) or _pair(dilation) != (1, 1):
        return None
    fits = all(size >= side for size, side in zip(input.shape[-2:], sides, strict=True))
    return (input, sides, steps) if fits and input.is_floating_point() else None


def _pair(given: Any) -> Pair | None:
    """Of a number, or of one or two; None where it is something else."""
    numbers = tuple(given) if isinstance(given, tuple | list) else (given,)
    if len(numbers) not in (1, 2) or any(type(one) is not int for one in numbers):
        return None
    return numbers[0], numbers[-1]


def maxima(x: Tensor, sides: Pair, steps: Pair) -> Tensor:
    """max_pool2d without padding: (..., H, W) -> (..., (H - side) // step + 1, and the same of W)."""
    for axis in (-2, -1):
        starts = x.shape[axis] - sides[axis] + 1  # where a window may begin
        every = [slice(first, first + starts, steps[axis]) for first in range(sides[axis])]
        x = reduce(torch.maximum, [x[..., one, :] if axis == -2 else x[..., one] for one in every])
    return x


def by_maxima(module: nn.Module, run: Callable[[Tensor], Scored]) -> Callable[[Tensor], Scored]:
    """How the module runs, with its poolings exchanged; as it is where one row shows that it has none.

    For what asks whether somebody looks on takes another way then: an attention of torch's a slower one, and what is
    compiled is compiled again.
    """
    if any(hasattr(part, "_orig_mod") for part in module.modules()):
        return run
    pools: bool | None = None

    def faster(x: Tensor) -> Scored:
        nonlocal pools
        if pools is None:
            with Maxima() as mode:
                unheard(run)(x[:1])
            pools = mode.found > 0
        if not pools:
            return run(x)
        with Maxima():
            return run(x)

    return faster
