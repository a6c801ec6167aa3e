"""What runs saved: where staged and sequential ones stopped, what a K-consensus left out (Horváth et al. 2022)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np

from ringfence.errors import ArgumentError
from ringfence.record import Record, StageTally
from ringfence.types import IntArray


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
    class; sample_rf_paper = (n + n0) / (n0 + sum_j ASR_j n_j), the paper's own, which counts only the last stage
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
    """Shares and savings of the records of one run at a known radius, against fixed sampling with n0 and n."""
    names = {record.procedure for record in records}
    if len(names) != 1 or any(record.target is None for record in records):
        rule = "must be of one procedure, which tries a known radius"
        raise ArgumentError("records", rule, sorted(names) or "none", "Give the records of one such run.")
    procedure = names.pop()
    resolved, sizes = _places(records)
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


def _places(records: Sequence[Record]) -> tuple[IntArray, IntArray]:
    """(index of the stage or look that ended each record, draws of that stream up to each).

    A place is a stream of draws and how many of it were seen: stages are fresh streams, looks lie on one. An input
    that reached a place passed all earlier ones, so the places of all records together are the schedule.
    """
    paths = [list(_path(_estimates(record))) for record in records]
    schedule = sorted({place for path in paths for place in path})
    index = {place: number for number, place in enumerate(schedule)}
    ends = np.array([index[path[-1]] for path in paths], np.int64)
    return ends, np.array([seen for _, seen in schedule], np.int64)


def _path(entries: Sequence[StageTally]) -> Iterator[tuple[int, int]]:
    """(stream, draws of it seen so far) after each request."""
    seen: dict[int, int] = {}
    for entry in entries:
        seen[entry.stage] = seen.get(entry.stage, 0) + entry.draws
        yield entry.stage, seen[entry.stage]


@final
@dataclass(frozen=True)
class ConsensusStats:
    """kcr: share of draws decided by the first K members; forwards_rf: full ensemble's forwards over those run."""

    members: int
    agree: int
    kcr: float
    forwards_per_draw: float

    @property
    def forwards_rf(self) -> float:
        """How many times fewer forwards than the full ensemble: TimeRF where nothing but forwards takes time."""
        return self.members / self.forwards_per_draw

    def to_dict(self) -> dict[str, Any]:
        """The keys that summaries and ``metrics --json`` carry; kcr in percent."""
        return {
            "consensus": self.agree,
            "members": self.members,
            "kcr": 100 * self.kcr,
            "forwards_per_draw": self.forwards_per_draw,
            "forwards_rf": self.forwards_rf,
        }


def consensus_stats(members: int, agree: int, forwards: int, draws: int) -> ConsensusStats | None:
    """KCR = (k - f)/(k - K), because f = K KCR + k (1 - KCR) forwards per draw; 1 for K = k.

    None where f lies outside [K, k]: members that count several forwards of their own hide how many were asked.
    """
    if not 1 <= agree <= members or draws < 1:
        received = f"K={agree}, k={members}, {draws} draws"
        raise ArgumentError("agree, members, draws", "needs 1 <= K <= k and draws", received, "Check the run.")
    each = forwards / draws
    if not agree <= each <= members:
        return None
    share = 1.0 if agree == members else (members - each) / (members - agree)
    return ConsensusStats(members, agree, share, each)
