"""Where staged and sequential runs stopped, and how many draws that saved (Horvath et al. 2022, tables 4 and 15-18)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ringfence.errors import ArgumentError
from ringfence.record import Record, StageTally
from ringfence.types import IntArray

STAGED, SEQUENTIAL = "staged", "sequential"


@dataclass(frozen=True)
class StageShares:
    """Percent of the inputs abstained from (ASA), certified (ASC) and resolved (ASR, their sum) at stage or look j.

    draws: fresh draws of stage j; for looks, all draws of the estimate up to look j.
    """

    index: int
    draws: int
    asa: float
    asc: float
    asr: float


@dataclass(frozen=True)
class StageSummary:
    """Per-stage shares of a run and its saving against a fixed n.

    sample_rf = (n + n0) / mean of all draws; sample_rf_estimation = n / mean draws without those that chose the
    class; sample_rf_paper = (n + n0) / (n0 + sum_j ASR_j n_j), Horvath et al.'s own, which counts only the last stage
    an input reached. For looks of one stream of draws the last one agrees with the first.
    """

    procedure: str
    count: int
    shares: tuple[StageShares, ...]
    draws_per_input: float
    estimation_draws_per_input: float
    sample_rf: float
    sample_rf_estimation: float
    sample_rf_paper: float

    def to_dict(self) -> dict[str, Any]:
        """The summary as plain values."""
        return asdict(self)


def stage_summary(records: Sequence[Record], n: int = 100_000, n0: int = 100) -> StageSummary:
    """Shares and savings of the records of one staged or sequential run, against fixed sampling with n0 and n."""
    names = {record.procedure for record in records}
    if len(names) != 1 or not names <= {STAGED, SEQUENTIAL}:
        rule = f"must be of one procedure, {STAGED} or {SEQUENTIAL}"
        raise ArgumentError("records", rule, sorted(names) or "none", "Give the records of one such run.")
    procedure = names.pop()
    resolved, sizes = _looks(records) if procedure == SEQUENTIAL else _stages(records)
    abstained = np.array([record.abstained for record in records], dtype=np.bool_)
    total = np.array([record.draws for record in records], dtype=np.float64)
    estimation = np.array([sum(entry.draws for entry in _estimates(record)) for record in records], dtype=np.float64)
    places = len(sizes)
    asa = np.bincount(resolved[abstained], minlength=places) / len(records)
    asc = np.bincount(resolved[~abstained], minlength=places) / len(records)
    return StageSummary(
        procedure=procedure,
        count=len(records),
        shares=tuple(
            StageShares(j + 1, int(sizes[j]), 100 * float(asa[j]), 100 * float(asc[j]), 100 * float(asa[j] + asc[j]))
            for j in range(places)
        ),
        draws_per_input=float(total.mean()),
        estimation_draws_per_input=float(estimation.mean()),
        sample_rf=float((n + n0) / total.mean()),
        sample_rf_estimation=float(n / estimation.mean()),
        sample_rf_paper=float((n + n0) / (n0 + ((asa + asc) * sizes).sum())),
    )


def _estimates(record: Record) -> list[StageTally]:
    """The tallies after the one that chose the class."""
    entries = [entry for entry in record.stages if entry.stage > 0]
    if not entries:
        received = f"input {record.input_id} without any"
        raise ArgumentError("records", "must hold the tallies of their stages", received, "Use a run with raw counts.")
    return entries


def _stages(records: Sequence[Record]) -> tuple[IntArray, IntArray]:
    """(index of the last stage reached per record, fresh draws of each stage)."""
    last = np.array([max(entry.stage for entry in _estimates(record)) for record in records], dtype=np.int64) - 1
    sizes = np.zeros(int(last.max()) + 1, dtype=np.int64)
    for record in records:
        for stage in range(1, len(sizes) + 1):
            drawn = sum(entry.draws for entry in _estimates(record) if entry.stage == stage)
            sizes[stage - 1] = max(sizes[stage - 1], drawn)
    return last, sizes


def _looks(records: Sequence[Record]) -> tuple[IntArray, IntArray]:
    """(index of the look that ended each record, draws up to each look).

    An input that reached a look passed all earlier ones, so the looks of all records together are the schedule.
    """
    paths = [np.cumsum([entry.draws for entry in _estimates(record)]) for record in records]
    schedule: IntArray = np.unique(np.concatenate(paths)).astype(np.int64)
    ends = np.array([path[-1] for path in paths], dtype=np.int64)
    return np.searchsorted(schedule, ends), schedule
