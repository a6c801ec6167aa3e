"""``ringfence simplex``."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import Result
from simulated_runs import simulated_run, spread
from typer.testing import CliRunner

from ringfence.cli import app
from ringfence.procedures import Multinomial

LOG = Path(__file__).resolve().parents[1] / "fixtures" / "cohen" / "cifar10_noise_0.25_sigma_0.25"


def simplex(*words: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["simplex", *map(str, words)], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "multinomial"
    simulated_run(path, Multinomial(n=1000), spread(12), range(12))
    return path


@pytest.mark.parametrize(
    ("step", "larger", "ratio"),
    [
        (["--step", 0.02], "12.3%", "median 0.723, 0.055 to 1.253"),
        pytest.param([], "10.8%", "median 0.687, 0.012 to 1.253", marks=pytest.mark.slow),  # as docs/simplex.md shows
    ],
    ids=["coarse", "usual"],
)
def test_map_writes_a_picture_and_prints_who_wins(tmp_path: Path, step: list[object], larger: str, ratio: str) -> None:
    words = ("--left", "one-sided", "--right", "renyi", *step)
    result = simplex("map", *words, "--out", tmp_path / "deep" / "map.png")
    assert f"one-sided larger on {larger}" in result.stdout
    assert ratio in result.stdout
    assert (tmp_path / "deep" / "map.png").read_bytes().startswith(b"\x89PNG")


def test_map_as_json(tmp_path: Path) -> None:
    words = ("--left", "neyman-pearson", "--right", "renyi+analytic-dp", "--step", 0.02, "--sigma", 0.5)
    facts = json.loads(simplex("map", *words, "--out", tmp_path / "m.svg", "--json").stdout)
    assert facts["right"] == "renyi+analytic-dp"
    assert facts["sigma"] == 0.5
    assert facts["right_wins"] == 0
    assert facts["ratio"]["min"] >= 1


@pytest.mark.parametrize("statistic", ["ratio", "difference"])
def test_page_opens_without_a_network(tmp_path: Path, statistic: str) -> None:
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    page = tmp_path / "map.html"
    simplex("map", "--statistic", statistic, "--step", 0.05, "--out", tmp_path / "map.png", "--page", page)
    text = page.read_text(encoding="utf-8")
    assert "<title>Certified radius: one-sided" in text
    assert not re.findall(r"<(?:script|link)[^>]+(?:src|href)\s*=", text)
    assert "cdn." not in text
    assert "vegaEmbed" in text
    assert '"tooltip"' in text


def test_scatter_draws_a_run_over_its_map(tmp_path: Path, run: Path) -> None:
    pytest.importorskip("altair")
    page = tmp_path / "scatter.html"
    result = simplex("scatter", run, "--out", tmp_path / "s.png", "--page", page, "--step", 0.05)
    assert "12 inputs" in result.stdout
    assert (tmp_path / "s.png").stat().st_size > 5000
    assert '"mean of E0"' in page.read_text(encoding="utf-8")
    facts = json.loads(simplex("scatter", run, "--out", tmp_path / "s.png", "--step", 0.05, "--json").stdout)
    assert facts["points"]["inputs"] == 12
    assert facts["map"]["sigma"] == 1.0


def test_at_lists_every_mechanism_at_one_point() -> None:
    lines = simplex("at", 0.6, 0.2).stdout.splitlines()
    assert lines[0].split() == ["neyman-pearson", "0.547484"]
    radii = json.loads(simplex("at", 0.5, 0.2, "--sigma", 2, "--json").stdout)["radii"]
    assert radii["one_sided"] == 0
    assert radii["renyi"] > 0.5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["at", 0.6, 0.5], "p_b: must be at most 1 - p_a"),
        (["at", 1.6, 0.5], r"p_a: must lie in \[0, 1\]"),
        (["at", 0.5, 0.2, "--sigma", 0], "sigma: must be positive"),
        (["map", "--left", "cohen", "--out", "m.png"], "--left: must be one of neyman-pearson, one-sided"),
        (["map", "--out", "m.txt"], "must end in .png, .svg or .pdf"),
        (["map", "--out", "m.png", "--statistic", "sum"], "must be ratio or difference"),
        (["map", "--out", "m.png", "--step", 0.5], "between 0.0005 and 0.1"),
        (["scatter", "nowhere", "--out", "m.png"], "must be a run folder; got nothing there"),
    ],
)
def test_bad_input(words: list[object], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert re.search(message, simplex(*words, code=2).stderr)
    assert not list(tmp_path.iterdir())


def test_scatter_of_a_log_says_that_it_has_no_counts(tmp_path: Path) -> None:
    imported = ["import", "cohen", str(LOG), "--sigma", "0.25", "--out", str(tmp_path / "run")]
    assert CliRunner().invoke(app, imported).exit_code == 0
    message = simplex("scatter", tmp_path / "run", "--out", tmp_path / "s.png", code=2).stderr
    assert "The log has none" in message


def test_without_the_extra_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr("ringfence.errors.import_module", missing)
    message = simplex("map", "--out", tmp_path / "m.png", code=2).stderr
    assert 'pip install "ringfence[report]"' in message


def test_radii_at_a_point_are_not_rounded_up() -> None:
    shown = dict(line.split() for line in simplex("at", 0.9, 0.1, "--sigma", 0.5).stdout.splitlines())
    found = json.loads(simplex("at", 0.9, 0.1, "--sigma", 0.5, "--json").stdout)["radii"]
    assert len(shown) == len(found) == 5
    for name, radius in found.items():
        assert radius - 1e-6 < float(shown[name.replace("_", "-")]) <= radius


def test_a_run_of_other_noise_has_no_place_on_the_map(tmp_path: Path) -> None:
    certify = ["certify", "--sigma", "0.5", "--noise", "laplace", "--n", "100", "--limit", "2", "--quiet", "--out"]
    assert CliRunner().invoke(app, [*certify, str(tmp_path / "run")]).exit_code == 0
    said = simplex("scatter", tmp_path / "run", "--out", tmp_path / "x.png", code=2).output
    assert "must be of gaussian noise, as the map is; got laplace noise. Use ringfence compare" in " ".join(
        said.split()
    )


def test_the_page_does_not_replace_the_picture(tmp_path: Path) -> None:
    said = simplex("map", "--out", tmp_path / "x.svg", "--page", tmp_path / "." / "x.svg", code=2).output
    assert "--page: must be another file than the picture" in said
