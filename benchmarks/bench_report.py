"""The report: seconds and bytes to make it, and script time in a browser to page, filter and sort 10,000 inputs."""

from __future__ import annotations

import importlib.util
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import ROOT, Bar, Grid, Report, arguments, finish

from ringfence.report.page import report_page
from ringfence.report.reading import load

ACTIONS = {
    "next page": "document.getElementById('next').click()",
    "filter: right": "set('outcome', 'right')",
    "filter: all": "set('outcome', 'all')",
    "sort: largest radius": "set('sort', 'radius-down')",
    "sort: largest gain": "set('sort', 'gain-down')",
    "search": "set('search', 'picture-99')",
}
SETUP = """() => {
  window.set = (id, value) => {
    const control = document.getElementById(id);
    control.value = value;
    control.dispatchEvent(new Event('input'));
  };
  window.timed = (action) => {
    const begin = performance.now();
    action();
    document.body.offsetHeight;  // makes the browser lay the page out now
    return performance.now() - begin;
  };
}"""


def fake_runs() -> Any:
    """The maker of runs that the tests use."""
    spec = importlib.util.spec_from_file_location("fake_runs", ROOT / "tests" / "laws" / "fake_runs.py")
    assert spec is not None
    assert spec.loader is not None
    sys.path.append(str(ROOT / "tests" / "laws"))  # for its configs
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make(folder: Path, runs: int, inputs: int, side: int) -> tuple[Path, float]:
    """A page about so many runs, and the seconds it took to make it."""
    paths = [folder / f"{inputs}-{number}" for number in range(runs)]
    for number, path in enumerate(paths):
        fake_runs().fake_run(path, inputs, seed=number, shape=(side, side, 1))
    begin = time.perf_counter()
    page = report_page(load(paths))
    seconds = time.perf_counter() - begin
    out = folder / f"{inputs}.html"
    out.write_text(page, encoding="utf-8")
    return out, seconds


def script_times(page: Path, repetitions: int) -> dict[str, float] | None:
    """Milliseconds of script and layout per action, medians; None where there is no browser."""
    path = os.environ.get("RINGFENCE_CHROMIUM") or shutil.which("chromium")
    if not path or importlib.util.find_spec("playwright") is None:
        return None
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        tab = browser.new_page(bypass_csp=True)
        tab.goto(page.as_uri())
        tab.locator("html[data-gallery=ready]").wait_for(state="attached")
        tab.evaluate(SETUP)
        taken: dict[str, list[float]] = {name: [] for name in ACTIONS}
        for _ in range(repetitions + 1):
            tab.evaluate("set('search', '')")
            for name, action in ACTIONS.items():
                taken[name].append(tab.evaluate(f"timed(() => {{ {action} }})"))
        browser.close()
    return {name: statistics.median(values[1:]) for name, values in taken.items()}


def main() -> int:
    options = arguments(__doc__ or "")
    many, few = (200, 20) if options.quick else (10_000, 500)
    with tempfile.TemporaryDirectory() as folder:
        large, large_seconds = make(Path(folder), 2, many, 28)
        small, small_seconds = make(Path(folder), 2 if options.quick else 10, few, 28)
        sizes = {"large": large.stat().st_size / 1e6, "small": small.stat().st_size / 1e6}
        times = script_times(large, options.repetitions)
    made = Grid(
        "Making a page",
        ["runs x inputs", "seconds", "MB"],
        [
            [f"2 x {many:,}", f"{large_seconds:.1f}", f"{sizes['large']:.2f}"],
            [f"{2 if options.quick else 10} x {few:,}", f"{small_seconds:.1f}", f"{sizes['small']:.2f}"],
        ],
    )
    rows = [[name, f"{taken:.1f}"] for name, taken in times.items()] if times else []
    grids = [made, *([Grid(f"Script and layout in the browser, {many:,} inputs", ["", "ms"], rows)] if rows else [])]
    bars = [
        Bar("page of 10 runs of 500 inputs", "at most", 5.0, None if options.quick else sizes["small"], "MB"),
        Bar("slowest action on 10,000 inputs", "at most", 100.0, max(times.values()) if times else None, "ms"),
    ]
    measured = {"seconds": {"large": large_seconds, "small": small_seconds}, "megabytes": sizes, "milliseconds": times}
    return finish(Report("report", {"inputs": [many, few]}, grids, bars, measured), options)


if __name__ == "__main__":
    sys.exit(main())
