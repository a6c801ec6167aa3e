"""ForwardPlan: the shape and the form of every forward of a run, and which forms are plainer."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, final

import torch

from ringfence.errors import ArgumentError, check_word

Precision = Literal["fp32", "tf32", "bf16"]
PRECISIONS: dict[str, torch.dtype] = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16}
"""By name what tensors are kept in; tf32 multiplies them with ten bits of mantissa, on CUDA alone."""
MEMORY = Path("/proc/meminfo")
BATCHES_IN_MEMORY = 3
"""Float32 batches that sampling alone holds at a time: noise, its sum with the inputs, what the network is given."""


@final
@dataclass(frozen=True)
class ForwardPlan:
    """The shape of every forward of a run: chosen once, stored, reused on resume, short batches padded to it.

    parts: slices of the batch that the first members of a K-consensus see one after the other.
    fused: CIFAR ResNets run as one kernel each, whose activations stay on the chip (bf16).
    joined: layers in forms for GPUs, and joined with what follows them (classifiers/reshaping.py, joining.py).
    exchanged: layers in forms for GPUs, exchanged in what is compiled (classifiers/exchanging.py).
    maxima: those of pooling windows one side after the other, for CPUs, where not compiled (classifiers/maxima.py).
    refused: the forms that were wanted and did not compute the classifier, or not faster, each with the reason.
    """

    batch: int
    precision: Precision = "fp32"
    channels_last: bool = False
    compile: bool = False
    stacked: bool = False
    fold: bool = False
    autotune: bool = False
    parts: int = 1
    fused: bool = False
    joined: bool = False
    exchanged: bool = False
    maxima: bool = False
    refused: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "refused", tuple(self.refused))  # a stored one is a list
        if self.batch < 1:
            raise ArgumentError("batch", "must be at least 1", self.batch, "Leave it at auto.")
        if self.parts < 1:
            raise ArgumentError("parts", "must be at least 1", self.parts, "Leave it out.")
        check_word("precision", self.precision, sorted(PRECISIONS), "Use fp32.")
        if self.fused and (self.precision != "bf16" or self.stacked):
            received = f"{self.precision}{', stacked' if self.stacked else ''}"
            raise ArgumentError("fused", "needs bf16, and members one by one", received, "Leave it out.")
        if self.exchanged and not self.compile:
            raise ArgumentError("exchanged", "needs compile, which finds such layers", "no compile", "Leave it out.")

    @property
    def dtype(self) -> torch.dtype:
        """The precision as torch names it."""
        return PRECISIONS[self.precision]

    @property
    def in_words(self) -> str:
        """The form in a line: precision, rows, and what is done to the network."""
        done = {"channels last": self.channels_last, "compiled": self.compile, "fused": self.fused}
        done |= {"joined": self.joined, "autotuned": self.autotune, "stacked": self.stacked}
        return ", ".join(
            [self.precision, f"{self.batch:,} rows a forward", *(name for name, is_so in done.items() if is_so)]
        )

    def compiles_on(self, device: torch.device) -> bool:
        """Whether what stands around the network is compiled, too: where launching its kernels costs time."""
        return self.compile and device.type == "cuda"

    def refuses(self, form: str) -> bool:
        """Whether this form was wanted, and left out."""
        return any(one.startswith(f"{form}: ") for one in self.refused)

    @property
    def layout(self) -> torch.memory_format:
        """How the network wants images laid out."""
        return torch.channels_last if self.channels_last else torch.contiguous_format

    @property
    def plain(self) -> ForwardPlan:
        """The network called as it is, in the run's precision, at the run's shape."""
        return ForwardPlan(self.batch, self.precision)

    @classmethod
    def stored(cls, settings: Mapping[str, Any]) -> ForwardPlan:
        """The inverse of ``settings``; earlier versions had fewer forms, and a form of a later one cannot be run."""
        if unknown := sorted(set(settings) - {one.name for one in fields(cls)}):
            rule, remedy = "must have forms that this version knows", "Go on with the version that began the run."
            raise ArgumentError("plan", rule, ", ".join(unknown), remedy)
        return cls(**settings)

    def settings(self) -> dict[str, Any]:
        """Every field, for the run folder; ``refused`` only where there is something to tell."""
        told = asdict(self)
        refused = list(told.pop("refused"))
        return told | ({"refused": refused} if refused else {})


def plainer(plan: ForwardPlan) -> Iterator[tuple[str, ForwardPlan]]:
    """Ever plainer forms, each with the name of what is left out, down to the network called as it is."""
    for name, rest in (
        ("exchanged", {"exchanged": False}),
        ("joined", {"joined": False}),
        ("fused", {"fused": False}),
        ("fold", {"fold": False}),
        ("stacked", {"stacked": False}),
        ("compile", {"compile": False, "autotune": False}),
        ("maxima", {"maxima": False}),
        ("channels_last", {"channels_last": False}),
        ("parts", {"parts": 1}),
    ):
        if getattr(plan, name) != rest[name]:
            plan = replace(plan, **rest)
            yield name, plan


def out_of_memory(error: Exception) -> bool:
    """CUDA has its own exception; the CPU allocator raises a plain RuntimeError."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def smaller(plan: ForwardPlan) -> ForwardPlan:
    """Half the batch, after running out of memory."""
    if plan.batch == 1:
        raise ArgumentError("batch", "a single input must fit into memory", 1, "Use a smaller model or device=cpu.")
    return replace(plan, batch=plan.batch // 2)


def check_memory(batch: int, shape: tuple[int, ...], device: torch.device) -> None:
    """Refuse a batch whose inputs alone do not fit into what memory is free, before anything is allocated."""
    each = 4 * BATCHES_IN_MEMORY * max(1, torch.Size(shape).numel())
    free = free_memory(device)
    if free is not None and batch * each > free:
        rule = f"batches of inputs must fit into the {free / 2**30:.1f} GiB of memory that are free"
        received = f"{batch} rows, which take {batch * each / 2**30:.1f} GiB"
        raise ArgumentError("batch", rule, received, f"Use auto, or at most {max(1, free // each)}.")


def free_memory(device: torch.device) -> int | None:
    """Bytes that can still be had on the device; on systems that do not say, all there are; None where nobody tells."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # by torch, for the next one
        return int(torch.cuda.mem_get_info(device)[0]) + kept
    try:
        told = dict(line.split(":", 1) for line in MEMORY.read_text().splitlines())
        return int(told["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
