"""The gate: its bound is exact, its own failure rate kept, and what cannot be trusted is refused."""

from __future__ import annotations

import json
import shutil
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

import ringfence as rf
from ringfence.cli import app
from ringfence.errors import ArgumentError, RingfenceError, StoreError
from ringfence.gate import Demand, _few_classes
from ringfence.gate import gate as judged
from ringfence.stats.norms import InNorm
from ringfence.store.manifest import Manifest


class Sign(nn.Module):
    """Class 1 above zero, 0 below; under noise of sigma 1 the radius is the distance from zero."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([-x, x], 1)


def certify_points(points: list[tuple[float, int | None]], out: Path, **more: object) -> Path:
    data = [torch.tensor([x]) if y is None else (torch.tensor([x]), y) for x, y in points]
    options = {"noise": rf.Gaussian(1.0), "procedure": rf.Fixed(n0=20, n=400)} | more
    with warnings.catch_warnings(action="ignore"):
        rf.certify(Sign(), data, out=out, execution=rf.Execution(device="cpu", batch=200), **options)  # type: ignore[arg-type]
    return out


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 inputs far on the right side, 10 on the wrong one."""
    points = [(3.0, 1)] * 40 + [(3.0, 0)] * 10
    return certify_points(points, tmp_path_factory.mktemp("gate") / "run")


def gate(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["gate", *map(str, words)])
    return done.exit_code, done.output


def test_it_passes_below_the_bound_and_fails_above(run: Path) -> None:
    verdict = rf.load(run).gate("0.60@0.5")
    assert (verdict.certified, verdict.inputs, verdict.passed) == (40, 50, True)
    assert verdict.share == 0.8
    assert 0.68 < verdict.lower < 0.69  # Clopper and Pearson: 0.6844 at 95 %, less alpha
    assert gate(run, "--certified", "0.68@0.5")[0] == 0
    code, told = gate(run, "--certified", "0.70@0.5")
    assert code == 1
    assert told.startswith("failed: lower bound 0.68")
    assert gate(run, "--certified", "0.68@0.5", "--confidence", "0.99")[0] == 1
    assert gate(run, "--certified", "0.68@0.5", "--certified", "0.70@0.5")[0] == 1


def test_json_says_the_same(run: Path) -> None:
    code, told = gate(run, "--certified", "0.70@0.5", "--certified", "0.1@0", "--json")
    answer = json.loads(told)
    assert code == 1
    assert not answer["passed"]
    assert [one["passed"] for one in answer["demands"]] == [False, True]
    assert answer["demands"][0]["certified"] == 40


WRONG = {
    "no radius": (["0.60"], "certified: must be ACCURACY@RADIUS, two numbers; got '0.60'"),
    "words": (["most@far"], "must be ACCURACY@RADIUS"),
    "percent": (["60@0.5"], "must be a share strictly between 0 and 1; got 60"),
    "nothing": (["0@0.5"], "must be a share strictly between 0 and 1"),
    "a negative radius": (["0.6@-1"], "must have a radius of at least 0; got -1"),
    "no number": (["nan@0.5"], "must be a share strictly between 0 and 1; got nan"),
    "certain": (["0.6@0.5", "--confidence", "1"], "confidence: must lie strictly between 0 and 1"),
    "no such lane": (["0.6@0.5", "--lane", "other"], "lane: must be one of main; got 'other'"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_demands_are_named(run: Path, kind: str) -> None:
    (certified, *more), message = WRONG[kind]
    code, told = gate(run, "--certified", certified, *more)
    assert code == 2
    assert message.removeprefix("certified: ").removeprefix("confidence: ").removeprefix("lane: ") in told, told


def refused(path: Path, message: str, demand: str = "0.1@0.1") -> None:
    with pytest.raises(RingfenceError, match=message):
        rf.load(path).gate(demand)
    assert gate(path, "--certified", demand)[0] == 2


def test_an_unfinished_run_is_refused(tmp_path: Path) -> None:
    whole = certify_points([(3.0, 1)] * 5, tmp_path / "run")
    rf.RunFolder.open(whole).note_inputs(6, {})
    refused(whole, "must be whole and agree with its counts; got inputs is 5, it should be 6")


def test_a_run_that_knows_no_number_of_inputs_is_refused(tmp_path: Path) -> None:
    """A killed one would look whole, and easy inputs are decided first."""
    whole = rf.RunFolder.open(certify_points([(3.0, 1)] * 5, tmp_path / "run"))
    config = whole.config.with_entries({"data": {"count": None}})
    killed = rf.RunFolder.create_or_resume(tmp_path / "killed", config)
    killed.append([replace(one, config_hash=killed.digest) for one in whole.read()])
    assert rf.verify(killed) == []
    assert killed.expected is None
    refused(killed.path, "must know how many inputs it has")


def test_a_manifest_that_expects_fewer_inputs_than_the_settings_is_refused(tmp_path: Path) -> None:
    """Rows left out, and the manifest written anew to fit: the settings, which every row names, still say how many."""
    run = rf.RunFolder.open(certify_points([(3.0, 1)] * 4 + [(3.0, 0)], tmp_path / "run"))
    right = [record for record in run.read() if record.prediction == record.label]
    described = [one for one in run.inputs() if one.label == 1]
    part = next(iter(Manifest.read(run.path).parts))
    run._files.set_aside(part)
    run.append(right)
    run.write_inputs(described)
    run.note_inputs(len(right), {})
    refused(run.path, "inputs that the manifest expects is 4, it should be 5")


def test_an_edited_run_is_refused(run: Path, tmp_path: Path) -> None:
    edited = Path(shutil.copytree(run, tmp_path / "edited"))
    part = next((edited / "parts").glob("*.parquet"))
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(content)
    refused(edited, "must be whole and agree with its counts")


def test_results_without_proof_are_refused(tmp_path: Path) -> None:
    paper = rf.Multinomial(n=400, form="paper")
    refused(certify_points([(3.0, 1)] * 5, tmp_path / "run", procedure=paper), "without a guarantee")


def test_inputs_without_labels_are_refused(tmp_path: Path) -> None:
    refused(
        certify_points([(3.0, 1), (3.0, None)], tmp_path / "run"), "must have a label for every input; got 1 without"
    )


@pytest.mark.parametrize("confidence", [0.0, 1e-17, 1.0, float("nan")])
def test_a_confidence_of_nothing_is_refused_by_its_name(run: Path, confidence: float) -> None:
    code, said = gate(run, "--certified", "0.5@0.5", "--confidence", confidence)
    assert code == 2
    assert "--confidence: must lie strictly between 0 and 1" in said


def test_a_radius_that_was_never_tried_is_refused(tmp_path: Path) -> None:
    tried = certify_points([(3.0, 1)] * 5, tmp_path / "run", procedure=rf.Sequential(radius=0.5, n=2000))
    assert rf.load(tried).gate("0.2@0.5").passed
    refused(
        tried,
        r"the run only tried radii up to 0\.5; got radius 0\.75.* or prove it: ringfence certify --radius 0\.75",
        "0.2@0.75",
    )
    predicted = certify_points([(3.0, 1)] * 5, tmp_path / "predicted", procedure=rf.Predict(n=100))
    refused(predicted, "the run only tried radii up to 0")
    assert rf.load(predicted).gate("0.2@0").passed


def test_lanes_must_be_named(tmp_path: Path) -> None:
    class Two(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.stack([torch.cat([-x, x], 1), torch.cat([x, -x], 1)], 1)

    with warnings.catch_warnings(action="ignore"):
        data = [(torch.tensor([3.0]), 1)] * 20
        run = rf.certify(
            Two(), data, sigma=1.0, procedure=rf.Fixed(n0=20, n=400), lanes=("right", "wrong"), out=tmp_path / "run"
        )
    with pytest.raises(ArgumentError, match=r"lane: must be one of right, wrong; got none\. Name one"):
        run.gate("0.5@0.5")  # type: ignore[union-attr]
    assert run.gate("0.5@0.5", lane="right").passed  # type: ignore[union-attr]
    assert not run.gate("0.5@0.5", lane="wrong").passed  # type: ignore[union-attr]


def test_runs_of_logs_and_of_schema_1_are_refused(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("idx\tlabel\tpredict\tradius\tcorrect\ttime\n0\t1\t1\t0.5\t1\t0:00:01\n")
    from ringfence.store import import_cohen

    run = import_cohen(tmp_path / "log", 0.5, tmp_path / "imported")
    with pytest.raises(StoreError, match="imported from a log"):
        rf.load(run.path).gate("0.1@0.1")


def test_demands_are_values() -> None:
    assert Demand.of("0.60@0.5") == Demand(0.6, 0.5)


def test_the_norm_of_the_radius_is_named(tmp_path: Path) -> None:
    """A demand is met in the norm that was proved: an l1 radius of 0.1 is less than an l2 radius of 0.1."""
    data = rf.Data("default", limit=2)
    value = rf.Certification("default", data, noise=rf.Laplace(0.3), procedure=rf.Fixed(n=100))
    value.run(tmp_path / "run")
    verdict = rf.load(tmp_path / "run").gate("0.1@0.1")
    assert verdict.to_dict()["norm"] == "l1"


def test_a_run_shown_in_another_norm_is_judged_in_that_one(tmp_path: Path) -> None:
    """It is verified as it was stored; an honest one was called edited, every radius of it."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 2, bias=False))
    net[1].weight = nn.Parameter(torch.tensor([[-5.0], [5.0]]).expand(2, 16))
    data, where = (torch.ones(20, 1, 4, 4), torch.ones(20)), rf.Execution(device="cpu", batch=100, check=False)
    for procedure, in_l2, in_linf in ((rf.Fixed(n0=10, n=300), 0.2, 0.2), (rf.Sequential(0.4, n=2000), 0.4, 0.1)):
        value = rf.Certification(net, data, noise=rf.Gaussian(0.5), procedure=procedure)
        made = value.run(tmp_path / procedure.name, where)
        shown = made.in_norm(InNorm("linf"))  # 16 coordinates: a quarter
        assert rf.verify(shown) == []
        stored, verdict = (judged(one, Demand(0.1, radius)) for one, radius in ((made, in_l2), (shown, 0.09)))
        assert (stored.certified, stored.norm, verdict.certified, verdict.norm) == (20, "l2", 20, "linf")
        assert float(np.asarray(shown.records(["radius"])["radius"]).max()) < 0.5
        if procedure.targets:
            with pytest.raises(ArgumentError, match=r"only tried radii up to 0\.1; .*certify --radius 0\.8"):
                judged(shown, Demand(0.1, 2 * in_linf))


def test_a_verdict_of_exact_noise_names_its_lattice(run: Path, tmp_path: Path) -> None:
    """Its claims are about inputs in whole steps, and the verdict promised all within the radius."""
    assert "whole steps" not in gate(run, "--certified", "0.1@0.5")[1]
    value = rf.Certification("default", rf.Data("default", limit=2), noise=rf.Gaussian(0.5), procedure=rf.Fixed(n=100))
    exact = value.run(tmp_path / "run").path
    assert " at l2 radius 0.1 among inputs in whole steps of 1/255 (" in gate(exact, "--certified", "0.1@0.1")[1]
    assert "whole steps" not in gate(exact, "--certified", "0.1@0")[1]  # of other inputs nothing is said there
    assert [rf.load(exact).gate(one).to_dict()["lattice"] for one in ("0.1@0.1", "0.1@0")] == [255, None]


def test_what_the_inputs_cannot_speak_of_is_said(tmp_path: Path) -> None:
    alone = certify_points([(3.0, 1)] * 30, tmp_path / "alone")
    verdict = rf.load(alone).gate("0.60@0.5")
    assert verdict.passed
    [doubt] = verdict.doubts
    assert doubt.startswith("the 30 inputs are of class 1 alone")
    done = CliRunner().invoke(app, ["gate", str(alone), "--certified", "0.60@0.5", "--certified", "0.5@0.5"])
    assert done.exit_code == 0
    assert done.stderr.count("warning: the 30 inputs are of class 1 alone") == 1
    done = CliRunner().invoke(app, ["gate", str(alone), "--certified", "0.60@0.5", "--json"])
    assert json.loads(done.stdout)["demands"][0]["doubts"] == [doubt]
    few = certify_points([(3.0, 1)] * 3, tmp_path / "few")  # which may be chance
    assert (
        "3 inputs cannot show it: were all of them certified, the bound would be 0.36"
        in (rf.load(few).gate("0.60@0.5").doubts[0])
    )
    assert rf.load(few).gate("0.30@0.5").doubts == ()


def test_both_classes_raise_no_doubt_and_the_split_that_was_trained_on_does(run: Path, tmp_path: Path) -> None:
    assert rf.load(run).gate("0.60@0.5").doubts == ()
    points = [(torch.tensor([3.0]), place % 2) for place in range(20)]
    with warnings.catch_warnings(action="ignore"):
        options = {"noise": rf.Gaussian(1.0), "procedure": rf.Fixed(n0=20, n=400)}
        rf.certify(Sign(), rf.Data(points, split="train"), out=tmp_path / "train", **options)  # type: ignore[arg-type]
    [doubt] = rf.load(tmp_path / "train").gate("0.2@0.5").doubts
    assert "those of the split train" in doubt


def test_inputs_that_are_there_again_are_told(tmp_path: Path) -> None:
    """A loader that goes round makes 10 inputs 40, of which all agree: the bound would be that of 40 draws."""
    ten = list(rf.load_dataset("default", limit=10))
    for times, told in [(4, ["30 of the inputs are copies of others, which tell nothing new"]), (1, [])]:
        data = [(one.x, one.label) for one in ten] * times
        run = rf.certify("default", data, sigma=0.5, procedure=rf.Fixed(n0=10, n=50), out=tmp_path / str(times))
        assert [one.partition(":")[0] for one in run.gate("0.2@0").doubts if "copies" in one] == told


@pytest.mark.parametrize(
    ("classes", "there", "inputs", "told"),
    [
        (10, 10, 500, False),
        (10, 1, 2, False),
        (10, 1, 3, True),
        (10, 5, 20, True),
        (1000, 390, 500, False),
        (21_841, 3000, 3200, False),  # more ways to choose them than a float can count
        (21_841, 3000, 9000, True),
    ],
)
def test_few_classes_are_those_that_chance_hardly_leaves(classes: int, there: int, inputs: int, told: bool) -> None:
    labels = np.arange(inputs) % there
    assert (_few_classes(labels, classes) is not None) is told
