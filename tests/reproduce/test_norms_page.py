"""The page of families of noise: best per radius and single runs, from runs found by their configs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import norms_page
import pytest
from paper_runs import Runs

from ringfence.engines.into_folder import summarise
from ringfence.mechanisms import default_mechanism
from ringfence.procedures import Fixed
from ringfence.store import RunFolder


def test_runs_stand_in_their_rows_and_the_best_sigma_is_named(
    fake_run: Callable[..., RunFolder], tmp_path: Path
) -> None:
    for family, sigma in (("gaussian", 0.5), ("gaussian", 1.0), ("laplace", 1.0), ("laplace", 2.0)):
        training = tmp_path / "zoo" / "mnist" / f"l1-{family}-{sigma}"
        training.mkdir(parents=True)
        schedule = {"lr": 0.01, "factor": 0.1, "every": 30}
        plan = {"objective": {"name": "gaussian"}, "epochs": 1, "schedule": schedule, "batch": 16}
        noise = {} if family == "gaussian" else {"noise": family}  # older trainings name none
        plan |= {"precision": "fp32", "seed": 0, "sigma": 1.0 if (family, sigma) == ("laplace", 2.0) else sigma}
        settings = {"arch": "lenet-wide", "members": 1, "plan": plan | noise}
        (training / "config.json").write_text(json.dumps(settings))
        name = tmp_path / "runs" / training.name
        model = f"zoo:mnist/{training.name}:0"
        proof = default_mechanism(family)
        told = {"noise": family, "mechanisms": (proof.name,), "data": "cifar10:data", "count": 12}
        made = fake_run(name, 12, sigma=sigma, model=model, shape=None, **told)
        made.write_summary(summarise(made, 100.0, 9.0))
    found = norms_page.found(Runs.under(tmp_path / "runs", tmp_path / "zoo"))
    assert [(run.family, run.sigma) for run in found] == [("gaussian", 0.5), ("gaussian", 1.0), ("laplace", 1.0)]
    text = norms_page.page(Runs.under(tmp_path / "runs", tmp_path / "zoo"))
    assert "| gaussian | 0.5 | wide LeNet | float | l2 |" in text
    assert "| laplace | 1 | wide LeNet | float | l1 |" in text
    assert "## CIFAR-10: best per radius" in text
    assert "MNIST: best" not in text
    assert "not the same sigmas here, which favours those with more: gaussian 0.5, 1; uniform none; laplace 1." in text
    top = max(100 * norms_page.shares(run)[1.0] for run in found if run.family == "gaussian")
    (row,) = [line for line in norms_page.best(found, norms_page.RADII["cifar10"]) if line.startswith("| gaussian")]
    assert row.split(" | ")[5].startswith(f"{top:.1f} (")
    assert norms_page.best(found, norms_page.RADII["cifar10"])[-1].startswith("| **ahead** |")


def test_gaussian_runs_of_other_pages_stand_only_where_there_are_none_of_ours(
    fake_run: Callable[..., RunFolder], tmp_path: Path
) -> None:
    def made(name: str, sigma: float, arch: str) -> Runs:
        training = tmp_path / "zoo" / "cifar10" / name
        training.mkdir(parents=True)
        plan = {"objective": {"name": "gaussian"}, "sigma": sigma}
        (training / "config.json").write_text(json.dumps({"arch": arch, "members": 1, "plan": plan}))
        told = {"data": "cifar10:data", "count": 500}
        model, test = f"zoo:cifar10/{name}:0", Fixed(n=100_000)
        run = fake_run(tmp_path / name / name, 500, test, sigma=sigma, model=model, shape=None, **told)
        run.write_summary(summarise(run, 100.0, 9.0))
        return Runs.under(tmp_path / name, tmp_path / "zoo")

    own = made("own", 0.5, "resnet20")
    others = Runs((*made("same", 0.5, "resnet110"), *made("further", 1.0, "resnet110")))
    assert [run.name for run in norms_page.beside(norms_page.found(own), others)] == ["further"]
    assert [run.name for run in norms_page.beside([], others)] == ["same", "further"]


def test_families_that_are_level_are_all_named() -> None:
    assert norms_page.ahead({"gaussian": 0.5, "uniform": 0.5, "laplace": 0.4}) == "gaussian, uniform"
    assert norms_page.ahead({"gaussian": 0.0, "uniform": 0.0}) == "-"


def test_without_runs_the_page_says_how_they_are_made() -> None:
    assert norms_page.NOTHING in norms_page.page(Runs(()))


def test_the_picture_shows_the_three_certificates() -> None:
    rows = norms_page.certificates()
    last = {row["noise"]: row["radius"] for row in rows}
    assert last["uniform"] == pytest.approx(3**0.5 * 0.998, rel=1e-3)
    assert last["laplace"] > last["gaussian"] > last["uniform"]  # type: ignore[operator]
