"""What a finished run knows about each input: bounds, empirical means, and radii by any mechanism for no more draws."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from ringfence.analysis.columns import Columns, columns_of, score_sums
from ringfence.errors import ArgumentError, StoreError
from ringfence.mechanisms import Mechanism, check_together
from ringfence.procedures import claims
from ringfence.procedures.base import Decisions
from ringfence.procedures.replay import decided_again
from ringfence.record import Record
from ringfence.stats.norms import InNorm
from ringfence.store import RunConfig, RunFolder, read_cohen
from ringfence.store.claims import given_in, one_lane, procedure_in, procedure_of
from ringfence.store.exchange import cohen_as_run
from ringfence.types import FloatArray, IntArray

_IMPORTED = "imported"


@dataclass(frozen=True)
class RunBounds:
    """One lane of a run as arrays (inputs,), in the order of the input ids; factor: by which radii were converted into
    the norm they are shown in; shown: that norm, None for the one that was proved."""

    path: str
    config: RunConfig
    records: list[Record]
    factor: float = 1.0
    shown: InNorm | None = None

    @classmethod
    def load(
        cls, path: str | Path, lane: str | None = None, shown: InNorm | None = None, sigma: float | None = None
    ) -> RunBounds:
        """The run's only lane, or the named one; runs that tried one known radius have no radii to compare.

        sigma: of a Cohen-style log, which is read as ``import_cohen`` does.
        """
        if Path(path).is_file():
            return cls._of_log(Path(path), shown, sigma)
        run = RunFolder.open(path).in_norm(shown)
        by_lane = run.read_lanes()
        target = next(iter(by_lane.values()))[0].target
        if target is not None:
            rule = "must have bounds from which radii follow"
            remedy = "Use ringfence metrics for it, or certify with the procedure two-sided or multinomial."
            raise StoreError(path, rule, f"a run that only tried to prove the radius {target:g} in {run.norm}", remedy)
        test = procedure_of(run.config)
        if test is not None and not test.claims_radius:
            rule, remedy = "must claim radii to be compared", "Use ringfence metrics for it."
            raise StoreError(path, rule, f"a run of {run.config.procedure.name}, which claims none", remedy)
        chosen = one_lane(sorted(by_lane), lane)
        return cls(str(path), run.config, by_lane[chosen], run.factor, shown)

    @classmethod
    def _of_log(cls, path: Path, shown: InNorm | None, sigma: float | None) -> RunBounds:
        read_cohen(path)  # what is no log at all is told first
        if sigma is None:
            rule, remedy = "a log does not say its noise level", "Give that of all logs, such as 0.25."
            raise ArgumentError("sigma", rule, f"none for {path}", remedy)
        config, records = cohen_as_run(path, sigma)
        if shown is None:
            return cls(str(path), config, records)
        factor = shown.factor(config.norm)
        radii = ({name: factor * radius for name, radius in one.radii.items()} for one in records)
        told = [
            replace(one, radius=factor * one.radius, radii=own, norm=shown.norm)
            for one, own in zip(records, radii, strict=True)
        ]
        return cls(str(path), config, told, factor, shown)

    def __len__(self) -> int:
        return len(self.records)

    @property
    def norm(self) -> str:
        """Of all radii here."""
        return (self.shown or self.config).norm

    @property
    def sigma(self) -> float:
        """Noise level."""
        return self.config.noise.sigma

    @property
    def n(self) -> int | None:
        """Draws that bound the probabilities, where the procedure fixed them; nonsense in a config fixes none."""
        draws = self.config.procedure.settings.get("n")
        return draws if type(draws) is int else None

    @property
    def reading(self) -> dict[str, object]:
        """How the config's classifier was read; mean softmax and majority vote are two smoothed classifiers."""
        test = procedure_of(self.config)
        asked = ("votes",) if test is None else test.needs
        return {"lane": self.records[0].lane, "readout": asked, "precision": self.config.precision}

    @property
    def has_mechanisms(self) -> bool:
        """Whether radii follow from the bounds by a mechanism; some procedures prove theirs on their own."""
        return all(record.radii for record in self.records)

    @property
    def has_counts(self) -> bool:
        """Whether raw counts were stored; a log imported from elsewhere has none."""
        return not self.config.procedure.name.startswith(_IMPORTED)

    def need_counts(self, purpose: str) -> None:
        """Refuse a run without raw counts, naming what they are needed for."""
        if not self.has_counts:
            rule = f"must hold raw counts {purpose}"
            remedy = "The log has none, and says nothing about the runner-up: certify with Ringfence to get both."
            raise StoreError(self.path, rule, "a run imported from a log", remedy)

    def need_mechanisms(self) -> None:
        """Refuse a run whose radii come from no mechanism."""
        if not self.has_mechanisms:
            rule, remedy = (
                "must have bounds of one classifier for a mechanism",
                "Compare its own radii with other runs.",
            )
            raise StoreError(self.path, rule, f"a run of {self.config.procedure.name}", remedy)

    @cached_property
    def columns(self) -> Columns:
        """The records as arrays."""
        return columns_of(self.records)

    @property
    def ids(self) -> IntArray:
        """Input ids, increasing."""
        return self.columns.input_id

    @property
    def sound(self) -> bool:
        """Whether every record carries its guarantee."""
        return bool(self.columns.sound.all())

    def radius(self, mechanism: Mechanism) -> FloatArray:
        """Radii by the mechanism: as stored, or from the same bounds (the same alpha pays for all of them)."""
        if all(mechanism.name in record.radii for record in self.records):
            return np.array([record.radii[mechanism.name] for record in self.records])
        self.need_mechanisms()
        self.need_counts(f"for radii by {mechanism.spelled}")
        with _naming_nonsense(self.path):
            given = given_in(self.config)
            check_together((given.mechanism, mechanism), given.law)
            return claims(self._decisions, replace(given, mechanism=mechanism))[1] * self.factor

    @cached_property
    def means(self) -> tuple[FloatArray, FloatArray, IntArray]:
        """Empirical (E0, E1) and the class of E0, from the draws that gave the bounds.

        E0 is the largest share of votes or mean softmax score, E1 the second largest.
        """
        self.need_counts("for empirical means")
        with _naming_nonsense(self.path):
            shares = np.stack([_shares(record, self.config.classifier.classes) for record in self.records])
            ordered = np.sort(shares, axis=1)
            return ordered[:, -1], ordered[:, -2], shares.argmax(1).astype(np.int64)

    @property
    def top_1(self) -> float | None:
        """Share of labelled inputs whose largest mean is the label's; None without counts or labels."""
        labelled = self.columns.labelled
        if not self.has_counts or not labelled.any():
            return None
        return float((self.means[2] == self.columns.label)[labelled].mean())

    @cached_property
    def _decisions(self) -> Decisions:
        """What the counts prove, replayed: an abstention by one mechanism may hide what another certifies."""
        test, given = procedure_in(self.config), given_in(self.config)
        return decided_again(test, given, self.records, self.path).decisions


_NONSENSE = (ArithmeticError, ValueError, LookupError, TypeError, MemoryError)


@contextmanager
def _naming_nonsense(path: str | Path) -> Iterator[None]:
    """Settings and counts of a folder may be anything; what nobody can compute with is named."""
    try:
        yield
    except _NONSENSE as error:
        rule, remedy = "must hold settings and counts that fit together", "Ask ringfence verify about it."
        raise StoreError(path, rule, error, remedy) from error


def _shares(record: Record, classes: int) -> FloatArray:
    """Share of votes, or mean score, per class (K,) over the last stream of draws; of several members the largest."""
    last = max(stage.stage for stage in record.stages)
    stages = [stage for stage in record.stages if stage.stage == last]
    draws = sum(stage.draws for stage in stages)
    if "scores" in stages[0].cells:
        cells = np.sum([stage.cells["scores"] for stage in stages], axis=0)
        return score_sums(cells) / draws
    name = "votes" if "votes" in stages[0].cells else "member_votes"
    votes = np.sum([stage.cells[name] for stage in stages], axis=0).reshape(-1, classes + 1)
    return np.asarray(votes[:, :-1].max(0) / draws)
