"""From the command line: votes that give probabilities, and options that would be ignored or act twice are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from safetensors.torch import save_file

from ringfence.classifiers import Normalize
from ringfence.classifiers.architectures import LeNet

Call = Callable[..., Result]

MEMBERS = "default:0,default:1,default:2"
SMALL = ("--sigma", "0.5", "--limit", "8", "--batch", "100", "--quiet")


def test_votes_of_both_kinds_are_certified_by_their_scores_in_one_pass(call: Call, tmp_path: Path) -> None:
    """Read through a second softmax, ten probabilities lie between .09 and .22 and certify nothing."""
    votes = ("--vote", "soft,softmax,hard,max-margin")
    words = ("certify", "--members", MEMBERS, *votes, "--procedure", "softmax", "--n", "500", *SMALL)
    found = json.loads(call(*words, "--json", "--out", tmp_path / "run").stdout)
    acr = {one["lane"]: one["acr"] for one in found["runs"]}
    assert set(acr) == {"soft-3", "softmax-3", "hard-3", "max-margin-3"}
    for lane, value in acr.items():
        assert value > 0.5, lane
    assert call("verify", tmp_path / "run").exit_code == 0


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--vote", "softmax", "--prefixes"), "--vote softmax and --prefixes"),
        (("--vote", "hard"), "--vote hard"),
        (("--singles",), "--singles"),
        (("--consensus", "2"), "--consensus 2"),
        (("--vote", "weighted", "--member-weights", "1,2,3"), "--vote weighted"),
    ],
)
def test_what_after_smoothing_would_ignore_is_refused(
    call: Call, tmp_path: Path, options: tuple[str, ...], named: str
) -> None:
    words = ("certify", "--members", MEMBERS, "--procedure", "after-smoothing", "--n", "100", *SMALL, *options)
    message = call(*words, "--out", tmp_path / "run", code=2).stderr
    assert "--procedure: after-smoothing smooths every member by itself" in message
    assert f"Leave out {named.replace('--', '')}, or use another procedure." in message
    assert not (tmp_path / "run").exists()


def test_a_second_normalisation_is_refused(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    save_file(Normalize(LeNet(), [0.2], [0.7]).state_dict(), path, {"arch": "lenet"})
    given = ("--mean", "0.5", "--std", "0.25", "--sigma", "0.5", "--limit", "1")
    for words in (
        ("certify", "--model", path, "--n", "50", "--out", tmp_path / "run"),
        ("predict", "--model", path, "--n", "50", "--out", tmp_path / "run"),
        ("certify", "--members", f"default,{path}", "--n", "50", "--out", tmp_path / "run"),
        ("certify", "--model", f"aces(certify={path}, core=default)", "--n", "50", "--out", tmp_path / "run"),
        ("certify", "--model", f"patches({path}, size=28)", "--n", "50", "--out", tmp_path / "run"),
        ("rank", "--members", path),
    ):
        message = call(*words, *given, code=2).stderr
        assert "brings its own normalisation, mean 0.2 and std 0.7; got mean 0.5 and std 0.25" in message, words
    assert not (tmp_path / "run").exists()


def test_training_on_imagenet_takes_its_training_images(call: Call, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for split, shade in (("train", 200), ("val", 10)):
        for name in ("n01", "n02"):
            (tmp_path / "root" / split / name).mkdir(parents=True)
            image.fromarray(np.full((8, 8, 3), shade, np.uint8)).save(tmp_path / "root" / split / name / "a.png")
    (tmp_path / "nets.py").write_text(
        "import torch\nfrom torch import nn\n\n"
        "class Bright(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.bias = nn.Parameter(torch.zeros(1000))\n"
        "    def forward(self, x):\n"
        "        assert x.mean() > 0.5, 'images of the validation set'\n"
        "        return x.mean((1, 2, 3))[:, None] + self.bias\n"
    )
    words = ("train", "--data", f"imagenet:{tmp_path / 'root'}", "--arch", f"{tmp_path / 'nets.py'}:Bright")
    options = ("--sigma", "0.01", "--epochs", "1", "--batch", "2", "--device", "cpu", "--quiet")
    call(*words, *options, "--out", tmp_path / "out")
    assert (tmp_path / "out" / "final-0.safetensors").exists()
