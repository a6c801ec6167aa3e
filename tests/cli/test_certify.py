"""``certify`` and ``predict``: what they print, where, and what they leave behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import Result
from safetensors.torch import save_file

import ringfence as rf
from ringfence.store.atomic import locked

Call = Callable[..., Result]
SMALL = ("--sigma", 0.5, "--limit", 4, "--batch", 100)


def certified(call: Call, out: Path, *options: object, command: str = "certify") -> dict[str, Any]:
    result = call(command, *options, "--out", out, "--json")
    return dict(json.loads(result.stdout))


def test_the_json_document(call: Call, tmp_path: Path) -> None:
    out = tmp_path / "run"
    answer = certified(call, out, *SMALL, "--n", 400)
    entry = ["path", "count", "sound", "acr", "abstention", "certified_accuracy", "draws", "forwards", "seconds", "run"]
    assert list(answer) == [*entry, "runs"]
    assert [list(run) for run in answer["runs"]] == [entry]
    assert (answer["count"], answer["draws"], answer["forwards"], answer["sound"]) == (4, 2000, 2000, True)
    assert answer["run"] == answer["path"] == str(out)
    assert answer["acr"] > 0.5
    assert answer["certified_accuracy"]["0.0"] == 1.0
    assert all("." in radius for radius in answer["certified_accuracy"])
    assert len(rf.RunFolder.open(out).read()) == 4


def test_a_table_on_standard_output_and_remarks_beside_it(call: Call, tmp_path: Path) -> None:
    first = call("certify", *SMALL, "--n", 400, "--out", tmp_path / "run")
    assert "Certified accuracy" in first.stdout
    assert "ACR" in first.stdout
    assert "guarantee: for each input, with probability at least 0.999" in first.stderr
    assert "guarantee" not in first.stdout
    again = call("certify", *SMALL, "--n", 400, "--out", tmp_path / "run")
    assert "all 4 inputs are already there" in again.stderr
    assert again.stdout == first.stdout


def test_who_is_refused_is_not_told_that_it_goes_on(call: Call, tmp_path: Path) -> None:
    command = ("certify", *SMALL, "--n", 400, "--out", tmp_path / "run")
    call(*command)
    with locked(tmp_path / "run"):
        refused = call(*command, code=2).stderr
    assert "a folder has one writer" in refused
    assert "already there" not in refused


def test_quiet_means_results_only(call: Call, tmp_path: Path) -> None:
    result = call("certify", *SMALL, "--n", 400, "--out", tmp_path / "run", "--quiet")
    assert result.stderr == ""
    assert "ACR" in result.stdout


@pytest.mark.parametrize(
    ("options", "name", "most_draws"),
    [
        (["--procedure", "fixed", "--n", 300], "fixed", 400),
        (["--procedure", "two-sided", "--n", 300], "two-sided", 400),
        (["--procedure", "staged", "--radius", 0.2, "--stages", "200,400"], "staged", 700),
        (["--radius", 0.2, "--n", 2000], "sequential", 2100),
        (["--procedure", "sequential", "--radius", 0.2, "--n", 2000, "--beta", 0.1], "sequential", 2100),
        (["--procedure", "anytime", "--n", 900, "--tolerance", 0.3], "anytime", 1000),
        (["--procedure", "anytime", "--n", 10**7, "--seconds", 0.05], "anytime", 10**7),
    ],
)
def test_procedures(call: Call, tmp_path: Path, options: list[object], name: str, most_draws: int) -> None:
    answer = certified(call, tmp_path / "run", *SMALL, *options)
    records = rf.RunFolder.open(tmp_path / "run").read()
    assert {record.procedure for record in records} == {name}
    assert all(record.draws <= most_draws for record in records)
    assert (answer["acr"] is None) == (records[0].target is not None)
    if records[0].target is not None:
        assert list(answer["certified_accuracy"]) == ["0.0", "0.2"]
    assert rf.verify(rf.RunFolder.open(tmp_path / "run")) == []


def test_predict(call: Call, tmp_path: Path) -> None:
    answer = certified(call, tmp_path / "run", *SMALL, "--n", 200, command="predict")
    assert answer["draws"] == 800
    assert list(answer["certified_accuracy"]) == ["0.0"]
    assert answer["acr"] is None, "no radius is claimed, which is not a poor one"
    result = call("predict", *SMALL, "--n", 200, "--out", tmp_path / "run")
    assert "most probable class" in result.stderr
    (heading,) = [line for line in result.stdout.splitlines() if line.startswith("input")]
    assert heading.split() == ["input", "label", "prediction", "draws"], "a radius of 0.000 would look like a claim"


def test_cohens_flags_are_aliases(call: Call, tmp_path: Path) -> None:
    # --max stops at an index of the data set before skipping: indices 0 and 3 of 0..5.
    cohen = ["--sigma", 0.5, "--N0", 50, "--N", 200, "--max", 6, "--skip", 3, "--split", "test", "--batch", 64]
    assert certified(call, tmp_path / "cohen", *cohen)["count"] == 2
    ours = ["--sigma", 0.5, "--n0", 50, "--n", 200, "--limit", 2, "--skip", 3, "--batch", 64]
    certified(call, tmp_path / "ours", *ours)
    one, other = (rf.RunFolder.open(tmp_path / name) for name in ("cohen", "ours"))
    assert [(r.input_id, r.draws) for r in one.read()] == [(r.input_id, r.draws) for r in other.read()]
    assert one.config.procedure.settings == other.config.procedure.settings == {"alpha": 0.001, "n0": 50, "n": 200}


def test_mechanisms(call: Call, tmp_path: Path) -> None:
    certified(call, tmp_path / "all", *SMALL, "--n", 400, "--mechanism", "all")
    certified(call, tmp_path / "one", *SMALL, "--n", 400, "--mechanism", "one-sided")
    for record, single in zip(*(rf.RunFolder.open(tmp_path / name).read() for name in ("all", "one")), strict=True):
        assert {"neyman_pearson", "one_sided", "renyi", "pixeldp", "analytic_dp"} <= set(record.radii)
        assert list(single.radii) == ["one_sided"]
        assert single.radius == record.radii["one_sided"]


def test_own_model_weights_data_and_precision(call: Call, tmp_path: Path, models: Path, dots: Path) -> None:
    answers = {}
    for name, options in {"fp32": [], "bf16": ["--precision", "bf16"]}.items():
        words = ["--model", f"{models}:build", "--data", dots, "--sigma", 0.2, "--n", 500, *options]
        answers[name] = certified(call, tmp_path / name, *words)
    assert answers["fp32"]["count"] == 10
    assert answers["fp32"]["certified_accuracy"]["0.0"] >= 0.8
    assert abs(answers["fp32"]["acr"] - answers["bf16"]["acr"]) < 0.05
    assert rf.RunFolder.open(tmp_path / "bf16").forward_plans()[0]["precision"] == "bf16"
    # Weights from a file: the arms exchanged, so that everything is wrong.
    weights = tmp_path / "swapped.safetensors"
    state = {"1.weight": torch.tensor([[1.0, 0, 0, 0], [0, 0, 0, 0]]), "1.bias": torch.tensor([-0.5, 0.0])}
    save_file(state, weights)
    words = ["--model", f"{models}:build", "--weights", weights, "--data", dots, "--sigma", 0.2, "--n", 500]
    assert certified(call, tmp_path / "swapped", *words)["certified_accuracy"]["0.0"] == 0.0


def test_fast_on_a_processor_is_half_precision(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: {"avx512_bf16": True})
    certified(call, tmp_path / "run", *SMALL, "--n", 400, "--fast", "--device", "cpu")
    run = rf.RunFolder.open(tmp_path / "run")
    assert run.config.precision == "bf16"
    assert not run.forward_plans()[0]["compile"], "compiled only where a long run was measured to gain by it"
    certified(call, tmp_path / "other", *SMALL, "--n", 400, "--fast", "--precision", "fp32", "--device", "cpu")
    assert rf.RunFolder.open(tmp_path / "other").config.precision == "fp32", "what is said goes before"


@pytest.mark.parametrize(("command", "least"), [("certify", 10), ("predict", 11)])
def test_draws_of_which_no_outcome_proves_anything_are_told(
    call: Call, tmp_path: Path, command: str, least: int
) -> None:
    """At alpha .001 nine draws of ten show no more than a half; the rank test needs one more."""
    told = "draws of an input proves anything: every one will be abstained from. Give more."
    few = call(command, *SMALL, "--n", least - 1, "--out", tmp_path / "few")
    assert told in few.stderr
    assert "100.0" in few.stdout
    assert told not in call(command, *SMALL, "--n", least, "--out", tmp_path / "enough").stderr


def test_mean_and_std_belong_to_the_model(call: Call, tmp_path: Path, models: Path, dots: Path) -> None:
    words = ["--model", f"{models}:build", "--data", dots, "--sigma", 0.2, "--n", 300, "--mean", 0.5, "--std", 0.25]
    certified(call, tmp_path / "run", *words)
    config = rf.RunFolder.open(tmp_path / "run").config
    assert (config.classifier.mean, config.classifier.std) == ([0.5], [0.25])


@pytest.mark.filterwarnings("default")
def test_inputs_outside_the_unit_range_are_named(call: Call, tmp_path: Path, models: Path) -> None:
    import numpy as np

    np.savez(tmp_path / "wide.npz", x=np.linspace(-1, 3, 12, dtype=np.float32).reshape(3, 2, 2), y=np.zeros(3, int))
    words = ["--model", f"{models}:build", "--data", tmp_path / "wide.npz", "--sigma", 0.2, "--n", 100]
    result = call("certify", *words, "--out", tmp_path / "run", "--json")
    assert "inputs range over [-1, 3], not [0, 1]" in result.stderr
    json.loads(result.stdout)


def test_a_limit_that_leaves_one_class_alone_is_told_in_the_words_of_the_command(
    call: Call, tmp_path: Path, models: Path
) -> None:
    import numpy as np

    np.savez(tmp_path / "sorted.npz", x=np.zeros((9, 2, 2), np.uint8), y=np.repeat([0, 1], [6, 3]))
    words = ["--model", f"{models}:build", "--data", tmp_path / "sorted.npz", "--sigma", 0.2, "--n", 100, "--no-check"]
    told = "all 5 inputs are of class 0: folders come class by class, so that --limit takes the first. --skip 20 takes"
    assert told in call("certify", *words, "--limit", 5, "--out", tmp_path / "few").stderr
    assert "folders come class by class" not in call("certify", *words, "--out", tmp_path / "all").stderr


def test_data_that_names_fewer_classes_than_the_network_has_is_told(call: Call, tmp_path: Path) -> None:
    import numpy as np

    for names in (["cat", "dog"], [f"c{k}" for k in range(10)]):
        x, y = np.zeros((4, 28, 28), np.uint8), np.arange(4) % 2
        np.savez(tmp_path / f"{len(names)}.npz", x=x, y=y, classes=np.array(names))
    words = ["--sigma", 0.5, "--n", 100, "--no-check"]
    told = "the data has 2 classes, the network 10: cat is taken for its class 0, dog for its class 1."
    assert told in call("certify", *words, "--data", tmp_path / "2.npz", "--out", tmp_path / "two").stderr
    assert (
        "is taken for" not in call("certify", *words, "--data", tmp_path / "10.npz", "--out", tmp_path / "ten").stderr
    )


def test_results_do_not_change_with_the_seed_unless_asked(call: Call, tmp_path: Path) -> None:
    options = [*SMALL, "--n", 300]
    answers = [certified(call, tmp_path / str(k), *options, "--seed", seed)["acr"] for k, seed in enumerate((0, 0, 1))]
    assert answers[0] == answers[1]
    counts = [
        [stage.cells["votes"].tolist() for r in rf.RunFolder.open(tmp_path / str(k)).read() for stage in r.stages]
        for k in range(3)
    ]
    assert counts[0] != counts[2]
