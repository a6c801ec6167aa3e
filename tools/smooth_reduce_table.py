"""Writes results/smooth_reduce.md from the stored numbers, and the figures of docs/smooth-reduce.md.

    python tools/smooth_reduce_table.py [--check]

Reads results/smooth_reduce/*/study.json (``ringfence smooth-reduce study``, kept by tools/smooth_reduce_pack.py) and
the run folders in results/smooth_reduce/video (tools/smooth_reduce_video.py). A further data set is a further study.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from matplotlib.figure import Figure
from ringfence.cli.smooth_reduce_histograms import draw_histograms
from ringfence.cli.smooth_reduce_study import table
from scipy.stats import norm

from ringfence.analysis.metrics import metrics_by_lane
from ringfence.lift import MODES, noise_place
from ringfence.models.grammar import Node, as_tree
from ringfence.operators import Crops
from ringfence.store import RunFolder

ROOT = Path(__file__).resolve().parents[1]
NUMBERS = ROOT / "results" / "smooth_reduce"


def linear_example(mode: str) -> tuple[float, float, float]:
    """(sound claim, paper's claim, true distance) of the mean-pixel classifier: sigma .25, p .99, 32 to 36, 4 crops."""
    sigma, probability = 0.25, 0.99
    lift, rest = noise_place(mode, Crops(size=32, resize=36, count=4), (1, 32, 32))
    x = torch.zeros(1, 32, 32, requires_grad=True)
    lifted = torch.zeros_like(lift(x.detach())).requires_grad_()
    (onto_input,) = torch.autograd.grad(rest(lift(x)[None]).mean(), x)
    (onto_lifted,) = torch.autograd.grad(rest(lifted[None]).mean(), lifted)
    claim = sigma * norm.ppf(probability)
    return claim / lift.norm_bound, claim, claim * float(onto_lifted.norm() / onto_input.norm())


def draw_example(path: Path) -> None:
    """Claims beside the truth, mode by mode."""
    figure = Figure(figsize=(7.2, 3.4), dpi=120, layout="constrained")
    ax = figure.add_subplot()
    for place, mode in enumerate(MODES):
        sound, paper, truth = linear_example(mode)
        values = [("sound claim", sound, "tab:blue", None), ("true distance", truth, "0.55", None)]
        if mode in ("patch", "per-patch-input"):
            values.append(("paper's claim: UNSOUND", paper, "tab:red", "//"))
        for shift, (label, value, colour, hatch) in enumerate(values):
            bar = ax.bar(place + 0.27 * (shift - 1), value, 0.25, color=colour, hatch=hatch)
            bar.set_label(label if mode == "patch" else "")
            ax.text(place + 0.27 * (shift - 1), value + 0.005, f"{value:.3f}", ha="center", fontsize=7)
    ax.set_xticks(range(len(MODES)), MODES)
    ax.set_ylabel("l2 radius")
    ax.set_title("Mean-pixel classifier, 4 crops of 32 from 36, sigma 0.25, p 0.99", fontsize=10)
    ax.set_ylim(0, 0.72)
    ax.legend(fontsize=8, ncols=3, loc="upper center")
    figure.savefig(path)


def study_section(path: Path) -> str:
    """One study: what was run, the table, what is left of the gain."""
    facts = json.loads(path.read_text())
    rows = {row["name"]: row for row in facts["arms"]}
    base = rows["base"]["acr"]
    sound = {name: row for name, row in rows.items() if row["sound"] and name != "base"}
    fair = {name: row for name, row in sound.items() if row["forwards"] <= 1.05 * rows["base"]["forwards"]}
    best_name, best = max(fair.items(), key=lambda pair: pair[1]["acr"])
    any_name, any_best = max(sound.items(), key=lambda pair: pair[1]["acr"])
    data = facts["data"].partition(":")[0]
    lines = [
        f"## {path.parent.name}: model `{facts['model']}`, data `{data}`, sigma {facts['sigma']:g}, "
        f"{rows['base']['inputs']} inputs",
        "",
        table(facts["arms"]),
        f"At equal compute the best sound form is `{best_name}` with ACR {best['acr']:.3f}, "
        f"{beside(best['acr'], base)} the base's {base:.3f}; with as many draws as the base, and so k times its "
        f"forwards, `{any_name}` reaches {any_best['acr']:.3f}, {beside(any_best['acr'], base)} it.",
    ]
    if "paper-patch-mean" in rows and "patch-mean" in rows:
        claimed, worth = rows["paper-patch-mean"]["acr"], rows["patch-mean"]["acr"]
        lines.append(f"The published radii (`paper-patch-mean`) average {claimed:.3f}; proved is {worth:.3f}.")
    return "\n".join(lines) + "\n"


def beside(value: float, other: float) -> str:
    return "above" if value > other else "below" if value < other else "equal to"


def video_section(folders: list[Path]) -> str:
    """The video tasks, one line per run and lane; the noise mode ``patch`` with what the paper would claim."""
    head = ["task", "sigma", "Smooth-Reduce-(t,m)", "noise", "factor", "clips", "forwards", "ACR", "right %"]
    head += ["abstained %", "paper's ACR: **UNSOUND**"]
    lines = ["## Video", "", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for folder in folders:
        run = RunFolder.open(folder)
        mode, factor = run.config.reduced.get("mode", "input"), run.config.lift.norm_bound
        found = {one.lane or "main": one for one in metrics_by_lane(run, (0.0,))}
        for lane in run.config.classifier.names:
            one = found[lane]
            name = lane if lane != "main" else named(run.config.classifier.tree)
            cells = [folder.name.partition("-")[0], f"{run.config.noise.sigma:g}", name, mode, f"{factor:.4f}"]
            cells += [str(one.count), f"{one.forwards / one.count:.0f}", f"{one.acr:.3f}"]
            cells += [f"{100 * one.accuracy:.0f}", f"{100 * one.abstention:.0f}"]
            cells.append("-" if mode == "input" else f"{(one.acr or 0) * factor:.3f}")
            lines.append("| " + " | ".join(cells) + " |")
    settings = run.config.procedure.settings
    lines += ["", f"n0 {settings['n0']}, n {settings['n']}, alpha {settings['alpha']:g}; k sub-videos spread evenly."]
    return "\n".join(lines) + "\n"


def named(tree: str) -> str:
    """A run of one way to reduce, as the lanes are named."""
    cut = as_tree(tree)
    assert isinstance(cut, Node)
    told, chunks = {key: str(one) for key, one in cut.settings.items()}, cut.models[0]
    assert isinstance(chunks, Node)
    return f"({told['frames']},{chunks.settings['frames']}) {told['reduce']} k={told['count']}"


def main() -> int:
    studies = sorted(NUMBERS.glob("*/study.json"))
    videos = sorted(file.parent for file in (NUMBERS / "video").glob("*/config.json"))
    parts = [
        "# Smooth-Reduce: what is left of the gain\n",
        "Written by `tools/smooth_reduce_table.py` from `results/smooth_reduce/`; the mathematics is in "
        "[docs/smooth-reduce.md](../docs/smooth-reduce.md). Certified accuracy in percent at each radius; `fair` runs "
        "and noise modes use as many network forwards as the base (k patches, n/k draws). Rows marked unsound "
        "reproduce the paper and prove nothing.\n",
        *(study_section(path) for path in studies),
        *([video_section(videos)] if videos else []),
    ]
    page = ROOT / "results" / "smooth_reduce.md"
    if "--check" in sys.argv:
        return 0 if page.read_text() == "\n".join(parts) else 1
    page.write_text("\n".join(parts))
    draw_example(ROOT / "docs" / "img" / "smooth-reduce-linear.png")
    shown = [entry for path in studies for entry in json.loads(path.read_text())["histograms"]]
    if shown:
        draw_histograms(shown, ROOT / "docs" / "img" / "smooth-reduce-histograms.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
