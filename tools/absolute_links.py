"""Makes README.md's links absolute and writes the project's addresses into pyproject.toml, before a wheel is built.

    python tools/absolute_links.py https://HOST/OWNER/NAME COMMIT

A package index shows README.md away from the repository, where relative links lead nowhere. The address is that of the
place the wheel is built at, so that no address stands in the repository that a copy elsewhere would have to change.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(!?)\[((?:[^\[\]]|!\[[^\]]*\]\([^)]*\))*)\]\(([^)\s]+)\)")


def absolute(page: str, address: str, commit: str) -> str:
    """The page with every relative link and picture at that address; links around pictures too."""

    def moved(found: re.Match[str]) -> str:
        picture, text, target = found.groups()
        text = LINK.sub(moved, text)
        if not target.startswith(("http:", "https:", "mailto:", "#")):
            target = f"{address}/{'raw' if picture else 'blob'}/{commit}/{target}"
        return f"{picture}[{text}]({target})"

    return LINK.sub(moved, page)


def addressed(project: str, address: str) -> str:
    """pyproject.toml with [project.urls]."""
    if "[project.urls]" in project:
        sys.exit("pyproject.toml has [project.urls] already")
    urls = {
        "Repository": address,
        "Documentation": f"{address}/blob/HEAD/docs/index.md",
        "Changelog": f"{address}/blob/HEAD/CHANGELOG.md",
        "Issues": f"{address}/issues",
    }
    lines = "\n".join(f'{name} = "{url}"' for name, url in urls.items())
    return project.replace("[project.scripts]", f"[project.urls]\n{lines}\n\n[project.scripts]", 1)


def main(address: str, commit: str, root: Path = ROOT) -> None:
    for name, text in (
        ("README.md", lambda page: absolute(page, address.rstrip("/"), commit)),
        ("pyproject.toml", lambda project: addressed(project, address.rstrip("/"))),
    ):
        path = root / name
        path.write_text(text(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3 or not sys.argv[1].startswith("https://"):
        sys.exit(__doc__)
    main(*sys.argv[1:])
