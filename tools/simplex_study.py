"""The numbers of docs/simplex.md: failure rates by simulation, comparisons of certification runs, and the figures.

python tools/simplex_study.py rates            simulate; writes results/simplex/failure_rates.json
python tools/simplex_study.py pack runs/...    copy finished runs into results/simplex/, one part each
python tools/simplex_study.py softmax RUN      every bound on a softmax run's counts; results/simplex/softmax.json
python tools/simplex_study.py page             rewrite the tables of docs/simplex.md, draw its figures
python tools/simplex_study.py --check          whether the tables are what the runs give
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from result_page import write_or_check

from ringfence.analysis.bounds import RunBounds
from ringfence.analysis.compare import Radii, compare, summarise
from ringfence.analysis.simplex import contestant, simplex_map, simplex_points
from ringfence.analysis.simplex_plots import plot_map, plot_points
from ringfence.mechanisms import MECHANISMS, Mechanism, neyman_pearson, one_sided
from ringfence.store import RunConfig, RunFolder
from ringfence.store.config import ProcedureConfig

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "simplex"
PAGE = ROOT / "docs" / "simplex.md"
IMAGES = ROOT / "docs" / "img"
ENSEMBLE = "one-sided+renyi+analytic-dp"
SIGMAS = ("0.25", "0.5", "1.0")


# Runs


def pack(path: Path) -> None:
    """The run as one part under results/simplex/: a folder per run, without thumbnails."""
    run = RunFolder.open(path)
    packed = RunFolder.create_or_resume(RESULTS / path.name, run.config)
    if packed.records().num_rows == 0:
        for plan in run.forward_plans():
            packed.add_forward_plan(plan)
        number = packed.add_environment(
            {key: value for key, value in run.environments()[-1].items() if key != "forward_plan"}
        )
        packed.append(run.read(), number)


SOFT_BOUNDS: tuple[tuple[str, str], ...] = (
    ("betting", "sound"),
    ("bernstein", "sound"),
    ("hoeffding", "sound"),
    ("hoeffding", "paper"),
)


def study_softmax(path: Path) -> None:
    """Every bound and mechanism on the counts of one softmax run; the draws are the same for all."""
    run = RunBounds.load(path)
    rows = []
    for bound, form in SOFT_BOUNDS:
        settings = run.config.procedure.settings | {"bound": bound, "form": form}
        # The paper's form knows no selection stage: it sees the n draws alone.
        records = run.records
        if form == "paper":
            records = [replace(one, stages=one.stages[-1:]) for one in records]
        config = with_procedure(run.config, run.config.procedure.name, settings)
        bare = [replace(one, radii={}) for one in records]
        again = RunBounds(f"{bound}, {form}", config, bare)
        for name, one in MECHANISMS.items():
            radius = again.radius(one)
            rows.append(
                {
                    "bound": bound,
                    "form": form,
                    "mechanism": name,
                    "median_radius": float(np.median(radius)),
                    "mean_radius": float(radius.mean()),
                    "above": float(np.mean(radius > 0.05)),
                }
            )
    content = {"run": path.name, "sigma": run.sigma, "n": run.n, "inputs": len(run), "top_1": run.top_1, "rows": rows}
    (RESULTS / "softmax.json").write_text(json.dumps(content, indent=1) + "\n")


# The page


def table(head: list[str], rows: list[list[str]]) -> str:
    """Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def rate_table() -> str:
    """Failure rates in percent with their 99% interval."""
    rows = []
    for one in json.loads((RESULTS / "failure_rates.json").read_text())["rates"]:
        low, high = one["interval_99"]
        shown = f"{100 * one['rate']:.2f}% ({100 * low:.2f} to {100 * high:.2f})"
        status = "proved" if one["sound"] else "not proved"
        rows.append(
            [one["procedure"], str(one["classes"]), str(one["n"]), status, shown, one["case"], f"{one['runs']:,}"]
        )
    return table(["procedure", "K", "n", "at most alpha", "measured", "worst case tried", "runs"], rows)


def map_table() -> str:
    """Summary of the maps."""
    pairs = [
        ("one-sided", "renyi"),
        ("analytic-dp", "pixeldp"),
        ("analytic-dp", "pixeldp+renyi+one-sided"),
        ("neyman-pearson", "one-sided"),
        ("neyman-pearson", "renyi"),
        ("neyman-pearson", "pixeldp"),
        ("neyman-pearson", "analytic-dp"),
        ("neyman-pearson", ENSEMBLE),
    ]
    rows = []
    for left, right in pairs:
        facts = simplex_map(left, right).summary()
        ratio = facts["ratio"]
        spread = f"{ratio['median']:.3f} ({ratio['min']:.3f} to {ratio['max']:.3f})"
        lone = facts["only_left_certifies"] + facts["only_right_certifies"]
        rows.append([left, right, f"{facts['left_wins']:.1%}", f"{facts['right_wins']:.1%}", f"{lone:.1%}", spread])
    return table(["left", "right", "left larger", "right larger", "only one certifies", "ratio where both do"], rows)


def runs_named(prefix: str) -> list[RunBounds]:
    """The packed runs of a procedure, in the order of sigma; only those with the usual n."""
    paths = [RESULTS / f"{prefix}-{sigma}" for sigma in SIGMAS]
    return [RunBounds.load(path) for path in paths if path.exists()]


def run_table() -> str:
    """Table 1 of the paper on our runs."""
    names = list(MECHANISMS)
    rows = []
    for run in runs_named("multinomial"):
        found = summarise(run)
        cells = [f"{one.median_radius:.3f} / {one.largest:.0%} / {one.above:.1%}" for one in found.mechanisms]
        rows.append([f"{run.sigma:g}", str(len(run)), f"{found.top_1:.1%}", *cells])
    return table(["sigma", "inputs", "top-1", *(f"{name} (M / L / >)" for name in names)], rows)


def gain_table() -> str:
    """Table 2 of the paper: its ensemble over one_sided, and what neyman_pearson adds."""
    rows = []
    for run in runs_named("multinomial"):
        ensemble = contestant(ENSEMBLE)
        pairs: list[tuple[str, Mechanism, Mechanism]] = [
            ("ensemble over one_sided", ensemble, one_sided),
            ("neyman_pearson over one_sided", neyman_pearson, one_sided),
            ("ensemble over neyman_pearson", ensemble, neyman_pearson),
        ]
        for words, ours, theirs in pairs:
            rows.append(gain_row(f"{run.sigma:g}", words, Radii.of(run, ours), Radii.of(run, theirs)))
    return table(GAIN_HEAD, rows)


GAIN_HEAD = ["sigma", "A over B", "inputs", "A larger", "B larger", "median gain", "mean gain", "above .05: A, B", "p"]


def gain_row(sigma: str, words: str, ours: Radii, theirs: Radii) -> list[str]:
    """One comparison."""
    one = compare(ours, theirs)
    percents = ["-" if x is None else f"{x:.1f}%" for x in (one.median_gain_percent, one.mean_gain_percent)]
    return [
        sigma,
        words,
        str(one.inputs),
        f"{one.won:.1%}",
        f"{one.lost:.1%}",
        f"{one.median_gain:.3f} ({percents[0]})",
        f"{one.mean_gain:.3f} ({percents[1]})",
        f"{one.above:.1%}, {one.above_against:.1%}",
        f"{one.p_value:.0e}",
    ]


def gaining_table() -> str:
    """Figure 7 of the paper: share gaining more than x percent over one_sided."""
    gains = (0.0, 5.0, 10.0, 25.0, 50.0, 100.0, 200.0)
    rows = []
    for run in runs_named("multinomial"):
        for words, ours in (("ensemble", contestant(ENSEMBLE)), ("neyman_pearson", neyman_pearson)):
            found = compare(Radii.of(run, ours), Radii.of(run, one_sided), gains=gains)
            rows.append([f"{run.sigma:g}", words, *(f"{share:.1%}" for share in found.gaining.values())])
    return table(["sigma", "over one_sided", *(f"> {x:g}%" for x in gains)], rows)


def with_procedure(config: RunConfig, name: str, settings: dict[str, Any]) -> RunConfig:
    """The config with another procedure."""
    return config.model_copy(update={"procedure": ProcedureConfig(name=name, **settings)})


def as_fixed(run: RunBounds) -> RunBounds:
    """What ``--procedure fixed`` makes of a two-sided run's counts: with one seed the two use the very same draws."""
    settings = {key: run.config.procedure.settings[key] for key in ("alpha", "n0", "n")}
    config = with_procedure(run.config, "fixed", settings)
    return RunBounds(f"{run.path}, fixed", config, [replace(one, radii={}) for one in run.records])


def procedure_table() -> str:
    """Whole procedures against CERTIFY: each with its own split of the same alpha."""
    rows = []
    for two_sided, multinomial in zip(runs_named("two-sided"), runs_named("multinomial"), strict=True):
        cohen = Radii.of(as_fixed(two_sided), one_sided)
        for words, run in (("two-sided over fixed", two_sided), ("multinomial over fixed", multinomial)):
            rows.append(gain_row(f"{run.sigma:g}", words, Radii.of(run, neyman_pearson), cohen))
        ensemble = Radii.of(multinomial, contestant(ENSEMBLE))
        rows.append(gain_row(f"{run.sigma:g}", "multinomial by the ensemble over fixed", ensemble, cohen))
    return table(GAIN_HEAD, rows)


def only(run: RunBounds, inputs: set[int]) -> RunBounds:
    """The run on these inputs."""
    return replace(run, records=[one for one in run.records if one.input_id in inputs])


def draws_table() -> str:
    """Figure 6 of the paper: share above .05 and time against n."""
    found = [RunBounds.load(path.parent) for path in sorted(RESULTS.glob("multinomial-1.0*/config.json"))]
    common = set.intersection(*(set(run.ids.tolist()) for run in found))
    rows = []
    for run in sorted(found, key=lambda one: one.n or 0):
        facts = summarise(only(run, common))
        shares = {one.mechanism: f"{one.above:.1%}" for one in facts.mechanisms}
        rows.append([f"{run.n:,}", *(shares[name] for name in MECHANISMS), f"{1000 * facts.seconds:,.0f}"])
    return table(["n", *MECHANISMS, "ms per input"], rows)


def softmax_table() -> str:
    """Bounds times mechanisms on softmax means, with the votes of the same network beside them."""
    content = json.loads((RESULTS / "softmax.json").read_text())
    inputs = set(RunBounds.load(RESULTS / content["run"]).ids.tolist())
    chosen = ("pixeldp", "analytic_dp", "neyman_pearson")
    rows = []
    for bound, form in SOFT_BOUNDS:
        own = {r["mechanism"]: r for r in content["rows"] if (r["bound"], r["form"]) == (bound, form)}
        cells = [f"{own[name]['median_radius']:.3f} / {own[name]['above']:.1%}" for name in chosen]
        rows.append(["softmax", f"{bound}, {form}", *cells])
    for name in ("two-sided", "multinomial"):
        path = RESULTS / f"{name}-1.0"
        if path.exists():
            facts = {one.mechanism: one for one in summarise(only(RunBounds.load(path), inputs)).mechanisms}
            cells = [f"{facts[one].median_radius:.3f} / {facts[one].above:.1%}" for one in chosen]
            rows.append(["votes", f"Clopper-Pearson, {name}", *cells])
    return table(["means of", "bound", *(f"{name} (median / > .05)" for name in chosen)], rows)


def figures() -> None:
    """The paper's figures 2 and 3 again, and a scatter per sigma."""
    from matplotlib.figure import Figure

    IMAGES.mkdir(exist_ok=True)
    maps = {
        "figure2": ("one-sided", "renyi", "difference"),
        "figure3-softmax": ("analytic-dp", "pixeldp", "ratio"),
        "figure3-multinomial": ("analytic-dp", "pixeldp+renyi+one-sided", "ratio"),
        "tight": ("neyman-pearson", ENSEMBLE, "ratio"),
    }
    for name, (left, right, statistic) in maps.items():
        figure = Figure(figsize=(6.4, 3.4), dpi=90, layout="constrained")
        plot_map(simplex_map(left, right, statistic), figure.add_subplot())  # type: ignore[arg-type]
        figure.savefig(IMAGES / f"simplex-{name}.png")
    for run in [*runs_named("multinomial"), *runs_named("softmax")]:
        figure = Figure(figsize=(6.4, 3.4), dpi=90, layout="constrained")
        ax = figure.add_subplot()
        plot_map(simplex_map(ENSEMBLE, "one-sided", "difference", run.sigma), ax)
        plot_points(simplex_points(run, "one-sided", "renyi+analytic-dp"), ax)
        figure.savefig(IMAGES / f"simplex-scatter-{Path(run.path).name}.png")


def page(check: bool) -> int:
    """Replace what stands between ``<!-- table NAME -->`` and ``<!-- end -->``; with check, 1 where that changes it."""
    tables = {
        "maps": map_table,
        "rates": rate_table,
        "runs": run_table,
        "gains": gain_table,
        "gaining": gaining_table,
        "procedures": procedure_table,
        "draws": draws_table,
        "softmax": softmax_table,
    }
    text = PAGE.read_text(encoding="utf-8")
    for name, make in tables.items():
        pattern = re.compile(rf"(<!-- table {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        content = make()
        text, count = pattern.subn(lambda found, content=content: f"{found[1]}{content}\n{found[2]}", text)
        assert count == 1, name
    code = write_or_check(PAGE, text, check, f"{len(tables)} tables")
    if not check:
        figures()
    return code


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["pack", "softmax", "page"], nargs="?", default="page")
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    for path in options.paths:
        {"pack": pack, "softmax": study_softmax}[options.what](path)
    return page(options.check) if options.what == "page" else 0


if __name__ == "__main__":
    sys.exit(main())
