"""Record: everything known about one certified (input, lane), enough to verify it without the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ringfence.types import ABSTAIN, IntArray


@dataclass(frozen=True)
class Lane:
    """One of the classifiers of a run: its printed name, which is the key of its records, and what it is.

    vote: of how many members (prefix); member: its place, from 1; agree: the K of a K-consensus; theta: of ACES.
    Nobody reads this out of the name.
    """

    name: str
    vote: str | None = None
    prefix: int | None = None
    member: int | None = None
    agree: int | None = None
    theta: float | None = None

    def settings(self) -> dict[str, Any]:
        """Entries that say something, for the run's config."""
        return {key: value for key, value in vars(self).items() if value is not None}


@dataclass(frozen=True)
class StageTally:
    """What one request of the procedure brought back.

    stage: which independent stream of draws (0 selects the class, 1.. estimate);
    start: index of the first draw in that stream; draws: how many;
    cells: name -> int64 counts (cells of that name,).
    """

    stage: int
    start: int
    draws: int
    cells: Mapping[str, IntArray]


@dataclass(frozen=True)
class Record:
    """One row of a run.

    radius is in input units by the run's main mechanism, rounded down and already divided
    by lift_norm; radii holds every mechanism's. A procedure with a target stores radius = target for the
    certified and 0 otherwise. p_a is a lower bound on the predicted class, p_b an upper bound on all others.
    alpha is the failure probability of this record and spent says where it went. sound is False for
    ``paper`` forms. forwards counts network evaluations; seconds is this input's share of the wall time.
    norm is the one in which the radius is measured.
    facts holds what the procedure knew of the input before any noise (ACES: the core network's class).
    """

    input_id: int
    lane: str
    label: int | None
    prediction: int
    radius: float
    p_a: float
    p_b: float
    alpha: float
    procedure: str
    sound: bool
    seed: int
    draws: int
    forwards: int
    seconds: float
    target: float | None = None
    lift_norm: float = 1.0
    radii: Mapping[str, float] = field(default_factory=dict)
    spent: Mapping[str, float] = field(default_factory=dict)
    stages: tuple[StageTally, ...] = ()
    config_hash: str = ""
    facts: Mapping[str, int] = field(default_factory=dict)
    norm: str = "l2"

    @property
    def abstained(self) -> bool:
        """Whether nothing is claimed."""
        return self.prediction == ABSTAIN

    @property
    def correct(self) -> bool | None:
        """Whether the prediction is the label (an abstention never is); None where no label is known."""
        return None if self.label is None else self.prediction == self.label and not self.abstained
