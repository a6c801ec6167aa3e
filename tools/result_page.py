"""What the tools that write a page under results/ share."""

from __future__ import annotations

import sys
from pathlib import Path

from ringfence.store import RunFolder


def finished_runs(folder: Path) -> dict[str, RunFolder]:
    """The finished runs under a folder, by name."""
    found = {}
    for path in sorted(folder.glob("*/config.json")):
        run = RunFolder.open(path.parent)
        if run.summary() is None:
            print(f"unfinished, left out: {path.parent.name}", file=sys.stderr)
        else:
            found[path.parent.name] = run
    return found


def write_or_check(page: Path, text: str, check: bool, told: str) -> int:
    """Write the page and say what it holds; with check compare it instead, 1 where it differs."""
    if check:
        same = page.exists() and page.read_text() == text
        print("up to date" if same else f"{page} is not what the runs give: run tools/{Path(sys.argv[0]).name}")
        return 0 if same else 1
    page.write_text(text)
    print(f"{page.name}: {told}")
    return 0
