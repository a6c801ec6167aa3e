"""``metrics --table`` and names of runs: what a paper takes."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

from click.testing import Result

Call = Callable[..., Result]
LOG = Path(__file__).parents[1] / "fixtures" / "cohen" / "cifar10_noise_0.25_sigma_0.25"
RADII = ("--radii", "0,0.25,0.5,0.75")


def test_the_published_log_as_latex(call: Call) -> None:
    assert call("metrics", f"Cohen_et al.={LOG}", *RADII, "--table", "latex").stdout.splitlines() == [
        r"\begin{tabular}{lrrrrr}",
        r"\toprule",
        r" & ACR & \multicolumn{4}{c}{Certified accuracy (\%) at $\ell_2$ radius} \\",
        r"\cmidrule(lr){3-6}",
        r" & & 0 & 0.25 & 0.5 & 0.75 \\",
        r"\midrule",
        r"Cohen\_et al. (no proven guarantee) & 0.429 & 74.8 & 60.0 & 42.8 & 26.6 \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_the_same_as_csv_and_markdown(call: Call) -> None:
    (row,) = csv.DictReader(call("metrics", f"@sum={LOG}", *RADII, "--table", "csv").stdout.splitlines())
    assert row["run"] == "'@sum"  # no formula of a spreadsheet
    words = ("metrics", f"a|b={LOG}", *RADII, "--table")
    (row,) = csv.DictReader(call(*words, "csv").stdout.splitlines())
    assert (row["run"], row["sound"], row["inputs"], row["at 0.5"], row["norm"]) == ("a|b", "0", "500", "0.428", "l2")
    head, rule, body = call(*words, "markdown").stdout.splitlines()
    assert head == "| run (l2 radii) | ACR | % at 0 | % at 0.25 | % at 0.5 | % at 0.75 |"
    assert rule.count("---:") == 5
    assert body == "| a\\|b (no proven guarantee) | 0.429 | 74.8 | 60.0 | 42.8 | 26.6 |"


def test_radii_that_a_run_did_not_try_are_dashes(call: Call, finished: dict[str, Path]) -> None:
    told = call("metrics", finished["sequential"], LOG, "--table", "latex").stdout
    assert "& -- &" in told


def test_other_forms_are_refused(call: Call) -> None:
    for more in (("--table", "word"), ("--table", "csv", "--json")):
        assert "--table: must be csv or markdown or latex, without --json" in call("metrics", LOG, *more, code=2).stderr


def test_runs_are_called_as_their_owner_says(call: Call, tmp_path: Path) -> None:
    answer = json.loads(call("metrics", f"ours={LOG}", "--json").stdout)
    assert answer["runs"][0]["path"] == "ours"
    figure = json.loads(
        call("plot", f"ours={LOG}", f"theirs, 2019={LOG}", "--out", tmp_path / "x.svg", "--json").stdout
    )
    assert len({str(row) for row in figure["rows"]}) > 1
    call("report", f"Mine & co={LOG}", "--out", tmp_path / "x.html", "--title", "t")
    assert "Mine &amp; co" in (tmp_path / "x.html").read_text()
    assert "nothing there" in call("report", "ours=nowhere", "--out", tmp_path / "y.html", code=2).stderr


def test_an_equals_sign_of_a_path_is_no_name(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "sigma=0.25"
    path.write_bytes(LOG.read_bytes())
    assert json.loads(call("metrics", path, "--json").stdout)["runs"][0]["path"] == str(path)
