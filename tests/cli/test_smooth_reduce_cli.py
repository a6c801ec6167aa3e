"""Patches and clips from the command line: factors applied and named, paper forms labelled, bad input refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

from ringfence.store import RunFolder
from ringfence.verification import verify

Call = Callable[..., Result]
SMALL = ("--sigma", "0.5", "--limit", "2", "--n0", "20", "--n", "120", "--batch", "20")


def patches(**settings: object) -> tuple[str, str]:
    """--model with patches of the embedded network."""
    told = ", ".join(f"{key}={value}" for key, value in ({"size": 28} | settings).items())
    return "--model", f"patches(default, {told})"


def test_every_mode_divides_by_its_factor_and_verifies(call: Call, tmp_path: Path) -> None:
    factors = {}
    for mode in ("input", "resized", "patch", "per-patch-input"):
        out = tmp_path / mode
        done = call("certify", *SMALL, *patches(count=4, resize=32, noise=mode), "--out", out, "--json")
        facts = json.loads(done.stdout)
        run = RunFolder.open(out)
        factors[mode] = run.config.lift.norm_bound
        assert facts.get("lift", {}).get("norm_bound", 1.0) == factors[mode]
        assert facts["sound"] is True
        assert f"noise={mode}" in run.config.classifier.tree
        for record in run.read():
            assert record.lift_norm == factors[mode]
            assert record.forwards == 4 * record.draws
        assert verify(run) == []
    assert factors["input"] == 1
    assert 1 < factors["resized"] < factors["per-patch-input"] < factors["patch"]


def test_the_paper_form_is_labelled_everywhere(call: Call, tmp_path: Path) -> None:
    words = ("certify", *SMALL, *patches(count=4, resize=32, noise="patch", form="paper"))
    done = call(*words, "--out", tmp_path / "run")
    assert "paper form (UNSOUND)" in done.stderr
    assert "no proven guarantee" in done.stderr
    assert "paper: no guarantee" in done.stdout
    run = RunFolder.open(tmp_path / "run")
    assert run.config.lift.model_dump()["form"] == "paper"
    assert run.config.lift.model_dump()["norm_left_out"] > 2
    assert not any(record.sound for record in run.read())
    refused = call(*words, "--strict", "--out", tmp_path / "other", code=2)
    assert "--strict: refuses the paper form" in refused.stderr
    assert not (tmp_path / "other").exists()


def test_plain_smoothing_without_patches_and_continuing(call: Call, tmp_path: Path) -> None:
    words = ("certify", *SMALL, "--out", tmp_path / "run", "--json")
    first, second = (json.loads(call(*words).stdout) for _ in range(2))
    assert first["forwards"] == first["draws"] == 2 * 140
    assert first == second


@pytest.fixture
def videos(tmp_path: Path) -> tuple[Path, Path]:
    x = np.zeros((4, 8, 1, 6, 6), np.uint8)
    x[1::2] = 255
    np.savez(tmp_path / "videos.npz", x=x, y=np.array([0, 1, 0, 1]))
    model = tmp_path / "bright.py"
    model.write_text(
        "import torch\nfrom torch import nn\n"
        "class Bright(nn.Module):\n"
        "    def forward(self, x):\n"
        "        value = x.flatten(1).mean(1) - 0.5\n"
        "        return torch.stack([-value, value], 1)\n"
    )
    return tmp_path / "videos.npz", model


def test_videos(call: Call, videos: tuple[Path, Path], tmp_path: Path) -> None:
    data, model = videos
    words, chunks = ("certify", *SMALL, "--data", data), f"chunks({model}:Bright, frames=2)"
    clips = ("--model", f"clips({chunks}, frames=4, count=3, noise=patch)")
    facts = json.loads(call(*words, *clips, "--out", tmp_path / "run", "--json").stdout)
    assert facts["lift"]["norm_bound"] == pytest.approx(2**0.5)
    assert facts["certified_accuracy"]["0.0"] == 1
    assert facts["forwards"] == 6 * facts["draws"]
    pictures = [info.thumbnail for info in RunFolder.open(tmp_path / "run").inputs()]
    assert all(picture is not None and picture.shape == (6, 24, 1) for picture in pictures)
    radius = call(*words, "--model", chunks, "--radius", "0.2", "--out", tmp_path / "known", "--json")
    assert json.loads(radius.stdout)["certified_accuracy"]["0.2"] == 1


@pytest.mark.parametrize("mode", ["input", "resized", "patch", "per-patch-input"])
def test_random_patches_in_every_mode(call: Call, tmp_path: Path, mode: str) -> None:
    words = ("certify", *SMALL, *patches(count=3, resize=36, sampling="random", noise=mode, seed=4))
    facts = json.loads(call(*words, "--out", tmp_path / "run", "--json").stdout)
    run = RunFolder.open(tmp_path / "run")
    assert facts["lift"]["operator"]["seed"] == 4
    assert all(record.forwards == 3 * record.draws for record in run.read())
    assert all(record.lift_norm == facts["lift"]["norm_bound"] for record in run.read())
    assert verify(run) == []


@pytest.mark.parametrize(("settings", "message"), [
    ({"count": 0}, "needs at least one patch; got 0"),
    ({"count": 4, "size": 40}, "must not be larger than the image, 28 x 28; got 40"),
    ({"count": 4, "resize": 32, "kind": "lanczos"}, "must be a linear resize"),
    ({"count": 4, "resize": 32, "noise": "image"}, "must be one of input, resized, patch, per-patch-input"),
    ({"count": 4, "resize": 32, "reduce": "median"}, "must be one of mean, max"),
    ({"count": 4, "resize": 32, "form": "published"}, "must be one of sound, paper"),
    ({"count": 4, "resize": 32, "sampling": "sobol"}, "must be dense or random"),
    ({"count": 4, "crop": 20, "size": 20, "noise": "resized"}, "needs a resize or padding"),
    ({"count": -4}, "needs at least one patch; got -4"),
    ({"count": 4, "size": 36, "resize": 32}, "must not be larger than the image, 32 x 32; got 36"),
    ({"count": 4, "crop": 30}, "must not be larger than the image, 28 x 28; got 30"),
    ({"kind": "nearest", "crop": 20}, "must be a linear resize, bilinear or bicubic; got 'nearest'"),
    ({"stride": 0}, "must be at least 1"),
])  # fmt: skip
def test_bad_patches(call: Call, tmp_path: Path, settings: dict[str, object], message: str) -> None:
    refused = call("certify", *SMALL, *patches(**settings), "--out", tmp_path / "run", code=2)
    assert message in refused.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("model", "message"), [
    ("clips(A, count=3)", "clips(...): needs frames"),
    ("clips(A, frames=9, count=3)", "must not be longer than the video, 8 frames; got 9"),
    ("chunks(A, frames=3)", "chunks of 3 frames must divide the video; got 8 frames"),
    ("clips(A, frames=4, count=2, noise=resized)", "sub-videos are not resized"),
    ("clips(A, frames=4, count=0)", "count must be at least 1"),
    ("clips(chunks(A, frames=3), frames=4, count=3)", "chunks of 3 frames must divide the video; got 4 frames"),
    ("patches(A, size=4, count=4)", "are cut from images (C, H, W); got (8, 1, 6, 6)"),
])  # fmt: skip
def test_bad_videos(call: Call, videos: tuple[Path, Path], tmp_path: Path, model: str, message: str) -> None:
    data, file = videos
    words = ("--data", data, "--model", model.replace("A", f"{file}:Bright"), "--out", tmp_path / "run")
    assert message in call("certify", *SMALL, *words, code=2).stderr


def test_clips_need_videos(call: Call, tmp_path: Path) -> None:
    words = ("--model", "clips(default, frames=4, count=3)", "--out", tmp_path / "run")
    assert "needs videos" in call("certify", *SMALL, *words, code=2).stderr
