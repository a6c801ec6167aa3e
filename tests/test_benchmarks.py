"""Every benchmark runs, and its JSON holds what the documentation is made from. Nothing here judges a time."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "benchmarks"
SCRIPTS = sorted((ROOT / "benchmarks").glob("bench_*.py"))


def run(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(script), *arguments], capture_output=True, text=True, timeout=1800)


def test_the_core_has_its_four() -> None:
    core = {"bench_engine_cpu", "bench_sample_complexity", "bench_memory", "bench_procedure_overhead"}
    assert core <= {script.stem for script in SCRIPTS}


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_quick_run_writes_valid_json(script: Path, tmp_path: Path) -> None:
    done = run(script, "--quick", "--repetitions", "1", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    (written,) = tmp_path.glob("*.json")
    assert written.stem == script.stem.removeprefix("bench_")
    result = json.loads(written.read_text())
    assert result["quick"] is True
    assert {"python", "torch", "numpy", "cpus", "cpu"} <= result["environment"].keys()
    assert result["measurements"]
    for table in result["tables"]:
        assert table["rows"]
        assert all(len(row) == len(table["columns"]) for row in table["rows"])
        assert all(row[0] in done.stdout for row in table["rows"])
    assert result["bars"]
    for bar in result["bars"]:
        measured, limit = bar["measured"], bar["limit"]
        holds = None if measured is None else measured <= limit if bar["relation"] == "at most" else measured >= limit
        assert bar["passed"] is holds


@pytest.mark.parametrize(
    "page",
    [page for page in sorted((ROOT / "docs").glob("*.md")) if "<!-- begin " in page.read_text()],
    ids=lambda page: page.stem,
)
def test_the_pages_show_the_committed_results(page: Path) -> None:
    """And one command writes them all again."""
    tables = ROOT / "benchmarks" / "tables.py"
    assert run(tables, "--check", "--page", str(page)).returncode == 0
    assert f'"{page.stem}"' in tables.read_text()


def test_quick_runs_never_reach_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- begin memory -->\nold\n<!-- end memory -->\n")
    (tmp_path / "memory.json").write_text(json.dumps({"quick": True}))
    done = run(ROOT / "benchmarks" / "tables.py", "--results", str(tmp_path), "--page", str(page))
    assert done.returncode == 1
    assert "--quick" in done.stderr
    assert "old" in page.read_text()


@pytest.mark.parametrize(("day", "rate"), [("01", 5.0), ("02", 1.0), ("03", 1.0), ("04", 2.0), ("09", 2.0)])
def test_a_row_is_a_share_of_the_rate_of_its_day(day: str, rate: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from gpu_training_report import Rates

    assert Rates({"2026-01-02": 1.0, "2026-01-04": 2.0}, 5.0).of({"measured": f"2026-01-{day}"}) == rate


def test_cases_that_are_missing_are_those_of_objectives_without_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from gpu_training_cases import CASES, OBJECTIVES, missing

    every = missing([])
    assert set(every) <= set(CASES)
    assert len(every) == 1 + 3 * (1 + len(OBJECTIVES))
    left = missing([{"case": one} for one in every if one.endswith("lenet")])
    assert left == [one for one in every if not one.endswith("lenet")]


@pytest.mark.slow
def test_rows_of_an_earlier_training_benchmark_are_taken_along(tmp_path: Path) -> None:
    """A sitting measures some rows; those of earlier ones stay, with their date, and a row measured again is new."""
    lenet = {"row": "ours, aimed", "network": "lenet", "batch": 4, "members": 1, "ms": 2.0, "s_epoch_member": 0.5}
    told = {"objective": "gaussian, m = 1", "measured": "2026-01-02"}
    rows = [
        {"case": "gaussian-lenet", **lenet, **told},
        {"case": "rate", **lenet, **told, "row": "another"},
        {"case": "rate", "row": "dense bf16 product", "network": "", "tflops": 1e-6, "batch": 4, "members": 1, **told},
    ]
    machine = {"environment": {"torch": "of that machine", "load_before": None}}
    (tmp_path / "machine.json").write_text(json.dumps(machine))
    (tmp_path / "rows.json").write_text(json.dumps({"batch": 4, "rows": rows}))
    log = tmp_path / "some-training" / "member-0" / "log.csv"
    log.parent.mkdir(parents=True)
    log.write_text("epoch,seconds\n1,5\n2,7\n3,9.5\n4,3\n5,6\n")
    script, out = ROOT / "benchmarks" / "gpu_training.py", ["--out", str(tmp_path)]
    keep = ["--keep", str(tmp_path / "rows.json"), "--machine", str(tmp_path / "machine.json"), "--logs", str(log)]
    assert run(script, "--cases", "", *keep, *out).returncode == 0
    first = json.loads((tmp_path / "gpu_training.json").read_text())
    assert first["environment"] == machine["environment"]
    assert first["measurements"] == {"rows": rows, "logs": {"some-training": [2, 2.5, 3]}}  # the clock began anew at 4
    again = [
        "--quick",
        "--cases",
        "rate",
        "--cache",
        str(tmp_path / "cache"),
        "--keep",
        f"{tmp_path}/gpu_training.json",
    ]
    done = run(script, *again, *out)
    assert done.returncode == 0, done.stderr
    second = json.loads((tmp_path / "gpu_training.json").read_text())
    assert second["environment"] != machine["environment"]
    *kept, anew = second["measurements"]["rows"]
    assert kept == rows  # the rate of that day, too: shares of its rows are shares of it
    assert anew["tflops"] > rows[2]["tflops"]
    assert anew["measured"] > kept[0]["measured"]
    left = json.loads((tmp_path / "gpu_training_rows.json").read_text())  # behind every case, if the time ends
    assert left["rows"] == [anew]
    assert left["environment"].keys() == second["environment"].keys()
    assert second["measurements"]["logs"] == first["measurements"]["logs"]


WAITING = """import json, sys, time
def row(name): print("ROW", json.dumps({"case": "one", "row": name}), flush=True)
sys.stdin.readline()
row("first")
for _ in range(3000):
    try:
        if "first" in open(sys.argv[1]).read(): break
    except FileNotFoundError: pass
    time.sleep(0.1)
else: sys.exit("the first row was not written while the second was measured")
row("second")
"""


def test_rows_of_training_are_written_as_they_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A case may be ended in the middle, with what measures it."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import gpu_training

    words = [sys.executable, "-c", WAITING, str(tmp_path / "gpu_training_rows.json")]
    process = subprocess.Popen(words, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    monkeypatch.setattr(gpu_training, "started", lambda *given: process)
    options = argparse.Namespace(cache=tmp_path, out=tmp_path, limit=600.0, compile_limit=0.0, batch=4)
    case = argparse.Namespace(compiles=False, arch="")
    monkeypatch.setattr(gpu_training, "complaint", lambda *given: None)
    with process:
        assert [one["row"] for one in gpu_training.measured(options, {"one": case})] == ["first", "second"]


@pytest.mark.slow
def test_a_case_of_the_limits_is_put_among_earlier_ones(tmp_path: Path) -> None:
    """Cases are measured one by one, in many sittings."""
    script, results = ROOT / "benchmarks" / "gpu_limits.py", tmp_path / "gpu_limits.json"
    earlier = json.loads((RESULTS / "gpu_limits.json").read_text())
    for one in earlier["measurements"]["networks"]:
        one["forms"].pop("joined, image by image", None)
    (tmp_path / "earlier.json").write_text(json.dumps(earlier))
    words = ["--quick", "--device", "cpu", "--only", "resnet50-images", "--out", str(tmp_path)]
    done = run(script, *words, "--keep", str(tmp_path / "earlier.json"))
    assert done.returncode == 0, done.stderr
    now, before = (one["measurements"] for one in (json.loads(results.read_text()), earlier))
    (found,) = [one for one in now["networks"] if one["network"] == "resnet50"]
    (old,) = [one for one in before["networks"] if one["network"] == "resnet50"]
    assert found["forms"].keys() - old["forms"].keys() == {"joined, image by image"}
    assert found["forms"]["joined, image by image"]["certified"] > 0
    assert found["certified"] == old["certified"]  # of the form that plans have
    assert {name: one for name, one in now.items() if name != "networks"} == {
        name: one for name, one in before.items() if name != "networks"
    }


def test_forms_that_are_not_measured_again_keep_their_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import gpu_limits

    monkeypatch.setattr(gpu_limits, "one_network", lambda *given: {"rate": 2.0, "certified": 3.0, "profile": {}})
    earlier = {"network": "resnet50", "date": "2026-01-02", "form": "compiled", "certified": 1.0}
    measured = {"networks": [{**earlier, "forms": {"compiled": {"rate": 1.0}}}]}
    gpu_limits.measure("resnet50-joined", measured, tmp_path, argparse.Namespace())
    (one,) = measured["networks"]
    assert one["forms"]["compiled"] == {"rate": 1.0, "date": "2026-01-02"}
    assert one["forms"]["joined"]["date"] == one["date"] > "2026-01-02"


@pytest.mark.slow
def test_commands_that_are_timed_find_what_the_benchmark_finds(tmp_path: Path) -> None:
    """They run in a folder of their own, and the search path of who measures may be relative to another."""
    (tmp_path / "lib").mkdir()
    mark = "import os\nopen(os.environ['FOUND_BY'], 'a').write('one\\n')\n"
    (tmp_path / "lib" / "sitecustomize.py").write_text(mark)
    path = os.pathsep.join(["lib", *filter(None, [os.environ.get("PYTHONPATH")])])
    given = {**os.environ, "PYTHONPATH": path, "FOUND_BY": str(tmp_path / "found")}
    words = ["--quick", "--device", "cpu", "--only", "start-fused", "--out", str(tmp_path)]
    script = [sys.executable, str(ROOT / "benchmarks" / "gpu_limits.py")]
    done = subprocess.run([*script, *words], cwd=tmp_path, env=given, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr
    starts = json.loads((tmp_path / "gpu_limits.json").read_text())["measurements"]["starts"]
    assert [one["start"] for one in starts] == [f"ResNet-110, fused, {turn}" for turn in ("first", "second")]
    assert len((tmp_path / "found").read_text().split()) >= 3  # the benchmark, and both commands


@pytest.mark.slow
def test_what_the_watch_costs_is_measured_without_a_gpu_too(tmp_path: Path) -> None:
    script = ROOT / "benchmarks" / "reask_cost.py"
    done = run(script, "--quick", "--device", "cpu", "--depth", "8", "--batch", "50", "--out", str(tmp_path / "x.json"))
    assert done.returncode == 0, done.stderr
    rates = json.loads((tmp_path / "x.json").read_text())["measurements"]["rates"]
    assert {"all of it", "re-asks off", "watching of inputs off", "both off"} <= rates.keys()
    assert all(len(each) == 1 and each[0] > 0 for each in rates.values())


@pytest.mark.slow
def test_what_exact_noise_costs_is_measured_without_a_gpu_too(tmp_path: Path) -> None:
    done = run(
        ROOT / "benchmarks" / "exact_cost.py", "--quick", "--device", "cpu", "--batch", "50", "--out", str(tmp_path)
    )
    assert done.returncode == 0, done.stderr
    rates = json.loads((tmp_path / "exact_cost.json").read_text())["measurements"]["rates"]
    assert {name: set(forms) for name, forms in rates.items()} == {"LeNet": {"float", "exact"}}
    assert all(len(each) == 1 and each[0] > 0 for each in rates["LeNet"].values())


@pytest.mark.slow
def test_small_networks_are_measured_in_both_forms(tmp_path: Path) -> None:
    script, words = ROOT / "benchmarks" / "gpu_limits.py", ["--quick", "--device", "cpu", "--only", "lenet"]
    done = run(script, *words, "--out", str(tmp_path))
    found = json.loads((tmp_path / "gpu_limits.json").read_text())["measurements"]["lenet"]["rows"]
    assert len(found) == 4, done.stderr
    assert [one["form"] for one in found] == 2 * ["compiled", "first layers one kernel"]
    assert all(min(one["rate"], one["certified"]) > 0 and one["off"] < 0.05 for one in found)
