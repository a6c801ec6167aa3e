"""The same records from Ray actors, whatever is killed on the way."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ringfence as rf
from ringfence.data.choice import Data
from ringfence.engines.ray import Ray, _start, reason_of
from ringfence.errors import ArgumentError, ModelError

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """One for all tests: starting it takes seconds."""
    environment = {"env_vars": {"PYTHONPATH": os.pathsep.join(sys.path)}}
    ray.init(
        "local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
        runtime_env=environment,
        object_store_memory=100 * 2**20,
    )
    yield
    ray.shutdown()


def value(model: Any = "default", n: int = 300) -> rf.Certification:
    return rf.Certification(
        model, Data("default", limit=12), noise=rf.Gaussian(0.5), procedure=rf.Fixed(n0=20, n=n), seed=3
    )


def told(records: list[rf.Record]) -> dict[int, Any]:
    assert len({one.input_id for one in records}) == len(records)
    return {
        one.input_id: (one.prediction, one.radius, [stage.cells["votes"].tolist() for stage in one.stages])
        for one in records
    }


def certified(certification: rf.Certification, engine: Any, **more: Any) -> dict[int, Any]:
    return told(list(certification.stream(rf.Execution("cpu", batch=64, engine=engine, **more))))


def test_actors_give_the_records_of_this_process() -> None:
    assert certified(value(), Ray(workers=2)) == certified(value(), "local")


@pytest.mark.slow
def test_a_network_of_the_program_travels_itself() -> None:
    net = rf.load_model("default").module
    data = list(rf.load_dataset("default", limit=6))
    mine = rf.Certification(net, data, noise=rf.Gaussian(0.5), procedure=rf.Fixed(n0=20, n=200))
    assert certified(mine, Ray(workers=1)) == certified(mine, "local")


WAITS_IN_WORKERS = """
import os, time, torch
from pathlib import Path

HERE, DRIVER = Path(__file__).parent, {driver}

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.last = torch.nn.Linear(784, 10)

    def forward(self, x):
        if os.getpid() != DRIVER:
            (HERE / f"{{os.getpid()}}.at-work").touch()
            while not (HERE / "killed").exists():
                time.sleep(0.01)
        return self.last(x.flatten(1))

def make(num_classes=10):
    return Net()
"""


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_nothing_is_lost(tmp_path: Path) -> None:
    """It dies in the middle of its first batch: the workers' network waits there until one is killed."""
    file = tmp_path / "net.py"
    file.write_text(WAITS_IN_WORKERS.format(driver=os.getpid()))
    remarks: list[str] = []

    def kill_one() -> None:
        while not (at_work := sorted(tmp_path.glob("*.at-work"))):
            time.sleep(0.05)
        os.kill(int(at_work[0].stem), signal.SIGKILL)
        (tmp_path / "killed").touch()

    thread = threading.Thread(target=kill_one, daemon=True)
    thread.start()
    execution = rf.Execution("cpu", batch=64, engine=Ray(workers=2), on_remark=remarks.append, check=False)
    run = rf.certify_into(value(f"{file}:make"), tmp_path / "run", execution)
    thread.join()
    assert any("is gone" in one for one in remarks)
    assert told(run.read()) == certified(value(f"{file}:make"), "local", check=False)
    assert not rf.verify(run)


@pytest.mark.slow
def test_a_worker_with_another_network_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text(
        "import os, torch\n"
        "def make(num_classes=10):\n"
        "    torch.manual_seed(os.getpid())\n"
        "    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))\n"
    )
    with pytest.raises(ModelError, match="must be the driver's network"):
        certified(value(f"{file}:make"), Ray(workers=1), check=False)


@pytest.mark.slow
def test_a_network_of_the_program_whose_file_was_edited_since_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its weights travel; its class is imported anew, from what the file holds by now."""
    file = tmp_path / "edited_net.py"
    code = (
        "import torch\n"
        "class Net(torch.nn.Linear):\n"
        "    def forward(self, x):\n"
        "        return super().forward(x.flatten(1))\n"
    )
    file.write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    net = importlib.import_module("edited_net").Net(784, 10)
    data = list(rf.load_dataset("default", limit=2))
    mine = rf.Certification(net, data, noise=rf.Gaussian(0.5), procedure=rf.Fixed(n0=20, n=200))
    assert certified(mine, Ray(workers=1), check=False) == certified(mine, "local", check=False)
    file.write_text(code.replace("x.flatten(1)", "-x.flatten(1)"))
    with pytest.raises(ModelError, match="other scores for 4 of 4, by a network with the same weights"):
        certified(mine, Ray(workers=1), check=False)


@pytest.mark.slow
def test_a_factory_that_fails_on_workers_is_told(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text(
        "import os, torch\n"
        f"if os.getpid() != {os.getpid()}:\n"
        "    raise ImportError('no such library here')\n"
        "def make(num_classes=10):\n"
        "    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))\n"
    )
    with pytest.raises(ModelError, match="no such library here"):
        certified(value(f"{file}:make"), Ray(workers=1), check=False)


@pytest.mark.parametrize(
    "wrong", [{"workers": 0}, {"workers": 1.5}, {"gpus": 0}, {"gpus_per_worker": -1}, {"gpus": 2, "address": "auto"}]
)
def test_wrong_settings(wrong: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        Ray(**wrong)


def test_the_engine_is_known_by_its_name() -> None:
    from ringfence.work import engine_named

    assert isinstance(engine_named("ray"), Ray)
    with pytest.raises(ArgumentError, match="Did you mean ray"):
        engine_named("rai")


def test_gpus_that_are_not_there_are_remarked(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are no mistake: a driver without any may start them, and tests simulate them."""
    told: list[str] = []
    monkeypatch.setattr(Ray, "connected", lambda self: 1 / 0)
    execution = rf.Execution("cpu", batch=10, check=False, engine=Ray(gpus=99), on_remark=told.append)
    value = rf.Certification("default", rf.Data("default", limit=1), noise=rf.Gaussian(0.5), procedure=rf.Fixed(n=10))
    with pytest.raises(ZeroDivisionError):
        list(value.stream(execution))
    assert [one.partition(", and this machine shows ")[0] for one in told] == ["99 GPUs were asked for"]


def test_the_reason_is_one_sentence() -> None:
    refused = "ray::_Actor.__init__()\nringfence.errors.ModelError: net.py: must be the driver's network; got another."
    assert reason_of(RuntimeError(refused)) == "net.py: must be the driver's network; got another."
    died = "The worker died. Worker exit detail: End of file. Some common causes include: (1) the process was killed."
    assert reason_of(RuntimeError(died)) == "The worker died. Worker exit detail: End of file."
    assert reason_of(RuntimeError("")) == "RuntimeError"


def test_ray_does_not_take_over_what_sigterm_means() -> None:
    """Ray's own handler ended the command as if its code had called sys.exit: schedulers send SIGTERM."""

    class TakesOver:
        def init(self, **settings: Any) -> None:
            signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))

    def ours(number: int, frame: Any) -> None: ...

    before = signal.signal(signal.SIGTERM, ours)
    try:
        _start(TakesOver(), None, None)
        assert signal.getsignal(signal.SIGTERM) is ours
    finally:
        signal.signal(signal.SIGTERM, before)
