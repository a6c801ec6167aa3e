"""What a package index shows: README.md whose links lead to the repository, and the project's addresses."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
AT = "https://example.org/owner/name"


def test_links_pictures_and_linked_pictures_become_absolute(tool: Callable[[str], ModuleType]) -> None:
    page = "[a](docs/a.md#b) ![p](img/p.svg) [![q](img/q.png)](docs/q.md) [c](https://other.org/x) [d](#here)"
    assert tool("absolute_links").absolute(page, AT, "c0ffee") == (
        f"[a]({AT}/blob/c0ffee/docs/a.md#b) ![p]({AT}/raw/c0ffee/img/p.svg)"
        f" [![q]({AT}/raw/c0ffee/img/q.png)]({AT}/blob/c0ffee/docs/q.md) [c](https://other.org/x) [d](#here)"
    )


def test_nothing_relative_is_left_of_ours(tool: Callable[[str], ModuleType], tmp_path: Path) -> None:
    for name in ("README.md", "pyproject.toml"):
        (tmp_path / name).write_text((ROOT / name).read_text(encoding="utf-8"), encoding="utf-8")
    tool("absolute_links").main(f"{AT}/", "c0ffee", tmp_path)
    targets = re.findall(r"\]\(([^)\s]+)\)", (tmp_path / "README.md").read_text(encoding="utf-8"))
    assert len(targets) > 10
    assert [target for target in targets if not target.startswith("https://")] == []
    for target in targets:
        if found := re.fullmatch(rf"{AT}/(?:raw|blob)/c0ffee/([^#]+)(?:#.*)?", target):
            assert (ROOT / found[1]).exists(), target
    urls = tomllib.loads((tmp_path / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
    assert urls["Repository"] == AT
    with pytest.raises(SystemExit, match="already"):
        tool("absolute_links").main(AT, "c0ffee", tmp_path)
