"""Uniform and Laplace noise from the command line: every procedure, vote, lift and selection; certified, verified."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

from ringfence.store import RunFolder
from ringfence.store.attack import read_attack
from ringfence.verification import verify

Call = Callable[..., Result]
SMALL = ("--limit", "2", "--n0", "20", "--batch", "50")


def certified(call: Call, out: Path, *words: str) -> RunFolder:
    """The run of a command, which verifies and has l1 radii."""
    call("certify", *SMALL, *words, "--out", out)
    run = RunFolder.open(out)
    assert run.config.norm == "l1"
    assert {one.norm for one in run.read()} == {"l1"}
    assert verify(run) == []
    call("verify", out)
    return run


def test_uniform_noise_in_stages(call: Call, tmp_path: Path) -> None:
    words = ("--noise", "uniform", "--sigma", "0.3", "--procedure", "staged", "--radius", "0.1", "--stages", "100,400")
    run = certified(call, tmp_path / "run", *words)
    assert (run.config.noise.family, run.config.mechanisms) == ("uniform", ["neyman_pearson_l1"])
    again = call("certify", *SMALL, *words, "--out", tmp_path / "run")  # continuing finds everything there
    assert "all 2 inputs are already there" in again.stderr


def test_laplace_noise_in_sequence_exact(call: Call, tmp_path: Path) -> None:
    words = ("--noise", "laplace", "--sigma", "0.3", "--radius", "0.1", "--n", "500", "--noise-form", "exact")
    run = certified(call, tmp_path / "run", *words)
    assert run.config.procedure.name == "sequential"
    assert run.config.noise.lattice == 255
    assert max(one.radius for one in run.read()) == 0.1


def test_uniform_noise_under_a_max_margin_vote(call: Call, tmp_path: Path) -> None:
    words = ("--noise", "uniform", "--sigma", "0.3", "--members", "default,default:1", "--vote", "max-margin")
    run = certified(call, tmp_path / "run", *words, "--n", "200", "--mechanism", "all")
    assert run.config.mechanisms == ["neyman_pearson_l1", "one_sided_l1"]
    told = call("compare", tmp_path / "run").stdout
    assert "one-sided-l1" in told
    assert "renyi" not in told


def test_patches_are_divided_by_their_l1_factor(call: Call, tmp_path: Path) -> None:
    tree = "patches(default, size=28, resize=30, count=4, noise={})"
    words = ("--noise", "laplace", "--sigma", "0.3", "--n", "200")
    run = certified(call, tmp_path / "patch", *words, "--model", tree.format("patch"))
    in_l2 = ("--sigma", "0.3", "--n", "200", "--model", tree.format("patch"))
    call("certify", *SMALL, *in_l2, "--out", tmp_path / "l2")
    assert run.config.lift.norm_bound > RunFolder.open(tmp_path / "l2").config.lift.norm_bound > 1
    assert all(one.lift_norm == run.config.lift.norm_bound for one in run.read())
    refused = call(
        "certify", *SMALL, *words, "--model", tree.format("per-patch-input"), "--out", tmp_path / "no", code=2
    )
    assert "has no certified bound in l1" in refused.stderr
    assert "per-patch-input" in refused.stderr
    assert not (tmp_path / "no").exists()


def test_aces_under_laplace_noise(call: Call, tmp_path: Path) -> None:
    tree = "aces(certify=default, core=default:1, select=entropy, theta=0.3/0.6)"
    run = certified(call, tmp_path / "run", "--noise", "laplace", "--sigma", "0.3", "--n", "200", "--model", tree)
    assert run.config.procedure.name == "aces"


def test_a_mechanism_of_another_norm_is_refused_before_anything_runs(call: Call, tmp_path: Path) -> None:
    for noise, mechanism in (("uniform", "neyman-pearson"), ("gaussian", "neyman-pearson-l1"), ("laplace", "renyi")):
        words = ("--noise", noise, "--sigma", "0.5", "--mechanism", mechanism, "--n", "50")
        refused = call("certify", *SMALL, *words, "--out", tmp_path / "run", code=2)
        assert "is a proof about" in refused.stderr
        assert f"got {noise} noise of sigma 0.5" in refused.stderr
    refused = call("certify", *SMALL, "--noise", "cauchy", "--sigma", "0.5", "--out", tmp_path / "run", code=2)
    assert "must be one of gaussian, uniform, laplace" in refused.stderr
    assert not (tmp_path / "run").exists()


def test_a_radius_wider_than_uniform_noise_is_out_of_reach(call: Call) -> None:
    """Half-width sqrt(3)/2, whatever n is; Laplace noise reaches further."""
    words = ("--sigma", "0.5", "--procedure", "fixed", "--n", "1000000", "--json")
    largest = {
        noise: json.loads(call("plan", "--noise", noise, *words).stdout)["largest_radius"]
        for noise in ("uniform", "gaussian", "laplace")
    }
    assert 0.99 * 3**0.5 / 2 < largest["uniform"] < 3**0.5 / 2 < largest["gaussian"] < largest["laplace"]


def test_an_l1_run_is_attacked_in_l1(call: Call, tmp_path: Path) -> None:
    certified(call, tmp_path / "run", "--noise", "uniform", "--sigma", "0.3", "--n", "200")
    few = ("--steps", "2", "--copies", "2", "--n", "100", "--recheck", "100", "--radii", "0.1,1")
    told = call("attack", tmp_path / "run", *few, "--out", tmp_path / "attack").stdout
    assert "under pgd-l1 within l1 radius r" in told
    found = read_attack(tmp_path / "attack" / "attack.json")
    assert (found.attack, found.norm, found.broken) == ("pgd-l1", "l1", ())
    refused = call("attack", tmp_path / "run", *few, "--attack", "ddn", code=2)
    assert "must move inputs in l1" in refused.stderr


def test_training_and_hold_out_under_the_same_noise(call: Call, tmp_path: Path) -> None:
    few = ("--data", "default", "--epochs", "1", "--limit", "64", "--batch", "16", "--holdout", "16", "--sigma", "0.3")
    weights = {}
    for noise in ("gaussian", "uniform", "laplace"):
        done = call("train", *few, "--noise", noise, "--arch", "lenet", "--out", tmp_path / noise)
        weights[noise] = (tmp_path / noise / "final-0.safetensors").read_bytes()
        assert ("--noise" in done.stderr) == (noise != "gaussian")
        config = json.loads((tmp_path / noise / "config.json").read_text())
        assert config["plan"]["noise"] == noise
    assert len(set(weights.values())) == 3
    refused = call("train", *few, "--noise", "laplace", "--objective", "macer", "--out", tmp_path / "no", code=2)
    assert "macer maximises a radius under gaussian noise" in refused.stderr
    members = ("--members", "default,default:1", "--sigma", "0.5", "--limit", "4", "--draws", "20", "--json")
    ranked = {noise: call("rank", *members, "--noise", noise).stdout for noise in ("gaussian", "laplace")}
    assert ranked["gaussian"] != ranked["laplace"]
    spread = call("variance", *members, "--n", "50", "--noise", "uniform").stdout
    largest = max(one["radius"]["predicted"] for one in json.loads(spread)["sizes"])
    assert 0 < largest < 0.5 * 3**0.5
    refused = call("conditions", *members, "--radius", "0.1", "--noise", "uniform", code=2)
    assert "--noise: must be gaussian: the conditions are about the curvature" in refused.stderr


def test_runs_under_other_noise_are_other_classifiers_and_the_report_names_it(call: Call, tmp_path: Path) -> None:
    for noise in ("uniform", "laplace"):
        certified(call, tmp_path / noise, "--noise", noise, "--sigma", "0.3", "--n", "200")
    told = " ".join(call("compare", tmp_path / "uniform", tmp_path / "laplace").stdout.split())
    assert "noise.family" in told
    both = [RunFolder.open(tmp_path / noise).config for noise in ("uniform", "laplace")]
    assert both[0].same_classifier(both[1]) == ["noise.family: 'uniform' and 'laplace'"]
    call("report", tmp_path / "uniform", "--out", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "uniform, sigma 0.3" in page
    assert "neyman-pearson-l1, in l1" in page
    radii = np.array([one.radius for one in RunFolder.open(tmp_path / "uniform").read()])
    assert (radii <= 0.3 * 3**0.5).all()


@pytest.mark.parametrize("content", ["{family: laplace, sigma: 0.3}", "{family: uniform, sigma: 0.3, form: exact}"])
def test_a_job_file_names_the_family(call: Call, tmp_path: Path, content: str) -> None:
    (tmp_path / "job.yaml").write_text(f"noise: {content}\nprocedure: {{name: fixed, n: 100}}\ndata: {{limit: 1}}\n")
    run = certified(call, tmp_path / "run", str(tmp_path / "job.yaml"))
    assert run.config.noise.family in content
    call("certify", tmp_path / "job.yaml", "--save", tmp_path / "again.yaml")
    assert "neyman_pearson_l1" in (tmp_path / "again.yaml").read_text()


def test_radii_of_two_norms_are_never_set_beside_each_other(call: Call, tmp_path: Path) -> None:
    """An l1 radius of 1 is a smaller claim than an l2 radius of 1: neither pairs nor envelopes may mix them."""
    for noise in ("gaussian", "laplace"):
        call("certify", *SMALL, "--noise", noise, "--sigma", "0.3", "--n", "200", "--out", tmp_path / noise)
    runs = (tmp_path / "gaussian", tmp_path / "laplace")
    for words in ((), ("--envelope", "--radii", "0.25")):
        refused = call("compare", *runs, *words, code=2)
        assert "radii must be of one norm to be compared" in refused.stderr
        assert "gaussian in l2" in " ".join(refused.stderr.split())
        assert call("compare", *runs, *words, "--norm", "l1").stdout
