"""The jobs of stretches.yaml that are left, in stretches that fit into ten minutes of a lent GPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from paper_tables import ROOT

PLAN = ROOT / "reproduce" / "stretches.yaml"
MINUTES = 8.0
"""Device minutes of a stretch of nine: a minute goes to loading and compiling."""
Entries = Callable[[Path], Iterator[tuple[str, dict[str, Any], list[tuple[str, Path]]]]]


@dataclass(frozen=True)
class Step:
    """Jobs of a sweep file that fill the same cells. left: minutes of each that is not kept.

    together: how many at the same time; apart: no training beside a certification. then: a program beside the sweep
    file that is given the folder of its runs once all are done; before that no later step of the file may begin.
    by_hand: somebody looks at it, and changes the file, before a later step of it may.
    """

    sweep: str
    names: tuple[str, ...]
    fills: str
    left: tuple[float, ...]
    together: str = "auto"
    apart: bool = False
    then: str = ""
    by_hand: bool = False

    @property
    def jobs(self) -> str:
        """As a sweep takes them, from the root of the repository."""
        return f"reproduce/{self.sweep}:{','.join(self.names)}"


def steps(entries: Entries, plan: Path = PLAN) -> list[Step]:
    """Every step of the plan; a job counts in the first that names it."""
    found, taken = [], set[tuple[str, str, str]]()
    for one in yaml.safe_load(plan.read_text(encoding="utf-8")):
        left = []
        for command, entry, jobs in entries(plan.parent / one["sweep"]):
            for name, place in jobs:
                key = (one["sweep"], command, name)
                if name.startswith(tuple(one["names"])) and key not in taken:
                    taken.add(key)
                    left += [] if (place / "config.json").exists() else [float(entry["minutes"])]
        how = {key: one[key] for key in ("apart", "then", "by_hand") if key in one}
        together = str(one.get("together", "auto"))
        found.append(Step(one["sweep"], tuple(one["names"]), one["fills"], tuple(left), together, **how))
    return found


def rows(planned: list[Step], limit: float = MINUTES) -> list[list[str]]:
    """A line for each step: the stretches that it takes, one after the other, how many jobs and minutes are left.

    A job that is longer than what is left of a stretch goes on in the next from its checkpoint.
    """
    lines, at = [], 0.0
    for step in [one for one in planned if one.left]:
        minutes = sum(step.left)
        first, last = int(at / limit + 1e-9) + 1, math.ceil((at + minutes) / limit - 1e-9)
        at += minutes
        told = str(first) if first == last else f"{first} to {last}"
        lines.append(
            [told, f"`{step.sweep}:{','.join(step.names)}`", str(len(step.left)), f"{minutes:.1f}", step.fills]
        )
    return lines
