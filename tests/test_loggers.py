"""Loggers are told of progress, results and epochs; W&B and MLflow by their documented calls, offline."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, final

import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

import ringfence as rf
from ringfence.analysis.metrics import metrics_by_lane
from ringfence.cli import app
from ringfence.cli.console import only_checked
from ringfence.errors import ArgumentError
from ringfence.loggers import (
    EVERY,
    LOGGERS,
    Logger,
    LoggerWarning,
    MlflowLogger,
    PythonLogger,
    WandbLogger,
    loggers_named,
)


class Sign(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([-x, x], 1)


POINTS = [(torch.tensor([0.9]), 1), (torch.tensor([0.8]), 1)]


def certify(*loggers: Logger) -> None:
    test = rf.Fixed(n0=10, n=200)
    list(rf.certify(Sign(), POINTS, sigma=0.5, procedure=test, loggers=loggers, execution=rf.Execution(device="cpu")))


@final
class Kept(Logger):
    def __init__(self) -> None:
        self.seen: list[tuple[dict[str, float], int]] = []
        self.texts: list[dict[str, str]] = []

    def log(self, values: Mapping[str, float], step: int) -> None:
        self.seen.append((dict(values), step))

    def log_text(self, values: Mapping[str, str]) -> None:
        self.texts.append(dict(values))


def test_a_certification_ends_with_its_metrics() -> None:
    kept = Kept()
    certify(kept)
    ((values, step),) = kept.seen
    assert step == 2
    assert values["certify/accuracy"] == 1.0
    assert values["certify/certified_accuracy_at_0.25"] == 1.0
    assert values["certify/inputs"] == 2
    assert all(type(value) is float for value in values.values())


def test_what_is_not_proved_is_not_told_as_if_it_were() -> None:
    test, kept = rf.Fixed(n0=10, n=200), Kept()
    records = rf.certify(Sign(), POINTS, sigma=0.5, procedure=test, execution=rf.Execution(device="cpu"))
    (found,) = metrics_by_lane(list(records), None)
    kept.metrics(found)
    kept.metrics(replace(found, sound=False, alpha=0.01))
    assert [values["certify/sound"] for values, _ in kept.seen] == [1.0, 0.0]
    assert kept.seen[1][0]["certify/alpha"] == 0.01


def test_loggers_hear_the_norm_of_the_radii_and_the_folder_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, out = Kept(), str(tmp_path / "run")
    certify(kept)
    assert kept.texts == [{"certify/norm": "l2"}]
    monkeypatch.chdir(tmp_path)
    given = {"noise": rf.Uniform(0.5), "radius": 0.25, "device": "cpu", "progress": False}
    rf.certify(Sign(), POINTS, **given, loggers=[kept], out="run")
    assert kept.texts[1:] == [{"certify/norm": "l1", "certify/run": out}]
    monkeypatch.setitem(LOGGERS, "kept", lambda: kept)
    done = CliRunner().invoke(app, [*CERTIFY, "--log", "kept", "--out", "second"])
    assert done.exit_code == 0, done.output
    assert kept.texts[2:] == [{"certify/norm": "l2", "certify/run": str(tmp_path / "second")}]


def test_progress_is_told_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, clock = Kept(), [100.0]
    monkeypatch.setattr("ringfence.loggers.time.monotonic", lambda: clock[0])
    for inputs, seconds in ((0, 0.0), (1, 1.0), (5, EVERY + 1), (6, 1.0), (9, EVERY)):
        clock[0] += seconds
        kept.progress(rf.Progress(inputs, 100 * inputs, seconds))
    assert [values["certify/inputs"] for values, _ in kept.seen] == [5, 9]


def test_a_training_is_told_epoch_by_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept()
    monkeypatch.setitem(LOGGERS, "kept", lambda: kept)
    words = ["train", "--data", "default", "--objective", "gaussian", "--sigma", "0.25", "--epochs", "2"]
    words += ["--arch", "lenet", "--limit", "64", "--batch", "32", "--out", str(tmp_path / "t"), "--log", "kept"]
    done = CliRunner().invoke(app, [*words, "--device", "cpu", "--quiet"])
    assert done.exit_code == 0, done.output
    assert [step for _, step in kept.seen] == [1, 2]
    assert {"train/0/loss", "train/0/lr", "train/0/noisy_accuracy"} <= set(kept.seen[0][0])


@final
class FakeWandb(ModuleType):
    """``wandb.run``, ``wandb.init(**settings)``, ``Run.log(data)`` and ``Run.summary.update(data)``, as documented."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.run: Any = None
        self.settings: dict[str, Any] = {}
        self.rows: list[dict[str, float]] = []
        self.summary: dict[str, str] = {}

    def init(self, **settings: Any) -> FakeWandb:
        self.settings, self.run = settings, self
        return self

    def log(self, data: dict[str, float]) -> None:
        self.rows.append(data)


def test_wandb_gets_its_documented_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    certify(WandbLogger(project="robust", mode="offline"))
    assert fake.settings == {"project": "robust", "mode": "offline"}
    assert fake.rows[0]["certify/accuracy"] == 1.0
    assert fake.rows[0]["certify/step"] == 2
    assert fake.summary == {"certify/norm": "l2"}
    fake.settings = {}
    certify(WandbLogger())  # the active run is used, no second one begun
    assert fake.settings == {}
    assert len(fake.rows) == 2


def test_mlflow_gets_its_documented_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, seen, tags = ModuleType("mlflow"), [], []

    def log_metrics(metrics: dict[str, float], step: int | None = None, run_id: str | None = None) -> None:
        seen.append((metrics, step, run_id))

    class MlflowClient:
        def set_tag(self, run_id: str, key: str, value: Any) -> None:
            tags.append((run_id, key, value))

    fake.log_metrics, fake.MlflowClient = log_metrics, MlflowClient  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    certify(MlflowLogger("abc"))
    ((metrics, step, run_id),) = seen
    assert (metrics["certify/accuracy"], step, run_id) == (1.0, 2, "abc")
    assert tags == [("abc", "certify/norm", "l2")]
    MlflowLogger("abc").log({"certify/theta=0.50/inputs": 2.0, "certify/soft-3/certified_accuracy_at_0.25": 1.0}, 2)
    assert list(seen[1][0]) == ["certify/theta:0.50/inputs", "certify/soft-3/certified_accuracy_at_0.25"]


@pytest.mark.filterwarnings("ignore")
def test_the_real_mlflow_keeps_it_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow = pytest.importorskip("mlflow")
    mlflow.set_tracking_uri(f"file:{tmp_path / 'mlruns'}")
    with mlflow.start_run() as active:
        certify(MlflowLogger())
        MlflowLogger().log({"certify/theta=0.50/inputs": 2.0}, 2)  # a lane of ACES
    assert mlflow.get_run(active.info.run_id).data.metrics["certify/theta:0.50/inputs"] == 2.0
    assert mlflow.get_run(active.info.run_id).data.metrics["certify/accuracy"] == 1.0
    assert mlflow.get_run(active.info.run_id).data.tags["certify/norm"] == "l2"


@pytest.mark.filterwarnings("ignore")
def test_the_real_wandb_keeps_it_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_SILENT", "true")
    pytest.importorskip("wandb")
    logger = WandbLogger(mode="offline", dir=str(tmp_path), project="robust")
    certify(logger)
    assert logger.run.summary["certify/accuracy"] == 1.0
    assert logger.run.summary["certify/norm"] == "l2"
    logger.run.finish()


@pytest.mark.parametrize(("kind", "name"), [(WandbLogger, "wandb"), (MlflowLogger, "mlflow")])
def test_a_missing_package_is_named(kind: type[Logger], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ArgumentError, match=f"logger: needs the package {name}; got not installed"):
        kind()


def test_loggers_have_names() -> None:
    with loggers_named(["logging"]) as (found,):
        assert isinstance(found, PythonLogger)
    with (
        pytest.raises(ArgumentError, match="log: must be one of logging, wandb, mlflow; got 'paper'"),
        loggers_named(["paper"]),
    ):
        pass


@final
class Unreachable(Logger):
    """As a server that is not there."""

    def __init__(self) -> None:
        self.asked = 0

    def log(self, values: Mapping[str, float], step: int) -> None:
        self.asked += 1
        raise ConnectionError("no server at 127.0.0.1:9")


def test_a_logger_that_fails_is_told_nothing_more_and_ends_nothing() -> None:
    lost, kept = Unreachable(), Kept()
    with pytest.warns(LoggerWarning, match="Unreachable failed and is told nothing more, .*: no server at 127"):
        certify(lost, kept)
    certify(lost, kept)
    assert lost.asked == 1
    assert len(kept.seen) == 2


CERTIFY = ["certify", "--sigma", "0.5", "--radius", "0.5", "--limit", "2", "--device", "cpu", "--quiet"]


def test_the_command_shows_what_python_logs(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "ringfence", *CERTIFY, "--log", "logging", "--out", str(tmp_path / "run")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "ringfence: step 2: certify/inputs 2, certify/draws" in done.stderr
    assert f"ringfence: certify/norm l2, certify/run {tmp_path / 'run'}" in done.stderr


SELECT = ["train", "--data", "default", "--arch", "lenet", "--limit", "64", "--objective", "select", "--sigma", "0.25"]
SELECT += ["--classifier", "default", "--set", "n=200", "--epochs", "1", "--device", "cpu", "--quiet"]


@pytest.mark.parametrize("words", [CERTIFY, SELECT], ids=["certify", "train"])
def test_who_is_not_logged_in_is_told_before_anything_is_done(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeWandb()

    def init(**settings: Any) -> FakeWandb:
        raise RuntimeError("No API key configured. Use `wandb login` to log in.")

    monkeypatch.setattr(fake, "init", init)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    done = CliRunner().invoke(app, [*words, "--log", "wandb", "--out", str(tmp_path / "run")])
    assert done.exit_code == 2
    assert "needs a run of W&B; got No API key configured" in done.output
    assert "WANDB_MODE=offline" in done.output
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("words", [[*CERTIFY, "--save", "job.yaml"], SELECT], ids=["certify --save", "train"])
def test_a_wrong_logger_is_told_before_anything_is_written(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, [*words, "--log", "paper", "--out", "run"])
    assert done.exit_code == 2
    assert "must be one of logging, wandb, mlflow; got 'paper'" in done.output
    assert not list(tmp_path.iterdir())


def test_checking_a_training_begins_no_run_of_a_tracker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    with only_checked() as jobs:
        CliRunner().invoke(app, [*SELECT, "--log", "wandb", "--out", str(tmp_path / "run")])
    assert len(jobs) == 1
    assert fake.run is None


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("broken")], ids=["stopped", "broken"])
def test_mlflow_does_not_call_finished_what_did_not_end(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    fake, ended = ModuleType("mlflow"), list[str]()
    fake.active_run, fake.end_run = object, ended.append  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    with pytest.raises(type(error)), loggers_named(["mlflow"]):
        raise error
    with loggers_named(["mlflow"]):
        pass
    assert ended == ["FAILED"]


def test_a_command_leaves_the_level_of_our_lines_as_it_was() -> None:
    ours = logging.getLogger("ringfence")
    before = ours.level
    with loggers_named(["logging"]):
        assert ours.isEnabledFor(logging.INFO)
    assert ours.level == before
