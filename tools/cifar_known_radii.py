"""Sections of results/cifar10.md beside paper 000's tables 4, 5 and 18: staged and sequential at known radii."""

from __future__ import annotations

from typing import Any

from cifar_commands import AGREE, KINDS, RADII
from cifar_page import Found, Row, paper, section, table

from ringfence.analysis.stages import StageSummary, stage_summary

STAGES = [1000, 10000, 125000]
"""Draws of the stages, ours and those of the published rows beside them."""
ALONE = {f"gaussian-resnet110-{procedure}-r{radius}" for procedure in ("staged", "sequential") for radius in RADII}
ALONE |= {"gaussian-resnet110-0.25"}
"""Runs that had the device to themselves: the others shared it with trainings, and their times say nothing."""


def known_radii(found: Found) -> list[str]:
    """Tables 4 and 18: one ResNet-110 of each kind, staged and sequential."""
    rows: list[Row] = []
    known = _table_18(found)
    for kind in KINDS:
        name = f"{kind}-resnet110"
        fixed = found.lanes(f"{name}-0.25").get("main")
        for radius in RADII:
            mine = _adaptive(found, name, "", radius, kind)
            if fixed:
                share = f"{100 * fixed.certified_accuracy[float(radius)]:.1f}"
                mine.insert(0, [kind, radius, "fixed n", share, "", "", f"{1:.2f}", f"{1:.2f}"])
            rows += mine
            if mine and (there := known.get((kind, float(radius)))):
                cells = [f"{there['certified_accuracy']:.1f}", _listed(there["asa"]), _listed(there["asc"])]
                rows.append(paper([f"paper, {kind}", radius, "staged", *cells, "", f"{there['sample_rf']:.2f}"]))
    about = [
        "ResNet-110, sigma .25, stages of 1,000, 10,000 and 125,000 draws. ASA and ASC: percent abstained from and",
        "certified at each stage. SampleRF: times fewer draws than fixed n = 100,000 with n0 = 100, all draws counted;",
        "the paper counts only the last stage an input reached (last column). No spread is published here.",
    ]
    head = ["", "r", "procedure", "certified %", "ASA", "ASC", "SampleRF", "SampleRF, last stage"]
    return section("Paper 000, tables 4 and 18: known radii", about, table(head, rows)) if rows else []


def times(found: Found) -> list[str]:
    """How long one ResNet-110 takes: fixed n, and at known radii."""
    rows: list[Row] = []
    told = found.published["paper000"]["appendix_d5"]
    hours = told["certify_hours"]["ResNet110"]
    known = _table_18(found)
    for kind in KINDS:
        name = f"{kind}-resnet110"
        mine = _timed(found, f"{name}-0.25", [kind, "fixed n", ""])
        for procedure in ("sequential", "staged"):
            for radius in RADII:
                mine += _timed(found, f"{name}-{procedure}-r{radius}", [kind, procedure, radius])
        rows += mine
        if mine:
            rows.append(paper([f"paper, {kind}", "fixed n", "", "", f"{3600 * hours:,.0f}", "", "", told["gpu"]]))
            for radius in RADII:
                if there := known.get((kind, float(radius))):
                    seconds = f"{3600 * hours / there['time_rf']:,.0f}"
                    rows.append(paper([f"paper, {kind}", "staged", radius, "", seconds, "", "", told["gpu"]]))
    about = [
        "500 images, one ResNet-110, sigma .25, alpha .001; only runs that had the device to themselves. All: from the",
        "loaded network and data to the last record written. Start: how much of it passed before the first batch,",
        "choosing the plan, compiling, checking (a dash: the run is older than that). Sampling: what the records",
        "charge, the host's time in the engine's steps. Loading Python, libraries and data is not counted. The paper:",
        f"{hours} hours on one {told['gpu']} (D.5), over TimeRF (table 18) where staged.",
    ]
    head = ["", "procedure", "r", "certified % at r = .25", "seconds, all", "start", "sampling", "device"]
    return section("How long it takes", about, table(head, rows)) if rows else []


def _table_18(found: Found) -> dict[tuple[str, float], Any]:
    """Its rows with our stages, by training and radius."""
    rows = found.published["paper000"]["table_18"]
    return {(one["training"], one["radius"]): one for one in rows if one["stages"] == STAGES}


def _timed(found: Found, name: str, begin: list[str]) -> list[Row]:
    """The row of a run that was made alone and in one session, if it is there."""
    if name not in found.runs or name not in ALONE:
        return []
    run = found.runs[name]
    lane = found.lanes(name, [0.25])["main"]
    sampling, summary = sum(record.seconds for record in run.read()), run.summary() or {}
    whole, start = summary["last_session_seconds"], summary.get("last_start_seconds")
    if sampling > whole:  # a resumed run: its earlier sessions were not timed
        return []
    share = f"{100 * lane.certified_accuracy[0.25]:.1f}" if begin[2] in ("", "0.25") else ""
    times = [f"{whole:.1f}", "-" if start is None else f"{start:.1f}", f"{sampling:.1f}"]
    return [[*begin, share, *times, run.environments()[-1].get("gpu") or "CPU"]]


def adaptive(found: Found) -> list[str]:
    """Table 5: ten consistency members at known radii, with and without K-consensus."""
    rows: list[Row] = []
    known = {one["radius"]: one for one in found.published["paper000"]["table_5"] if one["sigma"] == 0.25}
    for radius in RADII:
        mine = []
        for end, label in (("", "all"), ("-consensus", f"K = {AGREE}")):
            for row in _adaptive(found, "consistency", end, radius, label):
                mine.append([*row, _kcr(found, f"consistency-{row[2]}{end}-r{radius}")])
        rows += mine
        if mine:
            there = known[float(radius)]
            share, told = f"{there['certified_accuracy']:.1f}", f"ASR {_listed(there['asr'])}"
            saved = [f"{there['sample_rf']:.2f}", f"{there['kcr']:.1f}"]
            rows.append(paper(["paper, K = 6", radius, "staged", share, told, "", "", *saved]))
    about = [
        "Consistency, sigma .25. Ours: ten ResNet-20; the paper: ten ResNet-110, so only the shape compares. Columns",
        "as above; KCR: percent of draws that the first K members decided. ASR is the sum of ASA and ASC.",
    ]
    head = ["", "r", "procedure", "certified %", "ASA", "ASC", "SampleRF", "SampleRF, last stage", "KCR %"]
    return section("Paper 000, table 5: known radii with ensembles", about, table(head, rows)) if rows else []


def _adaptive(found: Found, name: str, end: str, radius: str, label: str) -> list[Row]:
    """A row for the staged run and one for the sequential run, where they are there."""
    rows: list[Row] = []
    for procedure in ("staged", "sequential"):
        full = f"{name}-{procedure}{end}-r{radius}"
        if full not in found.runs:
            continue
        share = found.lanes(full, [float(radius)])["main"].certified_accuracy[float(radius)]
        saved = stage_summary(found.runs[full].read())
        rows.append([label, radius, procedure, f"{100 * share:.1f}", *_shares(saved), *_factors(saved)])
    return rows


def _shares(saved: StageSummary) -> list[str]:
    """ASA and ASC of stages; a sequential run has too many looks to list."""
    if saved.procedure != "staged":
        return ["", ""]
    return [_listed([one.asa for one in saved.shares]), _listed([one.asc for one in saved.shares])]


def _factors(saved: StageSummary) -> list[str]:
    return [f"{saved.sample_rf:.2f}", f"{saved.sample_rf_paper:.2f}"]


def _listed(values: list[float]) -> str:
    return ", ".join(f"{value:.1f}" for value in values)


def _kcr(found: Found, name: str) -> str:
    saved = found.lanes(name, [0.0])["main"].consensus
    return f"{100 * saved.kcr:.1f}" if saved else ""
