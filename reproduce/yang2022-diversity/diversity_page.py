"""The page of Yang et al. 2022: its MNIST and CIFAR-10 tables from our runs, beside the published numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from paper_intervals import intervals
from paper_runs import Run, Runs
from paper_tables import RADII, ROOT, Row, headed, paper, percents, printed, published, section, table
from paper_trainings import Training, how_trained
from torch import nn
from wide_lenet import wide_lenet

from ringfence.analysis.metrics import RunMetrics
from ringfence.classifiers.architectures import LeNet

HERE = Path(__file__).resolve().parent
ALL = 10_000
FAR = 0.03
"""A relative difference above this is marked and explained."""
SINGLES = ("gaussian", "stability", "macer", "consistency", "smoothmix", "smoothadv")
VOTES = ("sween", "softmax", "max-margin")
ORDER = [
    *SINGLES,
    *(f"{vote}(gaussian)" for vote in VOTES),
    *("adp", "gal", "drt single(gaussian)", "drt+softmax(gaussian)", "drt+max-margin(gaussian)"),
    *(f"{vote}(smoothadv)" for vote in VOTES),
    *("drt single(smoothadv)", "drt+softmax(smoothadv)", "drt+max-margin(smoothadv)"),
]
"""Rows as the paper has them."""
HEAD = """# Yang et al. 2022: diversity-regularised training

Yang, Li, Xu, Kailkhura, Xie and Li, *On the Certified Robustness for Ensemble Models and Beyond*, ICLR 2022. Generated
by `python reproduce/pages.py yang2022-diversity` from the run folders in `results/mnist` and `results/cifar10`, which
the sweep files here describe; weights (rounded to half precision before anything was measured) and the settings of
every training are in `zoo/mnist` and `zoo/cifar10`, the published numbers in `published.json`. Certified accuracy in
percent at radius r, ACR the average certified radius. Lines in italics are published numbers. `ablations.yaml` trains
and certifies the ablations of appendix G and figure 9; `uniform_scores.py` computes and draws figures 4 to 6, of which
[docs/ensembles-theory.md](../../docs/ensembles-theory.md) tells. The ImageNet tables need data that is not at hand."""
MNIST = """MNIST protocol: every 10th test image (1,000), n0 = 100, n = 100,000, alpha = .001; the wide LeNet ({wide:,}
parameters) is the field's, LeNet is LeNet-5 ({size:,} parameters). In brackets behind DRT: (rho1, rho2); (0, 0) is
the same fine-tuning without DRT. Published are tables 4-6 (the same (rho1, rho2) as ours for DRT) and table 7 (ACR,
for MME and WE together, its setting not stated, and set beside each of ours). The paper's tables 1-3 and 18 are the
best over settings for each radius and are not set beside single runs; seven cells of table 4 that are not legible in
the text at hand are theirs, since at the other sigmas nothing is as large. A dash: not legible, or not published.
"""


@final
@dataclass(frozen=True)
class Line:
    """One line of a table: a lane of a run under the paper's name for it."""

    name: str
    run: Run
    training: Training
    metrics: RunMetrics

    @property
    def sigma(self) -> float:
        """Noise level."""
        return self.run.sigma

    @property
    def acr(self) -> float:
        """Average certified radius."""
        return self.metrics.acr or 0.0

    @property
    def rho(self) -> tuple[float, float] | None:
        """(rho1, rho2) of DRT."""
        return rho_of(self.training)

    @property
    def label(self) -> str:
        """The row's name, with the setting of DRT."""
        return self.name if self.rho is None else f"{self.name} ({self.rho[0]:g}, {self.rho[1]:g})"

    @property
    def comparable(self) -> bool:
        """Whether the paper has such a row: not of the same fine-tuning without DRT."""
        return self.rho is None or any(self.rho)


def row_name(kind: str, lane: str) -> str | None:
    """The paper's row that a lane of members of this kind belongs to; None for members beyond the first."""
    base, drt = kind.removeprefix("drt-"), kind.startswith("drt-")
    vote, _, number = lane.rpartition("-")
    if vote == "member":
        alone = f"drt single({base})" if drt else kind
        return alone if number == "1" and alone not in ("adp", "gal") else None
    if kind in ("adp", "gal"):
        return kind if vote == "softmax" else None
    return f"drt+{vote}({base})" if drt else f"{vote}({base})"


def lines_of(runs: Runs) -> Iterator[Line]:
    """Every line that the runs hold; a run of several trainings has a lane for each."""
    for run in runs.of(inputs=1000):
        found, several = run.lanes([0.25 * i for i in range(11)]), len(run.trainings) > 1
        for place, lane in enumerate(run.lane_names):
            training = run.trainings[place if several else 0]
            name = training.kind if several or lane == "main" else row_name(training.kind, lane)
            if name is not None:
                yield Line(name, run, training, found[lane])


def mnist_table(lines: Sequence[Line], sigma: float, numbers: Any) -> list[str]:
    """Ours above, the paper's single settings below, where it has them."""
    radii = [0.25 * i for i in range(4 if sigma == 0.25 else 8 if sigma == 0.5 else 11)]
    acr = {one["row"]: one["acr"] for one in numbers["acr"] if one["sigma"] == sigma}
    rows: list[Row] = []
    for one in sorted(lines, key=lambda one: (ORDER.index(one.name), one.rho or (0.0, 0.0))):
        there = _printed_row(numbers["certified_accuracy"], one.name, one.rho, sigma)
        average = acr.get(one.name) if one.comparable else None
        mark = " *" if average is not None and abs(one.acr / average - 1) > FAR else ""
        shares = percents(one.metrics.certified_accuracy, radii)
        rows.append([one.label, str(one.training.plan["epochs"]), f"{one.acr:.3f}{mark}", *shares])
        if average is not None or there:
            where = f"table {there['table']}" if there else "table 7"
            cells = printed(there.get("certified_accuracy", {}), radii)
            rows.append(paper([f"paper, {where}", "", "-" if average is None else f"{average:.3f}", *cells]))
    return table(["row", "epochs", "ACR", *(f"{radius:g}" for radius in radii)], rows)


def mnist(lines: Sequence[Line], numbers: Any) -> list[str]:
    """A section for each sigma and network, sigma .5 first; then what differs."""
    text = [MNIST.format(size=size_of(LeNet()), wide=size_of(wide_lenet()))]
    groups = {(one.sigma, one.training.architecture) for one in lines}
    for sigma, network in sorted(groups, key=lambda group: (group[1] == "LeNet", group[0] != 0.5, group[0])):
        chosen = [one for one in lines if (one.sigma, one.training.architecture) == (sigma, network)]
        text += [f"## MNIST, sigma = {sigma:g}, {network}", "", *mnist_table(chosen, sigma, numbers), ""]
    return [*text, "## MNIST: what differs from the paper", "", *differences(lines, numbers), ""]


def differences(lines: Sequence[Line], numbers: Any) -> list[str]:
    """Every ACR that is off by more than 3%, and why it may be."""
    acr = {(one["row"], one["sigma"]): one["acr"] for one in numbers["acr"]}
    off = []
    for one in lines:
        there = acr.get((one.name, one.sigma)) if one.comparable else None
        if there is not None and abs(one.acr / there - 1) > FAR:
            change = 100 * (one.acr / there - 1)
            network = one.training.architecture
            compared = f"{one.acr:.3f} here, {there:.3f} published ({change:+.1f}%)"
            off.append(f"- {one.label}, sigma {one.sigma:g}, {network}: {compared}.")
    if not off:
        return ["No average certified radius is off by more than 3%."]
    short = sorted({one.training.plan["epochs"] for one in lines} - {90})
    notes = ["Marked with * above: average certified radii that are off by more than 3%.", "", *off, ""]
    notes += ["What explains them, or may:", ""]
    wider = both_networks(lines, acr)
    alike = "With the wide one after as many epochs (plain momentum and bf16, not Nesterov's and fp32),"
    measured = f"{alike} {'; '.join(wider)}." if wider else width_matters()
    notes.append(
        f"- The network: LeNet-5 has {size_of(LeNet()):,} parameters; the paper says LeNet and gives no size, so "
        f"theirs may be larger. {measured}"
    )
    if short:
        epochs = ", ".join(map(str, short))
        notes.append(
            f"- Epochs: some rows were trained for {epochs} epochs where the paper has 90 (GPU time). Not tested apart."
        )
    notes += [
        "- DRT: the paper tunes the learning rate of the fine-tuning and does not print it; ours is .001. Not tested "
        "apart.",
        "- Momentum: Nesterov's where the list of trainings says so, the paper's plain. Not tested apart.",
    ]
    return notes


def both_networks(lines: Sequence[Line], acr: dict[tuple[str, float], float]) -> list[str]:
    """Published rows that both networks have, after as many epochs: what each of them reaches."""
    found: dict[tuple[Any, ...], dict[str, float]] = {}
    for one in lines:
        if (one.name, one.sigma) in acr:
            key = (one.label, one.sigma, one.training.plan["epochs"])
            found.setdefault(key, {})[one.training.architecture] = one.acr
    return [
        f"{label} at sigma {sigma:g} is {by['wide LeNet']:.3f} instead of {by['LeNet']:.3f} "
        f"(published {acr[label, sigma]:.3f})"
        for (label, sigma, _), by in sorted(found.items())
        if len(by) == 2 and (label, sigma) in acr
    ]


def width_matters() -> str:
    """What a wider LeNet changes, from the two runs in results/mnist_width."""
    found = {run.name: run for run in Runs.under(ROOT / "results" / "mnist_width")}
    wide, narrow = (found[name].lanes([0.0])["main"].acr or 0.0 for name in ("wide", "lenet"))
    run = found["wide"]
    (training,) = run.trainings
    gain = f"{wide:.3f} instead of {narrow:.3f} ({100 * (wide / narrow - 1):+.1f}%)"
    return (
        f"This was tested: with Caffe's LeNet ({size_of(wide_lenet()):,} parameters, `wide_lenet.py`) in place of "
        f"ours, both trained alike for {training.plan['epochs']} epochs at sigma {run.sigma:g} and certified on "
        f"{run.inputs} images with n = {run.n:,}, the ACR is {gain}."
    )


def jeong(runs: Runs, numbers: Any) -> list[str]:
    """Single networks on all test images beside the logs of Jeong and Shin's public code."""
    radii, rows = [0.25 * i for i in range(8)], list[Row]()
    found = runs.of(inputs=ALL, size=1, sigma=0.5, plain=True)
    for run in sorted((run for run in found if run.kind in SINGLES), key=lambda run: SINGLES.index(run.kind)):
        ours, epochs = run.lanes(radii)["main"], str(run.trainings[0].plan["epochs"])
        shares = percents(ours.certified_accuracy, radii)
        rows.append([f"{run.kind}, {run.architecture}", epochs, f"{ours.acr:.3f}", *shares])
        if (there := numbers["acr"].get(run.kind)) is not None:
            rows.append(paper([f"log, {run.kind}", "", f"{there:.3f}", *("-" for _ in radii)]))
    about = [f"Sigma .5, all {ALL:,} test images, n = 100,000. In italics: {numbers['source']}."]
    head = ["row", "epochs", "ACR", *(f"{radius:g}" for radius in radii)]
    return section("MNIST: Jeong and Shin's logs", about, *([table(head, rows)] if rows else []))


def size_of(network: nn.Module) -> int:
    """Its number of parameters."""
    return sum(one.numel() for one in network.parameters())


def cifar(runs: Runs, numbers: Any) -> list[str]:
    """Tables 8, 9 and 11: three members and DRT over them, a table for each sigma."""
    found = threes(runs)
    found.sort(
        key=lambda run: (run.sigma, run.kind != "gaussian", run.trainings[0].plan["epochs"], _rho(run) or (0, 0))
    )
    tables: list[Sequence[str]] = []
    for inputs, sigma in sorted({(run.inputs, run.sigma) for run in found}):
        radii = RADII if sigma == 0.25 else tuple(0.25 * i for i in range(8 if sigma == 0.5 else 11))
        chosen = [run for run in found if (run.inputs, run.sigma) == (inputs, sigma)]
        rows = [row for run in chosen for row in _three(run, radii, numbers["cifar10"])]
        images = "" if inputs == 1000 else f", all {inputs:,} test images, n = {chosen[0].n:,}"
        tables += [[f"sigma {sigma:g}{images}:"], table(headed("", "rho1, rho2", "epochs", "ACR", radii=radii), rows)]
    about = [
        "Every 10th test image, n = 100,000, where nothing else is said.",
        "Ours: ResNet-20; epochs are those of the members, or of DRT after them",
        "(rho of 0: the same fine-tuning without DRT). The paper: ResNet-110, 150 epochs of DRT after 150. Its ACR",
        "(table 11) is one number for both votes and does not say which (rho1, rho2). Six cells of table 8 that are",
        "not legible in the text at hand are taken from tables 2 and 13, the best over sigma and settings, which at",
        "those radii is this row's. No spread is published. A smaller network and a fraction of the epochs of DRT may",
        "explain the gaps, which was not tested apart.",
    ]
    if not any(_rho(run) == (0, 0) for run in found):
        about.append("There is no row of rho 0 yet, so nothing separates DRT's gains from those of training longer.")
    return section("CIFAR-10, tables 8, 9 and 11", about, *tables)


def threes(runs: Runs) -> list[Run]:
    """Three members on every 10th image or on all, Gaussian or DRT over them."""
    found = runs.of(procedure="fixed", size=3, plain=True)
    return [run for run in found if run.inputs in (1000, ALL) and run.kind in ("gaussian", "drt-gaussian")]


def _rho(run: Run) -> tuple[float, float] | None:
    return rho_of(run.trainings[0])


def rho_of(training: Training) -> tuple[float, float] | None:
    """(rho1, rho2) of a DRT."""
    objective = training.objective
    return (objective["rho1"], objective["rho2"]) if training.kind.startswith("drt") else None


def _three(run: Run, radii: Sequence[float], there: Any) -> list[Row]:
    """The first member and both votes of a run, each above its published row."""
    acr = {one["row"]: f"{one['acr']:.3f}" for one in there["acr"] if one["sigma"] == run.sigma}
    lanes, rho = run.lanes(radii), _rho(run)
    drt, setting = ("drt+", f"{rho[0]:g}, {rho[1]:g}") if rho else ("", "-")
    rows: list[Row] = []
    for vote in ("member", "softmax", "max-margin"):
        alone = vote == "member"
        ours = lanes["member-1" if alone else f"{vote}-3"]
        label = ("drt single(gaussian)" if rho else "gaussian") if alone else f"{drt}{vote}(gaussian)"
        epochs = str(run.trainings[0].plan["epochs"])
        rows.append([label, setting, epochs, f"{ours.acr:.3f}", *percents(ours.certified_accuracy, radii)])
        known = there["certified_accuracy"] if run.inputs < ALL else []
        if shares := _printed_row(known, label, rho, run.sigma).get("certified_accuracy"):
            average = acr[label if alone else f"{drt}votes(gaussian)"]
            rows.append(paper([f"paper, {label}", setting, "150", average, *printed(shares, radii)]))
    return rows


def _printed_row(
    known: list[dict[str, Any]], label: str, rho: tuple[float, float] | None, sigma: float
) -> dict[str, Any]:
    """The published row of this setting; empty where there is none."""
    for one in known:
        setting = (one["rho1"], one["rho2"]) if "rho1" in one else None
        if (one["row"], setting, one["sigma"]) == (label, rho, sigma):
            return one
    return {}


def page(digits: Runs, images: Runs, numbers: Any) -> str:
    """The whole page."""
    lines = list(lines_of(digits))
    text = [*(mnist(lines, numbers) if lines else []), *jeong(digits, numbers["jeong"]), *cifar(images, numbers)]
    shown = [*digits, *threes(images)]
    text += [*intervals(shown), *how_trained(one for run in shown for one in run.trainings)]
    return HEAD + "\n" + "\n".join(text)


def pages() -> dict[Path, str]:
    """This folder's page."""
    results = ROOT / "results"
    return {HERE / "README.md": page(Runs.under(results / "mnist"), Runs.under(results / "cifar10"), published(HERE))}
