"""The study of Smooth-Reduce: every ablation of paper 003 as a list of runs, their table, and score histograms."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ringfence.classifiers.patches import REDUCTIONS, Patches
from ringfence.cli.job import Choices
from ringfence.cli.smooth_reduce_job import Loaded, Reducing, certify
from ringfence.lift import MODES
from ringfence.operators import Crops
from ringfence.sampling import pick_device
from ringfence.sampling.seeds import CHUNK, chunk_key
from ringfence.store.atomic import write_atomically

BINS = 40
HISTOGRAM_DRAWS = 1000


@dataclass(frozen=True)
class Arm:
    """One run of the study: the question it answers, its name, settings, draws, and its own alpha, if any."""

    question: str
    name: str
    reducing: Reducing
    n: int
    alpha: float | None = None


def arms(side: int, counts: Sequence[int], resizes: Sequence[int], n: int, paper: bool, seed: int) -> list[Arm]:
    """Every run, the base first. All but the numbers of patches compare at equal compute: n forwards, n/k draws."""
    k, larger = counts[0], resizes[0]
    crops = Crops(size=side, resize=larger, count=k)
    fair = max(1, n // k)
    found = [Arm("base", "base", Reducing(), n)]
    for count in counts:
        for reduce in REDUCTIONS:
            patched = Reducing(Crops(size=side, resize=larger, count=count), reduce=reduce)
            found.append(Arm("number of patches, same draws", f"k{count}-{reduce}", patched, n))
            found.append(
                Arm("number of patches, equal compute", f"k{count}-{reduce}-fair", patched, max(1, n // count))
            )
    for target in resizes[1:]:
        found.append(Arm("resize", f"resize{target}", Reducing(replace(crops, resize=target)), fair))
    for reduce in REDUCTIONS:
        random = Reducing(replace(crops, sampling="random", seed=seed), reduce=reduce)
        found.append(Arm("random patches", f"random-{reduce}", random, fair))
        for mode in MODES[1:]:
            found.append(Arm("noise mode", f"{mode}-{reduce}", Reducing(crops, None, reduce, mode), fair))
        if paper:
            for mode in ("patch", "per-patch-input"):
                published = Reducing(crops, None, reduce, mode, "paper")
                found.append(Arm("paper form", f"paper-{mode}-{reduce}", published, fair))
    if paper:
        published = Reducing(crops, None, "mean", "patch", "paper")
        found.append(Arm("paper form, calibrated", "paper-calibrated", published, fair, 0.01))
    return found


def run_study(
    choices: Choices,
    planned: Sequence[Arm],
    loaded: Loaded,
    out: Path,
    histograms: int = 0,
    tell: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Every arm into its own run folder, then study.json and study.md; running it again continues."""
    rows: list[dict[str, Any]] = []
    for arm in planned:
        share = arm.n / choices.settings["n"]  # equal compute divides the draws that choose the class, too
        draws = {"n0": max(1, round(choices.settings["n0"] * share)), "n": arm.n}
        settings = {**choices.settings, **draws, "alpha": arm.alpha or choices.settings["alpha"]}
        ours = replace(choices, settings=settings)
        run, found = certify(ours, arm.reducing, loaded, out / "runs" / arm.name)
        factor = run.config.lift["norm_bound"]
        rows.append(
            {
                "question": arm.question,
                "name": arm.name,
                "sound": found.sound,
                "mode": arm.reducing.mode if arm.reducing.patches else "-",
                "form": arm.reducing.form,
                "reduce": arm.reducing.reduce if arm.reducing.patches else "-",
                "factor": factor,
                "factor_left_out": run.config.lift.get("norm_left_out"),
                "alpha": settings["alpha"],
                "draws": found.draws / found.count,
                "forwards": found.forwards / found.count,
                "acr": found.acr,
                "abstention": found.abstention,
                "certified_accuracy": {f"{r:g}": share for r, share in found.certified_accuracy.items()},
                "inputs": found.count,
            }
        )
        if tell:
            label = "" if found.sound else "  PAPER FORM, UNSOUND"
            tell(f"{arm.name}: ACR {found.acr or 0:.3f}, factor {factor:.4g}{label}")
    shown = [_histogram(choices, loaded, planned, index) for index in range(min(histograms, len(loaded.dataset)))]
    facts = {"sigma": choices.sigma, "model": choices.model, "data": choices.data, "arms": rows, "histograms": shown}
    write_atomically(out / "study.json", json.dumps(facts, indent=1, allow_nan=False).encode())
    write_atomically(out / "study.md", table(rows).encode())
    if shown:
        draw_histograms(shown, out / "histograms.png")
    return facts


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The study as a Markdown table, one line a run; unsound ones say so."""
    radii = sorted({float(r) for row in rows for r in row["certified_accuracy"]})
    head = ["run", "question", "noise", "factor", "draws", "forwards", "ACR", "abstained %", *(f"{r:g}" for r in radii)]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        name = row["name"] if row["sound"] else f"**{row['name']} (unsound: no guarantee)**"
        factor = f"{row['factor']:.4f}" if row["sound"] else f"1 instead of {row['factor_left_out']:.4f}"
        acr = "-" if row["acr"] is None else f"{row['acr']:.3f}"
        shares = [f"{100 * row['certified_accuracy'].get(f'{r:g}', 0.0):.1f}" for r in radii]
        cost = [f"{row['draws']:.0f}", f"{row['forwards']:.0f}"]
        cells = [name, row["question"], row["mode"], factor, *cost, acr, f"{100 * row['abstention']:.1f}", *shares]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


@torch.inference_mode()
def _histogram(choices: Choices, loaded: Loaded, planned: Sequence[Arm], index: int) -> dict[str, Any]:
    """Softmax scores of the two top classes under noise on the input: base, mean and max (paper 003, figure 11)."""
    item, device = loaded.dataset[index], pick_device(choices.device)
    network = loaded.model.module.to(device)
    first = next(arm.reducing.patches for arm in planned if isinstance(arm.reducing.patches, Crops))
    kinds: dict[str, torch.nn.Module] = {"base": network}
    for reduce in REDUCTIONS:
        kinds[reduce] = Patches(network, first, reduce)
    scores: dict[str, list[torch.Tensor]] = {name: [] for name in kinds}
    for chunk in range(HISTOGRAM_DRAWS // CHUNK):
        noise = torch.empty(CHUNK, *item.x.shape, device=device)
        choices.noise.fill(noise, chunk_key(choices.seed, item.id, -2, chunk))  # a stage that no certificate uses
        for name, classifier in kinds.items():
            answer = classifier.eval()(item.x.to(device) + noise)
            scores[name].append((answer if name == "max" else answer.softmax(-1)).float().cpu())
    found: dict[str, Any] = {"input": item.id, "label": item.label, "bins": BINS, "counts": {}}
    for name, parts in scores.items():
        values = torch.cat(parts)
        top = values.mean(0).topk(2).indices.tolist()
        counts = [np.histogram(values[:, one].numpy(), BINS, (0, 1))[0].tolist() for one in top]
        spread = [float(values[:, one].std()) for one in top]
        found["counts"][name] = {"classes": top, "counts": counts, "deviations": spread}
    return found


def draw_histograms(shown: Sequence[dict[str, Any]], path: Path) -> None:
    """One row an input, one column a classifier; the top class in blue, the second in orange."""
    from ringfence.report import need

    figure = need("matplotlib.figure").Figure(figsize=(9, 2.4 * len(shown)), dpi=110, layout="constrained")
    axes = figure.subplots(len(shown), 3, squeeze=False, sharex=True)
    edges = np.linspace(0, 1, BINS + 1)
    for row, entry in zip(axes, shown, strict=True):
        for ax, (name, part) in zip(row, entry["counts"].items(), strict=True):
            for counts, label, colour in zip(part["counts"], part["classes"], ("tab:blue", "tab:orange"), strict=True):
                ax.stairs(counts, edges, fill=True, alpha=0.6, color=colour, label=f"class {label}")
            ax.set_title(f"input {entry['input']}: {name}", fontsize=9)
            ax.legend(fontsize=7)
    figure.savefig(path)
