"""``ringfence attack``: its result is stored, shown by the report, and never says more than the run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final

import pytest
from click.testing import Result
from torch import Tensor

from ringfence.lift import LIFTS, Lift
from ringfence.store import RunFolder
from ringfence.store.attack import read_attack

Call = Callable[..., Result]
SMALL = ("--steps", 2, "--copies", 2, "--n", 50, "--device", "cpu", "--quiet")


@pytest.fixture
def certified(call: Call, models: Path, dots: Path, tmp_path: Path) -> Callable[..., Path]:
    """Certify the ten dots with more options."""

    def run(name: str, *options: object) -> Path:
        model = [] if "--model" in options else ["--model", f"{models}:build"]
        words = [*model, "--data", dots, "--sigma", 0.25, "--batch", 100, "--quiet"]
        call("certify", *words, *options, "--out", tmp_path / name)
        return tmp_path / name

    return run


def test_what_is_printed_is_what_is_stored(call: Call, certified: Callable[..., Path], tmp_path: Path) -> None:
    run = certified("run", "--n", 200)
    words = ("attack", run, "--trust", *SMALL, "--radii", "0.5,0.1", "--out", tmp_path / "evidence")
    printed = json.loads(call(*words, "--json").stdout)
    stored = read_attack(tmp_path / "evidence" / "attack.json")
    assert printed == stored.to_dict()
    assert printed["radii"] == [0.1, 0.5]
    assert (stored.run, stored.lane, stored.steps, stored.n) == ("run", "main", 2, 50)
    assert stored.config_hash == RunFolder.open(run).config.digest
    table = call(*words).stdout
    assert "certified" in table
    page = tmp_path / "report.html"
    call("report", run, tmp_path / "evidence", "--out", page)
    assert f"no certificate was broken ({stored.attacked} attacked)" in page.read_text()


def test_a_known_radius_says_nothing_about_larger_ones(call: Call, certified: Callable[..., Path]) -> None:
    run = certified("run", "--radius", 0.1, "--n", 2000)
    words = ("attack", run, "--trust", *SMALL, "--radii", "0.05,0.1,0.3")
    found = json.loads(call(*words, "--json").stdout)
    assert found["certified"][0] == found["certified"][1] > 0
    assert found["certified"][2] is None
    assert call(*words).stdout.splitlines()[-2].split()[1] == "-"


def test_a_run_of_predict_says_nothing_about_radii(call: Call, certified: Callable[..., Path]) -> None:
    run = certified("run", "--procedure", "predict", "--n", 100)
    found = json.loads(call("attack", run, "--trust", *SMALL, "--radii", "0.1", "--json").stdout)
    assert found["certified"] == [None]
    assert found["attacked"] == 0


def test_where_the_result_cannot_go_is_told_before_the_attack(
    call: Call, certified: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = certified("run", "--n", 100)
    monkeypatch.setattr("ringfence.attacks.on_run.run_attack", lambda *_: pytest.fail("this can take hours"))
    (tmp_path / "notes").write_text("mine")
    said = call("attack", run, "--trust", *SMALL, "--out", tmp_path / "notes", code=2).stderr
    assert "--out: must be a folder" in said


def test_a_result_that_cannot_be_written_is_seen(call: Call, certified: Callable[..., Path], tmp_path: Path) -> None:
    run = certified("run", "--n", 100)
    (tmp_path / "notes").write_text("mine")
    done = call("attack", run, "--trust", *SMALL, "--radii", "0.1", "--out", tmp_path / "notes" / "x", code=2)
    assert "certificates attacked inside their radius" in done.stdout
    assert "must be writable" in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--procedure", "softmax", "--n", 200], "must certify the vote of one classifier"),
        (["--procedure", "after-smoothing", "--n", 200], "must certify the vote of one classifier"),
    ],
)
def test_other_classifiers_are_not_attacked(
    call: Call, certified: Callable[..., Path], models: Path, options: list[object], message: str
) -> None:
    if "after-smoothing" in options:
        options = [*options, "--model", f"lanes({models}:build, {models}:build, votes=none, singles=true)"]
    assert message in call("attack", certified("run", *options), *SMALL, code=2).stderr.replace("\n", " ")


MODES = ["", "noise=resized", "noise=patch", "noise=per-patch-input", "sampling=random", "noise=patch, form=paper"]


@pytest.mark.parametrize("mode", MODES)
def test_noise_is_where_the_run_had_it(call: Call, tmp_path: Path, mode: str) -> None:
    words = ["--sigma", 0.5, "--limit", 2, "--n0", 20, "--n", 100, "--batch", 20, "--quiet", "--no-check"]
    tree = f"patches(soft(default, default:1), size=28, count=2, resize=30{', ' if mode else ''}{mode})"
    call("certify", "--model", tree, *words, "--out", tmp_path / "run")
    found = json.loads(call("attack", tmp_path / "run", *SMALL, "--radii", "0.05", "--json").stdout)
    assert found["attacked"] == 2
    assert found["broken"] == []
    assert found["certified"] == found["empirical"] == [1.0]


@final
@dataclass(frozen=True)
class Tripled(Lift):
    """Three times the image, of odd inputs with its columns exchanged; claimed is any norm."""

    claimed: float
    name: ClassVar[str] = "tripled"

    @property
    def norm_bound(self) -> float:
        return self.claimed

    def __call__(self, x: Tensor) -> Tensor:
        return self.at(x, 0)

    def at(self, x: Tensor, input_id: int) -> Tensor:
        return 3 * (x.flip(-1) if input_id % 2 else x)


@pytest.mark.parametrize(("claimed", "broken"), [(3.0, False), (1.0, True)])
def test_a_lift_that_claims_too_little_is_broken(
    call: Call,
    certified: Callable[..., Path],
    models: Path,
    monkeypatch: pytest.MonkeyPatch,
    claimed: float,
    broken: bool,
) -> None:
    """Inputs are moved and judged through their own lift: those of even and of odd ids fall, along other pixels."""
    monkeypatch.setitem(LIFTS, "tripled", lambda: Tripled(claimed))
    run = certified("run", "--model", f"lifted({models}:build, by=tripled)", "--n", 1000)
    words = ("attack", run, "--trust", "--steps", 5, "--copies", 2, "--n", 500, "--recheck", 500, "--json", "--quiet")
    found = json.loads(call(*words, code=1 if broken else 0).stdout)
    assert found["attacked"] > 2
    assert {one["input_id"] % 2 for one in found["broken"]} == ({0, 1} if broken else set())
