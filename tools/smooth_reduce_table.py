"""Writes results/smooth_reduce.md from the stored numbers, and the figure of the linear example.

    python tools/smooth_reduce_table.py

Reads results/smooth_reduce/*.json: studies (``ringfence smooth-reduce study``, its study.json) and video.json
(tools/smooth_reduce_video.py). A further data set is a further study file there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from scipy.stats import norm

from ringfence.cli.smooth_reduce_study import table
from ringfence.lift import MODES, noise_place
from ringfence.operators import Crops

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
    verdict = "above" if best["acr"] > base else "below"
    lines = [
        f"## {path.stem}: model `{facts['model']}`, data `{facts['data']}`, sigma {facts['sigma']:g}, "
        f"{rows['base']['inputs']} inputs",
        "",
        table(facts["arms"]),
        f"At equal compute the best sound form is `{best_name}` with ACR {best['acr']:.3f}, {verdict} the base's "
        f"{base:.3f}; with as many draws as the base, and so k times its forwards, `{any_name}` reaches "
        f"{any_best['acr']:.3f}.",
    ]
    if "paper-patch-mean" in rows and "patch-mean" in rows:
        claimed, worth = rows["paper-patch-mean"]["acr"], rows["patch-mean"]["acr"]
        lines.append(f"The published radii (`paper-patch-mean`) average {claimed:.3f}; proved is {worth:.3f}.")
    return "\n".join(lines) + "\n"


def video_section(path: Path) -> str:
    """The video tasks."""
    facts = json.loads(path.read_text())
    rows: list[dict[str, Any]] = facts["arms"]
    lines = [
        f"## Video: sigma {facts['sigma']:g} (trained at {facts['trained']:g}), n {facts['n']}, n0 10, alpha 0.001",
        "",
    ]
    lines += [
        "| task | Smooth-Reduce-(t,m) | factor | inputs | forwards | ACR | right % | abstained % |",
        "|" + "---|" * 8,
    ]
    for row in rows:
        name = row["name"] if row["sound"] else f"**{row['name']}: no guarantee**"
        cells = [row["task"], name, f"{row['factor']:.4f}", str(row["inputs"]), f"{row['forwards']:.0f}"]
        cells += [f"{row['acr']:.3f}", f"{100 * row['accuracy']:.0f}", f"{100 * row['abstention']:.0f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    studies = [study_section(path) for path in sorted(NUMBERS.glob("*.json")) if path.name != "video.json"]
    video = NUMBERS / "video.json"
    parts = [
        "# Smooth-Reduce: what is left of the gain\n",
        "Written by `tools/smooth_reduce_table.py` from `results/smooth_reduce/`; the mathematics is in "
        "[docs/smooth-reduce.md](../docs/smooth-reduce.md). Certified accuracy in percent at each radius; `fair` runs "
        "and noise modes use as many network forwards as the base (k patches, n/k draws). Rows marked unsound "
        "reproduce the paper and prove nothing.\n",
        *studies,
        *([video_section(video)] if video.exists() else []),
    ]
    (ROOT / "results" / "smooth_reduce.md").write_text("\n".join(parts))
    draw_example(ROOT / "docs" / "img" / "smooth-reduce-linear.png")


if __name__ == "__main__":
    main()
