"""Run folders and logs as ACES components and answers: of a run all is recomputed from the stored counts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict, cast

import numpy as np

from ringfence.analysis.aces import Answers, ThetaMetrics, measure, same_inputs
from ringfence.analysis.columns import columns_of
from ringfence.errors import ArgumentError, StoreError
from ringfence.procedures import AcesPredict, AcesProcedure, Given, Predict
from ringfence.procedures.aces import Components, proved
from ringfence.procedures.replay import Replayed, decided_again, facts_of, natural_answers, tally_of
from ringfence.record import Record
from ringfence.settings import SMALLEST_SHARE
from ringfence.store import RunFolder
from ringfence.store.claims import given_in, procedure_in, procedure_of
from ringfence.store.logs import Component, read_component, selection_logs
from ringfence.types import ABSTAIN, FloatArray, IntArray, Tally


def is_aces(run: RunFolder) -> bool:
    """Whether the run is about a selector, a certification network and a core."""
    test = procedure_of(run.config)
    return test is not None and "selection" in test.needs


@dataclass(frozen=True)
class AcesRun:
    """An ACES run: thetas ascending, and per theta its records by ascending input."""

    run: RunFolder
    lanes: Mapping[float, Sequence[Record]]

    @classmethod
    def read(cls, run: RunFolder, thetas: Collection[float] | None = None) -> AcesRun:
        """Read all records of a run of an ``aces(...)`` tree, or those of some of its thetas."""
        if not is_aces(run):
            remedy = "Certify the tree aces(certify=A, core=B)."
            raise StoreError(run.path, "must be an ACES run", f"a run of {run.config.procedure.name}", remedy)
        told = run.config.classifier
        chosen = None if thetas is None else [name for name in told.names if told.lane(name).theta in thetas]
        lanes = run.read_lanes(chosen)
        known = {name: told.lane(name).theta for name in lanes}
        if unknown := [name for name, theta in known.items() if theta is None]:
            rule, remedy = "has a theta for every lane of its records", "Make the run again."
            raise StoreError(run.path, rule, f"none for {unknown[0]!r}", remedy)
        return cls(run, dict(sorted((float(known[name] or 0.0), rows) for name, rows in lanes.items())))

    @property
    def first(self) -> Sequence[Record]:
        """Records of the smallest theta: votes, labels and core classes are the same in all lanes."""
        return next(iter(self.lanes.values()))

    def answers(self) -> list[Answers]:
        """What every theta answered, with PREDICT's answers from the same draws where their number was fixed."""
        alpha, sound = self._test.alpha, all(one.sound for one in self.first)
        answers = [self._answers(theta, records) for theta, records in self.lanes.items()]
        return [replace(one, alpha=alpha, sound=sound) for one in answers]

    def certification(self) -> Component:
        """The certification network alone, at half of alpha."""
        apart, tally, given = self._components(self.first), _last(self.first), self._given(self.first)
        plain = Predict(self._half, n=int(tally.draws[0]))
        natural = plain.conclude(plain.update(plain.start(len(self.first), given), tally, given), given)
        bounds = (apart.chosen, apart.chosen_bound)
        return self._component("certification", self.first, *bounds, natural.prediction)

    def selection(self) -> dict[float, Component]:
        """The selector alone at every theta, at half of alpha."""
        return {theta: self._selection(records) for theta, records in self.lanes.items()}

    def core(self) -> Component:
        """The core network's classes."""
        core, rows = _core(self.first), columns_of(self.first)
        return Component(
            f"{self.run.path} (core)", rows.input_id, core, None, core, rows.label, **_shared_facts(self.run)
        )

    def medians(self) -> FloatArray:
        """Median of the selector's value of each input (inputs,): the smallest theta that half of the draws reach."""
        share = np.array([_last(rows).cells["bits"][:, 1] for rows in self.lanes.values()], np.float64)
        reached = share / _last(self.first).draws >= 0.5
        thetas = np.array([*self.lanes, 1.0])
        return thetas[np.where(reached.any(0), reached.argmax(0), len(self.lanes))]

    @property
    def measured(self) -> str:
        """What the selector compares with theta."""
        selector = self.run.config.ensemble.get("select", "entropy")
        return "entropy" if selector == "entropy" else "score of the core"

    # One theta -------------------------------------------------------------------------------------------

    def _answers(self, theta: float, records: Sequence[Record]) -> Answers:
        rows, test, given = columns_of(records), self._test, self._given(records)
        bit, bit_radius = test.proved_bits(self._replayed(records).state, given)
        # At a known radius most inputs stop early, so that only the first look's few draws would be left to PREDICT.
        natural = natural_answers(records, test, given) if test.target is None else None
        target = test.target if test.claims_radius else 0.0  # PREDICT can tell about radius 0 alone
        return Answers(theta, rows.label, rows.prediction, rows.radius, bit, bit_radius, natural, target)

    def _selection(self, records: Sequence[Record]) -> Component:
        apart, tally, given = self._components(records), _last(records), self._given(records)
        test = AcesPredict(self._test.alpha, int(tally.draws[0]), "paper")
        fair = test.bits(test.update(test.start(len(records), given), tally, given))
        return self._component(records[0].lane, records, apart.bit, apart.bit_bound, fair)

    def _components(self, records: Sequence[Record]) -> Components:
        """Class and selector as if each stood alone."""
        found = self._test.components(self._replayed(records).state)
        if found is None:
            rule, remedy = "components need a fixed number of draws", "Make the run with the procedure fixed."
            raise StoreError(self.run.path, rule, f"a run of {self._test.name}", remedy)
        return found

    def _component(
        self, what: str, records: Sequence[Record], chosen: IntArray, lower: FloatArray, natural: IntArray
    ) -> Component:
        answer, radius = proved(chosen, lower, self._given(records))
        source, half, rows = f"{self.run.path} ({what})", self._half, columns_of(records)
        columns = (rows.input_id, answer, radius, natural, rows.label)
        return Component(source, *columns, alpha=half, sound=bool(rows.sound.all()), **_shared_facts(self.run))

    def _replayed(self, records: Sequence[Record]) -> Replayed:
        return decided_again(self._test, self._given(records), records, str(self.run.path))

    def _given(self, records: Sequence[Record]) -> Given:
        return replace(given_in(self.run.config), facts=facts_of(records))

    @property
    def _half(self) -> float:
        """The alpha of a component."""
        if self._test.alpha < 2 * SMALLEST_SHARE:
            rule = f"components have half of alpha each, at least {SMALLEST_SHARE:g}"
            remedy = "Certify with a larger alpha; ringfence aces frontier takes this run as it is."
            raise StoreError(self.run.path, rule, f"a run with alpha {self._test.alpha:g}", remedy)
        return self._test.alpha / 2

    @property
    def _test(self) -> AcesProcedure:
        return cast(AcesProcedure, procedure_in(self.run.config))


def plain_component(run: RunFolder) -> Component:
    """An ordinary run as a component: its predictions and radii, and PREDICT's answers where counts allow them."""
    if is_aces(run):
        return AcesRun.read(run).certification()
    lanes = run.read_lanes()
    if len(lanes) != 1:
        raise StoreError(run.path, "must hold one lane", sorted(lanes), "Certify one classifier.")
    records = next(iter(lanes.values()))
    rows, test = columns_of(records), procedure_of(run.config)
    return Component(
        str(run.path),
        rows.input_id,
        rows.prediction,
        rows.radius if test is None or test.claims_radius else None,
        None if test is None or test.target is not None else natural_answers(records, test, given_in(run.config)),
        rows.label,
        records[0].target,
        records[0].alpha,
        bool(rows.sound.all()),
        **_shared_facts(run),
    )


class _SharedFacts(TypedDict):
    norm: str
    data: str | None


def _shared_facts(run: RunFolder) -> _SharedFacts:
    """What components of a run must share with others: the norm of their radii, and the data."""
    return {"norm": run.config.norm, "data": run.config.data.digest}


def _last(records: Sequence[Record]) -> Tally:
    """Counts of the last request of all records."""
    return tally_of([record.stages[-1] for record in records], ("votes", "bits"))


def _core(records: Sequence[Record]) -> IntArray:
    return np.array([record.facts.get("core", ABSTAIN) for record in records], np.int64)


def baseline(run: RunFolder, radii: Sequence[float], core: Component) -> ThetaMetrics:
    """An ordinary run on the core's inputs in the frontier's figures, everything selected (Horváth et al. 2022, D.4);
    theta is its sigma."""
    part = plain_component(run)
    if part.natural is None or part.radius is None:
        rule, remedy = "a baseline has radii from a fixed number of draws", "Certify with the procedure fixed."
        raise StoreError(run.path, rule, f"a run of {run.config.procedure.name}", remedy)
    same_inputs(core, part)
    if part.norm != core.norm:
        rule, remedy = f"must have radii in {core.norm}, as {core.source}", "Certify both alike."
        raise StoreError(run.path, rule, part.norm, remedy)
    everything = np.ones(len(part.idx), np.int64)
    endless = np.full(len(part.idx), np.inf)
    label = part.label if part.label is not None else np.full(len(part.idx), ABSTAIN)
    answers = Answers(run.config.noise.sigma, label, part.predict, part.radius, everything, endless, part.natural)
    return measure(answers, radii)


def certification_part(path: Path) -> Component:
    """The certification network's results: a run folder or a log."""
    return plain_component(RunFolder.open(path)) if path.is_dir() else read_component(path)


def selection_parts(paths: Sequence[Path]) -> dict[float, Component]:
    """The selector's results per theta, ascending: ACES run folders, logs, or some of both."""
    found: dict[float, Component] = {}
    for path in paths:
        if (path / "config.json").exists():
            parts = AcesRun.read(RunFolder.open(path)).selection()
        else:
            parts = {theta: _bits(read_component(log)) for theta, log in selection_logs([path]).items()}
        for theta, part in parts.items():
            if theta in found:
                received = f"{theta:g} also in {found[theta].source}"
                raise ArgumentError(part.source, "each theta stands once", received, "Give one of the two.")
            found[theta] = part
    return dict(sorted(found.items()))


def core_part(path: Path) -> Component:
    """The core network's classes: an ACES run folder, an ordinary run's predictions, or a log."""
    if not path.is_dir():
        return read_component(path)
    run = RunFolder.open(path)
    return AcesRun.read(run).core() if is_aces(run) else plain_component(run)


def _bits(part: Component) -> Component:
    """Refuse a log whose predictions are classes."""
    if part.predict.max() > 1:
        rule, remedy = "predict must be 1, 0 or -1 in a selection log", "Give the selector's log."
        raise ArgumentError(part.source, rule, int(part.predict.max()), remedy)
    return part
