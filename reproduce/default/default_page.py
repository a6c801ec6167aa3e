"""The tables of the embedded default in docs/default.md, from results/default.

Runs are kept by ``tools/keep_runs.py`` under the names below; ``tools/train_default.py --measure`` writes
accuracy.json: accuracies on the 9,500 test images that are not embedded.
"""

from __future__ import annotations

import json
from pathlib import Path

from paper_runs import Runs
from paper_tables import ROOT, filled, table

RESULTS = ROOT / "results" / "default"
SIGMA, RADII = 0.5, (0.0, 0.25, 0.5, 0.75, 1.0)
RUNS = {
    "fixed-1000": "--n 1000",
    "sequential-0.5": "--radius 0.5",
    "sequential-1.0": "--radius 1.0",
    "sequential-0.5-default-1": "--radius 0.5 --model default:1",
    "sequential-0.5-default-2": "--radius 0.5 --model default:2",
}
"""What follows ``ringfence certify --sigma 0.5`` in each run, and the form of its noise where that is not exact."""


def accuracies() -> list[str]:
    """One network a row."""
    measured = json.loads((RESULTS / "accuracy.json").read_text(encoding="utf-8"))
    head = ["network", f"accuracy under noise, sigma {measured['sigma']:g}", "accuracy without noise"]
    rows = []
    for name, one in measured["accuracy"].items():
        shown = "`default` (= `default:0`)" if name == "default:0" else f"`{name}`"
        rows.append([shown, f"{one['noisy']:.4f}", f"{one['clean']:.4f}"])
    return table(head, rows)


def digits() -> list[str]:
    """One run a row: at the radii it speaks of."""
    runs = {run.name: run for run in Runs.under(RESULTS)}
    head = ["r=0" if r == 0 else f"{r:g}".removeprefix("0") if r < 1 else f"{r:.1f}" for r in RADII]
    rows = []
    for name, words in RUNS.items():
        run = runs[name]
        asked = run.radius
        found = run.lanes(RADII if asked is None else (asked,))["main"]
        about = "" if "--model" in words else " (sequential)"
        if asked is None:
            about = f" (fixed; ACR {found.acr:.3f}, abstains on {100 * found.abstention:.1f}%)"
        shares = found.certified_accuracy
        cells = [f"{100 * shares[r]:.1f}%" if asked in (None, r) else "" for r in RADII]
        rows.append([f"`{words}`{about}", *cells, f"{found.draws / found.count:,.0f}"])
    forms = {run.folder.config.noise.form for run in runs.values()}
    said = f"--sigma {SIGMA:g}" + "".join(f" --noise-form {form}" for form in forms - {"exact"})
    return table([f"command (`ringfence certify {said} ...`)", *head, "draws/input"], rows)


def pages() -> dict[Path, str]:
    """docs/default.md with its two tables."""
    page = ROOT / "docs" / "default.md"
    return {page: filled(page, {"accuracies": "\n".join(accuracies()), "digits": "\n".join(digits())})}
