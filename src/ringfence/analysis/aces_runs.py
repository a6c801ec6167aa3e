"""Run folders as ACES components and answers: everything is recomputed from the stored counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ringfence.analysis.aces import Answers, ThetaMetrics, measure, same_inputs
from ringfence.errors import StoreError
from ringfence.mechanisms import neyman_pearson
from ringfence.procedures import AcesCertify, AcesPredict, AcesSequential, Given, Predict, Procedure, State, procedure
from ringfence.record import Record
from ringfence.stats import clopper_pearson_lower
from ringfence.store import RunFolder
from ringfence.store.component_logs import Component
from ringfence.types import ABSTAIN, FloatArray, IntArray, Tally

_ACES = (AcesCertify.name, AcesPredict.name, AcesSequential.name)
_FIXED = ("fixed", "two-sided", AcesCertify.name)


def is_aces(run: RunFolder) -> bool:
    """Whether the run was made by ``aces run``."""
    return run.config.procedure in _ACES


@dataclass(frozen=True)
class AcesRun:
    """An ACES run: thetas ascending, and per theta its records by ascending input."""

    run: RunFolder
    lanes: Mapping[float, Sequence[Record]]

    @classmethod
    def read(cls, run: RunFolder) -> AcesRun:
        """Read all records of a run made by ``aces run``."""
        if not is_aces(run):
            remedy = "Make one with ringfence aces run."
            raise StoreError(str(run.path), "must be an ACES run", f"a run of {run.config.procedure}", remedy)
        lanes: dict[str, list[Record]] = {}
        for record in run.read():
            lanes.setdefault(record.lane, []).append(record)
        if not lanes:
            raise StoreError(str(run.path), "must hold at least one record", "none", "Certify some inputs first.")
        return cls(run, dict(sorted((float(name.removeprefix("theta=")), rows) for name, rows in lanes.items())))

    @property
    def first(self) -> Sequence[Record]:
        """Records of the smallest theta: votes, labels and core classes are the same in all lanes."""
        return next(iter(self.lanes.values()))

    def answers(self) -> list[Answers]:
        """What every theta answered, with PREDICT's answers from the same draws where their number was fixed."""
        alpha, sound = self._test().alpha, all(one.sound for one in self.first)
        answers = [self._answers(theta, records) for theta, records in self.lanes.items()]
        return [replace(one, alpha=alpha, sound=sound) for one in answers]

    def certification(self) -> Component:
        """The certification network alone, at half of alpha."""
        lower, state = self._half_bound(self.first, "hits")
        plain = Predict(self._test().alpha / 2, n=self._n)
        natural = plain.conclude(plain.update(plain.start(len(state), self._given(self.first)), _tally(self.first, -1)))
        return self._component("certification", self.first, lower, state["top"], natural.prediction)

    def selection(self) -> dict[float, Component]:
        """The selector alone at every theta, at half of alpha."""
        return {theta: self._selection(records) for theta, records in self.lanes.items()}

    def core(self) -> Component:
        """The core network's classes."""
        core = _core(self.first)
        return Component(f"{self.run.path} (core)", _ids(self.first), core, None, core, _labels(self.first))

    def medians(self) -> FloatArray:
        """Median of the selector's value of each input (inputs,): the smallest theta that half of the draws reach."""
        share = np.array([_tally(rows, -1).cells["bits"][:, 1] for rows in self.lanes.values()], np.float64)
        reached = share / _tally(self.first, -1).draws >= 0.5
        thetas = np.array([*self.lanes, 1.0])
        return thetas[np.where(reached.any(0), reached.argmax(0), len(self.lanes))]

    @property
    def measured(self) -> str:
        """What the selector compares with theta."""
        selector = self.run.config.ensemble.get("select", "entropy")
        return "entropy" if selector == "entropy" else "score of the core"

    # One theta -------------------------------------------------------------------------------------------

    def _answers(self, theta: float, records: Sequence[Record]) -> Answers:
        label, prediction = _labels(records), np.array([record.prediction for record in records], np.int64)
        radius, test = np.array([record.radius for record in records]), self._test()
        state, nothing = self._replayed(records, test), np.zeros(len(records))
        if isinstance(test, AcesPredict):  # no radius was tried, so the run can tell about radius 0 alone
            return Answers(theta, label, prediction, radius, test.bits(state), nothing, prediction, target=0.0)
        if isinstance(test, AcesSequential):
            bit = np.where(state["selected"], state["bit"], ABSTAIN)
            return Answers(theta, label, prediction, radius, bit, nothing + test.radius * (bit == 1), None, test.target)
        assert isinstance(test, AcesCertify)
        bit, bit_radius = self._signed(state["bit"], test.bounds(state)[0])
        return Answers(theta, label, prediction, radius, bit, bit_radius, self._natural(records, test))

    def _natural(self, records: Sequence[Record], test: AcesCertify) -> IntArray:
        predict = AcesPredict(test.alpha, test.n, test.form)
        state = predict.start(len(records), self._given(records))
        return predict.conclude(predict.update(state, _tally(records, -1))).prediction

    def _selection(self, records: Sequence[Record]) -> Component:
        lower, state = self._half_bound(records, "picks")
        test = AcesPredict(self._test().alpha, self._n, "paper")
        fair = test.update(test.start(len(records), self._given(records)), _tally(records, -1))
        return self._component(records[0].lane, records, lower, state["bit"], test.bits(fair))

    def _half_bound(self, records: Sequence[Record], counted: str) -> tuple[FloatArray, State]:
        """Lower bounds (inputs,) at alpha/2 on what the n0 draws chose, and the state they come from."""
        test = self._test()
        if not isinstance(test, AcesCertify):
            rule, remedy = "components need a fixed number of draws", "Make the run with --procedure fixed."
            raise StoreError(str(self.run.path), rule, f"a run of {test.name}", remedy)
        state = self._replayed(records, test)
        return clopper_pearson_lower(state[counted], test.n, test.alpha / 2), state

    def _component(
        self, what: str, records: Sequence[Record], lower: FloatArray, chosen: IntArray, natural: IntArray
    ) -> Component:
        answer, radius = self._signed(chosen, lower)
        half, sound = self._test().alpha / 2, all(one.sound for one in records)
        source, ids, labels = f"{self.run.path} ({what})", _ids(records), _labels(records)
        return Component(source, ids, answer, radius, natural, labels, alpha=half, sound=sound)

    def _signed(self, chosen: IntArray, lower: FloatArray) -> tuple[IntArray, FloatArray]:
        """The choice where it is proved, else -1, and its radius."""
        scale = self.run.config.sigma / float(self.run.config.lift.get("norm_bound", 1.0))
        radius = neyman_pearson(lower, 1.0 - lower, scale) * (1 - 1e-9)
        return np.where(radius > 0, chosen, ABSTAIN), radius

    def _replayed(self, records: Sequence[Record], test: Procedure) -> State:
        state = test.start(len(records), self._given(records))
        steps = np.array([len(record.stages) for record in records])
        for step in range(steps.max()):
            live = np.flatnonzero(steps > step)
            state[live] = test.update(state[live], _tally([records[at] for at in live.tolist()], step))
        return state

    def _given(self, records: Sequence[Record]) -> Given:
        config = self.run.config
        norm = float(config.lift.get("norm_bound", 1.0))
        return Given(config.num_classes, config.sigma, norm, {"core": _core(records)})

    def _test(self) -> Procedure:
        return procedure(self.run.config.procedure, self.run.config.procedure_settings)

    @property
    def _n(self) -> int:
        return int(self.run.config.procedure_settings["n"])


def plain_component(run: RunFolder) -> Component:
    """An ordinary run as a component: its predictions and radii, and PREDICT's answers where counts allow them."""
    if is_aces(run):
        return AcesRun.read(run).certification()
    records = run.read()
    lanes = {record.lane for record in records}
    if len(lanes) != 1:
        raise StoreError(str(run.path), "must hold one lane", sorted(lanes), "Certify one classifier.")
    radius = np.array([record.radius for record in records])
    return Component(
        str(run.path),
        _ids(records),
        np.array([record.prediction for record in records], np.int64),
        None if run.config.procedure == Predict.name else radius,  # PREDICT claims none
        natural_predictions(run, records),
        _labels(records),
        records[0].target,
        records[0].alpha,
        all(record.sound for record in records),
    )


def natural_predictions(run: RunFolder, records: Sequence[Record]) -> IntArray | None:
    """PREDICT's answers (records,) from a run with a fixed number of draws; None where there is none."""
    if run.config.procedure == Predict.name:
        return np.array([record.prediction for record in records], np.int64)
    counted = all(record.stages and "votes" in record.stages[-1].cells for record in records)
    if run.config.procedure not in _FIXED or not counted:
        return None
    settings = run.config.procedure_settings
    test = Predict(float(settings["alpha"]), int(settings["n"]))
    state = test.start(len(records), Given(run.config.num_classes, run.config.sigma))
    return test.conclude(test.update(state, _tally(records, -1))).prediction


def _tally(records: Sequence[Record], step: int) -> Tally:
    """Counts of one request of all records."""
    stages = [record.stages[step] for record in records]
    names = [name for name in stages[0].cells if name in ("votes", "bits")]
    cells = {name: np.stack([np.asarray(stage.cells[name], np.int64) for stage in stages]) for name in names}
    return Tally(cells, np.array([stage.draws for stage in stages], np.int64))


def _ids(records: Sequence[Record]) -> IntArray:
    return np.array([record.input_id for record in records], np.int64)


def _labels(records: Sequence[Record]) -> IntArray:
    return np.array([ABSTAIN if record.label is None else record.label for record in records], np.int64)


def _core(records: Sequence[Record]) -> IntArray:
    return np.array([record.facts.get("core", ABSTAIN) for record in records], np.int64)


def baseline(run: RunFolder, radii: Sequence[float], core: Component) -> ThetaMetrics:
    """An ordinary run on the core's inputs in the frontier's figures, everything selected (paper 002, D.4); theta is
    its sigma."""
    part = plain_component(run)
    if part.natural is None or part.radius is None:
        rule, remedy = "a baseline has radii from a fixed number of draws", "Certify with --procedure fixed."
        raise StoreError(str(run.path), rule, f"a run of {run.config.procedure}", remedy)
    same_inputs(core, part)
    everything = np.ones(len(part.idx), np.int64)
    endless = np.full(len(part.idx), np.inf)
    label = part.label if part.label is not None else np.full(len(part.idx), ABSTAIN)
    answers = Answers(run.config.sigma, label, part.predict, part.radius, everything, endless, part.natural)
    return measure(answers, radii)
