"""Tables of reproduce/README.md: what the sweep files hold that no device had time for yet, and in which order.

A training is kept where ``zoo/`` has its settings, a run where ``results/`` has a folder of its name. Runs that are
older than the sweep files have other names, and count as missing.
"""

from __future__ import annotations

from pathlib import Path

import stretch_plan
from paper_sweeps import entries
from paper_tables import ROOT, filled, table

FOLDER = ROOT / "reproduce"


def rows() -> list[list[str]]:
    """Entries of which something is missing, with their device minutes."""
    lines, total = [], 0.0
    for file in sorted(FOLDER.glob("*/*.yaml")):
        for command, entry, jobs in entries(file):
            left = sum(not (place / "config.json").exists() for _, place in jobs)
            if left:
                minutes = left * float(entry["minutes"])
                total += minutes
                name = f"`{file.parent.name}/{file.name}`"
                lines.append([name, f"{command} `{entry['name']}`", f"{left} of {len(jobs)}", f"{minutes:.1f}"])
    return [*lines, ["all", "", "", f"{total:.0f}"]]


def pages() -> dict[Path, str]:
    """reproduce/README.md with its tables."""
    page = FOLDER / "README.md"
    head = ["sweep file", "jobs", "left", "minutes"]
    order = ["stretches", "sweep file and jobs", "jobs", "minutes", "fills"]
    tables = {"left": table(head, rows()), "stretches": table(order, stretch_plan.rows(stretch_plan.steps(entries)))}
    return {page: filled(page, {name: "\n".join(lines) for name, lines in tables.items()})}
