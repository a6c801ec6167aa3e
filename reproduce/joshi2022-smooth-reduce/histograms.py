"""Logits and scores of the two top classes under noise: plain, mean and max (Joshi et al. 2022, figure 11).

    python histograms.py --model default --data default --sigma 0.5 --size 28 --resize 32 --out histograms.json

``draw`` makes a picture of such entries; pages draw those kept in results/smooth_reduce.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ringfence.classifiers import kinds_of, probabilities
from ringfence.classifiers.patches import REDUCTIONS, Patches
from ringfence.data import Input, load_dataset
from ringfence.models import load_model
from ringfence.noise import Gaussian
from ringfence.operators import Crops
from ringfence.sampling.draws import CHUNK, chunk_key

BINS, DRAWS = 40, 1000
STAGE = -2
"""A stage that no certificate uses: what is looked at here may not be the draws of a proof."""


def histogram(network: nn.Module, item: Input, crops: Crops, sigma: float, seed: int = 0) -> dict[str, Any]:
    """Counts, mean and spread for the two top classes of one input, noise on the input; one entry a panel.

    The paper's histograms of logits lie in [0, 1], so they show softmax scores: both are here. The max over patches
    is one of softmax scores and has no logits.
    """
    answers = _answers(network, item, crops, sigma, seed)
    kinds = kinds_of(network)
    panels = {f"{name} logits": answers[name] for name in ("base", "mean")}
    panels |= {f"{name} softmax": probabilities(answers[name], kinds) for name in ("base", "mean")}
    panels["max softmax"] = answers["max"]
    found = {name: _panel(values) for name, values in panels.items()}
    return {"input": item.id, "label": item.label, "bins": BINS, "panels": found}


@torch.inference_mode()
def _answers(network: nn.Module, item: Input, crops: Crops, sigma: float, seed: int) -> dict[str, Tensor]:
    """Scores (DRAWS, K) of the network, of the mean and of the max over its patches, on the same noise."""
    reduced: dict[str, nn.Module] = {reduce: Patches(network, crops, reduce) for reduce in REDUCTIONS}
    classifiers = {"base": network, **reduced}
    parts: dict[str, list[Tensor]] = {name: [] for name in classifiers}
    for chunk in range(DRAWS // CHUNK):
        noise = torch.empty(CHUNK, *item.x.shape)
        Gaussian(sigma).fill(noise, chunk_key(seed, item.id, STAGE, chunk))
        for name, classifier in classifiers.items():
            parts[name].append(classifier.eval()(item.x + noise).float())
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


def draw(shown: Sequence[dict[str, Any]], path: Path) -> None:
    """One row an input, one column a panel; the top class in blue, the second in orange."""
    from matplotlib.figure import Figure

    columns = len(shown[0]["panels"])
    figure = Figure(figsize=(2.6 * columns, 2.2 * len(shown) + 0.3), dpi=100, layout="constrained")
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


def main() -> None:
    """Write the entries of the first inputs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="default")
    parser.add_argument("--data", default="default")
    parser.add_argument("--sigma", type=float, required=True)
    for name in ("--size", "--resize"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--count", type=int, default=4)
    parser.add_argument("--inputs", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args()
    network = load_model(chosen.model).at_input
    crops = Crops(size=chosen.size, resize=chosen.resize, count=chosen.count)
    dataset = load_dataset(chosen.data, limit=chosen.inputs)
    found = [histogram(network, item, crops, chosen.sigma) for item in dataset]
    chosen.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
