"""Draws the two pictures of README.md from a real run: the terminal as SVG, and the top of its report.

    python tools/readme_pictures.py [--limit 20]

Certifies what ``make demo`` certifies into a temporary folder, with the same commands. The report's picture needs a
browser: RINGFENCE_CHROMIUM, or the chromium on the path.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "img"
COLUMNS, WIDTH, HEIGHT = 100, 1100, 1000
SHOWN = (
    "certify --model default --data default --sigma 0.5 --radius 0.5 --out runs/demo",
    "verify runs/demo",
    "gate runs/demo --certified 0.90@0.5",
)
"""What the recorded terminal runs, one after the other."""


def answered(command: str, folder: Path) -> str:
    """What a command prints in that folder, and what it guarantees; its progress is left out."""
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "FORCE_COLOR": "1", "PYTHONPATH": str(ROOT / "src")}
    words = [sys.executable, "-m", "ringfence", *shlex.split(command)]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"ringfence {command}: {done.stderr}")
    said = [line for line in done.stderr.splitlines() if line.startswith("guarantee:")]
    return "\n".join([done.stdout.rstrip(), *said])


def terminal(seen: Sequence[tuple[str, str]]) -> str:
    """The commands and their answers as SVG, which loads nothing: the fonts are the reader's own."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    for command, answer in seen:
        console.print(Text.assemble(("$ ", "dim"), (f"ringfence {command}", "bold green")), soft_wrap=False)
        console.print(Text.from_ansi(answer))
    drawn = console.export_svg(title="ringfence", unique_id="terminal")
    return re.sub(r"@font-face \{.*?\}\s*|<!--.*?-->\s*", "", drawn, flags=re.DOTALL)


def photograph(page: Path, picture: Path) -> None:
    """The top of the report, its settings folded."""
    from playwright.sync_api import sync_playwright

    path = os.environ.get("RINGFENCE_CHROMIUM") or shutil.which("chromium")
    if not path:
        sys.exit("no browser: install chromium, or name one in RINGFENCE_CHROMIUM")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        view = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        view.goto(page.as_uri())
        view.wait_for_selector("svg, canvas", timeout=60_000)
        view.evaluate("document.querySelectorAll('details[open]').forEach(one => { one.open = false })")
        view.wait_for_timeout(1000)  # the figures grow into their places
        view.screenshot(path=picture)
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=int, help="fewer inputs, to try it")
    parser.add_argument("--into", type=Path, default=IMAGES, help="folder of the pictures")
    given = parser.parse_args()
    fewer = f" --limit {given.limit}" if given.limit else ""
    given.into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shown = [f"{SHOWN[0]}{fewer}", *SHOWN[1:]]
        drawn = terminal([(command, answered(command, folder)) for command in shown])
        (given.into / "terminal.svg").write_text(drawn, encoding="utf-8")
        answered('report runs/demo --out runs/demo.html --title "Ringfence demo"', folder)
        photograph(folder / "runs" / "demo.html", given.into / "report-demo.png")


if __name__ == "__main__":
    main()
