"""Sections on certifying known radii: tables 4, 5, 15, 16 and 18 of Horvath et al. 2022 (ensembles), and times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from paper_runs import Run
from paper_tables import Row, listed, paper, section, table

from ringfence.analysis.stages import StageSummary, stage_summary

if TYPE_CHECKING:
    from ensembles_page import Beside

KINDS, DEEP, TEN, SUBSET = ("gaussian", "consistency"), "ResNet110", 10, 500
PROCEDURES = ("staged", "sequential")
STAGES = [1000, 10000, 125000]
"""Draws of the usual stages."""
ALONE = {f"gaussian-resnet110-0.25-{one}-r{radius}" for one in PROCEDURES for radius in ("0.25", "0.5", "0.75")}
ALONE |= {"gaussian-resnet110-0.25"}
"""Runs that had the device to themselves: the others shared it with trainings, and their times say nothing."""


def times(found: Beside) -> list[str]:
    """How long one ResNet-110 takes: fixed n, and at known radii."""
    rows: list[Row] = []
    told = found.published["appendix_d5"]
    hours = told["certify_hours"][DEEP]
    for kind in KINDS:
        asked: dict[str, Any] = {"kind": kind, "architecture": DEEP, "sigma": 0.25, "size": 1}
        runs = found.runs.of(procedure="fixed", **asked)
        known = [run for one in ("sequential", "staged") for run in found.runs.of(procedure=one, **asked)]
        mine = [row for run in (*runs, *known) if run.name in ALONE for row in _timed(run, kind)]
        rows += mine
        if mine:
            rows.append(paper([f"paper, {kind}", "fixed n", "", "", f"{3600 * hours:,.0f}", "", "", told["gpu"]]))
            for there in found.published["table_18"]:
                if (there["training"], there["stages"]) == (kind, STAGES):
                    cells = [f"{there['radius']:g}", "", f"{3600 * hours / there['time_rf']:,.0f}", "", "", told["gpu"]]
                    rows.append(paper([f"paper, {kind}", "staged", *cells]))
    about = [
        "500 images, one ResNet-110, sigma .25, alpha .001; only runs that had the device to themselves. All: from the",
        "loaded network and data to the last record written. Start: how much of it passed before the first batch,",
        "choosing the plan, compiling, checking (a dash: the run is older than that). Sampling: what the records",
        "charge, the host's time in the engine's steps. Loading Python, libraries and data is not counted. The paper:",
        f"{hours} hours on one {told['gpu']} (D.5), over TimeRF (table 18) where staged.",
    ]
    head = ["", "procedure", "r", "certified % at r = .25", "seconds, all", "start", "sampling", "device"]
    return section("How long it takes", about, *([table(head, rows)] if rows else []))


def _timed(run: Run, kind: str) -> list[Row]:
    """The row of a run that was made in one session."""
    sampling, summary = sum(record.seconds for record in run.folder.read()), run.folder.summary() or {}
    whole, start = summary["last_session_seconds"], summary.get("last_start_seconds")
    if sampling > whole:  # a resumed run: its earlier sessions were not timed
        return []
    known = [] if run.radius not in (None, 0.25) else [run.lanes([0.25])["main"].certified_accuracy[0.25]]
    share = f"{100 * known[0]:.1f}" if known else ""
    begin = [kind, run.procedure, f"{run.radius:g}"] if run.radius is not None else [kind, "fixed n", ""]
    spent = [f"{whole:.1f}", "-" if start is None else f"{start:.1f}", f"{sampling:.1f}"]
    return [[*begin, share, *spent, run.folder.environments()[-1].get("gpu") or "CPU"]]


def single_networks(found: Beside) -> list[str]:
    """Tables 4 and 18: one ResNet-110 of each kind, staged and sequential, at every sigma there are runs of."""
    runs = [run for run in found.runs.of(architecture=DEEP, size=1, inputs=SUBSET, plain=True) if run.kind in KINDS]
    known = [run for run in runs if run.radius is not None]
    tables: list[Sequence[str]] = []
    for sigma in sorted({run.sigma for run in known}):
        rows: list[Row] = []
        for kind in KINDS:
            mine = [run for run in known if (run.kind, run.sigma) == (kind, sigma)]
            fixed = found.runs.one(
                kind=kind, architecture=DEEP, size=1, sigma=sigma, procedure="fixed", inputs=SUBSET, n=100_000
            )
            for radius in sorted({run.radius or 0.0 for run in mine}):
                told = found.published["table_18"] if sigma == 0.25 else []
                rows += _at_radius(kind, radius, [run for run in mine if run.radius == radius], fixed, told)
        head = ["", "r", "procedure", "certified %", "ASA", "ASC", "SampleRF", "SampleRF, last stage"]
        tables += [[f"sigma {sigma:g}:"], table(head, rows)]
    about = [
        "ResNet-110, stages of 1,000, 10,000 and 125,000 draws where no others are named. ASA and ASC: percent",
        "abstained from and certified at each stage. SampleRF: times fewer draws than fixed n = 100,000 with n0 = 100,",
        "all draws counted; the paper counts only the last stage an input reached (last column). No spread is",
        "published here.",
    ]
    return section("Tables 4 and 18: known radii", about, *tables)


def _at_radius(kind: str, radius: float, runs: Sequence[Run], fixed: Run | None, told: Iterable[Any]) -> list[Row]:
    """Fixed n, the usual stages, sequential, what the paper has, then other schedules each above the paper's."""
    rows: list[Row] = []
    if fixed:
        share = fixed.lanes([radius])["main"].certified_accuracy[radius]
        rows.append([kind, f"{radius:g}", "fixed n", f"{100 * share:.1f}", "", "", f"{1:.2f}", f"{1:.2f}"])
    there = {tuple(one["stages"]): one for one in told if (one["training"], one["radius"]) == (kind, radius)}
    usual = [run for run in runs if run.stages in (STAGES, [])]
    rows += [adaptive(run, kind) for run in sorted(usual, key=lambda run: PROCEDURES.index(run.procedure))]
    if usual:
        rows += _published(kind, radius, STAGES, there)
    for run in runs:
        if run not in usual:
            rows += [adaptive(run, kind), *_published(kind, radius, run.stages, there)]
    return rows


def _published(kind: str, radius: float, stages: list[int], known: dict[tuple[int, ...], Any]) -> list[Row]:
    if (there := known.get(tuple(stages))) is None:
        return []
    cells = [f"{there['certified_accuracy']:.1f}", listed(there["asa"]), listed(there["asc"])]
    return [paper([f"paper, {kind}", f"{radius:g}", named(stages), *cells, "", f"{there['sample_rf']:.2f}"])]


def named(stages: list[int]) -> str:
    """Staged, with the draws of its stages where they are not the usual ones."""
    return "staged" if stages == STAGES else f"staged {'/'.join(map(str, stages))}"


def adaptive(run: Run, label: str) -> Row:
    """A row of a staged or sequential run."""
    assert run.radius is not None
    share = run.lanes([run.radius])["main"].certified_accuracy[run.radius]
    saved = stage_summary(run.folder.read())
    procedure = named(run.stages) if run.procedure == "staged" else run.procedure
    factors = [f"{saved.sample_rf:.2f}", f"{saved.sample_rf_paper:.2f}"]
    return [label, f"{run.radius:g}", procedure, f"{100 * share:.1f}", *_shares(saved), *factors]


def _shares(saved: StageSummary) -> list[str]:
    """ASA and ASC of stages; a sequential run has too many looks to list."""
    if saved.procedure != "staged":
        return ["", ""]
    return [listed([one.asa for one in saved.shares]), listed([one.asc for one in saved.shares])]


def ensembles(found: Beside) -> list[str]:
    """Tables 5, 15 and 16: ten members at known radii, with and without K-consensus."""
    runs = [run for run in found.runs.of(size=TEN, plain=True, inputs=SUBSET) if run.radius is not None]
    rows: list[Row] = []
    for kind in KINDS:
        for sigma, radius in sorted({(run.sigma, run.radius or 0.0) for run in runs if run.kind == kind}):
            mine = [run for run in runs if (run.kind, run.sigma, run.radius) == (kind, sigma, radius)]
            mine.sort(
                key=lambda run: (run.architecture == DEEP, run.agree is not None, PROCEDURES.index(run.procedure))
            )
            rows += [[*adaptive(run, _voters(run)), _kcr(run)] for run in mine]
            rows += _published_tens(found.published, kind, sigma, radius)
    about = [
        "Consistency, sigma .25 and ResNet-20 where nothing else is said. Ours: ten ResNet-20; the paper: ten",
        "ResNet-110, so with ResNet-20 only the shape compares. Columns as above; KCR: percent of draws that the first",
        "K members decided. ASR is the sum of ASA and ASC.",
    ]
    head = ["", "r", "procedure", "certified %", "ASA", "ASC", "SampleRF", "SampleRF, last stage", "KCR %"]
    title = "Tables 5, 15 and 16: known radii with ensembles"
    return section(title, about, *([table(head, rows)] if rows else []))


def _voters(run: Run) -> str:
    """Who votes, and what is not as the section says."""
    other = [
        *([run.architecture] if run.architecture == DEEP else []),
        *([run.kind] if run.kind != "consistency" else []),
        *([f"sigma {run.sigma:g}"] if run.sigma != 0.25 else []),
    ]
    return ", ".join([*other, "all" if run.agree is None else f"K = {run.agree}"])


def _kcr(run: Run) -> str:
    saved = run.lanes([0.0])["main"].consensus
    return f"{100 * saved.kcr:.1f}" if saved else ""


def _published_tens(numbers: Any, kind: str, sigma: float, radius: float) -> list[Row]:
    rows: list[Row] = []
    for there in (*numbers["table_15"], *numbers["table_5"], *numbers["table_16"]):
        if (there["training"], there["sigma"], there["radius"]) != (kind, sigma, radius):
            continue
        agreed = "kcr" in there
        shares = [f"ASR {listed(there['asr'])}", ""] if agreed else [listed(there["asa"]), listed(there["asc"])]
        saved = ["", f"{there['sample_rf']:.2f}", f"{there['kcr']:.1f}" if agreed else ""]
        voters = "paper, K = 6" if agreed else "paper, all"
        rows.append(paper([voters, f"{radius:g}", "staged", f"{there['certified_accuracy']:.1f}", *shares, *saved]))
    return rows
