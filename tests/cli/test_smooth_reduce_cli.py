"""``ringfence smooth-reduce``: factors applied and named, paper forms labelled, bad input refused."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from ringfence.cli.smooth_reduce_progress import in_words
from typer.testing import CliRunner

from ringfence.cli.smooth_reduce import smooth_reduce_app
from ringfence.store import RunFolder
from ringfence.verification import verify

Call = Callable[..., Result]
SMALL = ("--sigma", "0.5", "--limit", "2", "--n0", "20", "--n", "120", "--batch", "20")


@pytest.fixture
def reduce() -> Call:
    def run(*words: object, code: int = 0) -> Result:
        result = CliRunner().invoke(smooth_reduce_app, [str(word) for word in words], catch_exceptions=False)
        assert result.exit_code == code, result.output
        return result

    return run


def test_every_mode_divides_by_its_factor_and_verifies(reduce: Call, tmp_path: Path) -> None:
    factors = {}
    for mode in ("input", "resized", "patch", "per-patch-input"):
        out = tmp_path / mode
        done = reduce("certify", *SMALL, "--patches", 4, "--resize", 32, "--mode", mode, "--out", out, "--json")
        facts = json.loads(done.stdout)
        run = RunFolder.open(out)
        factors[mode] = facts["lift"]["norm_bound"]
        assert facts["sound"] is True
        assert facts["smooth_reduce"]["mode"] == mode
        for record in run.read():
            assert record.lift_norm == factors[mode]
            assert record.forwards == 4 * record.draws
        assert verify(run) == []
    assert factors["input"] == 1
    assert 1 < factors["resized"] < factors["per-patch-input"] < factors["patch"]


def test_the_paper_form_is_labelled_everywhere(reduce: Call, tmp_path: Path) -> None:
    words = ("certify", *SMALL, "--patches", 4, "--resize", 32, "--mode", "patch", "--form", "paper")
    done = reduce(*words, "--out", tmp_path / "run")
    assert "paper form (UNSOUND)" in done.stderr
    assert "no proven guarantee" in done.stderr
    assert "paper: no guarantee" in done.stdout
    run = RunFolder.open(tmp_path / "run")
    assert run.config.lift["form"] == "paper"
    assert run.config.lift["norm_left_out"] > 2
    assert not any(record.sound for record in run.read())
    refused = reduce(*words, "--strict", "--out", tmp_path / "other", code=2)
    assert "--strict: refuses the paper form" in refused.stderr
    assert not (tmp_path / "other").exists()


def test_plain_smoothing_without_patches_and_continuing(reduce: Call, tmp_path: Path) -> None:
    words = ("certify", *SMALL, "--out", tmp_path / "run", "--json")
    first, second = (json.loads(reduce(*words).stdout) for _ in range(2))
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


def test_videos(reduce: Call, videos: tuple[Path, Path], tmp_path: Path) -> None:
    data, model = videos
    words = ("certify", *SMALL, "--data", data, "--model", f"{model}:Bright", "--chunk", 2)
    clips = ("--clips", 3, "--clip-frames", 4, "--mode", "patch")
    facts = json.loads(reduce(*words, *clips, "--out", tmp_path / "run", "--json").stdout)
    assert facts["lift"]["norm_bound"] == pytest.approx(2**0.5)
    assert facts["certified_accuracy"]["0.0"] == 1
    assert facts["forwards"] == 6 * facts["draws"]
    pictures = [info.thumbnail for info in RunFolder.open(tmp_path / "run").inputs()]
    assert all(picture is not None and picture.shape == (6, 24, 1) for picture in pictures)
    radius = reduce(*words, "--radius", "0.2", "--out", tmp_path / "known", "--json")
    assert json.loads(radius.stdout)["certified_accuracy"]["0.2"] == 1


@pytest.mark.parametrize("mode", ["input", "resized", "patch", "per-patch-input"])
def test_random_patches_in_every_mode(reduce: Call, tmp_path: Path, mode: str) -> None:
    words = ("certify", *SMALL, "--patches", 3, "--resize", 36, "--sampling", "random", "--mode", mode, "--seed", 4)
    facts = json.loads(reduce(*words, "--out", tmp_path / "run", "--json").stdout)
    run = RunFolder.open(tmp_path / "run")
    assert facts["lift"]["operator"]["seed"] == 4
    assert all(record.forwards == 3 * record.draws for record in run.read())
    assert all(record.lift_norm == facts["lift"]["norm_bound"] for record in run.read())
    assert verify(run) == []


STUDY = ("study", "--sigma", "0.5", "--limit", 1, "--n0", 8, "--n", 40, "--batch", 20, "--counts", "4")
SMALL_STUDY = (*STUDY, "--resizes", "32,35")


def test_a_study(reduce: Call, tmp_path: Path) -> None:
    facts = json.loads(reduce(*SMALL_STUDY, "--out", tmp_path / "s", "--json", "--quiet").stdout)
    rows = {row["name"]: row for row in facts["arms"]}
    modes = ("resized", "patch", "per-patch-input")
    both = [f"{name}-{reduce}" for name in ("k4", "random", *modes) for reduce in ("mean", "max")]
    fair = [f"k4-{reduce}-fair" for reduce in ("mean", "max")]
    paper = [f"paper-{mode}-{reduce}" for mode in modes[1:] for reduce in ("mean", "max")]
    assert set(rows) == {"base", "resize35", *both, *fair, *paper, "paper-calibrated"}
    for name, row in rows.items():
        assert row["sound"] == ("paper" not in name)
        assert row["alpha"] == (0.01 if name == "paper-calibrated" else 0.001)
        assert row["forwards"] == (4 * 48 if name in ("k4-mean", "k4-max") else 48)  # the rest at equal compute
        assert 0 <= row["abstention"] <= 1
    assert rows["patch-mean"]["factor"] == rows["paper-patch-mean"]["factor_left_out"] > 2
    text = (tmp_path / "s" / "study.md").read_text()
    for name in rows:
        assert (f"**{name} (unsound: no guarantee)**" if "paper" in name else f"| {name} |") in text
    assert (tmp_path / "s" / "histograms.png").exists()
    panels = facts["histograms"][0]["panels"]
    assert list(panels) == ["base logits", "mean logits", "base softmax", "mean softmax", "max softmax"]
    for panel in panels.values():
        assert [sum(counts) for counts in panel["counts"]] == [1000, 1000]
        assert panel["means"][0] > panel["means"][1]


def test_a_study_says_what_it_will_cost_and_goes_on(reduce: Call, tmp_path: Path) -> None:
    words = (*SMALL_STUDY, "--no-paper", "--strict", "--histograms", 0, "--out", tmp_path / "s")
    first = reduce(*words)
    # Base, four with equal numbers of draws or forwards, one resize, two random and six noise modes of 48 forwards.
    assert "14 runs of 1 inputs, 960 network forwards to do: roughly" in first.stderr
    assert "--limit, --n and --counts" in first.stderr
    assert not list((tmp_path / "s" / "runs").glob("paper*"))
    again = reduce(*words)
    assert "to do" not in again.stderr
    assert again.stdout == first.stdout
    shutil.rmtree(tmp_path / "s" / "runs" / "k4-max")
    assert "192 network forwards to do" in reduce(*words).stderr


def test_a_study_refuses_before_anything_is_sampled(reduce: Call, tmp_path: Path) -> None:
    cases = {
        ("--strict",): "--strict: refuses the paper forms",
        ("--counts", ","): "--counts: needs at least one whole number",
        ("--resizes", "20"): "must not be larger than the image, 20 x 20; got 28",
        ("--resizes", "32,20"): "must not be larger than the image, 20 x 20; got 28",
        ("--counts", "4,100"): "at most 5 different patches fit along an axis",
        ("--counts", "0"): "needs at least one patch; got 0",
    }
    for words, message in cases.items():
        refused = reduce(*STUDY, *words, "--out", tmp_path / "s", code=2)
        assert message in refused.stderr
        assert not (tmp_path / "s").exists()


def test_an_interrupted_study_ends_cleanly(program: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    out = tmp_path / "s"
    process = program("smooth-reduce", *SMALL_STUDY, "--n", 100_000, "--out", out)
    deadline = time.monotonic() + 300
    while not (out / "runs" / "base" / "forward.json").exists():  # sampling begins now
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 130, errors
    assert output == ""
    assert "Run the same command again to continue" in errors
    assert "Traceback" not in errors


def test_time_in_words() -> None:
    assert [in_words(seconds) for seconds in (-1, 42, 100, 600, 6000)] == ["0 s", "42 s", "2 min", "10 min", "1.7 h"]


@pytest.mark.parametrize(("words", "message"), [
    (("--patches", 0), "needs at least one patch; got 0"),
    (("--patches", 4, "--patch-size", 40), "must not be larger than the image, 28 x 28; got 40"),
    (("--patches", 4, "--resize", 32, "--resize-kind", "lanczos"), "must be a linear resize"),
    (("--patches", 4, "--resize", 32, "--mode", "image"), "must be one of input, resized, patch, per-patch-input"),
    (("--patches", 4, "--resize", 32, "--reduce", "median"), "must be mean or max"),
    (("--patches", 4, "--resize", 32, "--form", "published"), "must be one of sound, paper"),
    (("--patches", 4, "--resize", 32, "--sampling", "sobol"), "must be dense or random"),
    (("--patches", 4, "--crop", 20, "--mode", "resized"), "needs a resize or padding"),
    (("--patches", -4), "needs at least one patch; got -4"),
    (("--patches", 4, "--patch-size", 36, "--resize", 32), "must not be larger than the image, 32 x 32; got 36"),
    (("--patches", 4, "--crop", 30), "must not be larger than the image, 28 x 28; got 30"),
    (("--resize-kind", "nearest", "--crop", 20), "must be a linear resize, bilinear or bicubic; got 'nearest'"),
    (("--patch-stride", 0), "must be at least 1"),
    (("--mode", "patch"), "--patches: --mode, --reduce and --form speak of patches or clips; got none"),
    (("--reduce", "max"), "--patches: --mode, --reduce and --form speak of patches or clips; got none"),
    (("--form", "paper"), "--patches: --mode, --reduce and --form speak of patches or clips; got none"),
    (("--sampling", "random"), "--patches: --resize-kind and --sampling speak of patches; got none"),
    (("--clips", 3), "sub-videos need a length"),
    (("--clips", 3, "--clip-frames", 4), "--clips: needs videos"),
    (("--clips", 3, "--clip-frames", 4, "--patches", 4), "go without --patches"),
])  # fmt: skip
def test_bad_input(reduce: Call, tmp_path: Path, words: tuple[object, ...], message: str) -> None:
    refused = reduce("certify", *SMALL, *words, "--out", tmp_path / "run", code=2)
    assert message in refused.stderr


@pytest.mark.parametrize(("words", "message"), [
    (("--clips", 3, "--clip-frames", 9), "must not be longer than the video, 8 frames; got 9"),
    (("--chunk", 3), "chunks of 3 frames must divide the video; got 8 frames"),
    (("--clips", 2, "--clip-frames", 4, "--mode", "resized"), "sub-videos are not resized"),
    (("--clips", 0, "--clip-frames", 4), "count must be at least 1"),
    (("--clips", 3, "--clip-frames", 4, "--chunk", 3), "chunks of 3 frames must divide the video; got 4 frames"),
    (("--patches", 4), "patches: are cut from images (C, H, W); got (8, 1, 6, 6)"),
])  # fmt: skip
def test_bad_videos(
    reduce: Call, videos: tuple[Path, Path], tmp_path: Path, words: tuple[object, ...], message: str
) -> None:
    data, model = videos
    common = ("--data", data, "--model", f"{model}:Bright", "--out", tmp_path / "run")
    assert message in reduce("certify", *SMALL, *common, *words, code=2).stderr
