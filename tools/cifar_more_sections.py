"""Sections of results/cifar10.md beside papers 001 to 004 and on denoisers, one of them at ImageNet size."""

from __future__ import annotations

from typing import Any

from cifar_commands import DRT_EPOCHS, KINDS, RHOS
from cifar_page import RADII, Found, Row, draws, headed, paper, percents, printed, section, table

from ringfence.analysis.aces import measure
from ringfence.analysis.aces_runs import AcesRun
from ringfence.analysis.bounds import RunBounds
from ringfence.analysis.compare import Comparison, Radii, compare
from ringfence.mechanisms import mechanism

ENSEMBLE = "best-of:one-sided+renyi+analytic-dp"
"""Paper 004's: the largest of its three radii."""


def diversity(found: Found) -> list[str]:
    """Paper 001, tables 8 and 11: three members, DRT over them."""
    rows = _three(found, "gaussian-three-0.25", None)
    for rho1, rho2 in RHOS:
        rows += _three(found, f"drt-{rho1}-{rho2}-0.25", (float(rho1), float(rho2)))
    if not rows:
        return []
    about = [
        f"Sigma .25, every 10th test image. Ours: ResNet-20, {DRT_EPOCHS} epochs of DRT after 150 of the members; the",
        "paper: ResNet-110, 150 after 150. Its ACR (table 11) is one number for both votes and does not say which",
        "(rho1, rho2). Six cells of table 8 that are not legible in the text at hand are taken from tables 2 and 13,",
        "the best over sigma and settings, which at those radii is this row's.",
    ]
    title = "Paper 001, tables 8 and 11: diversity-regularised training"
    return section(title, about, table(headed("", "rho1, rho2", "ACR"), rows))


def _three(found: Found, run: str, rho: tuple[float, float] | None) -> list[Row]:
    """The first member and both votes of a run, each above its published row."""
    there = found.published["paper001"]["cifar10"]
    acr = {one["row"]: f"{one['acr']:.3f}" for one in there["acr"] if one["sigma"] == 0.25}
    lanes, drt = found.lanes(run), "drt+" if rho else ""
    setting = "-" if rho is None else f"{rho[0]:g}, {rho[1]:g}"
    rows: list[Row] = []
    for vote in ("member", "softmax", "max-margin") if lanes else ():
        alone = vote == "member"
        ours = lanes["member-1" if alone else f"{vote}-3"]
        label = ("drt single(gaussian)" if rho else "gaussian") if alone else f"{drt}{vote}(gaussian)"
        rows.append([label, setting, f"{ours.acr:.3f}", *percents(ours.certified_accuracy)])
        shares = _table_8(there["certified_accuracy"], label, rho)
        if shares:
            told = acr[label if alone else f"{drt}votes(gaussian)"]
            rows.append(paper([f"paper, {label}", setting, told, *printed(shares)]))
    return rows


def _table_8(known: list[dict[str, Any]], label: str, rho: tuple[float, float] | None) -> dict[str, float]:
    for one in known:
        if one["row"] == label and rho == ((one["rho1"], one["rho2"]) if "rho1" in one else None):
            return dict(one["certified_accuracy"])
    return {}


def aces(found: Found) -> list[str]:
    """Paper 002, table 8: natural accuracy against certified radius."""
    tables = []
    for kind in KINDS:
        if (name := f"aces-{kind}-0.25") not in found.runs:
            continue
        known = {one["theta"]: one for one in found.published["paper002"]["table_8"] if one["training"] == kind}
        points = {one.theta: measure(one, RADII) for one in AcesRun.read(found.runs[name]).answers()}
        rows: list[Row] = []
        for theta in (round(0.1 * i, 1) for i in range(11)):
            ours = points[theta]
            natural = "-" if ours.natural_accuracy is None else f"{100 * ours.natural_accuracy:.1f}"
            rows.append([f"{theta:g}", natural, f"{ours.acr:.3f}", *percents(ours.certified_accuracy)])
            if there := known.get(theta):
                cells = [
                    f"{there['natural_accuracy']:.1f}",
                    f"{there['acr']:.3f}",
                    *printed(there["certified_accuracy"]),
                ]
                rows.append(paper([f"paper, {theta:g}", *cells]))
        tables += [[f"{kind}:"], table(headed("theta", "natural %", "ACR"), rows)]
    about = [
        "Entropy selection, sigma .25. Ours: a ResNet-20 and a clean ResNet-56 as core; the paper: a ResNet-110 and",
        "LaNet, so only the shape compares. All 101 thresholds are in the runs.",
    ]
    return section("Paper 002, table 8: ACES", about, *tables) if tables else []


def mechanisms(found: Found) -> list[str]:
    """Paper 004, table 2: the best of its three radii over Cohen's, on the same sound bounds."""
    if "mechanisms-1.0" not in found.runs:
        return []
    bounds = RunBounds.load(found.runs["mechanisms-1.0"].path)
    base = Radii.of(bounds, mechanism("one-sided"))
    rows: list[Row] = []
    for label, name in (("paper's ensemble", ENSEMBLE), ("neyman-pearson", "neyman-pearson")):
        rows.append([label, *_gains(compare(Radii.of(bounds, mechanism(name)), base))])
    for there in found.published["paper004"]["table_2"]:
        if there["sigma"] == bounds.sigma:
            share = f"{there['proportion']:.1f}"
            median = f"{there['median_gain']:g}", f"{there['median_gain_percent']:.1f}"
            means = f"{there['mean_gain']:g}", f"{there['mean_gain_percent']:.1f}"
            signs = [there["p"], there["statistic"]]
            rows.append(paper(["paper, ensemble", *signs, share, *median, *means]))
    about = [
        f"Sigma 1, {draws(found.runs['mechanisms-1.0'])}, over Cohen's radius (`one-sided`) on the same bounds, which",
        "hold for the top class and the runner-up together. Ours: a ResNet-20; the paper: a ResNet-110 and bounds of a",
        "form that is not proved (docs/simplex.md). Columns: Wilcoxon's p and statistic, percent of inputs with a",
        "larger radius, median and mean gain, absolute and in percent of Cohen's radius where that is positive.",
    ]
    head = ["", "p", "statistic", "larger %", "median gain", "%", "mean gain", "%"]
    return section("Paper 004, table 2: mechanisms at sigma 1", about, table(head, rows))


def _gains(one: Comparison) -> list[str]:
    relative = ["-" if value is None else f"{value:.1f}" for value in (one.median_gain_percent, one.mean_gain_percent)]
    test = [f"{one.p_value:.1e}", f"{one.statistic:.0f}", f"{100 * one.won:.1f}"]
    return [*test, f"{one.median_gain:.4f}", relative[0], f"{one.mean_gain:.4f}", relative[1]]


def denoised(found: Found) -> list[str]:
    """Table 6: three denoisers before the clean ResNet-56."""
    lanes = found.lanes("denoised-0.25")
    if not lanes:
        return []
    run = found.runs["denoised-0.25"]
    names = [spec.removeprefix("denoised(").partition("@")[0] for spec in run.config.ensemble["members"]]
    labelled = [(f"member-{i + 1}", "1", name) for i, name in enumerate(names)]
    rows: list[Row] = []
    for lane, k, name in (*labelled, (f"soft-{len(names)}", str(len(names)), "soft vote")):
        ours = lanes[lane]
        rows.append([name, k, f"{ours.acr:.3f}", *percents(ours.certified_accuracy)])
    for there in found.published["paper000"]["table_6"]:
        cells = [f"{there['acr']:.3f}", *printed(there["certified_accuracy"])]
        rows.append(paper(["paper", str(there["k"]), *cells]))
    about = [
        f"Sigma .25, {draws(run)} (the paper: n = 100,000). Ours: published denoisers of natural images before a clean",
        "ResNet-56; the paper: four denoisers trained for CIFAR-10 before a clean ResNet-110: only the gain compares.",
    ]
    return section("Paper 000, table 6: denoised smoothing", about, table(headed("", "k", "ACR"), rows))


def smooth_reduce(found: Found) -> list[str]:
    """Smooth-Reduce's sound modes beside the network itself."""
    rows: list[Row] = []
    for name in ("base", "more", "input", "resized", "patch", "per-patch-input"):
        full = f"smooth-reduce-{name}-0.25"
        if full not in found.runs:
            continue
        config, ours = found.runs[full].config, found.lanes(full)["main"]
        mode = "-" if name == "base" else config.reduced["mode"]
        work = [f"{ours.draws / ours.count:.0f}", f"{ours.forwards / ours.count:.0f}"]
        factor = f"{config.lift.norm_bound:.4f}"
        rows.append([mode, factor, *work, f"{ours.acr:.3f}", *percents(ours.certified_accuracy)])
    about = [
        "One consistency ResNet-20, sigma .25, four patches of 32 pixels from 36, mean of the logits. Every radius is",
        "divided by the factor, without which it proves nothing (docs/smooth-reduce.md); paper 003's radii leave it",
        "out and are not set beside these. First row: the network without patches.",
    ]
    head = headed("noise", "factor", "draws", "forwards", "ACR")
    return section("Smooth-Reduce, its sound modes", about, table(head, rows)) if rows else []


def imagenet(found: Found) -> list[str]:
    """One run at ImageNet size, with the rate reached."""
    lanes = found.lanes("imagenet-0.25")
    if not lanes:
        return []
    ours, run = lanes["main"], found.runs["imagenet-0.25"]
    rate = f"{ours.draws / ours.seconds:,.0f}" if ours.seconds else "-"
    row = [f"{ours.acr:.3f}", f"{100 * ours.abstention:.1f}", rate, *percents(ours.certified_accuracy)]
    about = [
        f"FFDNet before EfficientNet-Lite0 at 224 pixels, sigma .25, {draws(run)}. The images are probably training",
        "images of the classifier, so this shows size and speed, not accuracy; another certification ran beside it on",
        "the same device.",
    ]
    head = headed("ACR", "abstained %", "draws a second")
    return section("At ImageNet size", about, table(head, [row]))
