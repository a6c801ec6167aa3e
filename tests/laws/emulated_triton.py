"""The little of Triton that the noise kernels use, in NumPy: their source runs on any CPU, program by program."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from inspect import signature
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from torch import Tensor

from ringfence.noise import philox


class Block(np.ndarray):  # type: ignore[type-arg]
    """Numbers of one program; a scalar is a block of one, which broadcasts."""

    def to(self, dtype: type, bitcast: bool = False) -> Block:
        return (np.asarray(self).view(dtype) if bitcast else np.asarray(self).astype(dtype)).view(Block)


class Pointer:
    """A place in a tensor's memory, or places."""

    def __init__(self, memory: np.ndarray, at: Any = 0) -> None:  # type: ignore[type-arg]
        self.memory, self.at = memory, at

    @property
    def dtype(self) -> Any:
        return type("Type", (), {"element_ty": self.memory.dtype.type})

    def __add__(self, steps: Any) -> Pointer:
        return Pointer(self.memory, self.at + steps)

    def __sub__(self, steps: Any) -> Pointer:
        return Pointer(self.memory, self.at - steps)


def memory_of(value: Any) -> Any:
    """A tensor as a pointer to its memory, in the order it lies there; anything else as it is."""
    if not isinstance(value, Tensor):
        return value
    laid = value if value.is_contiguous() else value.permute(0, 2, 3, 1)
    return Pointer(laid.detach().numpy().reshape(-1))


class Jit:
    """A function that is called from a kernel as it is, and launched by kernel[grid](...)."""

    def __init__(self, function: Callable[..., Any], here: list[int]) -> None:
        self.function, self.here = function, here

    def __call__(self, *given: Any) -> Any:
        return self.function(*given)

    def __getitem__(self, grid: Sequence[int]) -> Callable[..., None]:
        def launch(*given: Any, num_warps: int, **constants: Any) -> None:
            for place in itertools.product(*map(range, grid)):
                self.here[:] = place
                self.function(*map(memory_of, given), **constants)

        return launch


def modules() -> dict[str, ModuleType]:
    """``triton``, ``triton.language`` and what is used of its extras."""
    triton, tl, here = ModuleType("triton"), ModuleType("triton.language"), [0, 0]

    def block(values: Any) -> Block:
        return np.atleast_1d(np.asarray(values)).view(Block)

    def narrow(value: Any) -> Any:
        return np.float32(value) if isinstance(value, float) else value

    def load(pointer: Pointer, mask: Any = True, other: Any = 0) -> Block:
        at, asked = np.broadcast_arrays(np.atleast_1d(np.asarray(pointer.at)), np.asarray(mask))
        found = pointer.memory[np.where(asked, at, 0)]
        return block(np.where(asked, found, np.asarray(other, found.dtype)))

    def store(pointer: Pointer, value: Any, mask: Any) -> None:
        at, asked, values = np.broadcast_arrays(np.asarray(pointer.at), np.asarray(mask), np.asarray(value))
        pointer.memory[at[asked]] = values[asked]

    def random_words(key: Block, first: Block, second: Block, third: Block, fourth: Block) -> list[Block]:
        counters = np.asarray(first, np.int64).astype(np.uint64)
        where = np.asarray(second, np.int32).view(np.uint32).astype(np.uint64)
        found = philox.words(int(key[0]) % (1 << 64), counters, where, int(third[0]))
        return [block(one.astype(np.uint32)) for one in found]

    whole = {"int32": np.int32, "int64": np.int64, "uint32": np.uint32, "float32": np.float32, "constexpr": int}
    functions: dict[str, Any] = {
        "load": load,
        "store": store,
        "philox": random_words,
        "program_id": lambda axis: block(np.int32(here[axis])),
        "arange": lambda low, high: block(np.arange(low, high, dtype=np.int32)),
        "zeros": lambda shape, dtype: block(np.zeros(shape, dtype)),
        "where": lambda asked, one, other: block(np.where(asked, narrow(one), narrow(other))),
        "sqrt": lambda x: block(np.sqrt(x)),
        "log": lambda x: block(np.log(x)),
        "max": lambda x, axis: np.max(x, axis),
        "static_range": range,
    }
    vars(tl).update(whole | functions)

    def jit(function: Any = None, do_not_specialize: Sequence[str] = ()) -> Any:
        """With options or without; they name arguments that there are."""
        if function is None:
            return lambda found: jit(found, do_not_specialize)
        assert set(do_not_specialize) <= set(signature(function).parameters)
        return Jit(function, here)

    vars(triton).update(jit=jit, language=tl, cdiv=lambda whole, part: -(-whole // part))
    vars(triton).update(next_power_of_2=lambda one: 1 << (one - 1).bit_length())
    extra = ModuleType("triton.language.extra")
    vars(extra).update(libdevice=SimpleNamespace(fast_log2f=lambda x: block(np.log2(x))))
    return {"triton": triton, "triton.language": tl, "triton.language.extra": extra}
