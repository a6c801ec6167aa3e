"""Run folders under service: what they keep is enough to serve them, and what was changed since is not served."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import ringfence as rf
from ringfence.errors import DataError, StoreError
from ringfence.sampling import ForwardPlan
from ringfence.serve.limits import Question
from ringfence.serve.schemas import Answer
from ringfence.serve.served import Served
from ringfence.serve.stored import certification_at

HERE = rf.Execution(device="cpu", plan=ForwardPlan(50), check=False)
NETWORK = """import torch

def make():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(16, 3))
"""


@pytest.mark.parametrize("form", ["auto", "float"])
def test_pictures_larger_than_those_it_keeps_are_no_hindrance(tmp_path: Path, form: str) -> None:
    """Small pictures alone are kept: others stand on a grey one, which exact noise needs on its lattice."""
    (tmp_path / "net.py").write_text(NETWORK)
    x = np.random.default_rng(0).integers(0, 256, (2, 1, 70, 70), dtype=np.uint8)
    np.savez(tmp_path / "data.npz", x=x)
    noise = rf.Gaussian(0.5) if form == "auto" else rf.Gaussian(0.5, form="float")
    value = rf.Certification(
        f"{tmp_path / 'net.py'}:make", str(tmp_path / "data.npz"), noise=noise, procedure=rf.Fixed(n=50)
    )
    run = value.run(tmp_path / "run", HERE)
    assert run.config.noise.form == ("exact" if form == "auto" else "float")
    picture = rf.load_dataset(str(tmp_path / "data.npz"))[0].x
    (tmp_path / "data.npz").unlink()
    with Served(certification_at(tmp_path / "run", trust=True), bytes(32), execution=HERE) as served:
        assert served.config_hash == run.digest
        asked = served.ask(picture, Question(0.001, 0.0, 60.0))
        assert Answer.of(served, asked, asked.answer.result(60)).wrong(picture) == []


def test_settings_that_were_changed_since_are_not_served(tmp_path: Path) -> None:
    value = rf.Certification("default", rf.Data("default", limit=2), noise=rf.Gaussian(0.5), procedure=rf.Fixed(n=50))
    value.run(tmp_path / "run", HERE)
    config = tmp_path / "run" / "config.json"
    told = json.loads(config.read_text())
    told["noise"]["sigma"] = 1.0
    config.write_text(json.dumps(told))
    with pytest.raises(StoreError, match=r"config\.json: must be what was certified.*a file that was changed after"):
        certification_at(tmp_path / "run")


def test_a_job_file_is_checked_as_before_a_run(tmp_path: Path) -> None:
    """Of a run folder that was done when it was certified."""
    x = rf.load_dataset("default", limit=40)
    np.savez(
        tmp_path / "data.npz", x=np.stack([one.x.numpy() for one in x]), y=[(one.label or 0) * 3 % 10 for one in x]
    )
    job = tmp_path / "job.yaml"
    told = f"classifier: default\ndata: {tmp_path / 'data.npz'}\nnoise: {{sigma: 0.5}}\nexecution: {{check: true}}\n"
    job.write_text(told)
    with pytest.raises(DataError, match="must be classified better than by guessing"):
        certification_at(job)
    job.write_text(told.replace("true", "false"))
    assert certification_at(job).noise.law.scale == 0.5


def test_a_job_file_without_a_precision_gets_that_of_the_device_it_is_served_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine with a GPU, `--device cpu` was refused: TF32 is arithmetic of the other."""
    job = tmp_path / "job.yaml"
    job.write_text("classifier: default\nnoise: {sigma: 0.5}\nexecution: {check: false}\n")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    assert certification_at(job).precision == "tf32"
    assert certification_at(job, device="cpu").precision == "fp32"
