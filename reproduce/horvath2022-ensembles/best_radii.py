"""The section of best.yaml: networks with the largest published average radii, and what else those radii hide."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from paper_runs import Run
from paper_sweeps import entries, planned
from paper_tables import Row, headed, paper, percents, table

from ringfence.analysis.columns import columns_of
from ringfence.types import ABSTAIN, FloatArray

if TYPE_CHECKING:
    from ensembles_page import Beside

FILE = Path(__file__).resolve().parent / "best.yaml"
NEW = ("catrs", "reweight")
KINDS = ("gaussian", "consistency", *NEW)
SIGMA, DEEP, ALL = 0.5, "ResNet110", 10_000
RADII = tuple(0.25 * i for i in range(8))
PROBABILITIES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999)


def best(found: Beside) -> list[str]:
    """All test images at sigma .5: radii, and the distribution of pA beside them."""
    runs = found.runs.of(procedure="fixed", sigma=SIGMA, inputs=ALL, architecture=DEEP, plain=True)
    shown = sorted((run for run in runs if run.kind in KINDS), key=lambda run: (KINDS.index(run.kind), run.size))
    plain = next((run.lanes(RADII)["main"] for run in shown if run.kind == "gaussian" and run.size == 1), None)
    radii, shares = list[Row](), list[Row]()
    told, source = published()
    for run in shown:
        for lane, k in lanes_of(run):
            ours = run.lanes(RADII)[lane]
            change = 100 * (ours.certified_accuracy[0.0] - plain.certified_accuracy[0.0]) if plain else None
            cells = ["-" if change is None else f"{change:+.1f}", *percents(ours.certified_accuracy, RADII)]
            radii.append([run.kind, k, f"{ours.acr:.3f}", *cells])
            if lane == "main" and run.kind in told:
                radii.append(paper([f"paper, {run.kind}", k, f"{told[run.kind]:.3f}", "-", *("-" for _ in RADII)]))
            held = probabilities(run, lane)
            shares.append([run.kind, k, *(f"{100 * np.mean(held >= p):.1f}" for p in PROBABILITIES)])
    known = ", ".join(f"{kind} {acr:.3f}" for kind, acr in told.items())
    about = [
        f"One ResNet-110 each by reweighting and CAT-RS, and a soft vote of three of the first (`{FILE.name}`); sigma",
        f".5, all {ALL:,} test images, n = 10,000. Published average radii: {known}",
        f"({source}). The runs are to show whether those are reached, and what an",
        "ensemble adds. An average radius rewards giving up hard inputs, so two things stand beside it: the change of",
        "the accuracy at r = 0 against Gaussian training (in points), and the percentage of images whose pA is so much",
        "or more (lower bound on the probability of the right class; 0 where the answer is wrong or none).",
    ]
    head = headed("", "k", "ACR", "r = 0 against gaussian", radii=RADII)
    tables = [table(head, radii), table(["", "k", *(f"pA >= {p:g}" for p in PROBABILITIES)], shares)]
    title = "The largest published average radii"
    return planned(title, about, FILE, found.runs, *(tables if radii else []))


def published() -> tuple[dict[str, float], str]:
    """Average radii by kind, and whose they are, as the sweep file has them."""
    (there,) = [entry["published"] for _, entry, _ in entries(FILE) if "published" in entry]
    return {kind: float(acr) for kind, acr in there["acr"].items()}, there["source"]


def lanes_of(run: Run) -> Iterator[tuple[str, str]]:
    """The only network, or soft votes of the first k, with k."""
    for lane in run.lane_names:
        vote, _, size = lane.rpartition("-")
        if lane == "main" or vote == "soft":
            yield lane, (size if vote else str(run.size))


def probabilities(run: Run, lane: str) -> FloatArray:
    """pA of each labelled input that was answered rightly, 0 of the others."""
    columns = columns_of(run.folder)
    rows = columns.at(columns.lane == (lane if len(run.lane_names) > 1 else columns.lane[0]))
    right = (rows.prediction == rows.label) & (rows.prediction != ABSTAIN)
    return np.asarray(np.where(right, rows.p_a, 0.0)[rows.labelled])
