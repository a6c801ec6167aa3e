"""Denoised smoothing from the command line: train denoisers, certify one and a vote of several, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import Result
from typer.testing import CliRunner

from ringfence.cli import app
from ringfence.models import load_model

Call = Callable[..., Result]

NETS = '''"""A classifier by the brightest row, and modules that are no denoisers."""
import torch
from torch import nn

class Rows(nn.Module):
    def forward(self, x):
        return x[:, 0].mean(2)

class Pair(nn.Module):
    def forward(self, x):
        return x, x

def pool():
    return nn.AvgPool2d(2)
'''


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """rows.npz (images bright in one of four rows), nets.py, and ``cleaners``, three denoisers of a few steps."""
    folder = tmp_path_factory.mktemp("denoised")
    random = np.random.default_rng(0)
    y = np.arange(48) % 4
    x = 0.2 * random.random((48, 4, 4), dtype=np.float32)
    x[np.arange(48), y] += 0.8
    np.savez(folder / "rows.npz", x_train=x, y_train=y, x_test=x[:8], y_test=y[:8])
    (folder / "nets.py").write_text(NETS)
    words = ["train", "--objective", "denoise-mse", "--arch", "dncnn", "--data", str(folder / "rows.npz")]
    words += ["--sigma", "0.1", "--epochs", "6", "--batch", "16", "--lr", "0.02", "--clip", "1", "--members", "3"]
    result = CliRunner().invoke(app, [*words, "--device", "cpu", "--out", str(folder / "cleaners")])
    assert result.exit_code == 0, result.output
    assert f"--model 'soft(denoised(dncnn@{folder / 'cleaners' / 'final-0.safetensors'}, CLASSIFIER), " in result.stderr
    return folder


def spec(work: Path, member: int = 0) -> str:
    return f"denoised({work / 'cleaners' / f'final-{member}.safetensors'}, {work / 'nets.py'}:Rows)"


def small(work: Path) -> list[object]:
    return ["--data", work / "rows.npz", "--sigma", "0.1", "--limit", "4", "--batch", "50", "--quiet"]


def test_one_denoiser_is_certified_and_attacked_by_its_spec_alone(call: Call, work: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    found = json.loads(call("certify", "--model", spec(work), *small(work), "--n", 200, "--out", out, "--json").stdout)
    assert found["forwards"] == 2 * found["draws"], "the denoiser and the classifier"
    assert found["certified_accuracy"]["0.0"] > 0.5
    config = json.loads((out / "config.json").read_text())
    assert config["classifier"]["tree"] == spec(work)
    assert config["classifier"]["digest"] == load_model(spec(work)).digest
    words = ["--radii", "0.1", "--steps", 2, "--copies", 2, "--n", 50, "--recheck", 50, "--json"]
    assert json.loads(call("attack", out, "--trust", *words).stdout)["broken"] == []
    other = call("attack", out, "--model", spec(work, 1), *words, code=2).output
    assert "must be the model the run certified" in other


def test_several_denoisers_vote_in_every_command_of_ensembles(call: Call, work: Path, tmp_path: Path) -> None:
    members = ",".join(spec(work, i) for i in range(3))
    lanes = ["--vote", "soft,hard", "--singles", "--consensus", "2"]
    words = ["certify", "--members", members, *lanes, *small(work), "--n", 100, "--out", tmp_path / "vote", "--json"]
    runs = {one["lane"]: one for one in json.loads(call(*words).stdout)["runs"]}
    assert set(runs) == {"member-1", "member-2", "member-3", "soft-3", "hard-3", "consensus-2"}
    assert runs["soft-3"]["forwards"] == 6 * runs["soft-3"]["draws"]
    assert "kcr" not in runs["consensus-2"], "two forwards a member do not tell how many members were asked"
    ranked = json.loads(call("rank", "--members", members, *small(work)[:4], "--json").stdout)
    assert sorted(ranked["members"].split(",")) == sorted(members.split(","))
    assert call("weights", "--members", members, *small(work)[:4], "--limit", 2).exit_code == 0
    tree = f"aces(certify={spec(work, 1)}, select=entropy, core={spec(work, 2)}, theta=0.5)"
    call("certify", "--model", tree, *small(work), "--n", 100, "--out", tmp_path / "aces")


def test_mean_and_std_stand_behind_the_denoiser(call: Call, work: Path, tmp_path: Path) -> None:
    numbers = ["--mean", "0.3", "--std", "0.2"]
    call("certify", "--model", spec(work), *small(work), *numbers, "--n", 50, "--out", tmp_path / "run")
    digest = json.loads((tmp_path / "run" / "config.json").read_text())["classifier"]["digest"]
    loaded = load_model(spec(work), mean=[0.3], std=[0.2])
    assert digest == loaded.digest
    x = torch.rand(2, 1, 4, 4)
    plain = load_model(spec(work)).module
    torch.testing.assert_close(loaded.module(x), (plain(x) - 0.3) / 0.2)  # rows are linear


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("denoised({work}/cleaners/final-0.safetensors)", "takes 2 models; got 1"),
        ("denoised({work}/cleaners/final-7.safetensors, default)", "final-7.safetensors: must be an existing file"),
        ("denoised(cdncnn@{work}/cleaners/final-0.safetensors, default)", "must fit the model"),
        ("denoised(ffdnet@{work}/cleaners/final-0.safetensors, default)", "Write e.g. ffdnet-0.25@FILE"),
        (
            "denoised({nets}:pool, {nets}:Rows)",
            "a denoiser returns the shape it was given; got (1, 1, 4, 4) -> (1, 1, 2",
        ),
        ("denoised({nets}:Pair, {nets}:Rows)", "got (1, 1, 4, 4) -> a tuple"),
        ("denoised({work}/colour.safetensors, {nets}:Rows)", "must accept a batch of shape (1, 1, 4, 4)"),
        ("{work}/cleaners/final-0.safetensors", "must hold a classifier; got a denoiser"),
    ],
)
def test_bad_specs_end_with_a_message_in_every_command(
    call: Call, work: Path, tmp_path: Path, model: str, told: str
) -> None:
    from safetensors.torch import save_file

    from ringfence.classifiers.architectures import DnCNN

    if not (colour := work / "colour.safetensors").exists():
        save_file(DnCNN(5, 3, 4).state_dict(), colour, {"arch": "dncnn"})
    named = model.format(work=work, nets=work / "nets.py")
    common = ["--data", work / "rows.npz", "--sigma", "0.1"]
    for words in (
        ["certify", "--model", named, *common, "--n", 50, "--out", tmp_path / "a"],
        ["certify", "--members", f"{named},{spec(work)}", *common, "--n", 50, "--out", tmp_path / "b"],
        ["rank", "--members", named, *common],
        ["plan", "--model", named, *common],
    ):
        assert told in call(*words, code=2).stderr, words[0]
    assert not (tmp_path / "a").exists()
    assert not (tmp_path / "b").exists()
