"""Runs the notebooks of the documentation and writes each with its outputs as a page beside it.

    python tools/notebook_pages.py [NAME ...]

The notebooks are kept without outputs, so that a change is a change of their words; the pages are what the site shows.
Pictures become files of their own. What goes to standard error (warnings with paths of the machine) is left out.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "notebooks"
PICTURE = "image/svg+xml"


def notebooks() -> list[Path]:
    return sorted(FOLDER.glob("*.ipynb"))


def executed(path: Path) -> Any:
    """The notebook after all its cells, run in a folder of its own."""
    import nbclient
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=1800, startup_timeout=600, kernel_name="python3").execute()
    return notebook


def page(notebook: Any, name: str) -> tuple[str, dict[str, str]]:
    """The page, and its pictures by file name."""
    parts, pictures = [], {}
    for cell in notebook.cells:
        source = "".join(cell.source)
        parts.append(source if cell.cell_type == "markdown" else f"```py\n{source}\n```")
        for output in cell.get("outputs", ()):
            if drawing := output.get("data", {}).get(PICTURE):
                file = f"{name}-{len(pictures) + 1}.svg"
                pictures[file] = "".join(drawing)
                parts.append(f"![{_first_line(source)}]({file})")
            elif text := _text(output):
                parts.append(f"```text\n{text}\n```")
    heading, rest = parts[0].split("\n", 1)
    told = f"*[The notebook]({name}.ipynb), run by `tools/notebook_pages.py`; its outputs are below its cells.*"
    return "\n\n".join([heading, told, rest.strip(), *parts[1:]]) + "\n", pictures


def _text(output: Any) -> str:
    if output.output_type == "stream":
        return "" if output.name == "stderr" else str(output.text).rstrip()
    return str(output.get("data", {}).get("text/plain", "")).rstrip()


def _first_line(source: str) -> str:
    """What a comment above the code says of its picture."""
    found = re.match(r"# (.+)", source)
    return found[1] if found else "A figure"


def main() -> None:
    for path in notebooks():
        if sys.argv[1:] and path.stem not in sys.argv[1:]:
            continue
        text, pictures = page(executed(path), path.stem)
        path.with_suffix(".md").write_text(text, encoding="utf-8")
        for file, content in pictures.items():
            (FOLDER / file).write_text(content, encoding="utf-8")
        print(f"written: {path.with_suffix('.md').name}, {len(pictures)} pictures")


if __name__ == "__main__":
    main()
