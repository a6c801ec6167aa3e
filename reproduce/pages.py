"""Writes every page that is made from committed runs: the folders' own, and tables in docs/.

    python reproduce/pages.py [--check] [--figures] [FOLDER ...]

Each folder beside this file has one program ``*_page.py`` with ``pages()``: path -> text. Only what the runs hold is
used: nothing is trained or certified. --check compares instead of writing and exits with 1 where a page differs;
--figures draws the folder's pictures, too.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).resolve().parent


def programs(chosen: list[str]) -> list[ModuleType]:
    """The page programs of these folders, all if none is named."""
    found = sorted(FOLDER.glob("*/*_page.py"))
    known = [path.parent.name for path in found]
    if unknown := sorted(set(chosen) - set(known)):
        raise SystemExit(f"no page in {', '.join(unknown)}; there are {', '.join(known)}")
    wanted = [path for path in found if not chosen or path.parent.name in chosen]
    sys.path[:0] = [str(FOLDER), *(str(path.parent) for path in wanted)]
    return [importlib.import_module(path.stem) for path in wanted]


def main() -> int:
    """Write or check; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", metavar="FOLDER")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--figures", action="store_true")
    options = parser.parse_args()
    different = 0
    for program in programs(options.folders):
        for path, text in program.pages().items():
            same = path.exists() and path.read_text(encoding="utf-8") == text
            name = path.relative_to(FOLDER.parent)
            if options.check:
                print(f"{name}: up to date" if same else f"{name}: not what the runs give, run reproduce/pages.py")
            elif not same:
                path.write_text(text, encoding="utf-8")
                print(f"{name}: written")
            different += not same
        if options.figures and hasattr(program, "figures"):
            program.figures()
    return int(options.check and different > 0)


if __name__ == "__main__":
    sys.exit(main())
