"""Dockerfile and compose.yaml: what they copy is there, and what they run is a command."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from ringfence.cli import app

ROOT = Path(__file__).resolve().parents[2]
INSTRUCTIONS = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text()).splitlines()


def said(word: str) -> list[str]:
    return [line.removeprefix(f"{word} ") for line in INSTRUCTIONS if line.startswith(f"{word} ")]


def service() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["ringfence"]
    return found


def test_what_is_copied_is_there_and_reaches_the_build() -> None:
    copied = [name for line in said("COPY") for name in shlex.split(line)[:-1]]
    reached = [line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"]
    assert copied == reached
    assert all((ROOT / name).exists() for name in copied)


def test_the_package_can_be_built_from_what_is_copied() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    named = [project["project"]["readme"], *project["project"].get("license-files", [])]
    named += [
        project["tool"]["hatch"]["version"]["path"],
        *project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"],
    ]
    copied = [name for line in said("COPY") for name in shlex.split(line)[:-1]]
    assert all(any(one == name or one.startswith(f"{name}/") for name in copied) for one in named)
    assert re.search(r"^torch==", (ROOT / "constraints.txt").read_text(), re.M)
    assert "serve" in project["project"]["optional-dependencies"]


@pytest.mark.parametrize("words", [json.loads(said("CMD")[-1]), service()["command"]], ids=["image", "compose"])
def test_what_it_runs_is_a_command(words: list[str]) -> None:
    name, command = json.loads(said("ENTRYPOINT")[0])
    assert name == "ringfence"
    serve = get_command(app).commands[command]  # type: ignore[attr-defined]
    context = serve.make_context(command, list(words), resilient_parsing=False)
    assert context.params["certifications"] == ["certification"]
    assert context.params["host"] == "0.0.0.0"
    assert context.params["tokens"], "an address that others reach needs tokens"
    assert f":{context.params['port']}:" in service()["ports"][0]


def test_a_build_of_torch_without_cuda_can_be_chosen() -> None:
    assert said("ARG") == service()["build"]["args"] == ["PIP_EXTRA_INDEX_URL"]
    places = [number for number, line in enumerate(INSTRUCTIONS) if line.startswith(("ARG ", "RUN pip"))]
    assert INSTRUCTIONS[places[0]].startswith("ARG"), "pip must see it"


def test_it_has_no_rights_and_knows_whether_it_is_well() -> None:
    assert said("USER") == ["ringfence"]
    assert service()["cap_drop"] == ["ALL"]
    assert service()["read_only"] is True
    assert any("/readyz" in line for line in INSTRUCTIONS)
