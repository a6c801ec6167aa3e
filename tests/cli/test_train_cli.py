"""train and attack from the command line: tiny data, tiny networks, every path once."""

from __future__ import annotations

import csv
import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import Result
from safetensors import safe_open

from ringfence.models import load_model
from ringfence.training import TrainingJob
from ringfence.training.objectives import Drt, SmoothAdv
from ringfence.training.options import RECIPES, described_job, training_command

Call = Callable[..., Result]

FACTORY = '''"""A network for the tests of training."""
import os, time
from pathlib import Path
from torch import nn

class Held(nn.Module):
    """Where a test wants it, it waits for its end as soon as this file is there."""
    def forward(self, x):
        while Path(os.environ.get("HELD_FROM", "/nowhere")).exists():
            Path(os.environ["HELD_FROM"] + ".held").touch()
            time.sleep(0.01)
        return x

def build(num_classes=3):
    return nn.Sequential(nn.Flatten(), Held(), nn.Linear(16, 12), nn.Tanh(), nn.Linear(12, num_classes))
'''


@pytest.fixture
def tiny(tmp_path: Path) -> list[str]:
    """--data and --arch of images that are bright in one of three rows."""
    random = np.random.default_rng(0)
    y = np.arange(96) % 3
    x = 0.3 * random.random((96, 4, 4), dtype=np.float32)
    x[np.arange(96), y] += 0.6
    np.savez(tmp_path / "rows.npz", x_train=x, y_train=y, x_test=x[:12], y_test=y[:12])
    (tmp_path / "nets.py").write_text(FACTORY)
    return ["--data", str(tmp_path / "rows.npz"), "--arch", f"{tmp_path / 'nets.py'}:build"]


SMALL = ["--batch", 16, "--device", "cpu", "--sigma", 0.2, "--quiet"]


def tensors(path: Path) -> dict[str, torch.Tensor]:
    with safe_open(path, framework="pt") as file:
        return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118


def test_members_differ_and_a_second_call_changes_nothing(call: Call, tiny: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["train", *tiny, "--out", out, "--members", 2, "--epochs", 2, *SMALL]
    printed = call(*words).output.split()
    assert printed == [str(out / "final-0.safetensors"), str(out / "final-1.safetensors")]
    first, second = (tensors(out / f"final-{i}.safetensors") for i in range(2))
    assert first["2.weight"].dtype == torch.float16
    assert not torch.equal(first["2.weight"], second["2.weight"])
    stamp = (out / "final-0.safetensors").stat().st_mtime_ns
    call(*words)
    assert (out / "final-0.safetensors").stat().st_mtime_ns == stamp
    assert "continued with its own settings" in call(*words, "--lr", 0.5, code=2).output


def test_what_is_there_already_and_what_it_would_be_tested_on_is_told(
    call: Call, tiny: list[str], tmp_path: Path
) -> None:
    words = ["train", *tiny, "--out", tmp_path / "out", "--epochs", 1, *SMALL[:-1]]
    arrays = dict(np.load(tiny[1]))
    np.savez(tiny[1], **(arrays | {"x_test": arrays["x_test"] / 2}))
    told = call(*words).stderr
    assert "already trained" not in told
    assert "use it: " in told
    assert "no inputs apart" not in told
    assert "all members are already trained" in call(*words).stderr
    np.savez(tiny[1], x=arrays["x_train"], y=arrays["y_train"])
    words = ["train", *tiny, "--out", tmp_path / "other", "--epochs", 1, *SMALL[:-1]]
    assert "has no inputs apart for tests" in " ".join(call(*words).stderr.split())


def test_a_folder_with_fewer_members_is_no_start_for_all(call: Call, tiny: list[str], tmp_path: Path) -> None:
    one = tmp_path / "one"
    call("train", *tiny, "--out", one, "--epochs", 1, *SMALL)
    words = ("train", *tiny, "--out", tmp_path / "two", "--epochs", 1, "--members", 2, *SMALL)
    told = " ".join(call(*words, "--init", one, code=2).stderr.split())
    assert "--init: must hold weights for each of 2 members; got 1 in" in told
    call(*words, "--init", f"{tiny[3]}@{one / 'final-0.safetensors'}")


def test_a_killed_training_goes_on_to_the_same_weights(
    call: Call,
    program: Callable[..., subprocess.Popen[str]],
    tiny: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the middle of a step, with some epochs behind it."""
    words = ["train", *tiny, "--epochs", 300, *SMALL]
    log = tmp_path / "cut" / "member-0" / "log.csv"
    with monkeypatch.context() as patch:
        patch.setenv("HELD_FROM", str(log))
        process = program(*words, "--out", tmp_path / "cut")
    while not log.with_name("log.csv.held").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    with log.open() as file:
        assert 0 < len(list(csv.DictReader(file))) < 300
    call(*words, "--out", tmp_path / "cut")
    call(*words, "--out", tmp_path / "whole")
    cut, whole = (tensors(tmp_path / name / "final-0.safetensors") for name in ("cut", "whole"))
    assert all(torch.equal(cut[key], whole[key]) for key in whole)
    with log.open() as file:
        assert [int(line["epoch"]) for line in csv.DictReader(file)] == list(range(1, 301))


def test_a_second_training_does_not_touch_a_live_one(call: Call, tiny: list[str], tmp_path: Path) -> None:
    from ringfence.store.atomic import locked

    words = ["train", *tiny, "--epochs", 1, *SMALL, "--out", tmp_path / "net"]
    with locked(tmp_path / "net"):
        assert "one writer" in call(*words, code=2).stderr
        assert [entry.name for entry in (tmp_path / "net").iterdir()] == ["lock"]
    call(*words)


def test_members_side_by_side_equal_members_one_by_one(call: Call, tiny: list[str], tmp_path: Path) -> None:
    words = ["train", *tiny, "--members", 2, "--epochs", 2, *SMALL]
    call(*words, "--out", tmp_path / "one")
    call(*words, "--out", tmp_path / "two", "--parallel", 2)
    for i in range(2):
        one, two = (tensors(tmp_path / name / f"final-{i}.safetensors") for name in ("one", "two"))
        assert all(torch.equal(one[key], two[key]) for key in one)


def test_drt_starts_from_trained_members_and_the_result_is_certified(
    call: Call, tiny: list[str], tmp_path: Path
) -> None:
    call("train", *tiny, "--out", tmp_path / "base", "--members", 2, "--epochs", 3, "--lr", 0.1, *SMALL)
    told = call(
        *("train", *tiny, "--out", tmp_path / "drt", "--objective", "drt", "--base", "smoothadv"),
        *("--set", "eps=0.2", "--set", "steps=2", "--rho1", 0.1, "--rho2", 0.5, "--init", tmp_path / "base"),
        *("--members", 2, "--epochs", 1, "--holdout", 12, "--keep", "best", "--json", *SMALL),
    )
    answer = json.loads(told.output)
    assert answer["settings"]["plan"]["objective"]["base"] == {
        "name": "smoothadv",
        "eps": 0.2,
        "steps": 2,
        "copies": 2,
        "attack": "pgd",
    }
    arch, weights = tiny[3], answer["weights"][0]
    run = tmp_path / "run"
    common = ["--model", arch, "--weights", weights, "--classes", 3]
    call("certify", *common, "--data", tiny[1], "--sigma", 0.2, "--n", 300, "--batch", 100, "--out", run, "--quiet")
    result = call(
        "attack", run, "--trust", "--weights", weights, "--radii", "0.1,2.0", "--steps", 3, "--json", "--device", "cpu"
    )
    found = json.loads(result.stdout)
    assert found["broken"] == []
    assert all(a >= b for a, b in zip(found["empirical"], found["certified"], strict=True))


def test_a_trained_ensemble_says_how_to_certify_it_and_is_no_run(
    call: Call, tiny: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = [word for word in SMALL if word != "--quiet"]
    told = call("train", *tiny, "--out", tmp_path / "net", "--members", 2, "--epochs", 1, *few).output.replace(
        "\n", " "
    )
    members = ", ".join(
        f"{tiny[3]}@{tmp_path / 'net' / name}" for name in ("final-0.safetensors", "final-1.safetensors")
    )
    assert (
        f"use it: ringfence certify --model 'soft({members})' --sigma 0.2 --radius 0.2 --data {tiny[1]} --out runs/net"
        in told
    )
    monkeypatch.chdir(tmp_path)
    again = call("train", *tiny, "--out", "runs/net", "--epochs", 1, *few).output.replace("\n", " ")
    assert "--out runs/certified" in again, "runs/net is the training itself"
    told = " ".join(call("verify", tmp_path / "net", code=2).output.split())
    assert "must be a run's settings; got those of a training. Name a folder that ringfence certify" in told
    before = (tmp_path / "net" / "config.json").read_bytes()
    told = " ".join(call("certify", "--sigma", 0.5, "--limit", 1, "--out", tmp_path / "net", code=2).output.split())
    assert "must be a run or an empty folder; got a config.json that is no run's: those of a training" in told
    assert (tmp_path / "net" / "config.json").read_bytes() == before


def test_a_selector_is_trained_and_used(call: Call, tiny: list[str], tmp_path: Path) -> None:
    call("train", *tiny, "--out", tmp_path / "net", "--epochs", 4, "--lr", 0.1, *SMALL)
    spec = f"{tiny[3]}@{tmp_path / 'net' / 'final-0.safetensors'}"
    few = [word if word != 0.2 else 0.6 for word in SMALL if word != "--quiet"]
    words = ["train", *tiny, "--objective", "select", "--classifier", spec, "--set", "n=200", "--epochs", 2, *few]
    told = call(*words, "--out", tmp_path / "one", "--set", "eta=0.7", "--base", "consistency").output
    assert "of 96 training inputs" in told
    assert "use it: ringfence certify --model 'aces(certify=" in told
    counts = tmp_path / "one" / "answers.safetensors"
    stamp = counts.stat().st_mtime_ns
    for weights in ("final-0.safetensors", "member-0/last.json"):
        (tmp_path / "one" / weights).unlink()
    call(*words, "--out", tmp_path / "one", "--set", "eta=0.8")
    assert counts.stat().st_mtime_ns == stamp, "another eta counts nothing anew"
    select = f"{tiny[3]}@{tmp_path / 'one' / 'final-0.safetensors'}"
    common = ["--classes", 3, "--data", tiny[1], "--sigma", 0.6, "--n", 100, "--out", tmp_path / "run", "--json"]
    tree = f"aces(certify={spec}, core={spec}, select={select}, theta=0/0.5/1)"
    told = call("certify", "--model", tree, *common)
    assert [entry["theta"] for entry in json.loads(told.stdout)["thetas"]] == [0.0, 0.5, 1.0]


def test_a_false_certificate_is_broken_with_evidence(call: Call, tiny: list[str], tmp_path: Path) -> None:
    from ringfence.store import RunFolder
    from ringfence.store.guarded import Guarded
    from ringfence.store.parts import part_bytes
    from ringfence.store.schema import to_table

    call("train", *tiny, "--out", tmp_path / "net", "--epochs", 4, "--lr", 0.1, *SMALL)
    weights = tmp_path / "net" / "final-0.safetensors"
    common = ["--model", tiny[3], "--weights", weights, "--classes", 3, "--data", tiny[1], "--sigma", 0.2]
    call("certify", *common, "--n", 300, "--batch", 100, "--out", tmp_path / "run", "--quiet")
    run = RunFolder.open(tmp_path / "run")
    forged = [type(one)(**{**vars(one), "radius": 5.0}) for one in run.read()]
    old = [f"parts/{part.name}" for part in (tmp_path / "run" / "parts").glob("*.parquet")]
    Guarded(run.path).replace_parts(old, part_bytes(to_table(forged), 0, 0), len(forged))
    assert {one.radius for one in RunFolder.open(run.path).read()} == {5.0}
    words = ["attack", tmp_path / "run", "--trust", "--weights", weights, "--radii", "0.5", "--device", "cpu"]
    result = call(*words, "--recheck", 2000, "--out", tmp_path / "evidence", code=1)
    assert "certificate broken" in result.output
    with np.load(tmp_path / "evidence" / "broken.npz") as arrays:
        assert len(arrays["x"]) == len(json.loads((tmp_path / "evidence" / "attack.json").read_text())["broken"]) > 0


def test_the_attack_refuses_another_model(call: Call, tiny: list[str], tmp_path: Path) -> None:
    call("train", *tiny, "--out", tmp_path / "net", "--members", 2, "--epochs", 1, *SMALL)
    one, other = (tmp_path / "net" / f"final-{i}.safetensors" for i in range(2))
    common = ["--model", tiny[3], "--weights", one, "--classes", 3, "--data", tiny[1], "--sigma", 0.2]
    call("certify", *common, "--n", 100, "--batch", 100, "--limit", 2, "--out", tmp_path / "run", "--quiet")
    told = call("attack", tmp_path / "run", "--trust", "--weights", other, "--device", "cpu", code=2)
    assert "must be the model the run certified" in told.output


SCALED = "normalize(default:1, mean=0.1, std=0.9)"


@pytest.mark.parametrize(
    ("init", "starts"),
    [
        ("default", ("default", "default")),
        (f"default:2,{SCALED}", ("default:2", SCALED)),
        (f"consensus({SCALED}, default, agree=1)", (SCALED, "default")),
    ],
)
def test_members_start_from_models_and_trees(call: Call, tmp_path: Path, init: str, starts: tuple[str, ...]) -> None:
    """At a rate of almost nothing they stay where they start; files are in half precision."""
    words = ("--data", "default", "--limit", 32, "--epochs", 1, "--lr", 1e-30, "--weight-decay", 0, *SMALL)
    call("train", "--arch", "lenet", "--members", 2, "--init", init, *words, "--out", tmp_path)
    x = torch.rand(4, 1, 28, 28)
    for member, start in enumerate(starts):
        trained, model = (load_model(one).module(x) for one in (str(tmp_path / f"final-{member}.safetensors"), start))
        assert torch.allclose(trained, model, atol=0.01)


def test_bad_input_is_named(call: Call, tiny: list[str], tmp_path: Path) -> None:
    for extra, told in (
        (["--sigma", -1], "sigma"),
        (["--epochs", 0], "epochs"),
        (["--objective", "magic"], "must be one of gaussian"),
        (["--objective", "drt"], "at least two members together"),
        (["--set", "rho1"], "must be name=value"),
        (["--set", "rho1=1"], "gaussian has the settings"),
        (["--recipe", "paper999"], "must be a known recipe"),
        (["--recipe", "yang2022-mnist-gausian-0.5"], "Did you mean yang2022-mnist-gaussian-0.5"),
        (["--recipe", "yang2022-mnist-drt-gaussian-0.5"], "fine-tunes trained members"),
        (["--recipe", "yang2022-mnist-drt-gaussian-0.5"], "first, by --recipe yang2022-mnist-gaussian-0.5,"),
        (["--keep", "best"], "best needs inputs to judge by"),
        (["--batch", 1000], "at most the number of training inputs"),
        (["--objective", "denoise-stability"], "needs the classifier it is trained for"),
        (["--init", tmp_path / "nowhere"], "must be the folder of a training, or a model"),
        (["--init", "soft(default, default:1)"], "2 models"),
        (["--init", "default"], "must fit the model"),
        (["--parallel", 0], "must be at least 1"),
        (["--arch", "resnet20"], "must take inputs of the data's shape, (1, 4, 4)"),
    ):
        words = [word for pair in zip(tiny[::2], tiny[1::2], strict=True) if pair[0] not in extra for word in pair]
        assert told in call("train", *words, *extra, "--out", tmp_path / "out", code=2).output.replace("\n", " "), extra
    np.savez(tmp_path / "one.npz", x_train=np.zeros((4, 4, 4), np.float32), y_train=np.zeros(4, np.int64))
    told = call("train", "--data", tmp_path / "one.npz", "--arch", tiny[3], "--out", tmp_path / "o", code=2).output
    assert "at least two classes" in told


def test_recipes_hold_the_papers_numbers() -> None:
    gaussian, drt = RECIPES["yang2022-mnist-gaussian-0.5"], RECIPES["yang2022-mnist-drt-gaussian-0.5"]
    assert [gaussian.options[name] for name in ("epochs", "batch", "lr", "lr_every")] == [90, 256, 0.01, 30]
    assert gaussian.options["arch"] == "lenet-wide"
    assert [drt.options[name] for name in ("objective", "base", "members")] == ["drt", "gaussian", 3]
    assert drt.needs_init
    steep = described_job({"data": "d", "recipe": "yang2022-mnist-drt-gaussian-0.5", "init": "i"}, {})
    assert (steep.schedule.lr, steep.objective) == (0.0001, Drt(rho1=10.0, rho2=2.5, reduction="mean", squared=True))
    attacked = described_job({"data": "d", "recipe": "yang2022-mnist-drt-smoothadv-1.0", "init": "i"}, {})
    assert attacked.attack_warmup == 0  # its members withstand the whole attack already
    assert attacked.objective == Drt(SmoothAdv(), 0.2, 5.0, "mean", squared=True, regularise_at="attacked")
    consistency = RECIPES["horvath2022-cifar10-consistency-0.25"]
    assert (consistency.settings["weight"], consistency.options["batch"]) == (20, 128)
    macer = RECIPES["zhai2020-cifar10-macer-0.5"]
    assert (macer.settings["weight"], macer.settings["copies"]) == (4, 16)
    assert [macer.options[name] for name in ("epochs", "batch", "lr", "weight_decay")] == [440, 64, 0.01, 5e-4]
    steps = described_job({"data": "d", "recipe": "zhai2020-cifar10-macer-0.5"}, {}).schedule
    assert [steps.at(epoch, 1, 440) for epoch in (199, 200, 399, 400)] == pytest.approx([1e-2, 1e-3, 1e-3, 1e-4])
    assert RECIPES["jeong2023-cifar10-catrs-0.5"].options["batch"] == 64
    assert all(one.options["nesterov"] is name.startswith("horvath2022") for name, one in RECIPES.items())
    assert all(one.source for one in RECIPES.values())


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_describes_a_training(name: str, tmp_path: Path) -> None:
    given = {"data": "default", "recipe": name, "init": str(tmp_path), "classifier": "default", "seed": 3}
    job = described_job(given, {})
    assert job.nesterov is name.startswith("horvath2022")
    assert job.sigma == float(name.rpartition("-")[2])
    assert len(job.members) == RECIPES[name].options["members"]
    assert job.arch in ("lenet-wide", "resnet110")


def test_momentum_is_nesterovs_unless_told(call: Call, tiny: list[str], tmp_path: Path) -> None:
    for words, kept in (((), True), (("--no-nesterov",), False)):
        out = tmp_path / f"out{kept}"
        call("train", *tiny, "--out", out, "--epochs", 2, *SMALL, *words)
        settings = json.loads((out / "config.json").read_text())
        assert settings["plan"]["nesterov"] is kept
        assert ("--nesterov" in training_command(TrainingJob.of(settings))) is kept
        assert ("--no-nesterov" in training_command(TrainingJob.of(settings))) is not kept
    first, second = (tensors(tmp_path / f"out{kept}" / "final-0.safetensors") for kept in (True, False))
    assert any(not torch.equal(first[key], second[key]) for key in first)


@pytest.mark.filterwarnings("always")
def test_a_loud_sigma_is_warned_of(call: Call, tmp_path: Path) -> None:
    words = ["--data", "default", "--epochs", 1, "--batch", 500, "--out", tmp_path / "net", "--device", "cpu"]
    told = " ".join(call("train", *words, "--sigma", 50).output.split())
    assert "warning: sigma 50 is 50 times the way from black to white" in told


def test_a_misspelt_architecture_is_answered_with_the_nearest(call: Call, tmp_path: Path) -> None:
    words = ["--data", "default", "--arch", "lennet", "--sigma", 0.5, "--out", tmp_path / "net"]
    assert "Did you mean lenet?" in " ".join(call("train", *words, code=2).output.split())


@pytest.mark.parametrize("batch", [16, 1000], ids=["fitting", "too large"])
def test_a_training_never_replaces_a_run(
    call: Call, tiny: list[str], finished: dict[str, Path], tmp_path: Path, batch: int
) -> None:
    """Its settings took the place of the run's, even where the training itself was refused: the run was lost."""
    run = shutil.copytree(finished["fixed"], tmp_path / "run")
    before = {one.name: one.read_bytes() for one in run.iterdir() if one.is_file() and one.name != "lock"}
    words = ["train", *tiny, "--epochs", 1, "--device", "cpu", "--quiet", "--batch", batch, "--out", run]
    message = call(*words, code=2).stderr
    assert f"error: {run / 'config.json'}: " in message
    assert "Train into another folder." in message
    assert {one.name: one.read_bytes() for one in run.iterdir() if one.is_file() and one.name != "lock"} == before
    call("verify", run)
