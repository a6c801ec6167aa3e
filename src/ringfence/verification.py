"""Verify: recompute everything a run claims that needs no model: replay every record's procedure on its counts."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ringfence.errors import RingfenceError, StoreError
from ringfence.mechanisms import Mechanism
from ringfence.procedures import EnsembleAfterSmoothing, Given, Procedure, claims
from ringfence.procedures.replay import replay
from ringfence.progress import followed
from ringfence.record import Lane, Record
from ringfence.store import RunConfig, RunFolder, StoreWarning
from ringfence.store.atomic import read_json
from ringfence.store.config import given_in, mechanisms_in, procedure_in, read_config, shape_in
from ringfence.store.manifest import CONFIG_V1
from ringfence.store.parts import sorted_rows
from ringfence.store.schema import RECORD_SCHEMA, from_table
from ringfence.store.upgrade import upgrade
from ringfence.types import FORWARDS

if TYPE_CHECKING:
    from ringfence.lift import Lift
    from ringfence.models.grammar import Tree

AT_ONCE = 2048
"""Records that are recomputed together: enough for arrays, few enough to tell how far it is."""

_MOST = 2**48
"""No cell counts more: larger numbers could wrap around where they are added up."""
_ONE = (Lane("main"),)
_NORMS = 4e-6
"""Share by which two certified bounds of one norm may differ: each is above it by no more than 1e-6."""
_NONSENSE = (ArithmeticError, ValueError, LookupError, TypeError, MemoryError, RuntimeError)
"""What mathematics may raise on numbers that nobody counted."""


@dataclass(frozen=True)
class Disagreement:
    """A claim that does not follow; input_id None and lane "" where it is about the folder as a whole."""

    input_id: int | None
    lane: str
    what: str
    stored: object
    recomputed: object


def verify(run: RunFolder, partial: bool = False) -> list[Disagreement]:
    """Every difference between what the folder claims and what follows from it; empty when all agree.

    partial: a run that is not whole, because it has not ended or inputs failed, is no difference.
    """
    config = run.config
    if config.procedure.name.startswith("imported"):
        rule = "must hold raw counts to be verified"
        raise StoreError(str(run.path), rule, "a run imported from a log", "The log kept no counts: re-run to verify.")
    claim = _Claim.of(config, str(run.path / "config.json"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)  # it stands among what is returned
        tables = list(run.tables())
    table = sorted_rows(pa.concat_tables([RECORD_SCHEMA.empty_table(), *tables]))
    steps = followed(range(0, len(table), AT_ONCE), "reading records")
    records = [record for start in steps for record in from_table(table.slice(start, AT_ONCE))]
    found = [Disagreement(None, "", name, reason, "as it was written") for name, reason in run.problems.items()]
    found += _folder(run, records, sum(map(len, tables)), partial)
    found += claim.contradicted(records)
    return found


def contradicted(config: RunConfig, records: Sequence[Record], source: str) -> list[Disagreement]:
    """Every difference between these records and what follows from their counts; source: where the settings stand."""
    return list(_Claim.of(config, source).contradicted(records))


def _folder(run: RunFolder, records: Sequence[Record], rows: int, partial: bool) -> Iterator[Disagreement]:
    """What the folder as a whole says wrongly: rows, lanes, inputs."""
    if rows != len(records):
        yield Disagreement(None, "", "rows, some of them twice", rows, len(records))
    if not records:
        yield Disagreement(None, "", "records: there are none, so nothing was verified", 0, "at least 1")
    lanes: dict[int, list[str]] = {}
    for record in records:
        lanes.setdefault(record.input_id, []).append(record.lane)
    known = sorted(run.config.classifier.names)
    for one, there in lanes.items():
        if there != known:
            yield Disagreement(one, "", "lanes", there, known)
    if not partial:
        if run.expected is not None and len(lanes) != run.expected:
            yield Disagreement(None, "", "inputs", len(lanes), run.expected)
        for one, why in run.failed.items():
            yield Disagreement(one, "", "failed", why, "a record")
    count = run.config.data.count  # every row names these settings; the manifest's number is nobody's word but its own
    if count is not None and run.expected != count:
        yield Disagreement(None, "", "inputs that the manifest expects", run.expected, count)
    shape, told = shape_in(run.summary()), run.config.noise.coordinates
    if shape is not None and told is not None and told != math.prod(shape):
        yield Disagreement(None, "", "noise.coordinates", told, math.prod(shape))
    yield from _against_tree(run.config, shape, partial)
    yield from _against_members(run.config, records)
    yield from _against_earlier(run)
    yield from _against_inputs(run, records)


def _against_earlier(run: RunFolder) -> Iterator[Disagreement]:
    """Of a migrated run less can be asked; so it must be one, and its settings those that were migrated."""
    if run.config.migrated is None or run.v1_digest is not None:
        return
    file = run.path / CONFIG_V1
    try:
        earlier = read_config(file, read_json(file), upgrade)
    except StoreError as error:
        yield Disagreement(None, "", "migrated", run.config.migrated.schema_from, f"{CONFIG_V1}: {error.rule}")
        return
    for key, ours, theirs in run.config.differences(earlier):
        if key != "precision":  # runs of schema 1 did not say what auto became
            yield Disagreement(None, "", key, ours, theirs)


def _against_members(config: RunConfig, records: Sequence[Record]) -> Iterator[Disagreement]:
    """Where every member is smoothed by itself each of them was counted."""
    if config.procedure.name != EnsembleAfterSmoothing.name or "(" not in config.classifier.tree:
        return
    from ringfence.models import as_tree

    try:
        members = len(getattr(as_tree(config.classifier.tree), "models", ()))
    except RingfenceError:
        return  # said of the tree
    for record in records if members else ():  # a network of a program has as many as it says
        for stage in record.stages:
            counted = len(stage.cells.get("member_votes", ())) / (config.classifier.classes + 1)
            if counted != members:
                yield Disagreement(record.input_id, record.lane, "members counted", counted, members)


def _against_tree(config: RunConfig, shape: tuple[int, ...] | None, partial: bool) -> Iterator[Disagreement]:
    """What the nodes of the tree declare: its lanes, and the map before the noise, by whose norm radii are divided."""
    text, there, lifted = config.classifier.tree, tuple(config.classifier.lanes), config.lift.name != "identity"
    if "(" not in text and there == _ONE and not lifted:
        return  # a single source, which has one lane and no lift; to ask takes torch, and seconds
    from ringfence.models import as_tree, lift_of

    lifted = lifted or bool(config.lift.model_extra)
    unknown = lifted and shape is None and (partial or config.migrated is not None)  # schema 1 wrote no shape at all
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
    """The lanes of a tree. Those that a network of the program has, it named itself; schema 1 had no tree to say."""
    from ringfence.models import lanes_of

    there = tuple(config.classifier.lanes)
    lanes = lanes_of(tree)
    if config.migrated is not None:
        return there
    if config.procedure.name == EnsembleAfterSmoothing.name:
        return _ONE  # a claim about all members
    with suppress(RingfenceError):  # of a vote, whose members have one lane each
        return there if lanes_of(tree, there) == there else lanes
    return lanes


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
    """Ids and labels are those of inputs.parquet, where there is one."""
    try:
        inputs = {one.id: one.label for one in run.inputs()}
    except StoreError as error:
        if "inputs.parquet" not in run.problems:
            yield Disagreement(None, "", "inputs.parquet", error.received, error.rule)
        return
    for record in records if inputs else ():
        if record.input_id not in inputs:
            yield Disagreement(record.input_id, record.lane, "input_id", record.input_id, "one of inputs.parquet")
        elif record.label != inputs[record.input_id]:
            yield Disagreement(record.input_id, record.lane, "label", record.label, inputs[record.input_id])


@dataclass(frozen=True)
class _Claim:
    """What the settings say that every record must hold."""

    config: RunConfig
    test: Procedure
    given: Given
    also: Sequence[Mechanism]

    @classmethod
    def of(cls, config: RunConfig, source: str) -> _Claim:
        """From a config, whose values may be anything that their types allow."""
        try:
            test, given, also = procedure_in(config), given_in(config), mechanisms_in(config)[1:]
        except _NONSENSE as error:
            rule, remedy = "must hold settings that a procedure can have", "Restore it from a copy."
            raise StoreError(source, rule, error, remedy) from error
        return cls(config, test, given, also)

    def contradicted(self, records: Sequence[Record]) -> Iterator[Disagreement]:
        """Differences of the records, which are read as arrays; one whose counts are nonsense is named alone."""
        yield from self._settings()
        sane = [record for record in records if not _beyond(record)]
        yield from (_nonsense(record, f"more than {_MOST}") for record in records if _beyond(record))
        each = _usual_forwards(sane)
        for start in followed(range(0, len(sane), AT_ONCE), "verifying"):
            yield from self._together(sane[start : start + AT_ONCE], each)

    def _settings(self) -> Iterator[Disagreement]:
        """What the settings themselves say wrongly of the claims: radii are read and converted by their norm."""
        norm, bound = self.given.mechanism.norm, self.given.norm_bound
        if self.config.norm != norm:
            yield Disagreement(None, "", "norm", self.config.norm, norm)
        if self.config.lift.name == "identity" and bound != 1.0:
            yield Disagreement(None, "", "lift.norm_bound", bound, 1.0)
        if self.config.lift.name != "identity" and self.config.noise.lattice is not None:
            yield Disagreement(None, "", "noise.form", self.config.noise.form, "float: lifted inputs lie on no lattice")

    def _together(self, records: Sequence[Record], each: int | None) -> Iterable[Disagreement]:
        try:
            with np.errstate(all="ignore"):
                return list(self._replayed(records, each))
        except _NONSENSE as error:
            if len(records) == 1:
                return [_nonsense(records[0], error)]
            half = len(records) // 2
            return [*self._together(records[:half], each), *self._together(records[half:], each)]

    def _replayed(self, records: Sequence[Record], each: int | None) -> Iterator[Disagreement]:
        seen = replay(self.test, self.given, records)
        for row, what, stored, wanted in seen.misfits:
            yield Disagreement(records[row].input_id, records[row].lane, what, stored, wanted)
        broken = {one.row for one in seen.misfits}
        decisions = seen.decisions
        prediction, radius, radii = claims(decisions, self.given, self.also)
        lift = self.config.lift.model_dump()
        sound = self.test.sound and lift.get("form") != "paper" and lift.get("sound", True) is True
        for row, record in enumerate(records):
            if row in broken:
                continue
            claimed: list[tuple[str, object, object]] = [
                ("prediction", record.prediction, int(prediction[row])),
                ("radius", record.radius, float(radius[row])),
                ("p_a", record.p_a, float(decisions.p_a[row])),
                ("p_b", record.p_b, float(decisions.p_b[row])),
                ("alpha", record.alpha, self.test.alpha),
                ("procedure", record.procedure, self.test.name),
                ("target", record.target, self.test.target),
                ("lift_norm", record.lift_norm, self.given.norm_bound),
                ("norm", record.norm, self.given.mechanism.norm),
                ("sound", record.sound, sound),
                ("seed", record.seed, self.config.seed),
                ("spent", dict(record.spent), dict(self.test.spent)),
                ("draws", record.draws, sum(stage.draws for stage in record.stages)),
                ("forwards", record.forwards, _forwards(record, each)),
                ("names of radii", sorted(record.radii), sorted(radii)),
                *((f"radius by {name}", record.radii.get(name), float(values[row])) for name, values in radii.items()),
            ]
            if seen.wanted[row]:
                claimed.append(("draws still wanted", 0, int(seen.wanted[row])))
            for what, stored, recomputed in claimed:
                if stored != recomputed:
                    yield Disagreement(record.input_id, record.lane, what, stored, recomputed)


def _nonsense(record: Record, why: object) -> Disagreement:
    return Disagreement(record.input_id, record.lane, "counts that cannot be", why, "counts of draws")


def _beyond(record: Record) -> bool:
    """Whether a count is too large to be added up."""
    return any(np.max(cells, initial=0) > _MOST for stage in record.stages for cells in stage.cells.values())


def _usual_forwards(records: Sequence[Record]) -> int | None:
    """Forwards per draw of most records: one number for the whole run, where rows do not differ in work."""
    shares = Counter(record.forwards // record.draws for record in records if record.draws > 0)
    return shares.most_common(1)[0][0] if shares else None


def _forwards(record: Record, each: int | None) -> int:
    """What the record's forwards must be: counted beside its draws, or so many for each of them."""
    if record.stages and all(FORWARDS in stage.cells for stage in record.stages):
        return sum(int(stage.cells[FORWARDS][0]) for stage in record.stages)
    return sum(stage.draws for stage in record.stages) * max(each or 1, 1)
