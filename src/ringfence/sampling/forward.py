"""Forward: the classifier at one fixed shape, in one form and precision; every answer has the shape it must have.

This is the one place where a network becomes what runs: fused, folded, stacked, compiled, cast, laid out. Whatever is
done to it is done to a copy: the user's module keeps its mode, precision, layout and device. That the result still
computes the module is a claim, and check.py tests it.
"""

from __future__ import annotations

import copy
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import unwrap
from typing import Any, final

import torch
from torch import Tensor, nn

from ringfence.classifiers import KConsensus, Members, Scored, fold_batch_norm, score
from ringfence.classifiers.base import APART, refuse_lazy
from ringfence.classifiers.fused import FusedResNet, fuse_resnets, rows_at_a_time
from ringfence.classifiers.patches import Patches
from ringfence.errors import ClassifierError, RingfenceError
from ringfence.sampling.plan import ForwardPlan, out_of_memory

Run = Callable[[Tensor], Scored]


def prepared(classifier: nn.Module, plan: ForwardPlan, device: torch.device) -> tuple[nn.Module, Run]:
    """The classifier in the plan's form, and how it runs: a batch of the plan's precision and layout -> scores and
    work."""
    module = fuse_resnets(classifier, device) if plan.fused else classifier
    joined = False
    if plan.joined:
        from ringfence.classifiers.joining import joins_on  # has an operator, as the fused ones have
        from ringfence.classifiers.reshaping import reshaped

        module, joined = reshaped(module), joins_on(device)
    module = fold_batch_norm(module, joined) if plan.fold else module
    if module is classifier:
        module = on_device(classifier, device, plan.dtype, plan.layout)
    else:
        _move(module, device, plan.dtype, plan.layout)
    if module is classifier and any(isinstance(part, Members | KConsensus) for part in module.modules()):
        module = copied(module)  # how members run is set on them
    waves = _set_members(module, plan, device)

    def run(x: Tensor) -> Scored:
        return score(module, x)

    # A fused network is compiled already; a K-consensus of such has shapes that differ from batch to batch.
    if not plan.compile or isinstance(module, FusedResNet) or waves:
        return module, run
    mode = "max-autotune-no-cudagraphs" if plan.autotune else None
    fast: Run = _exchanged(run, mode) if plan.exchanged else compiled(run, mode)
    patched = any(isinstance(part, Patches) for part in module.modules())
    return module, _after_one_row(run, fast) if patched else fast


def on_device(
    module: nn.Module,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
    layout: torch.memory_format = torch.contiguous_format,
) -> nn.Module:
    """The module in evaluation mode, on the device, in this precision and layout: itself where it is so already."""
    refuse_lazy(module, "classifier", ClassifierError)
    values = [*module.parameters(), *module.buffers()]
    # A frozen TorchScript network has no mode at all.
    fits = not any(getattr(part, "training", False) for part in module.modules()) and all(
        _same_place(value.device, device)
        and (not value.is_floating_point() or value.dtype == dtype)
        and (value.dim() != 4 or value.is_contiguous(memory_format=layout))
        for value in values
    )
    return module if fits else _move(copied(module), device, dtype, layout)


def copied(module: nn.Module) -> nn.Module:
    """A deep copy."""
    try:
        return copy.deepcopy(module)
    except Exception as error:
        rule = "must be one that copy.deepcopy can copy, or in evaluation mode and on the run's device already"
        received = f"{type(error).__name__}: {error}"
        remedy = "Call eval() and to(device) on it first, and leave out compile, bf16 and channels_last."
        raise ClassifierError("classifier", rule, received, remedy) from error


def _move(module: nn.Module, device: torch.device, dtype: torch.dtype, layout: torch.memory_format) -> nn.Module:
    # Of hundreds of tensors none waits for the device; what comes back from one must. A module may move as it likes.
    ahead = {"non_blocking": True} if device.type == "cuda" and type(module).to is nn.Module.to else {}
    module = module.to(device=device, dtype=dtype, **ahead).eval()
    return module.to(memory_format=layout)  # type: ignore[call-overload, no-any-return]


def _same_place(one: torch.device, other: torch.device) -> bool:
    """cuda without a number is the current one; other kinds have one device."""
    current = torch.cuda.current_device() if one.type == other.type == "cuda" else 0
    numbers = {current if device.index is None else device.index for device in (one, other)}
    return one.type == other.type and len(numbers) == 1


def _set_members(module: nn.Module, plan: ForwardPlan, device: torch.device) -> bool:
    """How members run, set on a copy; whether a K-consensus of fused networks is among them."""
    waves = False
    for part in module.modules():
        if isinstance(part, Members):
            part.use_stack(plan.stacked and part.stackable)
        if isinstance(part, KConsensus):
            part.parts = plan.parts
            members = [*part.first.members, *(part.rest.members if part.rest else ())]
            part.wave = rows_at_a_time(device) if all(isinstance(one, FusedResNet) for one in members) else 0
            waves = waves or part.wave > 0
    return waves


def _after_one_row(run: Run, fast: Run) -> Run:
    """Patches make their matrices at the first batch: a trace must find them there, it cannot make them."""
    made = False

    def both(x: Tensor) -> Scored:
        nonlocal made
        if not made:
            run(x[:1])
            made = True
        return fast(x)

    return both


RECOMPILATIONS = 64


def compiled(run: Any, mode: str | None = None, **more: Any) -> Any:
    """A function or a network, compiled for fixed shapes; mode and more: of torch.compile.

    torch's compiler is loaded here and no earlier: that takes longer than all the rest.
    """
    prepare_compiler()
    return torch.compile(run, dynamic=False, mode=mode, **more)


def _exchanged(run: Run, mode: str | None) -> Run:
    """Compiled, with layers in forms for GPUs."""
    from ringfence.classifiers.exchanging import exchanging  # has operators, which other runs need not wait for

    found: Run = compiled(run, backend=exchanging(mode))
    return found


def prepare_compiler() -> None:
    """What is compiled apart, and that one code may be compiled often."""
    # For every Forward of a process, member, mode and frozen parameter anew.
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, RECOMPILATIONS)
    while APART:
        owner, name, recursive = APART.pop()
        # Tests wrap methods to check their types, and a cache stays.
        whole = unwrap(getattr(owner, name), stop=lambda one: hasattr(one, "cache_info"))
        setattr(owner, name, torch.compiler.disable(whole, recursive=recursive))  # type: ignore[no-untyped-call]


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
        self._waits = [one for one in module.modules() if isinstance(one, KConsensus)]
        self._merge = None if plan.compile else _merge

    def meanwhile(self, work: Callable[[], None]) -> bool:
        """Have this done in every forward while the host waits for the device; False where it does not wait."""
        for one in self._waits:
            one.meanwhile = work
        return bool(self._waits)

    def _layout_of(self, dimensions: int) -> torch.memory_format:
        """Of a batch; only images (4) can have their channels last."""
        return self.plan.layout if dimensions == 4 else torch.contiguous_format

    def room(self, shape: tuple[int, ...]) -> Tensor:
        """An empty batch (B, *shape) as the network takes it."""
        size, layout = (self.plan.batch, *shape), self._layout_of(1 + len(shape))
        return torch.empty(size, dtype=self.dtype, device=self.device, memory_format=layout)

    @torch.inference_mode()
    def merge(self, noise: Tensor, clean: Tensor, rows: Tensor, lattice: int | None = None) -> Tensor:
        """clean[rows] + noise (B, *shape), overwriting the noise: added in float32, then cast and laid out at once.

        On a lattice both come in steps: their sum is exact, and is brought back to input units before the cast.
        """
        if self._merge is None:  # not before: noise may come from a kernel that has added it already
            self._merge = compiled(_merge_fused)
        merged: Tensor = self._merge(noise, clean, rows, self.dtype, self._layout_of(noise.dim()), lattice)
        return merged

    @torch.inference_mode()
    def __call__(self, noisy: Tensor) -> Scored:
        """Scores (B, lanes, K) and work of one batch."""
        ready = noisy.to(dtype=self.dtype, memory_format=self._layout_of(noisy.dim()))
        try:
            with arithmetic(self.device, self.plan.precision == "tf32", self.plan.joined and self.plan.autotune):
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
        if not isinstance(scores, Tensor):
            raise self._unlike(type(scores).__name__, rows)
        every = scores.unsqueeze(1) if scores.dim() == 2 else scores
        if every.dim() != 3 or (len(every), every.shape[2]) != (rows, self.num_classes):
            raise self._unlike(tuple(scores.shape), rows)
        if self.lanes not in (None, every.shape[1]) or not every.is_floating_point():
            raise self._unlike(f"{tuple(scores.shape)} of {scores.dtype}", rows)
        if isinstance(work, Tensor) and len(work) != rows:
            raise self._unlike(f"work of shape {tuple(work.shape)}", rows)
        self.lanes = every.shape[1]
        return Scored(_single(every), work)

    def _unlike(self, received: object, rows: int) -> ClassifierError:
        lanes = "" if self.lanes in (None, 1) else f"{self.lanes}, "
        rule = f"must return, for every batch, floating-point scores of shape ({rows}, {lanes}{self.num_classes})"
        return ClassifierError("classifier", rule, received, "Check `num_classes` and the model's last layer.")


def _single(scores: Tensor) -> Tensor:
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


def _merge(
    noise: Tensor,
    clean: Tensor,
    rows: Tensor,
    dtype: torch.dtype,
    layout: torch.memory_format,
    lattice: int | None,
) -> Tensor:
    noisy = noise.add_(clean.index_select(0, rows))
    return (noisy if lattice is None else noisy.mul_(1 / lattice)).to(dtype=dtype, memory_format=layout)


def _merge_fused(
    noise: Tensor,
    clean: Tensor,
    rows: Tensor,
    dtype: torch.dtype,
    layout: torch.memory_format,
    lattice: int | None,
) -> Tensor:
    noisy = noise + clean.index_select(0, rows)  # one kernel when compiled
    return (noisy if lattice is None else noisy * (1 / lattice)).to(dtype=dtype, memory_format=layout)
