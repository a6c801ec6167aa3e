"""The field's metrics of a run: certified accuracy, average certified radius, abstention."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ringfence.analysis.columns import Columns, Source, columns_of
from ringfence.analysis.stages import ConsensusStats, StageSummary, consensus_stats, stage_summary
from ringfence.errors import ArgumentError, StoreError
from ringfence.procedures import Procedure
from ringfence.record import Record
from ringfence.rounding import confidence
from ringfence.settings import radii_by, radius_step, usual_radii
from ringfence.stats.norms import InNorm, refuse_mixed
from ringfence.store import CohenLog, RunFolder, read_cohen
from ringfence.store.claims import procedure_of
from ringfence.store.logs import PROVED
from ringfence.store.run import no_records
from ringfence.types import ABSTAIN

Format = Literal["auto", "run", "cohen"]

MOST_RADII = 17
USUAL = "l2"
"""The norm that a table need not name."""


@dataclass(frozen=True)
class RunMetrics:
    """What a run (one lane of it) reached.

    certified_accuracy: radius r -> share of the labelled inputs with prediction = label and radius >= r; at r = 0
    every correct answer counts (this is ``accuracy``). acr: mean of radius * [correct]; median_radius: the median
    of the same. Both are None where the run tried one known radius or claimed none; with acr and accuracy they are
    None, and certified_accuracy is empty, where no input has a label. lane is None for a run with one lane only.
    consensus: what a K-consensus saved; time_rf: a reference run's time per input over this one's; stages: where a
    staged or sequential run stopped, and what that saved against a fixed n. sound: whether all of it is proved.
    norm: of all radii here; proved: the norm they were proved in, from which they were converted if it is another.
    alpha: how often a claim about an input may be false, None where nobody says.
    data: digest of the data set, None where it is not known.
    """

    count: int
    accuracy: float | None
    acr: float | None
    median_radius: float | None
    abstention: float
    certified_accuracy: dict[float, float]
    target: float | None
    draws: int
    forwards: int
    seconds: float
    sound: bool
    lane: str | None = None
    path: str = ""
    consensus: ConsensusStats | None = None
    time_rf: float | None = None
    stages: StageSummary | None = None
    norm: str = USUAL
    proved: str = USUAL
    data: str | None = None
    alpha: float | None = None

    @property
    def name(self) -> str:
        """Its path, with the lane where a run has several."""
        return self.path + (f" [{self.lane}]" if self.lane else "")

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that ``ringfence metrics --json`` prints for this run."""
        named = {} if self.lane is None else {"lane": self.lane}
        return {
            "path": self.path,
            **named,
            "count": self.count,
            "sound": self.sound,
            "acr": self.acr,
            "abstention": self.abstention,
            "certified_accuracy": {str(radius): share for radius, share in self.certified_accuracy.items()},
            **(self.consensus.to_dict() if self.consensus else {}),
            **({} if self.time_rf is None else {"time_rf": self.time_rf}),
            **({} if self.stages is None else {"stages": self.stages.to_dict()}),
            **({} if self.norm == self.proved == USUAL else {"norm": self.norm, "proved_norm": self.proved}),
        }

    def against(self, reference: RunMetrics) -> RunMetrics:
        """These metrics with TimeRF; lanes share one pass, so their times cannot be told apart and none is given."""
        if self.lane or reference.lane:
            return self
        return replace(self, time_rf=ratio(reference.seconds / reference.count * self.count, self.seconds))


def ratio(much: float, of: float) -> float | None:
    """much / of; None where either is 0 because it was not counted, or so small that no float holds the ratio."""
    found = much / of if much and of else None
    return found if found is None or math.isfinite(found) else None


def metrics(source: Source, radii: Sequence[float], lane: str | None = None, path: str = "") -> RunMetrics:
    """Metrics of the source's only lane, or of the named one."""
    found = metrics_by_lane(source, radii, path)
    chosen = [one for one in found if lane in (None, one.lane or "")]
    if len(chosen) != 1:
        names = [one.lane or "" for one in found]
        raise ArgumentError("lane", "must name one lane of the run", repr(lane), f"The run has {names}.")
    return chosen[0]


def metrics_by_lane(
    source: Source, radii: Sequence[float] | None, path: str = "", beside: Collection[float] = ()
) -> list[RunMetrics]:
    """Metrics of every lane of the source, in the order of their names.

    radii None: the usual ones, and those of what it is shown beside, as far as the source can answer.
    """
    columns = columns_of(source)
    path = path or (str(source.path) if isinstance(source, CohenLog | RunFolder) else "")
    if not len(columns.radius):
        raise no_records(source if isinstance(source, RunFolder) else None)
    asked = _radii_to_report(columns, source, radii, beside)
    lanes = np.unique(columns.lane).tolist()
    found = [
        _measure(columns.at(columns.lane == lane), asked, lane if len(lanes) > 1 else None, path) for lane in lanes
    ]
    if isinstance(source, CohenLog):
        return [replace(one, norm=source.norm, proved=PROVED) for one in found]
    if not isinstance(source, RunFolder):
        norm = _norm_of(source)
        return [replace(one, norm=norm, proved=norm) for one in found]
    test = procedure_of(source.config)
    known: dict[str, Any] = {"norm": source.norm, "proved": source.config.norm, "data": source.config.data.digest}
    known["alpha"] = None if test is None else test.alpha
    if test is not None and not test.claims_radius:  # PREDICT's radius of 0 is no claim, and no poor one
        known |= {"acr": None, "median_radius": None}
    return [replace(one, consensus=_consensus(one, source), **known) for one in found]


def _norm_of(records: Sequence[Record]) -> str:
    """That of all radii; records of runs in several norms, put together by a program, have none in common."""
    first = {one.norm: place for place, one in reversed(list(enumerate(records)))}
    refuse_mixed({f"record {place}": norm for norm, place in first.items()})
    return records[0].norm


def best_lane_metrics(run: RunFolder, radii: Sequence[float] | None) -> RunMetrics:
    """Metrics of the lane with the largest radius, chosen input by input: sound only where alpha was split over lanes.

    The radius of an input then speaks of the lane chosen there; its claims and those of all others hold together.
    """
    if not run.config.split_alpha:
        rule = "choosing a lane per input after seeing the radii needs alpha split over the lanes beforehand"
        remedy = "Certify again with `split_alpha`, or compare the lanes as wholes."
        raise ArgumentError("best_lane", rule, f"{run.path}, every lane at the whole alpha", remedy)
    columns = columns_of(run)
    ids = columns.input_id
    order = np.lexsort((-columns.radius, ids))  # stable: lanes of equal radius stay in the order of their names
    first = order[np.append(True, np.diff(ids[order]) > 0)] if len(order) else order
    if not len(first):
        raise no_records(run)
    chosen = columns.at(first)
    found = _measure(chosen, _radii_to_report(chosen, run, radii, ()), "best lane", str(run.path))
    return replace(found, seconds=float(columns.seconds.sum()), norm=run.norm, proved=run.config.norm)


def _consensus(one: RunMetrics, run: RunFolder) -> ConsensusStats | None:
    """What the lane saved, where it is a K-consensus."""
    found = run.config.consensus(one.lane or "main")
    return consensus_stats(*found, one.forwards, one.draws) if found and one.draws else None


def load_together(
    paths: Sequence[Path], radii: Sequence[float] | None, format: Format = "auto", shown: InNorm | None = None
) -> list[RunMetrics]:
    """Metrics of several runs and logs for one table; where nobody asks for radii each answers at those of all."""
    found = [load_metrics(path, radii, format, shown) for path in paths]
    known = [set(lanes[0].certified_accuracy) for lanes in found]
    if radii is None and any(one != known[0] for one in known):
        every = set[float]().union(*known)
        found = [load_metrics(path, None, format, shown, every) for path in paths]
    return [lane for lanes in found for lane in lanes]


def load_metrics(
    path: str | Path,
    radii: Sequence[float] | None,
    format: Format = "auto",
    shown: InNorm | None = None,
    beside: Collection[float] = (),
) -> list[RunMetrics]:
    """Metrics of a run folder or a Cohen-style log, one entry per lane; auto decides by what the path is.

    shown: the norm of all radii, those asked for among them; None: the one that was proved. beside: further radii, of
    what it is shown beside, where none are asked for.
    """
    path = Path(path)
    if not os.path.exists(path):  # unlike Path's, it knows no name too long to ask about
        raise StoreError(path, "must be a run folder or a log", "nothing there", "Check the path.")
    if not (path.is_dir() if format == "auto" else format == "run"):
        return metrics_by_lane(read_cohen(path).in_norm(shown), radii, str(path), beside)
    run = RunFolder.open(path).in_norm(shown)
    found = metrics_by_lane(run, radii, str(path), beside)
    test = procedure_of(run.config)
    return _with_stages(found, run) if test is not None and test.targets else found


def _with_stages(found: Sequence[RunMetrics], run: RunFolder) -> list[RunMetrics]:
    """The same with the share of inputs that each stage decided."""
    by_lane = run.read_lanes()
    only = next(iter(by_lane.values()))
    return [replace(one, stages=stage_summary(by_lane.get(one.lane or "", only))) for one in found]


def guarantee(test: Procedure, norm: str, sound: bool, each: str = "input", lattice: int | None = None) -> str:
    """What the numbers of a run promise, in one sentence; each: what the promise is about; lattice: of exact noise,
    whose promise is about its points alone."""
    if not sound:
        return "paper mode: these results reproduce a published procedure and carry no proven guarantee."
    claim = test.claim(norm)
    if lattice is not None and test.claims_radius:
        claim += f", among inputs in whole steps of 1/{lattice}"
    sure = confidence(test.alpha) if test.alpha > 1e-9 else f"1 - {test.alpha:g}"  # never 1: it is not certain
    return f"for each {each}, with probability at least {sure} over the noise, {claim}."


def default_radii(run: RunFolder) -> list[float]:
    """The usual radii and on, as far as the run reaches; a known-radius run knows its targets and 0 alone."""
    if tried := _tried(run):
        return sorted({0.0, *tried})
    radius = np.asarray(run.records(["radius"])["radius"])
    largest = float(radius.max()) if len(radius) else 0.0
    possible = radii_by(radius_step(run.factor * run.config.noise.sigma), MOST_RADII)
    return [radius for radius in possible if radius <= largest] or [0.0]


def _measure(rows: Columns, radii: list[float], lane: str | None, path: str) -> RunMetrics:
    target = float(np.nanmin(rows.target)) if rows.tried_known_radii else None
    labelled = rows.labelled
    correct = rows.correct
    earned = np.where(correct, rows.radius, 0.0)[labelled]
    # A wrong or withheld answer stands below every radius, so that it does not count at r = 0 either.
    reached = np.where(correct, rows.radius, -1.0)[labelled]
    judged = bool(labelled.any())
    return RunMetrics(
        count=len(rows.radius),
        accuracy=float(np.mean(reached >= 0)) if judged else None,
        acr=float(np.mean(earned)) if judged and target is None else None,
        median_radius=float(np.median(earned)) if judged and target is None else None,
        abstention=float(np.mean(rows.prediction == ABSTAIN)),
        certified_accuracy={radius: float(np.mean(reached >= radius)) for radius in radii} if judged else {},
        target=target,
        draws=int(rows.draws.sum()),
        forwards=int(rows.forwards.sum()),
        seconds=float(rows.seconds.sum()),
        sound=bool(rows.sound.all()),
        lane=lane,
        path=path,
    )


def _largest_answerable(rows: Columns, source: Source) -> float:
    """The largest radius the run can answer for: what it tried, where that was known beforehand."""
    if not rows.tried_known_radii:
        return float("inf")
    tried = _tried(source) if isinstance(source, RunFolder) else []
    return max(float(np.nanmin(rows.target)), float(rows.radius.max()), *tried, 0.0)


def _tried(run: RunFolder) -> list[float]:
    """The radii that a run tried to prove, in the norm that is shown; none where it sought the largest."""
    test = procedure_of(run.config)
    return [run.factor * target for target in test.targets] if test is not None else []


def _radii_to_report(
    rows: Columns, source: Source, radii: Sequence[float] | None, beside: Collection[float]
) -> list[float]:
    """The radii asked for; None: those it tried, the usual ones and those beside, as far as the source can answer."""
    limit = _largest_answerable(rows, source)
    if radii is not None:
        return checked_radii(radii, limit)
    tried = rows.target[~np.isnan(rows.target)].tolist()
    return sorted({radius for radius in (*usual_radii(_shown_sigma(rows, source)), *tried, *beside) if radius <= limit})


def _shown_sigma(rows: Columns, source: Source) -> float:
    """Sigma in the norm that is shown; where nobody says it half the largest radius, to tell its order of magnitude."""
    if isinstance(source, RunFolder):
        return source.factor * source.config.noise.sigma
    return float(rows.radius.max()) / 2


def checked_radii(radii: Sequence[float], limit: float) -> list[float]:
    """The radii as floats, each once, in the order given."""
    try:
        asked = list(dict.fromkeys(float(radius) + 0.0 for radius in radii))
    except (TypeError, ValueError):
        raise ArgumentError("radii", "must be a list of numbers", repr(radii), "Give e.g. [0.25, 0.5].") from None
    bad = [radius for radius in asked if not 0 <= radius < np.inf]
    if bad:
        raise ArgumentError("radii", "must be finite and not negative", bad, "Give radii such as 0,0.25,0.5.")
    above = [radius for radius in asked if radius > limit]
    if above:
        rule = f"this run only tried to prove the radius {limit:g}, so it says nothing about larger ones"
        raise ArgumentError("radii", rule, above, f"Ask for radii up to {limit}, or certify with a larger radius.")
    return asked
