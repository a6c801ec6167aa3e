"""How networks were trained: every setting that shaped the weights is told, also what old settings do not hold."""

from __future__ import annotations

from pathlib import Path

import pytest
from paper_trainings import ZOO, Training, how_trained, read_training, told

ROOT = Path(__file__).resolve().parents[2]
PAPERS = [path.parent for path in sorted((ROOT / "reproduce").glob("*20*/README.md"))]


def test_warm_ups_clipping_momentum_and_seeds_are_told() -> None:
    line = read_training(ZOO, "mnist/macer-0.5").line()
    assert "macer (weight 4.0, gamma 8.0, beta 16.0, copies 16, deferred 0)" in line
    assert "gaussian noise, sigma 0.5; 90 epochs, lr 0.01 x 0.1 every 30, batch 256" in line
    assert "Nesterov momentum 0.9, weight decay 0.0001; warm-ups: noise none, attacks 10 epochs; clipping 1;" in line
    assert line.endswith("fp32, seed 0.")
    drt = read_training(ZOO, "cifar10/drt-0.1-0.5-0.25").line()
    assert "base gaussian (copies 2)" in drt
    assert "crops after 4 pixels of padding, mirror images; starts from `zoo/cifar10/gaussian-0.25`" in drt
    assert "clipping none" in drt
    assert drt.endswith("bf16, seeds 0 to 2.")


def test_the_plain_momentum_of_newer_settings_and_other_schedules_are_told() -> None:
    assert "plain momentum" in read_training(ZOO, "cifar10/gaussian-resnet110-0.5").line()
    assert "lr 0.2, one-cycle" in read_training(ZOO, "cifar10/gaussian-short-0.25").line()
    assert "lr 0.01 x 0.1 every 5," in read_training(ZOO, "mnist/short-lenet-1").line()
    plan = {"objective": {"name": "gaussian"}, "schedule": {}, "noise_warmup": 3, "accumulate": 2, "ema": 0.9}
    line = told({"arch": "lenet", "members": 1, "plan": plan})
    assert "warm-ups: noise 3 epochs, attacks 10 epochs" in line
    assert "averaged weights 0.9; in 2 micro-batches" in line


def test_each_training_stands_once_in_the_order_of_names() -> None:
    pair = [read_training(ZOO, name) for name in ("mnist/gal-0.5", "mnist/adp-0.5", "mnist/gal-0.5")]
    lines = [line for line in how_trained(pair) if line.startswith("- ")]
    assert [line.partition(":")[0] for line in lines] == ["- `mnist/adp-0.5`", "- `mnist/gal-0.5`"]
    assert how_trained([]) == []
    assert Training("mnist/none", {}).line() == "- `mnist/none`: not in the zoo."


@pytest.mark.parametrize("folder", PAPERS, ids=lambda path: path.name)
def test_every_page_tells_how_its_networks_were_trained(folder: Path) -> None:
    page = (folder / "README.md").read_text(encoding="utf-8")
    lines = [line for line in page.split("## How the networks were trained")[1].splitlines() if line.startswith("- ")]
    assert lines
    assert all("warm-ups: " in line and "; clipping " in line and " seed" in line for line in lines)
