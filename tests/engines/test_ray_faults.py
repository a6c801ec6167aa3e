"""On a real Ray: drivers, workers and machines are killed or stopped; nothing is lost and nothing doubled."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ray_processes import descendants

import ringfence as rf

ray = pytest.importorskip("ray")
pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # Ray's own
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds processes in /proc"),
    pytest.mark.skipif(not os.environ.get("RINGFENCE_RAY_FAULTS"), reason="minutes on free cores: make test-ray"),
]
WORDS = ["certify", "--sigma", "0.5", "--n", "2000", "--limit", "40", "--batch", "100", "--no-check"]
SLOW = """
import time, torch

class Slow(torch.nn.Module):
    def forward(self, x):
        time.sleep(0.05)
        return x.flatten(1)[:, 300:310]

def make(num_classes=10):
    return Slow()
"""
"""So that a run lasts long enough to be killed in the middle, however fast the machine is."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two machines, as far as Ray knows."""
    from ray.cluster_utils import Cluster

    few = {"object_store_memory": 80 * 2**20, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, **few})
    made.add_node(num_cpus=1, object_store_memory=80 * 2**20)
    yield made
    made.shutdown()


def started(cluster: Any, out: Path, *more: str) -> subprocess.Popen[str]:
    """The command, on two workers of the cluster."""
    where = ["--engine", "ray", "--address", cluster.address, "--workers", "2", "--out", str(out)]
    path = os.pathsep.join(one for one in sys.path if one)
    return subprocess.Popen(
        [sys.executable, "-m", "ringfence", *WORDS, *where, *more],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
    )


def until(process: subprocess.Popen[str], there: Callable[[], Any]) -> Any:
    while not (found := there()):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    return found


def parts(out: Path) -> int:
    return len(list((out / "parts").glob("part-*")))


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The words for a network that takes its time."""
    file = tmp_path_factory.mktemp("slow") / "net.py"
    file.write_text(SLOW)
    return ["--model", f"{file}:make"]


@pytest.fixture(scope="module")
def whole(slow: list[str], tmp_path_factory: pytest.TempPathFactory) -> dict[int, Any]:
    """What an undisturbed process says."""
    out = tmp_path_factory.mktemp("whole") / "run"
    subprocess.run([sys.executable, "-m", "ringfence", *WORDS, *slow, "--quiet", "--out", str(out)], check=True)
    return told(out)


def told(out: Path) -> dict[int, Any]:
    run = rf.RunFolder.open(out)
    records = run.read()
    assert len({one.input_id for one in records}) == len(records) == run.records(["radius"]).num_rows
    assert rf.verify(run) == []
    return {
        one.input_id: (one.prediction, one.radius, [stage.cells["votes"].tolist() for stage in one.stages])
        for one in records
    }


@pytest.mark.slow
def test_killed_drivers_and_a_killed_machine(
    cluster: Any, slow: list[str], whole: dict[int, Any], tmp_path: Path
) -> None:
    """At random moments; the same command again goes on."""
    out, chance = tmp_path / "run", random.Random(5)
    for _ in range(2):
        process, before = started(cluster, out, *slow), parts(out)
        until(process, lambda before=before: parts(out) > before)
        time.sleep(chance.uniform(0, 2))
        process.kill()
        process.communicate()
    process, before = started(cluster, out, *slow), parts(out)
    until(process, lambda: parts(out) > before)
    (machine,) = [one for one in cluster.list_all_nodes() if one is not cluster.head_node]
    cluster.remove_node(machine, allow_graceful=False)  # its raylet is killed, and its workers with it
    _, remarks = process.communicate(timeout=240)
    cluster.add_node(num_cpus=1, object_store_memory=80 * 2**20)
    assert process.returncode == 0, remarks
    assert "is gone" in remarks
    assert told(out) == whole


@pytest.mark.slow
def test_a_worker_that_is_stopped_is_replaced_and_named(
    cluster: Any, slow: list[str], whole: dict[int, Any], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    process = started(cluster, out, *slow, "--patience", "15")
    stopped = until(process, lambda: parts(out) > 1 and len(descendants(b"ray::_Actor")) > 1 and busiest())
    os.kill(stopped, signal.SIGSTOP)
    try:
        _, remarks = process.communicate(timeout=400)
    finally:
        with suppress(ProcessLookupError):
            os.kill(stopped, signal.SIGKILL)
    assert process.returncode == 0, remarks
    assert "it did nothing for 15 s" in remarks
    assert told(out) == whole


def busiest() -> int:
    """The actor that has worked most."""
    spent = {
        one: sum(map(int, Path(f"/proc/{one}/stat").read_text().split()[13:15])) for one in descendants(b"ray::_A")
    }
    return max(spent, key=lambda one: spent[one])


RAISING = """
import os, torch

class Raises(torch.nn.Module):
    def forward(self, x):
        if (x[:, 0, 0, 1] > 10).any():
            raise RuntimeError("no answer up here")
        if (x[:, 0, 0, 1] < -10).any():
            os._exit(137)  # as if it took all memory
        return x.flatten(1)[:, :2]

def make(num_classes=2):
    return Raises()
"""


@pytest.mark.slow
def test_inputs_that_raise_or_kill_are_named_and_the_rest_is_certified(cluster: Any, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(RAISING)
    x = np.full((60, 2, 2), 0.5, np.float32)
    x[33, 0, 1], x[47, 0, 1] = 20.0, -20.0
    np.savez(tmp_path / "dots.npz", x=x, y=np.zeros(60, np.int64))
    net, data = f"{tmp_path / 'net.py'}:make", str(tmp_path / "dots.npz")
    out = tmp_path / "run"
    process = started(cluster, out, "--model", net, "--data", data, "--classes", "2", "--limit", "60", "--n", "200")
    _, remarks = process.communicate(timeout=400)
    assert process.returncode == 3, remarks
    assert "input 33 failed" in remarks
    assert "no answer up here" in remarks
    assert "input 47 failed" in remarks
    run = rf.RunFolder.open(out)
    assert run.done_ids() == set(range(60)) - {33, 47}


@pytest.mark.slow
def test_where_this_machines_own_ray_is_killed_the_same_command_goes_on(
    slow: list[str], whole: dict[int, Any], tmp_path: Path
) -> None:
    """Ray ends a driver whose own machine's node process died; what came before is in the folder."""
    out = tmp_path / "run"
    words = [sys.executable, "-m", "ringfence", *WORDS, *slow, "--engine", "ray", "--workers", "2"]
    there = set(descendants(b"raylet/raylet"))
    process = subprocess.Popen([*words, "--out", str(out)], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    until(process, lambda: parts(out) > 0)
    (raylet,) = set(descendants(b"raylet/raylet")) - there
    os.kill(raylet, signal.SIGKILL)
    _, remarks = process.communicate(timeout=400)
    assert process.returncode != 0
    assert "is gone" in remarks
    subprocess.run([*words, "--out", str(out), "--quiet"], check=True, timeout=400)
    assert told(out) == whole


SEES = """
import os, pathlib, time, torch

def make(num_classes=10):
    here, sees = pathlib.Path(__file__).parent, os.environ.get("CUDA_VISIBLE_DEVICES")
    if sees:
        (here / f"saw-{sees}").touch()
        while len(list(here.glob("saw-*"))) < 4:  # nobody does all the work before the others are there
            time.sleep(0.1)
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))
"""


@pytest.mark.slow
def test_gpus_start_a_ray_with_so_many_and_each_worker_sees_its_own(tmp_path: Path) -> None:
    """Simulated ones: Ray believes in them, and the network runs on the CPU."""
    (tmp_path / "net.py").write_text(SEES)
    words = [sys.executable, "-m", "ringfence", *WORDS, "--quiet", "--model", f"{tmp_path / 'net.py'}:make"]
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run([*words, "--out", str(tmp_path / "here")], check=True, timeout=240, env=env)
    env.pop("CUDA_VISIBLE_DEVICES")
    subprocess.run([*words, "--gpus", "4", "--out", str(tmp_path / "gpus")], check=True, timeout=240, env=env)
    assert {seen.name for seen in tmp_path.glob("saw-*")} == {f"saw-{gpu}" for gpu in range(4)}
    assert told(tmp_path / "gpus") == told(tmp_path / "here")
