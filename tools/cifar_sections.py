"""Sections of results/cifar10.md beside paper 000: variability, ensemble sizes, votes, K-consensus."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean, stdev
from typing import Any

import numpy as np
from cifar_commands import KINDS, MEMBERS
from cifar_page import RADII, Found, Row, headed, paper, percents, printed, section, table

from ringfence.analysis.bounds import RunBounds
from ringfence.analysis.metrics import RunMetrics
from ringfence.mechanisms import mechanism
from ringfence.store import RunFolder

LARGEST = {"0.25": 0.75, "0.5": 1.75, "1.0": 2.5}
"""The last radius of a table, by sigma."""


def tree_weights(tree: str) -> list[float]:
    """The weights that a tree of votes names."""
    from ringfence.models.grammar import Node, as_tree

    node = as_tree(tree)
    assert isinstance(node, Node)
    return [float(one) for one in str(node.settings["weights"]).split("/")]


def variability(found: Found) -> list[str]:
    """Table 13: mean and standard deviation of the members, and a soft vote of five, at sigma .25."""
    rows: list[Row] = []
    for there in found.published["paper000"]["table_13"]:
        kind, k = there["training"], there["k"]
        lanes = found.lanes(f"{kind}-lanes-0.25")
        names = [f"member-{i + 1}" for i in range(MEMBERS)] if k == 1 else [f"soft-{k}"]
        ours = [lanes[name] for name in names if name in lanes]
        if ours:
            rows += [_ours(found, there, ours), _theirs(there)]
    if not rows:
        return []
    about = [
        "ResNet-20, sigma .25. Ours for k = 1: mean ± standard deviation of ten members; for k = 5: the soft vote of",
        "the first five seeds, one ensemble. The paper: fifty members, and ten ensembles of five.",
    ]
    return section(
        "Paper 000, table 13: how much results vary", about, table(headed("", "k", "ACR", radii=RADII[1:]), rows)
    )


def _ours(found: Found, there: dict[str, Any], ours: list[RunMetrics]) -> Row:
    name, k, acr, spread = (there[key] for key in ("training", "k", "acr", "acr_spread"))
    accuracy, spreads = there["certified_accuracy"], there["certified_accuracy_spread"]
    cells = [
        str(name),
        str(k),
        _with_spread(found, f"{name}, k = {k}, ACR", [one.acr or 0.0 for one in ours], acr, spread, 4),
    ]
    for radius in RADII[1:]:
        shares = [100 * one.certified_accuracy[radius] for one in ours]
        known = accuracy[f"{radius:g}"], spreads[f"{radius:g}"]
        cells.append(_with_spread(found, f"{name}, k = {k}, r = {radius:g}", shares, *known, 2))
    return cells


def _with_spread(found: Found, what: str, values: list[float], theirs: float, spread: float, digits: int) -> str:
    around = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    marked, star, _ = found.beside(what, mean(values), theirs, spread, digits).partition(" *")
    return f"{marked}{around}{star}"


def _theirs(there: dict[str, Any]) -> Row:
    shares, spreads = there["certified_accuracy"], there["certified_accuracy_spread"]
    cells = [f"{shares[f'{r:g}']:.2f} ± {spreads[f'{r:g}']:.2f}" for r in RADII[1:]]
    return paper(
        [f"paper, {there['training']}", str(there["k"]), f"{there['acr']:.4f} ± {there['acr_spread']:.4f}", *cells]
    )


def sizes(found: Found) -> list[str]:
    """Table 12: soft votes of k members."""
    tables = []
    for sigma, largest in LARGEST.items():
        radii = [0.25 * i for i in range(int(4 * largest) + 1)]
        rows: list[Row] = []
        for kind in KINDS:
            lanes = found.lanes(f"{kind}-lanes-{sigma}", radii)
            known = {
                one["k"]: one
                for one in found.published["paper000"]["table_12"]
                if (one["training"], one["sigma"]) == (kind, float(sigma))
            }
            for k in (1, 3, 5, 10) if lanes else ():
                ours = lanes[f"soft-{k}"]
                rows.append([kind, str(k), f"{ours.acr:.3f}", *percents(ours.certified_accuracy, radii)])
                if there := known.get(k):
                    shares = printed(there["certified_accuracy"], radii)
                    rows.append(paper([f"paper, {kind}", str(k), f"{there['acr']:.3f}", *shares]))
        if rows:
            tables += [[f"sigma {sigma}:"], table(headed("", "k", "ACR", radii=radii), rows)]
    about = [
        "ResNet-20, soft votes of the first k seeds; nothing was ranked. The paper takes the best k of fifty, by",
        "accuracy on hold-out test images, and has no such table for sigma .5.",
    ]
    return section("Paper 000, table 12: ensemble sizes", about, *tables) if tables else []


def singles(found: Found) -> list[str]:
    """Table 9, k = 1: a ResNet-110 alone at each sigma; of ResNet-20 at sigma 1 what the mechanisms' run gives."""
    tables = []
    for sigma, largest in LARGEST.items():
        radii = [0.25 * i for i in range(int(4 * largest) + 1)]
        rows: list[Row] = []
        for there in found.published["paper000"]["table_9"]:
            kind, deep = there["training"], there["architecture"] == "ResNet110"
            run = f"{kind}-resnet110-{sigma}" if deep else f"mechanisms-{sigma}"
            if there["sigma"] != float(sigma) or run not in found.runs:
                continue
            name = f"{kind}, {there['architecture']}"
            if deep:
                ours = found.lanes(run, radii)["main"]
                acr, shares_here = ours.acr or 0.0, ours.certified_accuracy
            else:
                acr, shares_here = one_sided_metrics(found.runs[run], radii)
            rows.append([name, f"{acr:.3f}", *percents(shares_here, radii)])
            shares = printed(there["certified_accuracy"], radii)
            rows.append(paper([f"paper, {name}", f"{there['acr']:.3f}", *shares]))
        if rows:
            tables += [[f"sigma {sigma}:"], table(headed("", "ACR", radii=radii), rows)]
    about = [
        "One network, 500 images, n = 100,000, Cohen et al.'s radius. No spread is published here. The ResNet-20 at",
        "sigma 1: the one-sided radius on the bounds of the multinomial procedure, a little below Cohen et al.'s.",
    ]
    return section("Paper 000, table 9: single networks", about, *tables) if tables else []


def one_sided_metrics(run: RunFolder, radii: Sequence[float]) -> tuple[float, dict[float, float]]:
    """Average certified radius and certified accuracies by the one-sided mechanism on a run's own bounds."""
    bounds = RunBounds.load(run.path)
    right = [one.prediction == one.label for one in bounds.records]
    radius = np.where(right, bounds.radius(mechanism("one-sided")), 0.0)
    return float(radius.mean()), {r: float(np.mean(radius > 0 if r == 0 else radius >= r)) for r in radii}


def votes(found: Found) -> list[str]:
    """Table 11: ways to vote, of ten members at sigma .25."""
    rows: list[Row] = []
    learned: list[str] = []
    known = {(one["training"], one["vote"]): one for one in found.published["paper000"]["table_11"]}
    for kind in KINDS:
        if not (lanes := found.lanes(f"{kind}-lanes-0.25")):
            continue
        weights = tree_weights(found.runs[f"{kind}-lanes-0.25"].config.classifier.tree)
        learned.append(f"- {kind}: {', '.join(f'{weight:.2f}' for weight in weights)}.")
        for vote in ("soft", "softmax", "hard", "weighted", "max-margin"):
            ours = lanes[f"{vote}-{MEMBERS}"]
            rows.append([kind, vote, f"{ours.acr:.3f}", *percents(ours.certified_accuracy)])
            if there := known.get((kind, vote)):
                shares = printed(there["certified_accuracy"])
                rows.append(paper([f"paper, {kind}", vote, f"{there['acr']:.3f}", *shares]))
    about = [
        "Ours: ten ResNet-20, sigma .25. The paper: ten ResNet-110, so only the order of the votes compares. Weights",
        "were learned on the cross-entropy of 500 noisy training images:",
        "",
        *learned,
    ]
    return section("Paper 000, table 11: votes", about, table(headed("", "vote", "ACR"), rows)) if rows else []


def consensus(found: Found) -> list[str]:
    """Tables 2 and 14: K-consensus of ten consistency members at sigma .25."""
    lanes = found.lanes("consistency-lanes-0.25")
    if not lanes:
        return []
    rows: list[Row] = []
    for k in (2, 3, 5):
        ours = lanes[f"consensus-{k}"]
        saved = ours.consensus
        work = [f"{saved.forwards_rf:.2f}", f"{100 * saved.kcr:.1f}"] if saved else ["-", "-"]
        rows.append([f"{MEMBERS} ResNet20", str(k), f"{ours.acr:.3f}", *percents(ours.certified_accuracy), *work])
    for k, lane, fewer in ((1, "soft-1", MEMBERS), (MEMBERS, f"soft-{MEMBERS}", 1)):
        ours = lanes[lane]
        rows.append(
            [f"{MEMBERS} ResNet20", str(k), f"{ours.acr:.3f}", *percents(ours.certified_accuracy), f"{fewer:.2f}", ""]
        )
    rows.sort(key=lambda row: int(row[1]))
    for there in found.published["paper000"]["table_14"]:
        cells = [f"paper, {there['members']} {there['architecture']}", str(there["K"]), f"{there['acr']:.3f}"]
        cells += printed(there["certified_accuracy"])
        rows.append(paper([*cells, f"{there['time_rf']:.2f}", f"{there['kcr']:.1f}"]))
    about = [
        "Consistency, sigma .25. Ours: ten ResNet-20, K = 1 and 10 the first member and the full vote; the paper: ten",
        "ResNet-110 and fifty ResNet-20, in order of their accuracy, so only the shape compares. The column before the",
        "last: times fewer forwards than the full ensemble (ours, counted), times faster (paper). KCR: percent of",
        "draws that the first K decided.",
    ]
    head = [*headed("", "K", "ACR"), "fewer", "KCR %"]
    return section("Paper 000, tables 2 and 14: K-consensus", about, table(head, rows))
