"""Sections of Yang et al.'s page for runs that are still to come: all test images, and a second reference."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from diversity_page import cifar, jeong, lines_of, page, without_doubles
from learning_rates import NONE, chosen_rates
from paper_runs import Runs
from paper_tables import published
from steepness import steepness

from ringfence.classifiers.lanes import vote_lanes
from ringfence.engines.into_folder import summarise
from ringfence.models.compose import ensemble
from ringfence.procedures import Fixed
from ringfence.store import RunFolder

NUMBERS = published(Path(__file__).resolve().parents[2] / "reproduce" / "yang2022-diversity")
pytestmark = pytest.mark.filterwarnings("ignore:.*the run is not whole, 12 of")


Put = Callable[[str, str, dict[str, Any], Sequence[tuple[int, int, int]]], None]


@pytest.fixture
def put(fake_run: Callable[..., RunFolder], tmp_path: Path) -> Put:
    """A training of three in tmp_path/zoo, and runs of it in tmp_path/runs: members, images and draws of each."""
    lanes = [lane.name for lane in vote_lanes(3, ("softmax", "max-margin"), False, True, ())]
    number = iter(range(100))

    def write(name: str, arch: str, objective: dict[str, Any], runs: Sequence[tuple[int, int, int]]) -> None:
        (tmp_path / "zoo" / name).mkdir(parents=True)
        plan = {"objective": objective, "epochs": 7, "schedule": {"lr": 0.1, "factor": 0.1, "every": 50}, "batch": 64}
        settings = {"arch": arch, "members": 3, "plan": {**plan, "precision": "bf16", "seed": 0}}
        (tmp_path / "zoo" / name / "config.json").write_text(json.dumps(settings))
        for members, count, n in runs:
            specs = [f"zoo:{name}:{i}" for i in range(members)]
            run = fake_run(
                tmp_path / "runs" / str(next(number)),
                12,
                Fixed(n=n),
                lanes=lanes if members > 1 else ["main"],
                sigma=0.5,
                model=str(ensemble(specs)) if members > 1 else specs[0],
                count=count,
                shape=None,
            )
            run.write_summary(summarise(run, 100.0, 9.0))

    return write


def drt(rho1: float, rho2: float, **more: str | bool) -> dict[str, Any]:
    return {"name": "drt", "base": {"name": "gaussian"}, "rho1": rho1, "rho2": rho2, **more}


@pytest.fixture
def made(put: Put, tmp_path: Path) -> Runs:
    """A network on all digits; three and DRT over them at sigma .5, on every 10th image and on all."""
    put("mnist/jeong", "lenet-wide", {"name": "consistency"}, [(1, 10_000, 100_000), (1, 1000, 100_000)])
    both = [(3, 1000, 100_000), (3, 10_000, 10_000)]
    put("cifar10/two", "resnet20", {"name": "gaussian"}, both)
    put("cifar10/drt", "resnet20", drt(5.0, 5.0), both)
    return Runs.under(tmp_path / "runs", tmp_path / "zoo")


def test_all_images_stand_apart_and_only_the_papers_beside_its_rows(made: Runs) -> None:
    text = "\n".join(cifar(made, NUMBERS))
    subset, every = text.split("sigma 0.5:")[1].split("sigma 0.5, all 10,000 test images, n = 10,000:")
    assert "| *paper, softmax(gaussian)* | *-* | *150* | *0.621* | *69.4* | *59.7* |" in subset
    assert "| *paper, drt+max-margin(gaussian)* | *5, 5* | *150* | *0.687* | *56.2* | *49.6* |" in subset
    assert "| drt+softmax(gaussian) | 5, 5 | 7 |" in every
    assert "paper" not in every
    assert "There is no row of rho 0 yet" in text
    assert "A smaller network and a fraction of the epochs of DRT may" in text
    plain = Runs(tuple(made.of(kind="gaussian")))
    assert "A smaller network may" in "\n".join(cifar(plain, NUMBERS)), "nothing was tuned there, so not too briefly"


def test_logs_stand_beside_networks_on_the_same_images(made: Runs) -> None:
    rows = [line for line in jeong(made, NUMBERS["jeong"]) if line.startswith("| ")]
    assert rows[1].startswith("| consistency, wide LeNet | 10,000 | 7 |")
    assert rows[2].startswith("| *log, consistency* | *10,000* |  | *1.655 ± 0.001* | *99.2* |")
    assert rows[3].startswith("| consistency, wide LeNet | 1,000 | 7 |")
    assert rows[4].startswith("| *log, consistency* | *1,000* |  | *1.643 ± 0.002* | *98.7* |")
    assert len(rows) == 5
    assert jeong(Runs(()), NUMBERS["jeong"]) == []


def test_a_network_by_itself_is_a_row_of_the_paper_where_none_of_several_is(put: Put, tmp_path: Path) -> None:
    put("mnist/three", "lenet-wide", {"name": "gaussian"}, [(3, 1000, 100_000)])
    put("mnist/again", "lenet-wide", {"name": "gaussian"}, [(1, 1000, 100_000)])
    put("mnist/alone", "lenet-wide", {"name": "stability"}, [(1, 1000, 100_000)])
    lines = list(lines_of(Runs.under(tmp_path / "runs", tmp_path / "zoo")))
    assert sorted(one.name for one in lines).count("gaussian") == 2
    kept = {(one.name, one.run.size) for one in without_doubles(lines)}
    assert kept == {("gaussian", 3), ("softmax(gaussian)", 3), ("max-margin(gaussian)", 3), ("stability", 1)}


def test_ablations_stand_apart_from_the_papers_settings(put: Put, tmp_path: Path) -> None:
    """Runs come in by what they certified; those that tables 4 to 6 do not have are no rows beside them."""
    empty = page(Runs(()), Runs(()), NUMBERS).split("## MNIST: ablations of DRT")[1].split("\n## ")[0]
    assert "8 of 8 certifications" in empty
    assert "|" not in empty
    objectives = [{"name": "gaussian"}, drt(0.5, 2.0), drt(0.5, 2.0, form="summed"), drt(0.5, 0.0)]
    for place, objective in enumerate(objectives):
        put(f"mnist/{place}", "lenet-wide", objective, [(3, 1000, 100_000)] * 2)
    text = page(Runs.under(tmp_path / "runs", tmp_path / "zoo"), Runs(()), NUMBERS)
    main, apart = (text.split(f"## {one}")[1].split("\n## ")[0] for one in ("MNIST, sigma = 0.5", "MNIST: ablations"))
    assert main.count("| drt+softmax(gaussian) (0.5, 2) |") == 1, "the same networks twice are one row"
    assert "(0.5, 0)" not in main
    assert "does not print it; ours begins at 0.1, as chosen for the wide LeNet on held-out training images" in text
    for row in ("| softmax(gaussian) | - | - | - |", "| drt+softmax(gaussian) | 0.5 | 0 | pairwise |"):
        assert apart.count(row) == 1
    for form in ("pairwise", "summed"):
        assert apart.count(f"| drt+max-margin(gaussian) | 0.5 | 2 | {form} |") == 1


def test_rates_are_told_with_what_they_reached_on_images_held_out(put: Put, tmp_path: Path) -> None:
    for rate, loss in ((0.01, 3.0), (0.0001, -22.0)):
        way = {} if rate == 0.01 else {"reduction": "mean", "squared": True}
        put(f"mnist/{rate}", "lenet-wide", drt(10.0, 2.5, **way), [(1, 1000, 10_000)] if loss < 0 else [])
        config = tmp_path / "zoo" / "mnist" / str(rate) / "config.json"
        settings = json.loads(config.read_text())
        plan = {**settings["plan"], "sigma": 0.5, "schedule": {"lr": rate}}
        config.write_text(json.dumps({**settings, "plan": plan, "holdout": 5000}))
        rows = [f"1,-14.04,0.9,0.9,{rate}", f"2,{loss},0.5,0.7345,{rate}"]
        config.with_name("joint.csv").write_text(
            "\n".join(["epoch,loss,noisy_accuracy,held_out_accuracy,lr", *rows]) + "\n"
        )
    runs = Runs.under(tmp_path / "runs", tmp_path / "zoo")
    *text, high, low, _ = chosen_rates(runs.all, tmp_path / "zoo")
    assert high == "| 0.01 | 0.5, 10, 2.5 | paper_sum | 7 | -14.0 | 3.0 | 90.0 | 50.0 | 5,000 | 73.5 | - |"
    acr = runs.all[0].lanes([0.0])["main"].acr
    row = "| 0.0001 | 0.5, 10, 2.5 | mean, squared | 7 | -14.0 | -22.0 | 90.0 | 50.0 | 5,000 | 73.5 |"
    assert low == f"{row} {acr:.3f} (1000 inputs, n = 10,000) |"
    assert NONE not in text
    assert NONE in chosen_rates([], tmp_path / "zoo")
    assert chosen_rates([], tmp_path / "nowhere") == []


def test_terms_of_drt_are_told_as_they_were_measured(tmp_path: Path) -> None:
    term = {"size": -1.234, "length": 5.678, "cosine": 0.091}
    found = {"training": "some", "way": "mean", "terms": dict.fromkeys(("cross_entropy", "diversity", "margin"), term)}
    file = tmp_path / "gradients.json"
    file.write_text(json.dumps({"images": 128, "batches": 4, "found": [found]}))
    assert "| some | mean |" + 3 * " -1.23 | 5.68 | 0.09 |" in steepness(file)
    assert steepness(tmp_path / "nowhere") == []
