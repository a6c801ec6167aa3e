"""What the command line shows of ACES: figures of every threshold, as a table for people or as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ringfence.analysis.aces import Answers, ThetaMetrics, measure
from ringfence.analysis.metrics import USUAL_RADII
from ringfence.cli.console import remark, results
from ringfence.cli.tables import number, percent, table

MOST_ROWS = 21
CERTIFIED = "Certified accuracy (%) at radius"


def points_of(answers: Sequence[Answers], radii: Sequence[float] | None) -> list[ThetaMetrics]:
    """Figures of every theta; the usual radii as far as a known-radius run can tell."""
    target = answers[0].target
    usual = USUAL_RADII if target is None else sorted({0.0, target})
    return [measure(one, usual if radii is None else radii) for one in answers]


def points_json(points: Sequence[ThetaMetrics]) -> dict[str, Any]:
    """Every theta under ``thetas``."""
    return {"thetas": [point.to_dict() for point in points]}


def print_points(points: Sequence[ThetaMetrics]) -> None:
    """One line per theta, at most MOST_ROWS of them, evenly spaced."""
    step = -(-(len(points) - 1) // (MOST_ROWS - 1)) if len(points) > MOST_ROWS else 1
    shown = [point for k, point in enumerate(points) if k % step == 0 or k == len(points) - 1]
    radii = [f"{radius:g}" for radius in points[0].certified_accuracy]
    for title in (CERTIFIED, "Certified selection rate (%) at radius"):
        rows: list[tuple[str, ...]] = []
        for point in shown:
            shares = point.certified_accuracy if title == CERTIFIED else point.certified_selection_rate
            figures = [percent(point.natural_accuracy), number(point.acr), percent(point.abstention)]
            rows.append((f"{point.theta:g}", *figures, *(percent(share) for share in shares.values())))
        if title != CERTIFIED:
            results.print()
        results.print(table(("theta", "natural%", "ACR", "abst%", *radii), rows, title=title))
    alphas = [point.alpha for point in points]  # components may differ from theta to theta: the line holds for all
    known = [alpha for alpha in alphas if alpha is not None]
    alpha = f"alpha {max(known):g}" if len(known) == len(alphas) else "alpha unknown: a component does not say"
    results.print(f"{alpha}; {'proved' if all(point.sound for point in points) else 'no proven guarantee'}")
    if len(shown) < len(points):
        remark(f"{len(shown)} of {len(points)} thresholds are shown; --json has them all")
