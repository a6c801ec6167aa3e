"""Verify: recompute everything a run claims that needs no model, of its folder, its tree and every record."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise, zip_longest
from os import PathLike, fspath
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa

from ringfence.contradictions import AS_WRITTEN, AT_ONCE, Disagreement, Expected
from ringfence.errors import RingfenceError, StoreError
from ringfence.procedures import EnsembleAfterSmoothing
from ringfence.progress import followed
from ringfence.record import Lane, Record, StageTally
from ringfence.store import RunConfig, RunFolder, StoreWarning
from ringfence.store.manifest import ENVIRONMENTS, INPUTS, PLANS, SUMMARY
from ringfence.store.parts import sorted_rows
from ringfence.store.schema import RECORD_SCHEMA, from_table
from ringfence.types import IntArray

if TYPE_CHECKING:
    from ringfence.lift import Lift
    from ringfence.models.grammar import Tree
    from ringfence.runs import Run

Held = TypeVar("Held")

_ONE = (Lane("main"),)
_NORMS = 4e-6
"""Share by which two certified bounds of one norm may differ: each is above it by no more than 1e-6."""


def verify(run: RunFolder | Run | str | PathLike[str], partial: bool = False) -> list[Disagreement]:
    """Every difference between what the folder claims and what follows from it; empty when all agree.

    run: a folder, or its path, or what ``certify`` and ``load`` return.
    partial: a run that is not whole, because it has not ended or inputs failed, is no difference.
    """
    if not isinstance(run, RunFolder):
        run = RunFolder.open(fspath(run)) if isinstance(run, str | PathLike) else run.folder
    run, config = run.in_norm(None), run.config  # whichever norm it is shown in, another one was proved and stored
    if config.procedure.name.startswith("imported"):
        rule = "must hold raw counts to be verified"
        raise StoreError(run.path, rule, "a run imported from a log", "The log kept no counts: re-run to verify.")
    expected = Expected.of(config, str(run.path / "config.json"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)  # it stands among what is returned
        tables = list(run.tables())
    table = sorted_rows(pa.concat_tables([RECORD_SCHEMA.empty_table(), *tables]))
    steps = followed(range(0, len(table), AT_ONCE), "reading records")
    records = [record for start in steps for record in from_table(table.slice(start, AT_ONCE))]
    found = [Disagreement(None, "", name, reason, AS_WRITTEN) for name, reason in run.problems.items()]
    found += _folder(run, records, sum(map(len, tables)), partial)
    found += expected.contradicted(records)
    return found


def _folder(run: RunFolder, records: Sequence[Record], rows: int, partial: bool) -> Iterator[Disagreement]:
    """What the folder as a whole says wrongly: rows, lanes, inputs."""
    if rows != len(records):
        yield Disagreement(None, "", "rows, some of them twice", rows, len(records))
    if not records:
        yield Disagreement(None, "", "number of records (nothing was verified)", 0, "at least 1")
    lanes: dict[int, list[str]] = {}
    for record in records:
        lanes.setdefault(record.input_id, []).append(record.lane)
    known = sorted(run.config.classifier.names)
    yield from _across_lanes(run.config, records)
    for one, there in lanes.items():
        if there != known:
            yield Disagreement(one, "", "lanes", there, known)
    if not partial:
        if run.expected is not None and len(lanes) != run.expected:
            yield Disagreement(None, "", "inputs", len(lanes), run.expected)
        for one, why in run.failed.items():
            yield Disagreement(one, "", "failed", why, "a record")
    data = run.config.data
    count = data.count  # every row names these settings; the manifest's number is nobody's word but its own
    if count is not None and run.expected != count:
        yield Disagreement(None, "", "inputs that the manifest expects", run.expected, count)
    most = min(data.limit or math.inf, -(-data.stop // data.skip) if data.stop else math.inf)
    if count is not None and count > most:
        yield Disagreement(None, "", "data.count", count, f"at most {most}, by limit, stop and skip")
    shape, told = run.shape, run.config.noise.coordinates
    if shape is not None and told is not None and told != math.prod(shape):
        yield Disagreement(None, "", "noise.coordinates", told, math.prod(shape))
    yield from _against_tree(run.config, records, shape, partial)
    yield from _against_inputs(run, records)
    yield from _against_summary(run, records)
    yield from _against_plans(run)


def _across_lanes(config: RunConfig, records: Sequence[Record]) -> Iterator[Disagreement]:
    """What was known of an input before any noise is the same in all its lanes; and thresholds of one selector are read
    off the same draws, of which a higher one certifies no fewer."""
    first, thetas = dict[int, Record](), {lane.name: lane.theta for lane in config.classifier.lanes}
    asked = dict[tuple[int, int, int, int], list[tuple[float, str, StageTally]]]()
    for record in records:
        told = first.setdefault(record.input_id, record).facts
        if record.facts != told:
            yield Disagreement(record.input_id, record.lane, "facts", dict(record.facts), dict(told))
        if (theta := thetas.get(record.lane)) is not None:
            for one in record.stages:
                request = (record.input_id, one.stage, one.start, one.draws)
                asked.setdefault(request, []).append((theta, record.lane, one))
    for (input_id, *_), same in asked.items():
        for (_, _, lower), (_, lane, one) in pairwise(sorted(same, key=lambda each: each[0])):
            less, more = (_cells(each, "bits") for each in (lower, one))
            if not np.array_equal(_cells(one, "votes"), _cells(lower, "votes")):
                yield Disagreement(input_id, lane, "votes", _cells(one, "votes"), _cells(lower, "votes"))
            if (more[1:2] < less[1:2]).any() or not np.array_equal(more[2:], less[2:]):
                yield Disagreement(input_id, lane, "bits", more, f"no fewer than of a lower theta, {less}")


def _cells(tally: StageTally, name: str) -> IntArray:
    return np.asarray(tally.cells.get(name, ()), np.int64)


def _against_tree(
    config: RunConfig, records: Sequence[Record], shape: tuple[int, ...] | None, partial: bool
) -> Iterator[Disagreement]:
    """What the tree says: its lanes, its members, and the map before the noise, by whose norm radii are divided."""
    text, there, lifted = config.classifier.tree, tuple(config.classifier.lanes), config.lift.name != "identity"
    if "(" not in text and there == _ONE and not lifted:
        return  # a single source, which has one lane and no lift; to ask takes torch, and seconds
    from ringfence.models import as_tree, lift_of

    lifted = lifted or bool(config.lift.model_extra)
    unknown = lifted and shape is None and partial
    try:
        tree = as_tree(text)
        lanes, lift = _lanes(config, tree), None if unknown else lift_of(tree, shape)
        read_by = config.procedure.name if lift is None and not unknown else _read_by(config, tree)
    except Exception as error:  # whatever a node of somebody else raises
        why = f"{error.argument} {error.rule}" if isinstance(error, RingfenceError) else type(error).__name__
        needed = f"one whose lanes and lift can be recomputed here, its plugins loaded ({why})"
        yield Disagreement(None, "", "classifier.tree", text, needed)
        return
    for stored, told in zip_longest(there, lanes):
        if stored != told:
            yield Disagreement(None, "", "classifier.lanes", *(one and one.settings() for one in (stored, told)))
    if read_by != config.procedure.name:
        yield Disagreement(None, "", "procedure.name", config.procedure.name, read_by)
    if config.procedure.name == EnsembleAfterSmoothing.name:
        yield from _against_members(config, records, tree)
    if lift is not None:
        yield from _against_lift(config, lift)


def _read_by(config: RunConfig, tree: Tree) -> str:
    """The procedure that reads such a classifier, where this one does not."""
    from ringfence.models import procedure_for

    try:
        return procedure_for(tree, config.procedure.name)[0]
    except RingfenceError as error:
        return error.rule


def _lanes(config: RunConfig, tree: Tree) -> Sequence[Lane]:
    """The lanes of a tree. Those that a network of the program has, it named itself."""
    from ringfence.models import lanes_of

    there = tuple(config.classifier.lanes)
    lanes = lanes_of(tree)
    if config.procedure.name == EnsembleAfterSmoothing.name:
        return _ONE  # a claim about all members
    with suppress(RingfenceError):  # of a vote, whose members have one lane each
        return there if lanes_of(tree, there) == there else lanes
    return lanes


def _against_members(config: RunConfig, records: Sequence[Record], tree: Tree) -> Iterator[Disagreement]:
    """Where every member is smoothed by itself each of them was counted."""
    members = len(getattr(tree, "models", ()))
    for record in records if members else ():  # a network of a program has as many as it says
        for stage in record.stages:
            counted = len(stage.cells.get("member_votes", ())) / (config.classifier.classes + 1)
            if counted != members:
                yield Disagreement(record.input_id, record.lane, "members counted", counted, members)


def _against_lift(config: RunConfig, lift: Lift) -> Iterator[Disagreement]:
    """The map before the noise, whether its form is proved, and its norm."""
    wanted, stored = lift.settings_in(config.norm), config.lift.model_dump()
    for name in ("name", "form", "sound"):
        if stored.get(name) != wanted.get(name):
            yield Disagreement(None, "", f"lift.{name}", stored.get(name), wanted.get(name))
    bound = wanted["norm_bound"]
    if bound is None or config.lift.norm_bound < bound * (1 - _NORMS):
        yield Disagreement(None, "", "lift.norm_bound", config.lift.norm_bound, bound)


def _against_inputs(run: RunFolder, records: Sequence[Record]) -> Iterator[Disagreement]:
    """Ids and labels are those of inputs.parquet, where there is one, which holds every input once."""
    stored = yield from _read_or_disagree(run, INPUTS, run.inputs)
    inputs = {one.id: one.label for one in stored}
    most = min(len(inputs), len(inputs) if run.expected is None else run.expected)
    if len(stored) > most:
        yield Disagreement(None, "", f"rows of {INPUTS}", len(stored), f"{most}, one for each input")
    for record in records if inputs else ():
        if record.input_id not in inputs:
            yield Disagreement(record.input_id, record.lane, "input_id", record.input_id, "one of inputs.parquet")
        elif record.label != inputs[record.input_id]:
            yield Disagreement(record.input_id, record.lane, "label", record.label, inputs[record.input_id])


def _against_summary(run: RunFolder, records: Sequence[Record]) -> Iterator[Disagreement]:
    """Numbers of the summary, which scripts quote, are those of the records."""
    told = (yield from _read_or_disagree(run, SUMMARY, lambda: [run.summary() or {}])) or [{}]
    lanes, by_lane = told[0].get("lanes", []), dict[object, list[Record]]()
    for one in records:
        by_lane.setdefault(one.lane, []).append(one)
    for entry in lanes if isinstance(lanes, list) else [lanes]:
        try:
            rows = by_lane.get(entry["lane"], []) if "lane" in entry else records
            judged = [one for one in rows if one.label is not None]
            wanted = {"count": len(rows), "abstention": _share(one.abstained for one in rows)}
            stored = {name: entry[name] for name in wanted}
            for radius, share in entry["certified_accuracy"].items():
                name = f"certified accuracy at {radius}"
                stored[name] = share
                wanted[name] = _share(bool(one.correct) and one.radius >= float(radius) for one in judged)
            found = [name for name in wanted if not math.isclose(stored[name], wanted[name], abs_tol=1e-9)]
        except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
            yield Disagreement(None, "", f"lanes of {SUMMARY}", entry, f"metrics of a lane ({type(error).__name__})")
            continue
        for name in found:
            yield Disagreement(None, entry.get("lane") or "", f"{name} in {SUMMARY}", stored[name], wanted[name])


def _share(which: Iterable[bool]) -> float:
    chosen = list(which)
    return sum(chosen) / max(len(chosen), 1)


def _against_plans(run: RunFolder) -> Iterator[Disagreement]:
    """The forms in which the network ran had the claimed precision; what parts name, forms and places, is told."""
    named = zip(*run.made_under(), strict=True)  # first: a live run tells both before it writes a part
    plans = yield from _read_or_disagree(run, PLANS, run.forward_plans)
    places = yield from _read_or_disagree(run, ENVIRONMENTS, run.environments)
    for plan in plans:
        if plan.get("precision") != run.config.precision:
            yield Disagreement(None, "", f"precision in {PLANS}", plan.get("precision"), run.config.precision)
    for (name, there), numbers in zip([(ENVIRONMENTS, places), (PLANS, plans)], named, strict=False):
        if name not in run.problems and len(there) <= max(numbers):
            wanted = f"at least {max(numbers) + 1}, which parts name"
            yield Disagreement(None, "", f"entries of {name}", len(there), wanted)


def _read_or_disagree(
    run: RunFolder, name: str, read: Callable[[], list[Held]]
) -> Generator[Disagreement, None, list[Held]]:
    """What a file holds; nothing where it cannot be read, which is told once."""
    try:
        return read()
    except StoreError as error:
        if name not in run.problems:
            yield Disagreement(None, "", name, error.received, error.rule)
        return []
