"""A stored config is continued as it is: what was found when it was made must be found again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import ringfence as rf
from ringfence.cli import app
from ringfence.errors import ModelError, RingfenceError
from ringfence.job_file import Job, merged
from ringfence.sampling import ForwardPlan
from ringfence.store import RunConfig

FAST = rf.Execution(device="cpu", plan=ForwardPlan(100))


@pytest.fixture
def stored(tmp_path: Path) -> dict[str, Any]:
    """The config of a run on a file of digits."""
    x = np.random.default_rng(0).integers(0, 256, (2, 28, 28), np.uint8)
    np.savez(tmp_path / "few.npz", x=x)
    data = rf.Data(str(tmp_path / "few.npz"))
    made = rf.Certification("default", data, noise=rf.Gaussian(0.5), procedure=rf.Fixed(n=100))
    return json.loads(json.dumps(made.config().model_dump()))  # type: ignore[no-any-return]


def test_a_config_is_certified_as_it_stands(stored: dict[str, Any], tmp_path: Path) -> None:
    run = Job.of(stored).certification.run(tmp_path / "run", FAST)
    assert run.config.model_dump() == stored


@pytest.mark.parametrize(
    ("part", "entries", "said"),
    [
        ("classifier", {"digest": "x"}, "classifier.digest: the model"),
        ("classifier", {"lanes": [{"name": "a"}]}, "classifier.lanes"),
        ("data", {"digest": "x"}, "data.digest: the data"),
        ("data", {"count": 3}, "data.count: 2 now, 3 in the run"),
        ("noise", {"coordinates": 10}, "noise.coordinates: 784 now, 10 in the run"),
        ("lift", {"name": "patch", "norm_bound": 2.0}, "lift.norm_bound: 1.0 now, 2.0 in the run"),
        ("noise", {"coordinates": "many"}, "must have the entries of a run's config"),
        ("lift", "none", "must have the entries of a run's config"),
    ],
)
def test_what_a_config_says_was_found_must_be_found(
    stored: dict[str, Any], part: str, entries: Any, said: str, tmp_path: Path
) -> None:
    content = stored | {part: stored[part] | entries if isinstance(entries, dict) else entries}
    with pytest.raises(RingfenceError) as refused:
        Job.of(content).certification.run(tmp_path / "run", FAST)
    assert said in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_inputs_that_changed_under_a_config_are_refused(stored: dict[str, Any], tmp_path: Path) -> None:
    config = RunConfig.model_validate(stored)
    np.savez(tmp_path / "few.npz", x=np.zeros((2, 28, 28), np.uint8))
    for ask in (lambda: Job.of(stored).certification.load(), lambda: rf.Certification.of(config).load()):
        with pytest.raises(ModelError, match="the data changed"):
            ask()


def test_flags_beside_a_config_drop_what_followed_from_what_they_change(stored: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(stored))
    words = ["certify", str(tmp_path / "config.json"), "--data", "default", "--limit", "2", "--device", "cpu"]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    assert rf.RunFolder.open(tmp_path / "run").config.data.count == 2
    kept = merged(stored, {"data": {"limit": 1}, "noise": {"sigma": 0.25}})
    assert kept["data"]["digest"] == stored["data"]["digest"]
    assert "count" not in kept["data"]
    assert kept["noise"]["coordinates"] == 784
    assert "coordinates" not in merged(stored, {"noise": {"form": "float"}})["noise"]
    assert "lift" not in merged(stored, {"classifier": {"tree": "resnet20"}})
