"""What K-consensus saved: KCR, forwards per draw and TimeRF, as Horvath et al.'s table 2 reports them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from ringfence.errors import ArgumentError
from ringfence.store import RunConfig


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


def consensus_of(config: RunConfig, lane: str) -> tuple[int, int] | None:
    """(k, K) of the K-consensus that a lane of a run is; None where it is something else.

    None for denoised members too: two forwards each, and four of them may be two members or four.
    """
    ensemble: Mapping[str, Any] = config.ensemble
    members, asked = len(ensemble.get("members", ())), list(ensemble.get("consensus", ()))
    if not asked or any(str(spec).startswith(("denoised:", "denoised(")) for spec in ensemble.get("members", ())):
        return None
    agree = int(asked[0]) if lane == "main" else config.classifier.lane(lane).agree
    return None if agree is None else (members, agree)
