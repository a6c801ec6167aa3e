"""The documentation stays true: its Python blocks run, its links lead somewhere, its list of names is the real one."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

import ringfence

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
TOP = sorted(ROOT.glob("*.md"))
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def python_blocks(page: Path) -> list[tuple[int, str]]:
    """(line of its first statement, code) of every block marked python."""
    text = page.read_text(encoding="utf-8")
    return [(text.count("\n", 0, found.start(1)), found[1]) for found in BLOCK.finditer(text)]


@pytest.mark.parametrize("page", [page for page in PAGES if python_blocks(page)], ids=lambda page: page.stem)
def test_python_blocks_run(page: Path, monkeypatch: pytest.MonkeyPatch, registries: None) -> None:
    module = ModuleType(f"docs_{page.stem}")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # dataclasses look their module up by name
    for line, code in python_blocks(page):
        # Blank lines in front make a traceback point at the line of the page.
        exec(compile("\n" * line + code, str(page), "exec", dont_inherit=True), vars(module))


def test_the_pages_with_examples_have_them() -> None:
    assert {page.stem for page in PAGES if python_blocks(page)} >= {"concepts", "methods", "soundness", "extending"}


@pytest.mark.parametrize("page", [*PAGES, *TOP], ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if not target.startswith(("http:", "https:", "mailto:", "#")):
            assert (page.parent / target.partition("#")[0]).exists(), target


def test_api_page_lists_the_public_names() -> None:
    lines = (ROOT / "docs" / "api.md").read_text(encoding="utf-8").splitlines()
    listed = [found[1] for line in lines if (found := re.match(r"- `([^`]+)`", line))]
    assert sorted(listed) == sorted(ringfence.__all__)


def test_every_option_of_a_documented_command_is_documented() -> None:
    import typer.main

    from ringfence.cli import app

    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    headings = " ".join(line for line in page.splitlines() if line.startswith("## "))
    commands = getattr(typer.main.get_command(app), "commands", {})
    documented = {name for name in commands if f"ringfence {name}" in headings}
    assert documented >= {"certify", "predict", "metrics", "plan", "verify", "info", "import", "export"}
    pending = [(name, commands[name]) for name in sorted(documented)]
    while pending:
        name, command = pending.pop()
        pending.extend((f"{name} {word}", inner) for word, inner in getattr(command, "commands", {}).items())
        options = [option for parameter in command.params for option in parameter.opts if option.startswith("--")]
        missing = [option for option in options if f"`{option}`" not in page and option != "--help"]
        assert not missing, f"ringfence {name}: {missing}"


def test_every_public_method_is_documented() -> None:
    from ringfence.mechanisms import MECHANISMS
    from ringfence.procedures import PROCEDURES

    page = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    procedures = [name for name, kind in PROCEDURES.items() if kind.__name__ in ringfence.__all__]
    assert len(procedures) >= 6
    for method in [*procedures, *MECHANISMS]:
        assert f"`{method.replace('_', '-')}`" in page, method


def test_the_command_reference_is_what_the_commands_say() -> None:
    import runpy

    tool = runpy.run_path(str(ROOT / "tools" / "cli_reference.py"))
    page = (ROOT / "docs" / "cli-reference.md").read_text(encoding="utf-8")
    assert page == tool["reference"](), "run tools/cli_reference.py"


def test_the_references_name_every_source_of_a_report() -> None:
    from ringfence.report.page import papers

    page = (ROOT / "docs" / "references.md").read_text()
    assert [paper.text for paper in papers() if paper.text not in page] == []


def test_the_pages_to_begin_with_are_there_and_found_by_the_words_people_search() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("  - Begin:")[1].split("\n  - ")[0]
    begin = re.findall(r"\S+\.md", nav)
    assert begin[:6] == ["install.md", "first-certificate.md", "your-model.md", "your-data.md", "report.md", "ci.md"]
    text = {name: (ROOT / "docs" / name).read_text(encoding="utf-8") for name in begin[:6]}
    for word in ("timm", "DataLoader", "normalisation"):
        assert [name for name in begin[:6] if word in text[name]], word


def test_the_extras_are_those_of_the_page() -> None:
    import tomllib

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    listed = {
        name
        for line in page.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`([a-z]+)`", line.split("|")[1])
    }
    assert listed == set(extras) - {"docs"}


def test_the_commands_of_the_first_certificate_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shlex

    from typer.testing import CliRunner

    from ringfence.cli import app

    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "first-certificate.md").read_text(encoding="utf-8")
    lines = re.findall(r"^    \$ ringfence (.+)$", page, re.MULTILINE)
    assert len(lines) >= 5
    for line in lines:
        done = CliRunner().invoke(app, shlex.split(line))
        assert done.exit_code == 0, f"{line}: {done.output}"
