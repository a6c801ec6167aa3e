"""Certifies the two video tasks with plain smoothing and Smooth-Reduce-(t,m), and writes one JSON file of the results.

    python tools/smooth_reduce_video.py --weights results/smooth_reduce/weights --shapes video_colored_shapes.npz \
        --mnist mnist.npz --runs runs/smooth_reduce --out results/smooth_reduce/video.json

n0 = 10 as in the paper; the class of a motion clip is its motion. Running it again continues.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from ringfence.cli.job import Choices
from ringfence.cli.smooth_reduce_job import Reducing, SubVideoChoice, certify, load

NETWORKS = "ringfence.classifiers.architectures.video_cnn"


def arms(length: int, chunks: tuple[int, int]) -> dict[str, Reducing]:
    """Plain smoothing of m-frame chunks, then Smooth-Reduce-(t,m) by reduction and noise mode; k = 3 sub-videos."""
    small, large = chunks
    half, most = length // 2, 3 * length // 4
    found = {f"plain, m={m}": Reducing(chunk=m) for m in chunks}
    found[f"({half},{small}) mean, input"] = Reducing(SubVideoChoice(half, 3), small)
    found[f"({half},{large}) mean, input"] = Reducing(SubVideoChoice(half, 3), large)
    found[f"({half},{large}) max, input"] = Reducing(SubVideoChoice(half, 3), large, "max")
    found[f"({most},{small}) mean, input"] = Reducing(SubVideoChoice(most, 3), small)
    found[f"({half},{large}) mean, patch"] = Reducing(SubVideoChoice(half, 3), large, "mean", "patch")
    published = Reducing(SubVideoChoice(half, 3), large, "mean", "patch", "paper")
    found[f"({half},{large}) mean, patch, PAPER (unsound)"] = published
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--shapes", required=True)
    parser.add_argument("--mnist", required=True)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sigma", type=float, default=0.5)
    parser.add_argument("--trained", type=float, default=0.5, help="noise the networks were trained with")
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--inputs", type=int, default=27)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    tasks = {
        "motion": ("motion_cnn", f"mnist-motion:{options.mnist}", 1, 64, (8, 16)),
        "shapes": ("shapes_cnn", options.shapes, 5, 16, (4, 8)),
    }
    rows: list[dict[str, Any]] = []
    for task, (factory, data, skip, length, chunks) in tasks.items():
        choices = Choices(
            f"{NETWORKS}:{factory}",
            data,
            options.sigma,
            "fixed",
            {"alpha": 0.001, "n0": 10, "n": options.n},
            weights=options.weights / f"{task}-sigma{options.trained:g}.safetensors",
            skip=skip,
            limit=options.inputs,
            batch="auto" if options.device == "auto" else "50",
            device=options.device,
        )
        loaded = load(choices, frames=64)
        for name, reducing in arms(length, chunks).items():
            folder = f"{task}-" + "".join(letter if letter.isalnum() else "-" for letter in name)
            run, found = certify(choices, reducing, loaded, options.runs / folder)
            row = {"task": task, "name": name, "factor": run.config.lift["norm_bound"], "sound": found.sound}
            row |= {"acr": found.acr, "abstention": found.abstention, "accuracy": found.accuracy}
            row |= {"forwards": found.forwards / found.count, "draws": found.draws / found.count, "inputs": found.count}
            shares = {f"{radius:g}": share for radius, share in found.certified_accuracy.items()}
            rows.append(row | {"certified_accuracy": shares})
            print(f"{task} {name}: ACR {found.acr:.3f}, factor {row['factor']:.4f}", flush=True)
            facts = {"sigma": options.sigma, "trained": options.trained, "n": options.n, "arms": rows}
            options.out.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
