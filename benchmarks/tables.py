"""Copy the measured tables from results/benchmarks/*.json into the pages of docs/ that have markers for them."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from common import RESULTS, ROOT, verdict

PAGES = [ROOT / "docs" / f"{name}.md" for name in ("benchmarks", "noise", "scaling")]
MARKED = re.compile(r"(<!-- begin (\w+) -->\n).*?(<!-- end \2 -->)", re.DOTALL)


def markdown(result: dict[str, Any]) -> str:
    """Tables, bars, notes and where they were measured."""
    lines: list[str] = []
    for table in result["tables"]:
        columns = table["columns"]
        lines += [
            f"**{table['title']}**",
            "",
            f"| {' | '.join(columns)} |",
            "|---" + "|---:" * (len(columns) - 1) + "|",
        ]
        lines += [f"| {' | '.join(row)} |" for row in table["rows"]] + [""]
    lines += [f"- {verdict(bar['passed'])}: {bar['words']}" for bar in result["bars"]]
    lines += [f"- {note}" for note in result["notes"]]
    where, kind = result["environment"], result["settings"].get("of", "medians")
    load = "unknown" if where["load_before"] is None else f"{where['load_before']:.1f}"
    lines += [
        "",
        f"Measured {result['date'][:10]}, {kind} of {result['repetitions']}, on {where['cpus']} CPUs "
        f"({where['cpu']}; load before the start {load}), "
        f"Python {where['python']}, torch {where['torch']}, numpy {where['numpy']}.",
    ]
    return "\n".join(lines) + "\n"


def filled(page: str, results: Path) -> str:
    """The page with every marked place rewritten; a place without a result says so."""

    def fill(match: re.Match[str]) -> str:
        path = results / f"{match[2]}.json"
        result = json.loads(path.read_text()) if path.exists() else None
        if result and result["quick"]:
            raise SystemExit(f"{path.name} holds a --quick run: run the benchmark in full first.")
        return match[1] + (markdown(result) if result else "Not measured yet.\n") + match[3]

    return MARKED.sub(fill, page)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, nargs="+", default=PAGES)
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 if the page is out of date")
    options = parser.parse_args()
    pages = {page: (page.read_text(), filled(page.read_text(), options.results)) for page in options.page}
    if options.check:
        return int(any(before != after for before, after in pages.values()))
    for page, (_, after) in pages.items():
        page.write_text(after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
