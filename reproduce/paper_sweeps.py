"""What of a sweep file is kept, and what no device had time for yet, for the pages that say so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from paper_runs import Runs
from paper_tables import ROOT, section
from paper_trainings import ZOO

from ringfence.sweep import document


def entries(file: Path, zoo: Path = ZOO) -> Iterator[tuple[str, dict[str, Any], list[tuple[str, Path]]]]:
    """Command, entry, and the name of each of its jobs with where it is kept, in the file's order."""
    found = document.read_document(file)
    shared = {key: value for key, value in found.get("shared", {}).items() if document.is_plain(value)}
    kept_runs = {path.parent.name: path.parent for path in (ROOT / "results").rglob("config.json")}
    for command in ("train", "certify"):
        for entry in found.get(command, ()):
            names = [
                document.filled(entry["name"], {**shared, **one}) for one in document.combinations(entry.get("each"))
            ]
            place = zoo / found.get("zoo", "")
            kept = [place / one if command == "train" else kept_runs.get(one, ROOT / one) for one in names]
            yield command, entry, list(zip(names, kept, strict=True))


def not_run(file: Path, runs: Runs | None = None) -> str:
    """What of a file is neither among the runs (None: all that are kept) nor in their zoo; empty where nothing is."""
    kept_runs = {path.parent.name for path in (ROOT / "results").rglob("summary.json")} if runs is None else set()
    known = kept_runs | {run.name for run in runs or ()}
    zoo = next((run.zoo for run in runs or ()), ZOO)
    left, every, minutes = {"train": 0, "certify": 0}, {"train": 0, "certify": 0}, 0.0
    for command, entry, jobs in entries(file, zoo):
        kept = [(place / "config.json").exists() if command == "train" else name in known for name, place in jobs]
        left[command] += kept.count(False)
        every[command] += len(kept)
        minutes += kept.count(False) * float(entry["minutes"])
    parts = [
        f"{left[command]} of {every[command]} {name}"
        for command, name in (("train", "trainings"), ("certify", "certifications"))
        if left[command]
    ]
    return f"{', '.join(parts)} (about {minutes:.0f} minutes of one H200)" if parts else ""


def planned(title: str, about: Sequence[str], file: Path, runs: Runs, *tables: Sequence[str]) -> list[str]:
    """A section that stands there before its runs do: what they would show, and how much of it is missing."""
    missing = not_run(file, runs)
    lines = [*about, *(["", f"**Not run, for lack of device time:** {missing}."] if missing else []), ""]
    return [f"## {title}", "", *lines, *(line for one in tables for line in (*one, ""))]


def all_not_run(folder: Path, runs: Runs | None = None) -> list[str]:
    """A section: what of every sweep file of a folder no device had time for."""
    told = {file.name: not_run(file, runs) for file in sorted(folder.glob("*.yaml"))}
    lines = [f"- `{name}`: {missing}." for name, missing in told.items() if missing]
    about = [
        "For lack of device time, by sweep file. Runs that are older than the files have other names and are shown",
        "above, but count as missing here.",
    ]
    return section("What was not run", about, *([lines] if lines else []))
