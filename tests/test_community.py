"""Workflows, hooks and forms name commands, targets and files that exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from ringfence.cli import app

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted(path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config")


def steps(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"]
    return [
        {**step, "matrix": job.get("strategy", {}).get("matrix", {})} for job in jobs.values() for step in job["steps"]
    ]


def test_the_tests_and_the_wheel_have_a_workflow() -> None:
    assert [path.stem for path in WORKFLOWS] == ["tests", "wheel"]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_what_exists(workflow: Path) -> None:
    assert yaml.safe_load(workflow.read_text(encoding="utf-8"))["permissions"] == {"contents": "read"}
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    ran = 0
    for step in steps(workflow):
        for line in step.get("run", "").splitlines():
            for target in re.findall(r"^make (.+)$", line):
                for name in step["matrix"].get("target", [target]):
                    assert re.search(rf"^{name}:", makefile, re.MULTILINE), name
                    ran += 1
            for script in re.findall(r"python (tools/\S+\.py)", line):
                assert (ROOT / script).exists(), script
                ran += 1
    assert ran


def test_what_the_wheel_certifies_is_a_command(tmp_path: Path) -> None:
    (workflow,) = (path for path in WORKFLOWS if path.stem == "wheel")
    lines = [line for step in steps(workflow) for line in step.get("run", "").splitlines()]
    ours = [shlex.split(line.split("bin/ringfence ")[1]) for line in lines if "bin/ringfence " in line]
    assert [words[0] for words in ours] == ["certify", "verify"]
    for words in ours:
        words = [str(tmp_path) if word == "runs/wheel" else "100" if word == "10" else word for word in words]
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output


def test_hooks_are_tools_of_the_check() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"][0]["hooks"]
    (check,) = re.findall(r"^check:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for hook in hooks:
        program = hook["entry"].split()[0].removeprefix(".venv/bin/")
        assert f"$(BIN)/{program}" in check, program


@pytest.mark.parametrize("form", FORMS, ids=lambda path: path.stem)
def test_forms_ask_for_what_is_needed(form: Path) -> None:
    content = yaml.safe_load(form.read_text(encoding="utf-8"))
    assert {"name", "description", "body"} <= set(content)
    asked = [one["id"] for one in content["body"] if one["type"] != "markdown"]
    assert len(asked) == len(set(asked)) >= 3
    assert "versions" in asked


def test_a_wrong_certificate_has_its_own_form_that_asks_for_privacy_first() -> None:
    (form,) = (path for path in FORMS if path.stem == "wrong-certificate")
    first = yaml.safe_load(form.read_text(encoding="utf-8"))["body"][0]
    assert first["type"] == "markdown"
    assert "in private" in first["attributes"]["value"]
    assert "SECURITY.md" in first["attributes"]["value"]
