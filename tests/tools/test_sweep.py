"""Sweep files of reproduce/: the program takes every job of every one of them, and jobs fit together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from ringfence.cli import app
from ringfence.training.job import TrainJob

Tool = Callable[[str], ModuleType]
ROOT = Path(__file__).resolve().parents[2]
SWEEPS = sorted(path for path in (ROOT / "reproduce").rglob("*.yaml") if "\nwords:" in path.read_text())
"""Those in the form of tools/sweep_file.py; the others are for ``ringfence sweep``."""


@pytest.mark.parametrize("file", SWEEPS, ids=lambda file: file.stem)
@pytest.mark.parametrize("tiny", [False, True])
def test_the_program_takes_every_training(tool: Tool, reached: list[Any], file: Path, tiny: bool) -> None:
    jobs = tool("sweep_file").read_sweep(file, tiny)
    for one in jobs["train"]:
        found = CliRunner().invoke(app, [*one.words, "--quiet"])
        assert found.exit_code == 0, (one.name, found.output)
        job = reached.pop()
        assert isinstance(job, TrainJob)
        assert tuple(job.final(i) for i in range(job.members)) == one.done
        assert job.plan(0).nesterov is False


@pytest.mark.parametrize("file", SWEEPS, ids=lambda file: file.stem)
def test_jobs_fit_together(tool: Tool, file: Path) -> None:
    jobs = tool("sweep_file").read_sweep(file)
    for phase in ("train", "certify"):
        names = [one.name for one in jobs[phase]]
        assert len(set(names)) == len(names)
    made = {place for one in jobs["train"] for place in one.done}
    kept = {path for path in map(Path, _kept()) if path not in made}
    for one in jobs["train"] + jobs["certify"]:
        assert set(one.needs) <= made | kept, one.name
        for place in one.needs:  # what a command reads is what it waits for
            assert any(place.parent.name in word for word in one.words), one.name


def _kept() -> list[str]:
    """Weights that are committed, so that no sweep has to train them."""
    return [path.relative_to(ROOT).as_posix() for path in ROOT.glob("zoo/*/*/final-*")]


@pytest.mark.parametrize("file", SWEEPS, ids=lambda file: file.stem)
def test_every_job_says_how_long_it_takes(file: Path) -> None:
    sweep = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert sweep["about"]
    for job in sweep.get("train", []) + sweep.get("certify", []):
        assert job["minutes"] > 0, job["name"]


def test_braces_take_every_combination(tool: Tool, tmp_path: Path) -> None:
    file = tmp_path / "one.yaml"
    file.write_text(
        "zoo: z\nwords: {both: '--sigma {s} {more}', more: --x}\ngpu: {certify: --fast}\ntiny: {certify: --slow}\n"
        "train: [{name: 'net-{s}', each: {s: ['1', '2']}, words: '{both}', members: 2}]\n"
        "certify: [{name: 'run-{s}-{r}', each: [{s: 1, r: [3, 4]}, {s: 2, r: 5}], words: 'certify {both} --r {r}',"
        " needs: ['net-{s}'], tiny: --few}]\n"
    )
    jobs = tool("sweep_file").read_sweep(file)
    assert [one.name for one in jobs["certify"]] == ["run-1-3", "run-1-4", "run-2-5"]
    first = jobs["certify"][0]
    assert " ".join(first.words) == "certify --sigma 1 --x --r 3 --fast --out runs/run-1-3"
    assert first.needs == (Path("zoo/z/net-1/final-0.safetensors"), Path("zoo/z/net-1/final-1.safetensors"))
    assert jobs["train"][1].done == (Path("zoo/z/net-2/final-0.safetensors"), Path("zoo/z/net-2/final-1.safetensors"))
    tiny = tool("sweep_file").read_sweep(file, tiny=True)["certify"][0]
    assert tiny.words[-4:] == ("--slow", "--few", "--out", "runs/run-1-3")
    file.write_text("zoo: z\ncertify: [{name: a, words: '{nothing}'}]\n")
    with pytest.raises(SystemExit, match=r"nothing says what \{nothing\} is"):
        tool("sweep_file").read_sweep(file)
    file.write_text("zoo: z\ncertify: [{name: a, wrds: ''}]\n")
    with pytest.raises(SystemExit, match="wrds"):
        tool("sweep_file").read_sweep(file)
