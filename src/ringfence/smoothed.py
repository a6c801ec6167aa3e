"""Smoothed: one model, one sigma; certify and predict for one input or many."""

from __future__ import annotations

from dataclasses import replace
from typing import final, overload

from torch import Tensor, nn

from ringfence.certification import certify
from ringfence.driver import Execution
from ringfence.errors import DataError
from ringfence.mechanisms import Mechanism, neyman_pearson
from ringfence.noise import Gaussian
from ringfence.procedures import Fixed, Predict, Procedure, Sequential
from ringfence.record import Record


@final
class Smoothed:
    """g(x) = the class that model most probably returns on x + N(0, sigma^2 I).

    >>> smoothed = Smoothed(net, sigma=0.25, num_classes=10)
    >>> smoothed.certify(x).radius
    """

    def __init__(
        self, model: nn.Module, sigma: float, num_classes: int | None = None, *, execution: Execution | None = None
    ) -> None:
        self.model = model
        self.noise = Gaussian(sigma)
        self.num_classes = num_classes
        self._execution = execution or Execution()

    @overload
    def certify(
        self,
        x: Tensor,
        *,
        radius: float | None = ...,
        alpha: float = ...,
        n: int | None = ...,
        procedure: Procedure | None = ...,
        mechanism: Mechanism = ...,
        seed: int = ...,
    ) -> Record: ...
    @overload
    def certify(
        self,
        x: list[Tensor],
        *,
        radius: float | None = ...,
        alpha: float = ...,
        n: int | None = ...,
        procedure: Procedure | None = ...,
        mechanism: Mechanism = ...,
        seed: int = ...,
    ) -> list[Record]: ...
    def certify(
        self,
        x: Tensor | list[Tensor],
        *,
        radius: float | None = None,
        alpha: float = 0.001,
        n: int | None = None,
        procedure: Procedure | None = None,
        mechanism: Mechanism = neyman_pearson,
        seed: int = 0,
    ) -> Record | list[Record]:
        """A certificate per input: for a known radius by the sequential test, else the largest radius n draws prove.

        x: one input (*shape) in [0,1], or a list of them (a list of N for a batch tensor: list(batch)).
        """
        if procedure is None and radius is None:
            procedure = Fixed(alpha=alpha) if n is None else Fixed(alpha=alpha, n=n)
        elif procedure is None and radius is not None:
            procedure = Sequential(radius, alpha) if n is None else Sequential(radius, alpha, n=n)
        assert procedure is not None
        return self._run(x, procedure, mechanism, seed)

    def predict(
        self, x: Tensor | list[Tensor], *, n: int = 1000, alpha: float = 0.001, seed: int = 0
    ) -> Record | list[Record]:
        """The smoothed prediction (or ABSTAIN), wrong with probability at most alpha; no radius."""
        return self._run(x, Predict(alpha=alpha, n=n), neyman_pearson, seed)

    def _run(
        self, x: Tensor | list[Tensor], procedure: Procedure, mechanism: Mechanism, seed: int
    ) -> Record | list[Record]:
        many = x if isinstance(x, list) else [x]
        if isinstance(x, list) and not x:
            raise DataError("x", "needs at least one input", "an empty list", "Pass a tensor or a list of tensors.")
        records = list(
            certify(
                self.model,
                many,
                noise=self.noise,
                procedure=procedure,
                mechanism=mechanism,
                num_classes=self.num_classes,
                lanes=("main",),  # one record per input: more lanes than one are refused
                seed=seed,
                execution=replace(self._execution, on_plan=self._keep_plan),
            )
        )
        records.sort(key=lambda record: (record.input_id, record.lane))
        return records if isinstance(x, list) else records[0]

    def _keep_plan(self, plan: object) -> None:
        """Measure the forward shape once per object, not once per call."""
        self._execution = replace(self._execution, plan=plan)  # type: ignore[arg-type]
