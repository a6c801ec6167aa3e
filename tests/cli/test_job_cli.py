"""``certify job.yaml``: what a file says, what flags beside it say, and files that ``--save`` wrote."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from click.testing import Result

import ringfence as rf

Call = Callable[..., Result]

FLAGS = ["--sigma", 0.5, "--limit", 2, "--n", 200, "--batch", 100]


def job(folder: Path, **parts: object) -> Path:
    """A small job; what is given stands in the place of its parts."""
    content = {"noise": {"sigma": 0.5}, "procedure": {"n": 200}, "data": {"limit": 2}, "out": str(folder / "run")}
    file = folder / "job.yaml"
    file.write_text(yaml.safe_dump(content | parts))
    return file


def test_a_saved_job_certifies_what_its_flags_do(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    told = call("certify", *FLAGS, "--skip", 2, "--out", tmp_path / "saved", "--save", file).stderr
    without = call("certify", *FLAGS, "--save", tmp_path / "no-out.yaml").stderr
    assert f"ringfence certify {tmp_path / 'no-out.yaml'} --out runs/NAME" in " ".join(without.split())
    assert f"ringfence certify {file}" in told
    assert not (tmp_path / "saved").exists()
    call("certify", file)
    call("certify", *FLAGS, "--skip", 2, "--out", tmp_path / "flags")
    saved, flags = (rf.RunFolder.open(tmp_path / name) for name in ("saved", "flags"))
    assert saved.config == flags.config
    assert [(one.input_id, one.radius) for one in saved.read()] == [(one.input_id, one.radius) for one in flags.read()]


def test_parts_without_their_main_entry_have_its_default_and_flags_come_first(call: Call, tmp_path: Path) -> None:
    file = job(tmp_path, classifier={"classes": 10})
    call("certify", file)
    config = rf.RunFolder.open(tmp_path / "run").config
    assert (config.procedure.name, config.procedure.settings["n"]) == ("fixed", 200)
    assert (config.data.source, config.data.limit, config.classifier.tree) == ("default", 2, "default")
    words = ["--n", 300, "--procedure", "fixed", "--limit", 1, "--model", "default:1", "--out", tmp_path / "other"]
    call("certify", file, *words)
    other = rf.RunFolder.open(tmp_path / "other").config
    assert (other.procedure.settings["n"], other.data.limit, other.classifier.tree) == (300, 1, "default:1")
    call("certify", file, "--procedure", "fixed", "--out", tmp_path / "same")
    assert rf.RunFolder.open(tmp_path / "same").config.procedure.settings["n"] == 200


def test_a_tree_written_as_a_mapping(call: Call, tmp_path: Path) -> None:
    call("certify", job(tmp_path, classifier={"soft": ["default:0", "default:1"]}), "--classes", 10)
    assert rf.RunFolder.open(tmp_path / "run").config.classifier.tree == "soft(default:0, default:1)"


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ({"procedure": {"name": "staged"}}, "error: --radius: is needed by the staged procedure; got none. Give --r"),
        ({"data": {"source": 5}}, "error: --data: names a source; got 5"),
        ({"data": {"limits": 5}}, "has the entries"),
        ({"data": {"kept": "default"}}, "has the entries"),  # which is for a program alone
        ({"noise": 5}, "noise: is a mapping of settings; got 5"),
        ({"wrong": 1}, "['wrong']"),
        ({"noise": {"sigma": -1}, "seed": "x", "precision": "fp8"}, "3 problems"),
    ],
)
def test_mistakes_of_a_file(call: Call, tmp_path: Path, parts: dict[str, object], told: str) -> None:
    assert told in call("certify", job(tmp_path, **parts), code=2).stderr
    assert not (tmp_path / "run").exists()


def test_strict_names_what_has_no_proof(call: Call, tmp_path: Path) -> None:
    words = ["--procedure", "multinomial", "--form", "paper", "--out", tmp_path / "run"]
    told = call("certify", *FLAGS, *words, "--strict", code=2).stderr
    assert "--strict: refuses the paper form" in told
    assert "default with the procedure multinomial" in told
    assert not (tmp_path / "run").exists()


def test_a_radius_beside_a_file_changes_no_procedure_that_it_names(call: Call, tmp_path: Path) -> None:
    file = job(tmp_path, procedure={"name": "staged", "radius": 0.1, "stages": [100, 300]})
    call("certify", file, "--radius", 0.05)
    config = rf.RunFolder.open(tmp_path / "run").config
    assert (config.procedure.name, config.procedure.settings["radius"]) == ("staged", 0.05)
    call("certify", job(tmp_path, procedure={}), "--radius", 0.05, "--out", tmp_path / "other")
    assert rf.RunFolder.open(tmp_path / "other").config.procedure.name == "sequential"
