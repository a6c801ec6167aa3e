"""The command line's options come from the fields of procedures: a new field needs no other line."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, final

import pytest
import typer
from click.testing import Result

from ringfence.cli import app
from ringfence.operators import Crops
from ringfence.procedures import PROCEDURES, setting
from ringfence.procedures.fixed import SelectThenEstimate
from ringfence.types import FloatArray, IntArray

Call = Callable[..., Result]


@final
@dataclass(frozen=True)
class Careful(SelectThenEstimate):
    """Fixed sampling that subtracts a margin."""

    alpha: float = setting(0.001, help="Failure probability per input.", above=0, below=1)
    n0: int = setting(100, help="Draws that choose the class.", low=1)
    n: int = setting(1000, help="Draws that bound it.", low=1)
    least_margin: float = setting(0.1, help="What is taken off the share.", low=0, high=1)
    name: ClassVar[str] = "careful"

    @property
    def spent(self) -> Mapping[str, float]:
        return {"lower bound": self.alpha}

    def bounds(self, hits: IntArray, rival: IntArray) -> tuple[FloatArray, FloatArray]:
        p_a = (hits / self.n - self.least_margin).clip(0, 1)
        return p_a, 1 - p_a


@pytest.fixture
def careful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROCEDURES, Careful.name, Careful)


def planned(call: Call, *words: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(call("plan", "--sigma", 1, *words, "--json").stdout)
    return found


def test_a_field_of_a_new_procedure_is_an_option(call: Call, careful: None) -> None:
    told = " ".join(call("plan", "--help-all").stdout.split())
    assert "--least-margin" in told
    assert "careful: 0.1" in told
    wide, narrow = (planned(call, "--procedure", "careful", "--least-margin", margin) for margin in (0.3, 0.01))
    assert 0 < wide["largest_radius"] < narrow["largest_radius"]
    assert wide["most_draws"] == 1100
    message = call("plan", "--sigma", 1, "--procedure", "careful", "--least-margin", 2, code=2).stderr
    assert "--least-margin: must lie in [0, 1]" in message


def test_certify_takes_it_too_and_the_run_keeps_it(call: Call, careful: None, tmp_path: Path) -> None:
    told = " ".join(call("certify", "--help-all").stdout.split())
    assert "--least-margin" in told
    assert "careful" in told
    words = ["certify", "--procedure", "careful", "--sigma", 0.5, "--limit", 2, "--least-margin", 0.3, "--quiet"]
    call(*words, "--n", 50, "--out", tmp_path / "run")
    stored = json.loads((tmp_path / "run" / "config.json").read_text())["procedure"]
    assert stored == {"name": "careful", "alpha": 0.001, "n0": 100, "n": 50, "least_margin": 0.3}
    call(*words, "--save", tmp_path / "job.yaml")
    assert "least_margin: 0.3" in (tmp_path / "job.yaml").read_text()
    other = call("certify", "--sigma", 0.5, "--least-margin", 0.3, "--out", tmp_path / "no", code=2).stderr
    assert "--least-margin: is no setting of the fixed procedure" in other
    assert "careful" in [one.value for one in completed("--procedure")("ca")]


def completed(flag: str) -> Callable[[str], list[Any]]:
    """What a shell offers behind an option of certify."""
    command = typer.main.get_command(app).commands["certify"]  # type: ignore[attr-defined]
    option = next(one for one in command.params if flag in one.opts)
    return lambda begun: list(option.shell_complete(typer.Context(command), begun))


def test_a_word_for_a_setting_completes() -> None:
    assert [one.value for one in completed("--bound")("be")] == ["bernstein", "betting"]
    assert "renyi" in [one.value for one in completed("--mechanism")("")]


def test_settings_of_predict_are_its_own(call: Call) -> None:
    told = call("predict", "--help-all").stdout
    assert "--N" in told
    assert "--n0" not in told
    assert "--procedure" not in told


def test_without_it_the_option_is_unknown(call: Call) -> None:
    assert "No such option" in call("plan", "--sigma", 1, "--least-margin", 1, code=2).stderr


def test_settings_reach_the_procedure_as_they_are_meant(call: Call) -> None:
    found = planned(call, "--radius", 0.5, "--procedure", "staged", "--stages", "1e2,1000", "--n0", 7)
    assert found["most_draws"] == 1107
    assert planned(call, "--N", 100, "--N0", 5)["most_draws"] == 105
    message = call("plan", "--sigma", 1, "--n", "many", code=2).stderr
    assert "--n: must be a whole number; got 'many'" in message


def test_the_mechanism_decides_what_is_in_reach(call: Call) -> None:
    radii = [planned(call, "--mechanism", name)["largest_radius"] for name in ("all", "renyi", "pixeldp")]
    assert radii == sorted(radii, reverse=True)
    assert len(set(radii)) == 3


def test_plans_of_trees_know_the_lift_and_the_procedures_of_the_root(call: Call) -> None:
    patches = "patches(soft(default, default:1), resize=30, size=28, count=4, noise={})"
    words = ("--n", 100, "--n0", 10, "--inputs", 2)
    at_input, on_patches = (planned(call, "--model", patches.format(mode), *words) for mode in ("input", "patch"))
    crops = Crops(size=28, resize=30, count=4).on(28, 28)
    assert at_input["largest_radius"] == planned(call, *words)["largest_radius"]
    assert on_patches["largest_radius"] == pytest.approx(at_input["largest_radius"] / crops.norm_bound)
    assert on_patches["most_seconds"] == 220 / on_patches["forwards_per_second"]
    aces = planned(call, "--model", "aces(certify=default, core=default:1, theta=0.5)", *words)
    assert aces["procedure"] == "aces"
