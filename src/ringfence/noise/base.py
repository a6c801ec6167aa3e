"""Noise: what is added to the lifted input. Every chunk of draws comes from one 64-bit key and nothing else."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Final, Self, final

import torch
from numpy.random import SFC64
from torch import Tensor

from ringfence.errors import LOAD_PLUGIN, ArgumentError, did_you_mean
from ringfence.noise.checked import checked_kernel
from ringfence.noise.exact import Law, add_steps, fill_steps
from ringfence.noise.philox import signed
from ringfence.noise.sfc64 import streams
from ringfence.settings import as_float
from ringfence.stats.noise_law import AUTO, EXACT, FLOAT, NoiseLaw

SMALLEST, LARGEST = 1e-12, 1e9
"""Of sigma: far beyond, the draws of float32 are all zero, or infinite."""

FINEST: Final = 2048
"""Steps of a lattice within one standard deviation, at most, where noise is drawn exactly unasked: the thresholds of
more would take longer to find than a run should take to start."""


TOGETHER: Final = 1 << 16
"""Numbers that the CPU draws at once, of several keys if there is room: they stay in a cache."""


class Noise(ABC):
    """What is added to inputs: draws of its law, which mechanisms turn probabilities into radii with.

    One that is registered is made from its scale alone, and ``name`` is the family of its law.
    """

    name: ClassVar[str] = ""

    @property
    @abstractmethod
    def law(self) -> NoiseLaw:
        """The distribution of one coordinate, all being independent and alike."""

    @abstractmethod
    def fill(self, out: Tensor, key: int) -> None:
        """Overwrite out (rows, *shape), float32 and contiguous, with the draws of this 64-bit key."""

    def standard(self, shape: Sequence[int], generator: torch.Generator) -> Tensor:
        """Draws (*shape) at scale 1 from a generator, on its device: what training adds, times its scale."""
        out = torch.empty(tuple(shape), dtype=torch.float32, device=generator.device)
        key = torch.randint(1 << 62, (), generator=generator, device=generator.device)
        self.fill(out, int(key))
        return out.div_(self.law.scale)

    def fitted(self, lattice: int | None) -> Noise:
        """The noise for inputs that are known to lie on this lattice, None: on none. It is another one only where its
        form was left open."""
        return self

    def fill_steps(self, out: Tensor, key: int) -> None:
        """The same in steps of the law's lattice, whole numbers; noise without a lattice has no other unit."""
        self.fill(out, key)

    def fill_chunks(self, out: Tensor, keys: Sequence[int]) -> None:
        """``fill_steps`` of several keys, out (keys, rows, *shape): the same numbers as one by one."""
        for part, key in zip(out, keys, strict=True):
            self.fill_steps(part, key)

    def add(self, out: Tensor, clean: Tensor, table: Tensor) -> bool:
        """Write clean[slot] + draw into out (B, *shape) at once, cast and laid out; False where that is not offered.

        clean: (slots, *shape) float32, on a lattice in its steps; table: (3, B) int64 with every row's slot, key (as
        a signed number) and place among the draws of its key, -1 for no noise. The draws are those of ``fill``.
        """
        return False

    def settings(self) -> dict[str, Any]:
        """Family and parameters, for the run's config."""
        return self.law.settings()


@dataclass(frozen=True)
class FamilyNoise(Noise):
    """Independent coordinates of standard deviation sigma, of a family whose law is known. form ``float``: drawn in
    float32, because half precision would have another law; ``exact``: rounded to whole steps of 1/lattice (255 if none
    is named), drawn and added as integers; ``auto``: exact where a certification finds its inputs to be 8-bit and
    without a lift, float everywhere else.

    Float: on the CPU the bits come from NumPy's SFC64, seeded with all 64 bits of the key (torch's own CPU generator
    keeps 32, so two chunks could share a stream); on CUDA from Philox in a kernel of our own, or torch's Philox
    where Triton is missing. Each takes the key whole. Exact: Philox everywhere, the same integers on every device.
    Subclasses are final: they name a family and write how it is made from random bits.
    """

    sigma: float
    form: str = AUTO
    lattice: int | None = None

    def __post_init__(self) -> None:
        remedy = "Give e.g. 0.25 ([0,1] pixel units)."
        sigma = as_float(self.sigma)
        if not 0 < sigma < math.inf:
            raise ArgumentError("sigma", "must be a positive number", repr(self.sigma), remedy)
        if not SMALLEST <= sigma <= LARGEST:
            raise ArgumentError("sigma", f"must be at least {SMALLEST:g} and at most {LARGEST:g}", sigma, remedy)
        object.__setattr__(self, "sigma", sigma)  # drawn in half precision it would be another one
        object.__setattr__(self, "lattice", self.law.lattice)

    @property
    def law(self) -> NoiseLaw:
        """That of the family at scale sigma; float where its form is open."""
        return NoiseLaw(self.name, self.sigma, FLOAT if self.form == AUTO else self.form, self.lattice)

    def fitted(self, lattice: int | None) -> Self:
        """Exact on a lattice that is not too fine, else float; itself where its form was said."""
        if self.form != AUTO:
            return self
        exact = lattice is not None and self.sigma * lattice <= FINEST
        return replace(self, form=EXACT, lattice=lattice) if exact else replace(self, form=FLOAT)

    def settings(self) -> dict[str, Any]:
        """Those of its law; an open form is said to be open."""
        return self.law.settings() | {"form": self.form}

    @abstractmethod
    def fill_on_host(self, out: Tensor, drawn: Sequence[SFC64]) -> None:
        """``fill_chunks`` in float32 on the CPU, out not empty, from bits of each key: the draws of a key are the same
        whichever stand beside it."""

    @final
    def fill(self, out: Tensor, key: int) -> None:
        """Float32 numbers; exact ones as multiples of the lattice's step."""
        if self.lattice is not None:
            fill_steps(out, key, Law(self.name, self.sigma, self.lattice))
            out.mul_(1 / self.lattice)
        elif out.device.type == "cpu":
            self.fill_on_host(out[None], streams([key]))
        elif (kernel := _kernel(out.device, self.name)) is None:
            generator = _generator(str(out.device)).manual_seed(key)
            torch.mul(self.standard(out.shape, generator), self.sigma, out=out)
        else:
            rows = torch.arange(len(out))
            table = torch.stack([torch.zeros_like(rows), torch.full_like(rows, signed(key)), rows]).to(out.device)
            kernel.add_noise(out, torch.zeros_like(out[:1]), table, self.sigma, self.name)

    @final
    def fill_steps(self, out: Tensor, key: int) -> None:
        """Integers; float noise as it is."""
        if self.lattice is None:
            self.fill(out, key)
        else:
            fill_steps(out, key, Law(self.name, self.sigma, self.lattice))

    @final
    def fill_chunks(self, out: Tensor, keys: Sequence[int]) -> None:
        """Float noise of the CPU of several keys at once: of features a dozen operations each took most of the time."""
        if self.lattice is not None or out.device.type != "cpu":
            super().fill_chunks(out, keys)
            return
        drawn, together = streams(keys), max(1, TOGETHER // max(1, out[0].numel()))
        for start in range(0, len(keys), together):
            self.fill_on_host(out[start : start + together], drawn[start : start + together])

    @final
    def add(self, out: Tensor, clean: Tensor, table: Tensor) -> bool:
        """One kernel on CUDA."""
        if self.lattice is not None:
            return add_steps(out, clean, table, Law(self.name, self.sigma, self.lattice))
        kernel = _kernel(out.device, self.name)
        if kernel is not None:
            kernel.add_noise(out, clean, table, self.sigma, self.name)
        return kernel is not None


NOISES: dict[str, Callable[..., Noise]] = {}
"""What draws each family, made from its scale, and from form and lattice where it is not drawn in float32."""


def noise_with(family: str, scale: float, form: str = AUTO, lattice: int | None = None) -> Noise:
    """The noise of a family at this scale, in this form; one that is made from its scale alone is float."""
    if family not in NOISES:
        meant = "gaussian" if family == "normal" else family
        remedy = did_you_mean(meant, NOISES, f"Use gaussian, or {LOAD_PLUGIN}")
        raise ArgumentError("noise", f"must be one of {', '.join(NOISES)}", repr(family), remedy)
    try:
        return NOISES[family](scale, form, lattice)
    except TypeError:
        if form in (AUTO, FLOAT) and lattice is None:
            return NOISES[family](scale)
        rule, remedy = f"{family} noise is drawn in float32 alone", "Leave out form and lattice."
        raise ArgumentError("noise_form", rule, repr(form), remedy) from None


def _kernel(device: torch.device, family: str) -> Any:
    """Checked for this family alone: every other takes a fraction of a second of a start."""
    return checked_kernel("ringfence.noise.kernel", device, family)


@lru_cache(maxsize=8)
def _generator(device: str) -> torch.Generator:
    """One generator per device, seeded anew for every chunk: making one costs more than drawing."""
    return torch.Generator(device)
