"""Compiled code in training is used after its gradients were compared with the plain network's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ringfence.errors import ArgumentError
from ringfence.training.checkpoints import undone

LARGEST_DRIFT = 0.2
"""Share of a gradient's length by which a compiled network's may differ, beyond what rounding explains."""

EXCUSED = 3
"""Times the plain network's rounding that explain a difference. Compiled code rounds elsewhere, so its rounding is
another draw, and in bf16 one of a thousand weights of a deep network is off by twice as much as the plain one is."""


@contextmanager
def algorithms_tried(tried: bool = True) -> Iterator[None]:
    """Let cuDNN try its algorithms for every shape: a training has few, and its small channels suit none by default.

    torch keeps the algorithm that it first took for a shape, tried or not.
    """
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = tried
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


Run = Callable[[Tensor], Tensor]
"""Inputs (B, *shape) -> answers of any shape."""


def check_gradients(network: nn.Module, plain: Run, fast: Run, x: Tensor) -> None:
    """Refuse compiled code, of a network or of more, whose gradients by the network's weights are not the plain's.

    What is off at x is looked at again with x the other way round: by chance one of many weights is further off than
    rounding is excused, but what a compiler got wrong it gets wrong again.
    """
    drift = gradient_drift(network, plain, fast, x)
    if drift > LARGEST_DRIFT:
        drift = min(drift, gradient_drift(network, plain, fast, x.flip(0, -1)))
    if drift > LARGEST_DRIFT:
        rule = "a compiled network must have the gradients of the plain one"
        remedy = (
            f"Leave it out: torch {torch.__version__} compiles this network wrongly here or, if it is deep and in "
            "bf16, rounds elsewhere than the plain one by more than this check allows for."
        )
        raise ArgumentError("compile", rule, f"a gradient that is {drift:.0%} off", remedy)


def gradient_drift(network: nn.Module, plain: Run, fast: Run, x: Tensor) -> float:
    """Largest difference of a parameter's gradient between the two, as a share of its length, beyond rounding.

    Compilers err: torch 2.13 drops the gradients of LeNet's convolutions on a CPU, and training would go on
    without them. Gradients shorter than a thousandth of the longest count as that long. Rounding is what the plain
    network in the precision of now differs from itself in float32: in bf16, 60% in the first layers of a fresh
    ResNet-20. Differences count from three times that on, unless the gradient is gone: shorter than a tenth.
    """
    parameters = [one for one in network.parameters() if one.requires_grad]
    with undone([network]):  # batch norms count batches
        slow, quick = (mixed_gradients(run(x), parameters) for run in (plain, fast))
        # No step needs these shapes in float32, unless they were tried above.
        with algorithms_tried(False), torch.autocast(x.device.type, enabled=False):
            exact = mixed_gradients(plain(x), parameters)
    full = torch.stack([one.norm() for one in slow])
    lengths = full.clamp_min(float(full.max()) / 1000 + 1e-12)
    rounding = torch.stack([(one - other).norm() for one, other in zip(slow, exact, strict=True)])
    drifts = torch.stack([(one - other).norm() for one, other in zip(slow, quick, strict=True)])
    drifts = torch.where(full.isfinite() & ~drifts.isfinite(), torch.inf, drifts)  # NaN exceeds no limit
    gone = torch.stack([one.norm() for one in quick]) < 0.1 * full
    return float((torch.where(gone, drifts, (drifts - EXCUSED * rounding).clamp_min(0)) / lengths).max())


def mixed_gradients(answers: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    """Gradients of a sum of the answers (B, *) with fixed weights.

    Every row has other weights: what rows share, batch norms subtract, and rounding alone would be left of it.
    """
    weights = torch.arange(answers.numel(), device=answers.device).cos().view_as(answers)
    total = (answers.float() * weights).sum()
    found = torch.autograd.grad(total, parameters, allow_unused=True, materialize_grads=True)
    return [one.float() for one in found]
