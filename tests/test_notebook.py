"""The notebooks of the documentation: kept without outputs, shown as pages with those that they have."""

from __future__ import annotations

import re
import runpy
import warnings
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def tool() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "tools" / "notebook_pages.py"))


def test_there_are_some_and_the_site_shows_them() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert len(NOTEBOOKS) >= 2
    assert [one.stem for one in NOTEBOOKS if f"notebooks/{one.stem}.md" not in nav] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_page_has_the_cells_of_the_notebook_and_the_notebook_no_outputs(path: Path) -> None:
    nbformat = pytest.importorskip("nbformat", reason="needs nbclient, of the dev extra")
    cells = nbformat.read(path, as_version=4).cells
    assert all(not cell.get("outputs") for cell in cells), "kept without outputs"
    page = path.with_suffix(".md").read_text(encoding="utf-8")
    shown = re.findall(r"^```py\n(.*?)\n```$", page, re.MULTILINE | re.DOTALL)
    assert shown == [cell.source for cell in cells if cell.cell_type == "code"], "run tools/notebook_pages.py"
    assert page.count("```text") >= 5
    for picture in re.findall(r"!\[.*?\]\((.+?)\)", page):
        assert (path.parent / picture).exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the kernel's own machinery, which is not ours to mend
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_page_says_what_the_notebook_answers(
    path: Path, tool: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package, why in (("nbclient", "dev"), ("ipykernel", "dev"), ("altair", "report"), ("pandas", "dev")):
        pytest.importorskip(package, reason=f"needs {package}, of the {why} extra")
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        text, _ = tool["page"](tool["executed"](path), path.stem)
    assert text == path.with_suffix(".md").read_text(encoding="utf-8"), "run tools/notebook_pages.py"
    assert list(tmp_path.iterdir()) == [], "what is refused leaves nothing behind"
