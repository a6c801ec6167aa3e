"""Forward: the classifier at one fixed shape, in one form and precision; every answer has the shape it must have."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, final

import torch
from torch import Tensor, nn

from ringfence.classifiers import KConsensus, Scored
from ringfence.errors import ClassifierError, RingfenceError
from ringfence.sampling.devices import without_autocast
from ringfence.sampling.plan import ForwardPlan, out_of_memory
from ringfence.sampling.preparing import compiled, prepared


@final
class Forward:
    """Noisy float32 batches (B, *shape) -> float32 scores (B, lanes, K), always at plan.batch rows.

    The noise was added in float32; the cast to the network's precision happens here, because it belongs
    to the classifier being certified. TF32 is on in a plan that says so, while it runs, and off elsewhere.
    ``lanes`` is what the first answer had, and stays so.
    """

    def __init__(self, classifier: nn.Module, plan: ForwardPlan, device: torch.device, num_classes: int) -> None:
        self.plan, self.device, self.num_classes, self.dtype = plan, device, num_classes, plan.dtype
        self.lanes: int | None = None
        with arithmetic(device, tf32=False):
            module, self._run = prepared(classifier, plan, device)
        self._consensuses = [one for one in module.modules() if isinstance(one, KConsensus)]
        self._merge: Any = None  # compiled when first asked for: noise may come from a kernel that has added it already

    def meanwhile(self, work: Callable[[], None]) -> bool:
        """Have this done in every forward while the host waits for the device; False where it does not wait."""
        for one in self._consensuses:
            one.meanwhile = work
        return bool(self._consensuses)

    def _layout_of(self, dimensions: int) -> torch.memory_format:
        """Of a batch; only images (4) can have their channels last."""
        return self.plan.layout if dimensions == 4 else torch.contiguous_format

    def room(self, shape: tuple[int, ...]) -> Tensor:
        """An empty batch (B, *shape) as the network takes it."""
        size, layout = (self.plan.batch, *shape), self._layout_of(1 + len(shape))
        return torch.empty(size, dtype=self.dtype, device=self.device, memory_format=layout)

    def merge(self, noise: Tensor, clean: Tensor, rows: Tensor, lattice: int | None = None) -> Tensor:
        """clean[rows] + noise (B, *shape), overwriting the noise: added in float32, then cast and laid out at once.

        On a lattice both come in steps: their sum is exact, and is brought back to input units before the cast.
        """
        given = (noise, clean, rows, self.dtype, self._layout_of(noise.dim()), lattice)
        if not self.plan.compiles_on(self.device):
            return _merged(*given, out=noise)
        self._merge = self._merge or compiled(_merged)
        merged: Tensor = self._merge(*given)
        return merged

    @torch.inference_mode()
    def __call__(self, noisy: Tensor) -> Scored:
        """Scores (B, lanes, K) and work of one batch."""
        ready = noisy.to(dtype=self.dtype, memory_format=self._layout_of(noisy.dim()))
        try:
            how = arithmetic(self.device, self.plan.precision == "tf32", self.plan.joined and self.plan.autotune)
            with without_autocast(self.device), how:
                scores, work = self._run(ready)
        except (SystemExit, GeneratorExit) as error:  # these would end the program
            raise left_early(error) from error
        except Exception as error:  # typer.Exit and StopIteration too: they would end the program, or a loop of ours
            if isinstance(error, RingfenceError) or out_of_memory(error):
                raise
            rule, received = "must answer every batch", f"{type(error).__name__}: {error}"
            raise ClassifierError("classifier", rule, received, "Mend what the model raises while it runs.") from error
        return self._of_one_shape(scores, work, len(noisy))

    def _of_one_shape(self, scores: Tensor, work: Tensor | int, rows: int) -> Scored:
        """The answer as (B, lanes, K) in float32; the host knows shapes, so that nothing waits for the device."""
        if not isinstance(scores, Tensor) or scores.layout != torch.strided:
            raise self._unlike(scores.layout if isinstance(scores, Tensor) else type(scores).__name__, rows)
        every = scores.unsqueeze(1) if scores.dim() == 2 else scores
        if every.dim() != 3 or (len(every), every.shape[2]) != (rows, self.num_classes):
            raise self._unlike(tuple(scores.shape), rows)
        if self.lanes not in (None, every.shape[1]) or not every.is_floating_point():
            raise self._unlike(f"{tuple(scores.shape)} of {scores.dtype}", rows)
        if isinstance(work, Tensor) and len(work) != rows:
            raise self._unlike(f"work of shape {tuple(work.shape)}", rows)
        self.lanes = every.shape[1]
        return Scored(single(every), work)

    def _unlike(self, received: object, rows: int) -> ClassifierError:
        lanes = "" if self.lanes in (None, 1) else f"{self.lanes}, "
        rule = f"must return, for every batch, floating-point scores of shape ({rows}, {lanes}{self.num_classes})"
        return ClassifierError("classifier", rule, received, "Check `num_classes` and the model's last layer.")


def single(scores: Tensor) -> Tensor:
    """Scores in float32; a row of float64 whose class that would change is invalid, and counts against every class."""
    rounded = scores.float()
    if scores.dtype != torch.float64:
        return rounded
    kept = rounded.argmax(-1, keepdim=True) == scores.argmax(-1, keepdim=True)
    return torch.where(kept, rounded, torch.nan)


_RUNNING: Counter[tuple[bool, bool]] = Counter()
_CHANGED = threading.Condition()
"""Forwards of this process that run now, by whether they are in TF32 and cuDNN may try its algorithms, and their word
that one has ended."""
_WISHED = [False]
"""Whether algorithms are tried elsewhere: a training may wish so."""


@contextmanager
def arithmetic(device: torch.device, tf32: bool, tried: bool = False) -> Iterator[None]:
    """Compute with TF32 or without, whatever the threads of other devices and models do: it is a flag of the whole
    process, so that forwards of one kind run side by side, and those of others wait for them. So is that cuDNN tries
    all algorithms that it has for a convolution, when it sees the first of its shape."""
    if device.type != "cuda":
        yield
        return
    mine = (tf32, tried)
    with _CHANGED:
        while any(count for kind, count in _RUNNING.items() if kind != mine):
            _CHANGED.wait()
        if not _RUNNING[mine]:
            _WISHED[0] = torch.backends.cudnn.benchmark
        _RUNNING[mine] += 1
        _use_tf32(tf32)
        torch.backends.cudnn.benchmark = _WISHED[0] or tried
    try:
        yield
    finally:
        with _CHANGED:
            _RUNNING[mine] -= 1
            if not _RUNNING[mine]:
                _use_tf32(False)
                torch.backends.cudnn.benchmark = _WISHED[0]
                _CHANGED.notify_all()


def _use_tf32(use: bool) -> None:
    """Whether products may round their factors; read when a kernel is launched or a graph is traced."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = use


def left_early(error: BaseException) -> ClassifierError:
    """A classifier that tried to end the program."""
    rule, received = "must answer every batch", f"{type(error).__name__}({error}) while it ran"
    return ClassifierError("classifier", rule, received, "Remove sys.exit from the model.")


def _merged(
    noise: Tensor,
    clean: Tensor,
    rows: Tensor,
    dtype: torch.dtype,
    layout: torch.memory_format,
    lattice: int | None,
    out: Tensor | None = None,
) -> Tensor:
    """out: where sums of float32 may stand; None where a compiler makes one kernel of it, which writes none."""
    noisy = torch.add(noise, clean.index_select(0, rows), out=out)
    return (noisy if lattice is None else torch.mul(noisy, 1 / lattice, out=out)).to(dtype=dtype, memory_format=layout)
