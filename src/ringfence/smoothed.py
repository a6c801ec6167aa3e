"""Smoothed: one model, one sigma; certify and predict for a batch of inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import final

from torch import Tensor, nn

from ringfence.certifying import certify
from ringfence.driver import Execution
from ringfence.errors import DataError
from ringfence.mechanisms import Mechanism
from ringfence.noise import noise_with
from ringfence.procedures import Fixed, Predict, Procedure, Sequential
from ringfence.record import Record

Batch = Tensor | Sequence[Tensor]
"""A tensor (N, *shape), or a sequence of N tensors (*shape): never a single input, which is x[None] or [x]."""


@final
class Smoothed:
    """g(x) = the class that model most probably returns on x + e, e of standard deviation sigma in every coordinate.

    noise: gaussian, with radii in l2; uniform or laplace, in l1.

    >>> smoothed = Smoothed(net, sigma=0.25, num_classes=10)
    >>> [record.radius for record in smoothed.certify(batch)]
    """

    def __init__(
        self,
        model: nn.Module,
        sigma: float,
        num_classes: int | None = None,
        *,
        noise: str = "gaussian",
        execution: Execution | None = None,
    ) -> None:
        self.model = model
        self.noise = noise_with(noise, sigma)
        self.num_classes = num_classes
        self._execution = execution or Execution()

    def certify(
        self,
        batch: Batch,
        *,
        radius: float | None = None,
        alpha: float = 0.001,
        n: int | None = None,
        procedure: Procedure | None = None,
        mechanism: Mechanism | None = None,
        seed: int = 0,
    ) -> list[Record]:
        """A certificate per input: for a known radius by the sequential test, else the largest radius n draws prove.

        batch: (N, *shape) in [0,1], or N inputs one by one; a single input is a batch of one, x[None].
        """
        if procedure is None and radius is None:
            procedure = Fixed(alpha=alpha) if n is None else Fixed(alpha=alpha, n=n)
        elif procedure is None and radius is not None:
            procedure = Sequential(radius, alpha) if n is None else Sequential(radius, alpha, n=n)
        assert procedure is not None
        return self._run(batch, procedure, mechanism, seed)

    def predict(self, batch: Batch, *, n: int = 1000, alpha: float = 0.001, seed: int = 0) -> list[Record]:
        """The smoothed prediction (or ABSTAIN) per input, wrong with probability at most alpha; no radius."""
        return self._run(batch, Predict(alpha=alpha, n=n), None, seed)

    def _run(self, batch: Batch, procedure: Procedure, mechanism: Mechanism | None, seed: int) -> list[Record]:
        if isinstance(batch, Tensor) and batch.dim() < 2:
            received, remedy = f"shape {tuple(batch.shape)}", "A single input x is the batch x[None]."
            raise DataError("batch", "must be a batch (N, *shape)", received, remedy)
        if not len(batch):
            raise DataError("batch", "needs at least one input", "an empty one", "Pass a tensor or a list of tensors.")
        records = list(
            certify(
                self.model,
                list(batch),
                noise=self.noise,
                procedure=procedure,
                mechanism=mechanism,
                num_classes=self.num_classes,
                lanes=("main",),  # one record per input: more lanes than one are refused
                seed=seed,
                execution=replace(self._execution, on_plan=self._keep_plan),
            )
        )
        return sorted(records, key=lambda record: record.input_id)

    def _keep_plan(self, plan: object) -> None:
        """Measure the forward shape once per object, not once per call."""
        self._execution = replace(self._execution, plan=plan)  # type: ignore[arg-type]
