"""Sections of Yang et al.'s page for runs that are still to come: all test images, and a second reference."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from diversity_page import cifar, jeong
from paper_runs import Runs
from paper_tables import published

from ringfence.classifiers.lanes import vote_lanes
from ringfence.engines.into_folder import summarise
from ringfence.procedures import Fixed
from ringfence.store import RunFolder

NUMBERS = published(Path(__file__).resolve().parents[2] / "reproduce" / "yang2022-diversity")
pytestmark = pytest.mark.filterwarnings("ignore:.*the run is not whole, 12 of")


@pytest.fixture
def made(fake_run: Callable[..., RunFolder], tmp_path: Path) -> Runs:
    """A network on all digits; three and DRT over them at sigma .5, on every 10th image and on all."""
    zoo, drt = tmp_path / "zoo", {"name": "drt", "base": {"name": "gaussian"}, "rho1": 5.0, "rho2": 5.0}
    plans = {
        "mnist/jeong": ("lenet-wide", {"name": "consistency"}),
        "cifar10/two": ("resnet20", {"name": "gaussian"}),
        "cifar10/drt": ("resnet20", drt),
    }
    for name, (arch, objective) in plans.items():
        (zoo / name).mkdir(parents=True)
        settings = {"arch": arch, "members": 3, "plan": {"objective": objective, "epochs": 7}}
        (zoo / name / "config.json").write_text(json.dumps(settings))
    lanes = [lane.name for lane in vote_lanes(3, ("softmax", "max-margin"), False, True, ())]
    told = [("mnist/jeong", 1, 10_000, 100_000)]
    told += [(f"cifar10/{name}", 3, *size) for name in ("two", "drt") for size in ((1000, 100_000), (10_000, 10_000))]
    for place, (name, members, count, n) in enumerate(told):
        specs = [f"zoo:{name}:{i}" for i in range(members)]
        ensemble = {"members": specs, "consensus": [], "weights": []} if members > 1 else None
        run = fake_run(
            tmp_path / "runs" / str(place),
            12,
            Fixed(n=n),
            lanes=lanes if members > 1 else ["main"],
            sigma=0.5,
            model="+".join(specs),
            extra={"count": count, "ensemble": ensemble},
            shape=None,
        )
        run.write_summary(summarise(run, 100.0, 9.0))
    return Runs.under(tmp_path / "runs", zoo)


def test_all_images_stand_apart_and_only_the_papers_beside_its_rows(made: Runs) -> None:
    text = "\n".join(cifar(made, NUMBERS))
    subset, every = text.split("sigma 0.5:")[1].split("sigma 0.5, all 10,000 test images, n = 10,000:")
    assert "| *paper, softmax(gaussian)* | *-* | *150* | *0.621* | *69.4* | *59.7* |" in subset
    assert "| *paper, drt+max-margin(gaussian)* | *5, 5* | *150* | *0.687* | *56.2* | *49.6* |" in subset
    assert "| drt+softmax(gaussian) | 5, 5 | 7 |" in every
    assert "paper" not in every
    assert "There is no row of rho 0 yet" in text


def test_logs_stand_beside_networks_on_all_images(made: Runs) -> None:
    rows = [line for line in jeong(made, NUMBERS["jeong"]) if line.startswith("| ")]
    assert rows[1].startswith("| consistency, wide LeNet | 7 |")
    assert rows[2].startswith("| *log, consistency* |  | *1.655* |")
    assert jeong(Runs(()), NUMBERS["jeong"]) == []
