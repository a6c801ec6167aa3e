"""Jobs of a sweep, and members of a training, as workers of a Ray cluster; one that is killed is begun again."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from ringfence.engines.ray import Ray
from ringfence.errors import ArgumentError
from ringfence.sweep import Schedule, Sweep
from ringfence.sweep.on_ray import RayWorker
from ringfence.training.job import Schedule as Rates
from ringfence.training.job import TrainingJob
from ringfence.training.objectives import NoiseAugmentation
from ringfence.training.run import TrainingRun
from ringfence.training.side_by_side import run_training

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own
SWEEP = """
train:
- {name: last, settings: {x: 1}, needs: [first]}
- {name: first, settings: {x: 1}}
certify:
- {name: broken, settings: {bad: 1}}
- {name: after, needs: [broken]}
"""


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    environment = {"env_vars": {"PYTHONPATH": os.pathsep.join(sys.path)}}
    more: dict[str, Any] = {"runtime_env": environment, "object_store_memory": 100 * 2**20}
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error", **more)
    yield
    ray.shutdown()


class Silent:
    """Nobody watches."""

    def begin(self, jobs: Any) -> None: ...
    def end(self, job: Any, state: Any, minutes: float) -> None: ...
    def look(self, running: Any, left: Any) -> None: ...


def test_jobs_run_after_those_they_need_on_other_workers(
    sweep: Callable[..., Sweep], program: list[str], tmp_path: Path
) -> None:
    found = sweep(SWEEP)
    work = found.work
    work.prepare(tmp_path, None, (), ())
    schedule = Schedule(found.jobs, found.jobs, [RayWorker(ray, Ray(), program) for _ in range(2)])
    schedule.run(Silent())
    states = ("done", "done", "failed", "waiting")
    assert schedule.states == dict(
        zip(("train last", "train first", "certify broken", "certify after"), states, strict=True)
    )
    order = (work.path / "order").read_text().split()
    assert sorted(order) == ["broken", "first", "last"]
    assert order.index("first") < order.index("last")


def test_a_job_whose_worker_is_killed_is_begun_again(program: list[str], tmp_path: Path) -> None:
    file = Path(program[1])  # it is started by its worker
    file.write_text(f"import os; open({str(tmp_path / 'worker')!r}, 'w').write(str(os.getppid()))\n" + file.read_text())
    worker = RayWorker(ray, Ray(), program)
    worker.begin([["--long", "1", "first"]], tmp_path, Path("log"))
    while not (tmp_path / "order").exists():
        assert worker.code() is None
        time.sleep(0.1)
    os.kill(int((tmp_path / "worker").read_text()), signal.SIGKILL)
    while (tmp_path / "order").read_text() != "first\nfirst\n":
        assert worker.code() is None
        time.sleep(0.1)
    worker.ask_to_end()
    while (code := worker.code()) is None:
        time.sleep(0.1)
    assert code == 130
    worker.end()


def trained(out: Path, **more: Any) -> list[dict[str, list[Any]]]:
    job = TrainingJob(
        NoiseAugmentation(),
        sigma=0.3,
        epochs=1,
        batch=50,
        schedule=Rates(lr=0.05),
        data="default",
        limit=100,
        members=("lenet", "lenet"),
        seed=4,
    )
    files = run_training(TrainingRun(job, out, device="cpu"), **more)
    return [{name: value.tolist() for name, value in load_file(file).items()} for file in files]


@pytest.mark.slow
def test_members_trained_by_tasks_have_the_same_weights(tmp_path: Path) -> None:
    told: set[int] = set()
    elsewhere = trained(tmp_path / "tasks", engine=Ray(), on_status=lambda training, status: told.add(training))
    assert elsewhere == trained(tmp_path / "here")
    assert told == {0, 1}


def test_what_goes_wrong_in_a_task_is_told() -> None:
    def fails(item: int, news: Any) -> None:  # in here, so that it travels by value
        news.put((item, None, "no room here"))

    assert Ray().each(fails, [0, 1], lambda item, news: None) == "no room here"


def test_other_engines_do_not_train() -> None:
    from ringfence.cli.options import EngineOptions

    assert EngineOptions().on_ray() is None
    assert EngineOptions(gpus=2).on_ray() == Ray(gpus=2)
    with pytest.raises(ArgumentError, match="no setting of the engine local"):
        EngineOptions(engine="local", workers=2).on_ray()
