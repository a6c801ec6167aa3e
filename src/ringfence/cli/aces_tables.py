"""What the command line shows of ACES: figures of every threshold, as a table for people or as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.table import Table

from ringfence.analysis.aces import Answers, ThetaMetrics, measure
from ringfence.analysis.metrics import USUAL_RADII
from ringfence.cli.console import remark, results
from ringfence.cli.tables import number, percent

MOST_ROWS = 21
CERTIFIED = "Certified accuracy (%) at radius"


def points_of(answers: Sequence[Answers], radii: Sequence[float] | None) -> list[ThetaMetrics]:
    """Figures of every theta; the usual radii as far as a known-radius run can tell."""
    target = answers[0].target
    usual = USUAL_RADII if target is None else sorted({0.0, target})
    return [measure(one, usual if radii is None else radii) for one in answers]


def points_json(points: Sequence[ThetaMetrics], **further: Any) -> str:
    """Every theta under ``thetas``."""
    return json.dumps({"thetas": [point.to_dict() for point in points], **further}, indent=2, allow_nan=False)


def print_points(points: Sequence[ThetaMetrics]) -> None:
    """One line per theta, at most MOST_ROWS of them, evenly spaced."""
    step = -(-(len(points) - 1) // (MOST_ROWS - 1)) if len(points) > MOST_ROWS else 1
    shown = [point for k, point in enumerate(points) if k % step == 0 or k == len(points) - 1]
    radii = [f"{radius:g}" for radius in points[0].certified_accuracy]
    for title in (CERTIFIED, "Certified selection rate (%) at radius"):
        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for heading in ("theta", "natural%", "ACR", "abst%", *radii):
            table.add_column(heading, justify="right", no_wrap=True)
        for point in shown:
            shares = point.certified_accuracy if title == CERTIFIED else point.certified_selection_rate
            figures = [percent(point.natural_accuracy), number(point.acr), percent(point.abstention)]
            table.add_row(f"{point.theta:g}", *figures, *(percent(share) for share in shares.values()))
        if title != CERTIFIED:
            results.print()
        results.print(table)
    alphas = [point.alpha for point in points]  # components may differ from theta to theta: the line holds for all
    known = [alpha for alpha in alphas if alpha is not None]
    alpha = f"alpha {max(known):g}" if len(known) == len(alphas) else "alpha unknown: a component does not say"
    results.print(f"{alpha}; {'proved' if all(point.sound for point in points) else 'no proven guarantee'}")
    if len(shown) < len(points):
        remark(f"{len(shown)} of {len(points)} thresholds are shown; --json has them all")
