"""``metrics``, ``verify``, ``info``, ``import``, ``export`` and ``plan``."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import Result
from configs import part_paths
from torch import nn

import ringfence as rf
from ringfence.sampling import ForwardPlan
from ringfence.store.guarded import Guarded
from ringfence.store.parts import part_bytes, read_part
from ringfence.store.schema import from_table, to_table

Call = Callable[..., Result]
LOG = Path(__file__).parents[1] / "fixtures" / "cohen" / "cifar10_noise_0.25_sigma_0.25"


def document(result: Result) -> dict[str, Any]:
    return dict(json.loads(result.stdout))


def test_metrics_of_a_published_log(call: Call) -> None:
    words = ["metrics", LOG, "--radii", "0,0.25,0.5,0.75", "--sigma", 0.25, "--json"]
    (run,) = document(call(*words))["runs"]
    assert list(run) == ["path", "count", "sound", "acr", "abstention", "certified_accuracy"]
    assert run["sound"] is False  # its radii were rounded to nearest
    shares = run["certified_accuracy"]
    assert {radius: round(share, 3) for radius, share in shares.items()} == {
        "0.0": 0.748,
        "0.25": 0.6,
        "0.5": 0.428,
        "0.75": 0.266,
    }
    assert run["acr"] == pytest.approx(0.429, abs=0.0005)
    assert run["count"] == 500


def test_metrics_without_radii_asks_what_the_run_can_answer(call: Call, finished: dict[str, Path]) -> None:
    runs = document(call("metrics", *finished.values(), "--json"))["runs"]
    radii = {Path(run["path"]).name: list(run["certified_accuracy"]) for run in runs}
    assert radii["fixed"] == ["0.0", "0.25", "0.3", "0.5", "0.75", "1.0"]  # those that others tried, too
    assert radii["sequential"] == ["0.0", "0.25", "0.3"]
    assert radii["larger"] == ["0.0", "0.25", "0.3", "0.5", "0.75"]
    (alone,) = document(call("metrics", finished["fixed"], "--json"))["runs"]
    assert list(alone["certified_accuracy"]) == ["0.0", "0.25", "0.5", "0.75", "1.0"]
    assert {Path(run["path"]).name for run in runs if run["acr"] is None} == {"sequential", "larger"}
    table = call("metrics", *finished.values()).stdout
    assert all(column in table for column in ("0.3", "0.75", "ACR"))


def test_radii_beyond_what_was_tried_are_refused(call: Call, finished: dict[str, Path]) -> None:
    message = call("metrics", finished["sequential"], "--radii", "0,0.5", code=2).stderr
    assert "only tried to prove the radius 0.3" in message
    assert "[0.5]" in message
    assert document(call("metrics", finished["larger"], "--radii", "0.6,0.9", "--json"))
    assert "radius 0.9" in call("metrics", finished["larger"], "--radii", "0.95", code=2).stderr


def test_verify_agrees_with_honest_runs(call: Call, finished: dict[str, Path]) -> None:
    result = call("verify", *finished.values())
    assert result.stdout.count("every claim follows from its counts") == 3
    answer = document(call("verify", finished["fixed"], "--json"))
    counts = {"records": 6, "inputs": 6, "expected_inputs": 6, "sealed_by": None, "trusted": False}
    assert answer["runs"] == [{"run": str(finished["fixed"]), **counts, "damaged": [], "disagreements": []}]


def rewritten(run: Path, change: Callable[[rf.Record], rf.Record]) -> None:
    """Change the first record that claims something, manifest and all, as somebody who knows the format could."""
    (part,) = part_paths(run / "parts")
    records = from_table(read_part(part))
    victim = next(k for k, record in enumerate(records) if not record.abstained)
    records[victim] = change(records[victim])
    Guarded(run).replace_parts([f"parts/{part.name}"], part_bytes(to_table(records), 0, 0), len(records))


@pytest.mark.parametrize("kind", ["radius", "count"])
def test_verify_finds_what_was_changed(call: Call, finished: dict[str, Path], tmp_path: Path, kind: str) -> None:
    run = shutil.copytree(finished["fixed"], tmp_path / "run")

    def radius(record: rf.Record) -> rf.Record:
        return replace(record, radius=record.radius + 0.01)

    def count(record: rf.Record) -> rf.Record:
        stage = record.stages[1]
        votes = stage.cells["votes"].copy()
        votes[record.prediction] -= 1
        votes[(record.prediction + 1) % 10] += 1
        return replace(record, stages=(record.stages[0], replace(stage, cells={"votes": votes})))

    rewritten(run, radius if kind == "radius" else count)
    result = call("verify", run, code=1)
    assert "do not follow from their counts" in result.stdout
    assert ": radius is " in result.stdout
    found = document(call("verify", run, "--json", code=1))["runs"][0]["disagreements"]
    assert len({one["input_id"] for one in found}) == 1
    assert "radius" in {one["what"] for one in found}


@pytest.mark.filterwarnings("default")
def test_a_damaged_part_is_named_skipped_and_made_again(call: Call, tmp_path: Path) -> None:
    words = ["certify", "--sigma", 0.5, "--limit", 3, "--n", 100, "--batch", 50, "--out", tmp_path / "run"]
    call(*words)
    run = rf.RunFolder.open(tmp_path / "run")
    before = run.records()
    run.append([replace(run.read()[0], input_id=7777)])  # a second part, which stays readable
    run.settle()
    first, second = part_paths(tmp_path / "run" / "parts")
    first.write_bytes(first.read_bytes()[:-20])
    result = call("verify", tmp_path / "run", code=1)
    assert f"parts/{first.name} was changed after it was written" in result.stdout
    assert "1 records, 1 of 3 inputs" in result.stdout  # the rest is still read
    metrics = call("metrics", tmp_path / "run", "--json")
    assert document(metrics)["runs"][0]["count"] == 1
    assert "the run is not whole, 1 of 3 inputs are there" in metrics.stderr
    second.unlink()
    mended = call(*words)
    assert f"{second.name} is missing" in mended.stderr
    assert f"{first.name} was changed" in mended.stderr
    call("verify", tmp_path / "run")
    after = rf.RunFolder.open(tmp_path / "run").records()
    assert after.drop_columns(["seconds"]).equals(before.drop_columns(["seconds"]))


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("words", [("metrics",), ("report", "--out", "page.html"), ("plot", "--out", "curve.svg")])
def test_where_no_part_counts_that_is_told(
    call: Call, finished: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(finished["fixed"], tmp_path / "run")
    for part in part_paths(tmp_path / "run" / "parts"):
        part.unlink()
        part.mkdir()
    result = call(*words, "run", code=2)
    assert "run: must hold at least one record; got none that counts: parts/part-000000.parquet, which cannot be" in (
        " ".join(result.stderr.split())
    )


def test_info(call: Call, finished: dict[str, Path]) -> None:
    here = document(call("info", "--json"))
    assert here["denoisers"] == ["dncnn"]
    assert {"python", "torch", "devices", "procedures", "mechanisms", "architectures"} <= set(here)
    assert "neyman-pearson" in here["mechanisms"]
    assert {"gaussian", "uniform", "laplace"} <= set(here["noises"])
    assert here["engines"][:2] == ["local", "ray"]
    run = document(call("info", finished["fixed"], "--json"))
    assert (run["inputs done"], run["finished"], run["noise.sigma"], run["data.limit"]) == ("6 of 6", True, 0.5, 6)
    assert run["damaged parts"] == []
    assert "config_hash" in call("info", finished["fixed"]).stdout


@pytest.mark.parametrize("imported", [False, True])
def test_a_report_on_a_log_of_times_near_zero(call: Call, tmp_path: Path, imported: bool) -> None:
    head, *rows = LOG.read_text().splitlines()
    tiny = tmp_path / "tiny"
    tiny.write_text("\n".join([head, *(row.rpartition("\t")[0] + "\t1e-308" for row in rows)]))
    if imported:
        call("import", "cohen", tiny, "--sigma", 0.25, "--out", tmp_path / "run")
    second = tmp_path / "run" if imported else tiny
    call("report", LOG, second, "--out", tmp_path / "x.html")
    assert (tmp_path / "x.html").stat().st_size


def test_logs_in_and_out(call: Call, tmp_path: Path) -> None:
    result = call("import", "cohen", LOG, "--sigma", 0.25, "--out", tmp_path / "run")
    assert result.stdout == ""
    assert document(call("info", tmp_path / "run", "--json"))["finished"] is True
    as_run = document(call("metrics", tmp_path / "run", "--radii", "0,0.5", "--json"))["runs"][0]
    as_log = document(call("metrics", LOG, "--radii", "0,0.5", "--json"))["runs"][0]
    assert as_run | {"path": ""} == as_log | {"path": ""}
    written = call("export", "cohen", tmp_path / "run").stdout
    said = call("export", "cohen", tmp_path / "run", "--out", tmp_path / "log").stderr
    assert "no proven guarantee, so its log is" in said
    assert (tmp_path / "log.unproved").read_text() == written
    assert written.splitlines()[0].startswith("# no proven guarantee")
    again = document(call("metrics", tmp_path / "log.unproved", "--radii", "0,0.5", "--json"))["runs"][0]
    assert again | {"path": ""} == as_log | {"path": ""}
    assert "kept no counts" in call("verify", tmp_path / "run", code=2).stderr


def test_export_of_an_own_run(call: Call, finished: dict[str, Path]) -> None:
    lines = call("export", "cohen", finished["fixed"]).stdout.splitlines()
    assert lines[0].split("\t") == ["idx", "label", "predict", "radius", "correct", "time"]
    for line, record in zip(lines[1:], rf.RunFolder.open(finished["fixed"]).read(), strict=True):
        index, label, predict, radius, correct, _ = line.split("\t")
        assert (int(index), int(label), int(predict)) == (record.input_id, record.label, record.prediction)
        assert record.radius * (1 - 1e-5) <= float(radius) <= record.radius
        assert int(correct) == record.correct


def test_metrics_tell_where_staged_runs_stopped(call: Call, finished: dict[str, Path]) -> None:
    runs = document(call("metrics", *finished.values(), "--json"))["runs"]
    stages = {Path(run["path"]).name: run.get("stages") for run in runs}
    assert stages["fixed"] is None
    shares = stages["sequential"]["shares"]
    assert sum(one["asa"] + one["asc"] for one in shares) == pytest.approx(100)
    assert stages["sequential"]["sample_rf"] > 1
    table = call("metrics", *finished.values()).stdout
    assert all(word in table for word in ("ASA", "ASC", "SampleRF", "published SampleRF"))


def test_the_envelope_is_labelled(call: Call, finished: dict[str, Path]) -> None:
    paths = [finished["fixed"], finished["sequential"]]
    found = document(call("compare", *paths, "--envelope", "--radii", "0,0.3", "--json"))
    assert found["envelope"] == "chosen per radius"
    runs = document(call("metrics", *paths, "--radii", "0,0.3", "--json"))["runs"]
    best = [max(run["certified_accuracy"][radius] for run in runs) for radius in ("0.0", "0.3")]
    assert [point["certified_accuracy"] for point in found["points"]] == best
    assert "chosen per radius" in call("compare", *paths, "--envelope").stdout


def test_an_envelope_is_of_one_data_set_and_says_where_inputs_are_fewer(call: Call, tmp_path: Path) -> None:
    """Certified accuracies of easier inputs would be the best of every radius, whatever the networks."""
    few = rf.Execution(device="cpu", plan=ForwardPlan(40), check=False)
    data = {"easy": torch.full((4, 1, 1, 2), 0.9), "hard": torch.full((4, 1, 1, 2), 0.5)}
    net = nn.Sequential(nn.Flatten(), nn.Linear(2, 2)).eval()
    for name, x in {**data, "fewer": data["hard"]}.items():
        labelled = rf.Data((x, torch.zeros(4, dtype=torch.int64)), limit=3 if name == "fewer" else None)
        rf.Certification(net, labelled, noise=rf.Gaussian(0.5), procedure=rf.Fixed(n0=10, n=40)).run(
            tmp_path / name, few
        )
    refused = call("compare", tmp_path / "hard", tmp_path / "easy", "--envelope", code=2)
    told = " ".join(refused.stderr.split())
    assert "runs must be of the same data to be the best of a radius; got other data bytes" in told
    fewer = call("compare", tmp_path / "hard", tmp_path / "fewer", "--envelope")
    assert "the runs have 3 to 4 inputs" in " ".join(fewer.stderr.split())


def test_plan(call: Call) -> None:
    fixed = document(call("plan", "--sigma", 0.25, "--json"))
    assert fixed["most_draws"] == 100_100
    assert fixed["largest_radius"] == pytest.approx(0.25 * 3.811, rel=1e-3)
    sequential = document(call("plan", "--sigma", 0.25, "--radius", 0.5, "--json"))
    assert sequential["procedure"] == "sequential"
    assert sequential["largest_radius"] == pytest.approx(0.25 * 3.835, rel=1e-3)
    assert sequential["most_draws"] == 110_100
    assert sequential["expected_draws_at_p"]["0.5"] < 1000
    staged = document(call("plan", "--sigma", 0.25, "--radius", 0.5, "--procedure", "staged", "--json"))
    assert staged["most_draws"] == 136_100
    text = call("plan", "--sigma", 0.25, "--radius", 0.5).stdout
    assert "largest radius" in text
    assert "(needed)" in text


def test_plan_warns_of_what_cannot_be_reached(call: Call) -> None:
    for options in (["--n", 1000], ["--procedure", "fixed", "--n", 1000]):
        result = call("plan", "--sigma", 0.25, "--radius", 0.8, *options)
        assert "the radius 0.8 is out of reach" in result.stderr
        assert "warning" not in result.stdout


@pytest.mark.parametrize(
    ("procedure", "remedy"),
    [("fixed", "Raise --n or --sigma"), ("staged", "Raise the draws or --sigma"), ("predict", "Choose another --proc")],
)
def test_plan_names_what_the_procedure_has(call: Call, procedure: str, remedy: str) -> None:
    assert remedy in call("plan", "--sigma", 0.25, "--radius", 8, "--procedure", procedure).stderr


def test_plan_shows_no_radius_that_is_out_of_reach(call: Call) -> None:
    words = ["plan", "--sigma", 0.25, "--procedure", "fixed", "--n"]
    for n in (1000, 2000, 3000, 5000):
        shown = re.search(r"largest radius +([\d.]+)", call(*words, n).stdout)
        assert shown
        assert "out of reach" not in call(*words, n, "--radius", shown[1]).stderr


def test_plan_measures_the_model(call: Call, tmp_path: Path) -> None:
    np.savez(tmp_path / "few.npz", x=np.zeros((3, 1, 28, 28), np.float32))
    answer = document(call("plan", "--sigma", 0.5, "--radius", 0.5, "--model", "default", "--inputs", 7, "--json"))
    assert answer["most_seconds"] == pytest.approx(110_100 * 7 / answer["forwards_per_second"])
    few = call("plan", "--sigma", 0.5, "--radius", 0.5, "--model", "default", "--data", tmp_path / "few.npz").stdout
    assert "for 3 inputs" in few
    text = call("plan", "--sigma", 0.5, "--radius", 0.5, "--model", "default", "--inputs", 7).stdout
    assert re.search(r"time +at most [\d.]+ (s|min|h) for 7 inputs, [\d.]+ (s|min|h) if all are easy", text)
