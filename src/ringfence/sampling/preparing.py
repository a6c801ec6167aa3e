"""Preparing: the one place where a network becomes what runs: fused, folded, stacked, compiled, cast, laid out.

Whatever is done to it is done to a copy: the user's module keeps its mode, precision, layout and device. That the
result still computes the module is a claim, and check.py tests it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from inspect import unwrap
from typing import Any

import torch
from torch import Tensor, nn

from ringfence.classifiers import KConsensus, Members, Scored, fold_batch_norm, score
from ringfence.classifiers.base import APART, Composed, refuse_lazy
from ringfence.classifiers.fused import FusedResNet, fuse_resnets, rows_at_a_time
from ringfence.classifiers.maxima import by_maxima
from ringfence.classifiers.patches import Patches
from ringfence.errors import ClassifierError
from ringfence.sampling.plan import ForwardPlan

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
        return module, by_maxima(module, run) if plan.maxima else run
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
    # A frozen TorchScript network has no mode at all; what of ours wraps networks takes no notice of its own.
    fits = not any(getattr(part, "training", False) and not _wraps(part) for part in module.modules()) and all(
        _same_place(value.device, device)
        and (not value.is_floating_point() or value.dtype == dtype)
        and (value.dim() != 4 or value.is_contiguous(memory_format=layout))
        for value in values
    )
    return module if fits else _move(copied(module), device, dtype, layout)


def _wraps(part: nn.Module) -> bool:
    ours = type(part).__module__.partition(".")[0] == __name__.partition(".")[0]
    return type(part) is nn.ModuleList or (ours and isinstance(part, Composed))


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
    if any(value.is_complex() for value in (*module.parameters(), *module.buffers())):
        # torch makes real numbers of complex ones where it is asked for a real type: another network.
        placed: Any = lambda value: value.to(device, dtype if value.is_floating_point() else None)  # noqa: E731
        return module._apply(placed).eval().to(memory_format=layout)  # type: ignore[no-untyped-call, no-any-return]
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
