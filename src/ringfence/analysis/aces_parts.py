"""Components of ACES that were evaluated apart, from run folders and logs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ringfence.analysis.aces_runs import AcesRun, is_aces, plain_component
from ringfence.errors import ArgumentError
from ringfence.store import RunFolder
from ringfence.store.component_logs import Component, read_component, selection_logs


def certification_part(path: Path) -> Component:
    """The certification network's results: a run folder or a log."""
    return plain_component(RunFolder.open(path)) if path.is_dir() else read_component(path)


def selection_parts(paths: Sequence[Path]) -> dict[float, Component]:
    """The selector's results per theta, ascending: ACES run folders, logs, or some of both."""
    found: dict[float, Component] = {}
    for path in paths:
        if (path / "config.json").exists():
            parts = AcesRun.read(RunFolder.open(path)).selection()
        else:
            parts = {theta: _bits(read_component(log)) for theta, log in selection_logs([path]).items()}
        for theta, part in parts.items():
            if theta in found:
                received = f"{theta:g} also in {found[theta].source}"
                raise ArgumentError(part.source, "each theta stands once", received, "Give one of the two.")
            found[theta] = part
    return dict(sorted(found.items()))


def core_part(path: Path) -> Component:
    """The core network's classes: an ACES run folder, an ordinary run's predictions, or a log."""
    if not path.is_dir():
        return read_component(path)
    run = RunFolder.open(path)
    return AcesRun.read(run).core() if is_aces(run) else plain_component(run)


def _bits(part: Component) -> Component:
    """Refuse a log whose predictions are classes."""
    if part.predict.max() > 1:
        rule, remedy = "predict must be 1, 0 or -1 in a selection log", "Give the selector's log."
        raise ArgumentError(part.source, rule, int(part.predict.max()), remedy)
    return part
