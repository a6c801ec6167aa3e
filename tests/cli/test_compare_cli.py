"""``ringfence compare``."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest
from click.testing import Result
from simulated_runs import simulated_run, spread
from typer.testing import CliRunner

from ringfence.cli import app
from ringfence.procedures import Fixed, Multinomial, TwoSided

LOG = Path(__file__).resolve().parents[1] / "fixtures" / "cohen" / "cifar10_noise_0.25_sigma_0.25"


def compare(*words: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["compare", *map(str, words)], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    simulated_run(folder / "fixed", Fixed(n=1000), spread(20), range(20))
    simulated_run(folder / "two", TwoSided(n=1000), spread(20), range(20))
    simulated_run(folder / "few", Multinomial(n=200), spread(20), range(5, 25))
    return {path.name: path for path in folder.iterdir()}


def test_one_run_compares_its_mechanisms_with_one_sided(runs: dict[str, Path]) -> None:
    answer = json.loads(compare(runs["two"], "--json").stdout)
    names = [one["name"].rpartition(": ")[2] for one in answer["comparisons"]]
    assert names == ["neyman_pearson", "renyi", "pixeldp", "analytic_dp"]
    assert all(one["against"].endswith(": one_sided") for one in answer["comparisons"])
    assert answer["comparisons"][0]["lost"] == 0
    assert len(answer["runs"][0]["mechanisms"]) == 5
    assert answer["runs"][0]["top_1"] is not None


def test_two_mechanisms_in_every_run(runs: dict[str, Path]) -> None:
    words = ("--mechanism", "one-sided+renyi", "one-sided", runs["fixed"], runs["two"])
    first, second = json.loads(compare(*words, "--json").stdout)["comparisons"]
    assert first["won"] == 0  # p_b = 1 - p_a: Renyi never exceeds the tight radius there
    assert second["won"] > 0
    assert second["name"].endswith("best_of:one_sided+renyi")


def test_runs_have_the_names_they_are_given_and_average_radii(runs: dict[str, Path]) -> None:
    words = (f"Ours={runs['two']}", f"Theirs={runs['fixed']}")
    (one,) = json.loads(compare(*words, "--json").stdout)["comparisons"]
    assert (one["name"], one["against"]) == ("Theirs", "Ours")
    assert one["acr_gain_low"] < one["acr"] - one["acr_against"] < one["acr_gain_high"]
    table = compare(*words).stdout
    assert "ACR A - B, 95%" in table
    assert f"{one['acr_gain_low']:.3f} to {one['acr_gain_high']:.3f}" in table
    assert "ACR" not in compare(runs["two"]).stdout  # mechanisms of one run give the same answers
    points = json.loads(compare(*words, "--envelope", "--json").stdout)["points"]
    assert {point["run"] for point in points} <= {"Ours", "Theirs"}


def test_runs_are_paired_on_common_inputs(runs: dict[str, Path]) -> None:
    result = compare(runs["two"], runs["few"])
    assert "15 (10)" in result.stdout
    assert "10 inputs that only one of the two has were dropped" in result.stderr.replace("\n", " ")
    one = json.loads(compare(runs["two"], runs["few"], "--by", "renyi", "--json").stdout)["comparisons"][0]
    assert (one["inputs"], one["dropped"]) == (15, 10)
    assert one["against"].endswith("two: renyi")


def test_tables_name_the_columns_of_the_paper(runs: dict[str, Path]) -> None:
    text = compare(runs["few"], runs["two"], "--above", 0.1).stdout
    for word in ("top-1", "median radius", "above 0.1", "largest", "Wilcoxon W+", "gain > 100%", "ms/input"):
        assert word in text
    assert text.index("n 200") < text.index("n 1,000")  # figure 6 is read in the order of n


def test_mechanisms_have_curves(runs: dict[str, Path]) -> None:
    text = compare(runs["two"]).stdout
    curves = {line.split()[0]: line.split()[-1] for line in text.splitlines() if "▁" in line}
    assert len(curves["renyi"]) == 8
    assert list(curves["renyi"]) == sorted(curves["renyi"], reverse=True), "fewer inputs reach larger radii"
    assert curves["neyman-pearson"] >= curves["renyi"] > curves["pixeldp"], "on one scale"


def test_csv_has_full_precision(runs: dict[str, Path], tmp_path: Path) -> None:
    compare(runs["two"], "--csv", tmp_path / "gains.csv", "--gains", "1,2.5")
    with (tmp_path / "gains.csv").open() as file:
        rows = list(csv.DictReader(file))
    answer = json.loads(compare(runs["two"], "--gains", "1,2.5", "--json").stdout)["comparisons"]
    assert [float(row["mean_gain"]) for row in rows] == [one["mean_gain"] for one in answer]
    assert "gaining_more_than_2.5_percent" in rows[0]


def test_the_best_of_two_runs_needs_both_alphas(runs: dict[str, Path]) -> None:
    refused = compare(runs["fixed"], runs["two"], "--best", code=2).stderr.replace("\n", " ")
    assert "fails with up to 0.002" in refused
    assert "Pass --alpha 0.002" in refused
    answer = json.loads(compare(runs["fixed"], runs["two"], "--best", "--alpha", 0.002, "--json").stdout)
    best = answer["comparisons"][-1]
    assert best["name"] == "best of 2 runs (alpha 0.002)"
    assert best["lost"] == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["two", "--best"], "--best: needs several runs"),
        (["two", "--by", "renyi", "--mechanism", "renyi", "one-sided"], "--by: excludes --mechanism"),
        (["two", "--by", "renyi"], "--by: needs several runs; got one run. Use --mechanism within a run."),
        (["two", "--mechanism", "renyi", "cohen"], "must be one of neyman-pearson"),
        (["two", "--gains", "ten"], "must be numbers separated by commas"),
        (["two", "--lane", "other"], "must be one of main; got 'other'"),
        (["two", "--alpha", "0.1"], "--alpha: goes with --best; got 0.1."),
        (["two", "--radii", "0.5"], "--radii: goes only with --envelope; got 0.5. Leave it out."),
        (
            ["two", "--envelope", "--csv", "x.csv"],
            "--csv: does not go with --envelope; got x.csv. Leave one of them out.",
        ),
        (
            ["two", "--above", "nan", "--json"],
            "--above: must be finite and not negative; got nan. The usual value is 0.05.",
        ),
        (["two", "--above=-1"], "--above: must be finite and not negative; got -1.0."),
        (["two", "--gains", "0,inf"], "--gains: must be finite; got [0.0, inf]."),
        (["two", "--gains", ","], "--gains: must be numbers separated by commas; got ','."),
        (["two", "--coordinates", "9"], "--coordinates: goes with --norm; got 9."),
    ],
)
def test_bad_input(runs: dict[str, Path], words: list[str], message: str) -> None:
    assert message in compare(*(runs.get(word, word) for word in words), code=2).stderr.replace("\n", " ")


def test_logs_compare_by_their_radius_alone(runs: dict[str, Path], tmp_path: Path) -> None:
    for name in ("a", "b"):
        imported = ["import", "cohen", str(LOG), "--sigma", "0.25", "--out", str(tmp_path / name)]
        assert CliRunner().invoke(app, imported).exit_code == 0
    result = compare(tmp_path / "a", tmp_path / "b")
    assert "no proven guarantee" in result.stdout
    assert "the log has no raw counts" in result.stderr
    assert "nor does it say n and alpha" in " ".join(result.stderr.split())
    refused = compare(tmp_path / "a", code=2).stderr.replace("\n", " ")
    assert "must hold raw counts to compare mechanisms" in refused


def test_a_log_is_a_side_as_its_import_would_be(runs: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    assert (
        CliRunner().invoke(app, ["import", "cohen", str(LOG), "--sigma", "0.25", "--out", str(folder)]).exit_code == 0
    )
    norm = ("--norm", "linf", "--coordinates", 3072)
    for more in ((), norm):
        both = json.loads(compare(folder, LOG, "--sigma", 0.25, *more, "--json").stdout)
        (found,), (one, other) = both["comparisons"], both["runs"]
        assert (found["inputs"], found["equal"], found["differing"]) == (500, 1.0, "")
        assert one | {"path": ""} == other | {"path": ""}
    (apart,) = json.loads(compare(folder, LOG, "--sigma", 0.5, "--json").stdout)["comparisons"]
    assert apart["differing"] == "noise.sigma: 0.5 and 0.25"  # all else a log does not say
    assert "a log does not say its noise level" in compare(folder, LOG, code=2).stderr


def test_a_log_of_other_inputs_is_refused(runs: dict[str, Path], tmp_path: Path) -> None:
    rows = [f"{one}\t{one % 3}\t1\t0.2\t0\t0.1" for one in range(20)]
    for name, changed in (("same", rows), ("other", [*rows[:7], "7\t9\t1\t0.2\t0\t0.1", *rows[8:]])):
        (tmp_path / name).write_text("\n".join(["idx\tlabel\tpredict\tradius\tcorrect\ttime", *changed]))
    told = compare(tmp_path / "same", tmp_path / "other", "--sigma", 0.5, code=2).stderr.replace("\n", " ")
    assert "got 1 of 20 inputs with other labels, the first of id 7" in told
    assert compare(tmp_path / "same", tmp_path / "same", "--sigma", 0.5)


@pytest.mark.parametrize(
    ("options", "sound"),
    [
        (["--procedure", "multinomial", "--form", "one-sided"], True),
        (["--procedure", "multinomial", "--form", "paper"], False),
        (["--procedure", "softmax", "--bound", "bernstein"], True),
        (["--procedure", "softmax", "--form", "paper", "--bound", "hoeffding"], False),
    ],
)
def test_forms_and_bounds_reach_the_run(
    options: list[str], sound: bool, models: Path, dots: Path, tmp_path: Path
) -> None:
    words = ["certify", "--model", f"{models}:build", "--data", str(dots), "--sigma", "0.5", "--n", "200", *options]
    words += ["--batch", "100", "--mechanism", "all", "--out", str(tmp_path / "run"), "--json", "--quiet"]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["sound"] is sound
    settings = json.loads((tmp_path / "run" / "config.json").read_text())["procedure"]
    assert all(settings[name[2:]] == value for name, value in zip(options[2::2], options[3::2], strict=True))
    assert len(json.loads(compare(tmp_path / "run", "--json").stdout)["comparisons"]) == 4


def test_forms_belong_to_their_procedures(tmp_path: Path) -> None:
    words = ["certify", "--sigma", "0.5", "--form", "paper", "--out", str(tmp_path / "run")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert "form: is no setting of the fixed procedure" in result.stderr


def test_median_radii_are_shown_rounded_down(runs: dict[str, Path]) -> None:
    (found,) = [
        one for one in json.loads(compare(runs["two"], "--json").stdout)["runs"][0]["mechanisms"]
        if one["mechanism"] == "one_sided"
    ]  # fmt: skip
    (line,) = [one for one in compare(runs["two"]).stdout.splitlines() if one.startswith("one-sided ")]
    shown = float(line.split()[1])
    assert found["median_radius"] - 0.001 < shown <= found["median_radius"]


def test_a_wrong_mechanism_is_told_of_the_option_that_names_it(runs: dict[str, Path]) -> None:
    two = (runs["fixed"], runs["two"])
    assert compare(*two, "--by", "WRONG", code=2).stderr.startswith("error: --by: must be one of neyman-pearson,")
    assert compare(*two, "--by", "renyi+x", code=2).stderr.startswith("error: --by: ")
    assert compare(*two, "--mechanism", "x", "renyi", code=2).stderr.startswith("error: --mechanism: ")


def test_many_differences_stand_below_the_table(runs: dict[str, Path], tmp_path: Path) -> None:
    """In a column of a table they were broken into shreds."""
    simulated_run(tmp_path / "x", Fixed(n=200), spread(20), range(20), lane="another lane")
    told = compare(tmp_path / "x", runs["two"])
    assert re.search(r"differ in +see below", told.stdout)
    assert "differ in lane; classifier.lanes" in " ".join(told.stdout.split())
