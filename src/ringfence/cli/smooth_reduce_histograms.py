"""Logits and scores of the two top classes under noise: plain, mean and max side by side (paper 003, figure 11)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ringfence.classifiers import kinds_of, probabilities
from ringfence.classifiers.patches import REDUCTIONS, Patches
from ringfence.cli.job import Choices
from ringfence.cli.smooth_reduce_job import Loaded
from ringfence.operators import Crops
from ringfence.sampling import pick_device
from ringfence.sampling.draws import CHUNK, chunk_key

BINS = 40
DRAWS = 1000
STAGE = -2
"""A stage that no certificate uses: what is looked at here may not be the draws of a proof."""


def histogram(choices: Choices, loaded: Loaded, crops: Crops, index: int) -> dict[str, Any]:
    """Counts, mean and spread for the two top classes of one input, noise on the input; one entry a panel.

    The paper's histograms of logits lie in [0, 1], so they show softmax scores: both are here. The max over patches
    is one of softmax scores and has no logits.
    """
    item = loaded.dataset[index]
    answers = _answers(choices, loaded, crops, index)
    panels = {f"{name} logits": answers[name] for name in ("base", "mean")}
    kinds = kinds_of(loaded.model.at_input)
    panels |= {f"{name} softmax": probabilities(answers[name], kinds) for name in ("base", "mean")}
    panels["max softmax"] = answers["max"]
    found = {name: _panel(values) for name, values in panels.items()}
    return {"input": item.id, "label": item.label, "bins": BINS, "panels": found}


@torch.inference_mode()
def _answers(choices: Choices, loaded: Loaded, crops: Crops, index: int) -> dict[str, Tensor]:
    """Scores (DRAWS, K) of the network, of the mean and of the max over its patches, on the same noise."""
    item, device = loaded.dataset[index], pick_device(choices.device)
    network = loaded.model.at_input.to(device)
    kinds: dict[str, nn.Module] = {"base": network}
    kinds |= {reduce: Patches(network, crops, reduce) for reduce in REDUCTIONS}
    parts: dict[str, list[Tensor]] = {name: [] for name in kinds}
    for chunk in range(DRAWS // CHUNK):
        noise = torch.empty(CHUNK, *item.x.shape, device=device)
        choices.noise.fill(noise, chunk_key(choices.seed, item.id, STAGE, chunk))
        for name, classifier in kinds.items():
            parts[name].append(classifier.eval()(item.x.to(device) + noise).float().cpu())
    return {name: torch.cat(part) for name, part in parts.items()}


def _panel(values: Tensor) -> dict[str, Any]:
    """The two classes with the largest means, and how their values (DRAWS, K) lie."""
    top = values.mean(0).topk(2).indices
    chosen = values[:, top].numpy().astype(np.float64)
    scores = bool((values >= 0).all() and (values <= 1).all())
    low, high = (0.0, 1.0) if scores else (float(chosen.min()), float(chosen.max()))
    return {
        "classes": top.tolist(),
        "range": [low, high],
        "counts": [np.histogram(column, BINS, (low, high))[0].tolist() for column in chosen.T],
        "means": chosen.mean(0).tolist(),
        "deviations": chosen.std(0).tolist(),
    }


def forwards(crops: Crops, shape: tuple[int, ...]) -> int:
    """What one histogram costs."""
    return DRAWS * (1 + len(REDUCTIONS) * len(crops.on(shape[-2], shape[-1]).positions))


def draw_histograms(shown: Sequence[dict[str, Any]], path: Path) -> None:
    """One row an input, one column a panel; the top class in blue, the second in orange."""
    from ringfence.report import need

    columns = len(shown[0]["panels"])
    size = (2.6 * columns, 2.2 * len(shown) + 0.3)
    figure = need("matplotlib.figure").Figure(figsize=size, dpi=100, layout="constrained")
    axes = figure.subplots(len(shown), columns, squeeze=False)
    for row, entry in zip(axes, shown, strict=True):
        for ax, (name, part) in zip(row, entry["panels"].items(), strict=True):
            edges = np.linspace(part["range"][0], part["range"][1], BINS + 1)
            for counts, label, colour in zip(part["counts"], part["classes"], ("tab:blue", "tab:orange"), strict=True):
                ax.stairs(counts, edges, fill=True, alpha=0.6, color=colour, label=f"class {label}")
            ax.set_title(f"input {entry['input']}: {name}", fontsize=8)
            ax.tick_params(labelsize=7)
            ax.legend(fontsize=6)
    figure.savefig(path)
