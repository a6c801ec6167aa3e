"""Where the work is done, from the command line and from job files; and what failed there."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from click.testing import Result
from thread_crew import Threads

import ringfence as rf
from ringfence.engines.ray import Ray
from ringfence.job_file import Job, merged
from ringfence.work import ENGINES

Call = Callable[..., Result]
FLAGS = ["--sigma", 0.5, "--limit", 4, "--n", 200, "--batch", 100]


def saved(call: Call, folder: Path, *words: object) -> Any:
    file = folder / "saved.yaml"
    call("certify", *FLAGS, "--out", folder / "run", "--save", file, *words)
    return yaml.safe_load(file.read_text())


def test_options_of_the_engine_are_kept_in_the_file(call: Call, tmp_path: Path) -> None:
    told = saved(call, tmp_path, "--engine", "ray", "--workers", 2, "--gpus-per-worker", 0.5, "--patience", 30)
    engine = {"name": "ray", "workers": 2, "gpus_per_worker": 0.5, "patience": 30}
    assert told["execution"]["engine"] == engine
    assert Job.of(told).execution.engine == Ray(workers=2, gpus_per_worker=0.5, patience=30)


def test_a_name_alone_stays_a_name(call: Call, tmp_path: Path) -> None:
    assert saved(call, tmp_path, "--engine", "ray")["execution"]["engine"] == "ray"
    assert saved(call, tmp_path)["execution"]["engine"] == "local"


def test_gpus_need_no_name_of_an_engine(call: Call, tmp_path: Path) -> None:
    assert saved(call, tmp_path, "--gpus", 4)["execution"]["engine"] == {"name": "ray", "gpus": 4}


def test_options_stand_beside_what_the_file_says_of_the_same_engine() -> None:
    file = {"noise": {"sigma": 0.5}, "execution": {"engine": {"name": "ray", "address": "auto", "workers": 2}}}
    for flags, engine in (
        ({"name": None, "workers": 4}, Ray(address="auto", workers=4)),
        ({"name": None, "workers": None}, Ray(address="auto", workers=2)),
        ({"name": "ray", "workers": 3}, Ray(address="auto", workers=3)),
        ({"name": "local", "workers": None}, ENGINES["local"]),
    ):
        assert Job.of(merged(file, {"execution": {"device": None, "engine": flags}})).execution.engine == engine
    plain = {"noise": {"sigma": 0.5}, "execution": {"engine": "ray"}}
    assert Job.of(merged(plain, {"execution": {"engine": {"workers": 4}}})).execution.engine == Ray(workers=4)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--engine", "local", "--workers", 2], "--workers: is no setting of the engine local, which has none"),
        (["--engine", "ray", "--workers", 0], "--workers: must lie in [1, 100000]; got 0. Leave it out"),
        (["--engine", "ray", "--workers", 10**23], f"--workers: must lie in [1, 100000]; got {10**23}"),
        (["--engine", "ray", "--gpus-per-worker", "inf"], "--gpus-per-worker: must lie in [0, 100000]; got inf"),
        (["--gpus", 2, "--address", "auto"], "--gpus: is for a Ray that is started here"),
        (["--engine", "rey"], "--engine: must be one of local, ray; got 'rey'. Did you mean ray?"),
    ],
)
def test_wrong_engines(call: Call, tmp_path: Path, words: list[object], told: str) -> None:
    assert told in call("certify", *FLAGS, "--out", tmp_path / "run", *words, code=2).stderr


@pytest.mark.parametrize("engine", [{"name": "ray", "workers": "two"}, {"name": "ray", "address": 3}, {"workers": 1.5}])
def test_wrong_entries_of_a_file(engine: dict[str, object]) -> None:
    with pytest.raises(rf.errors.ArgumentError, match=list(engine)[-1]):
        Job.of({"noise": {"sigma": 0.5}, "execution": {"engine": engine}})


def test_without_ray_the_command_that_installs_it_is_told(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    told = call("certify", *FLAGS, "--engine", "ray", "--out", tmp_path / "run", code=2).stderr
    assert "pip install 'ringfence[ray]'" in told


def test_a_finished_run_asks_for_no_cluster(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call("certify", *FLAGS, "--out", tmp_path / "run")
    monkeypatch.setitem(sys.modules, "ray", None)
    told = call("certify", *FLAGS, "--engine", "ray", "--out", tmp_path / "run").stderr
    assert "all 4 inputs are already there" in told


def test_workers_that_are_gone_are_told_on_the_way(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dying = Threads(2, lambda worker, reports: "dies" if worker == "0" else None)
    monkeypatch.setitem(ENGINES, "threads", dying)
    words = ["certify", *FLAGS, "--engine", "threads", "--out"]
    assert "worker 0 is gone: killed" in call(*words, tmp_path / "told").stderr
    assert "gone" not in call(*words, tmp_path / "quiet", "--quiet").stderr


def test_predict_takes_the_same_engines(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES, "threads", Threads(2))
    told = {}
    for engine in ("local", "threads"):
        call("predict", *FLAGS, "--engine", engine, "--out", tmp_path / engine)
        run = rf.RunFolder.open(tmp_path / engine)
        told[engine] = run.records().drop_columns(["seconds"]).to_pylist()
    assert told["threads"] == told["local"] != []


def cannot_load(worker: int) -> None:
    raise rf.errors.ModelError("net.py:make", "must be importable", "no such library here", "Install it everywhere.")


@pytest.mark.parametrize(
    ("engine", "rule", "reason"),
    [
        (Threads(2, lambda worker, reports: "dies"), "must live long enough to decide an input", "the last: killed"),
        (Threads(2, load=cannot_load), "must be able to load the model", "no such library here"),
    ],
    ids=["all die", "nobody can load"],
)
def test_where_all_workers_fail_the_reason_is_told_and_the_same_command_goes_on(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Threads, rule: str, reason: str
) -> None:
    monkeypatch.setitem(ENGINES, "threads", engine)
    told = call("certify", *FLAGS, "--engine", "threads", "--out", tmp_path / "run", code=2).stderr
    assert f"error: every worker: {rule}; got 7 died in turn" in told  # no option is to blame
    assert reason in told.splitlines()[-1]
    monkeypatch.setitem(ENGINES, "threads", Threads(2))
    call("certify", *FLAGS, "--engine", "threads", "--out", tmp_path / "run")
    run = rf.RunFolder.open(tmp_path / "run")
    assert len(run.read()) == len(run.done_ids()) == 4
    assert rf.verify(run) == []


RAISING = """
import torch

class Raises(torch.nn.Module):
    def forward(self, x):
        if (x[:, 0, 0, 1] > 10).any():
            raise RuntimeError("no answer up here")
        return x.flatten(1)[:, :2]

def make(num_classes=2):
    return Raises()
"""


def bright(folder: Path) -> list[object]:
    """A model that raises at bright pictures, and ten pictures, two of them bright."""
    (folder / "net.py").write_text(RAISING)
    x = np.full((10, 2, 2), 0.5, np.float32)
    x[[3, 7], 0, 1] = 20.0
    np.savez(folder / "dots.npz", x=x, y=np.zeros(10, np.int64))
    words = ["--model", f"{folder / 'net.py'}:make", "--data", folder / "dots.npz", "--sigma", 0.5, "--n", 200]
    return ["certify", *words, "--batch", 20, "--no-check", "--classes", 2]


@pytest.mark.filterwarnings("always")
def test_inputs_that_fail_are_named_and_the_exit_code_says_so(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENGINES, "threads", Threads(2))
    result = call(*bright(tmp_path), "--engine", "threads", "--out", tmp_path / "run", code=3)
    (reason,) = [line for line in result.stderr.splitlines() if "input 3 failed" in line]
    assert "RuntimeError: no answer up here" in reason
    assert "8 of 10 inputs are there" in result.stderr
    run = rf.RunFolder.open(tmp_path / "run")
    assert set(run.failed) == {3, 7}
    assert run.done_ids() == set(range(10)) - {3, 7}


@pytest.mark.filterwarnings("always")
def test_inputs_that_cannot_be_read_have_the_same_exit_code(call: Call, tmp_path: Path) -> None:
    from PIL import Image

    for name in ("a", "b"):
        (tmp_path / "data" / name).mkdir(parents=True)
        for number in range(2):
            picture = np.full((28, 28), 100 * number, np.uint8)
            Image.fromarray(picture).save(tmp_path / "data" / name / f"{number}.png")
    (tmp_path / "data" / "b" / "1.png").write_bytes(b"no picture")
    words = ["certify", "--data", tmp_path / "data", "--no-check", "--sigma", 0.5, "--n", 100, "--batch", 50]
    assert "input 3 failed" in call(*words, "--out", tmp_path / "run", code=3).stderr
    assert "input 3 failed" in call(*words, "--out", tmp_path / "run", code=3).stderr


def test_a_cluster_that_does_not_answer_is_told_at_once(call: Call, tmp_path: Path) -> None:
    """Ray itself would print its tries for minutes."""
    pytest.importorskip("ray")
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        told = call("certify", *FLAGS, "--out", tmp_path / "run", "--engine", "ray", "--address", where, code=2).stderr
    assert f"error: --address: must be a Ray cluster that answers; got {where}: " in told
