"""The runs behind results/mnist.md: every lane of a group of networks from one pass."""

from __future__ import annotations

import argparse
import json
import time
from functools import partial
from pathlib import Path
from typing import Any

from gpu_packing import trained
from mnist_training import SIGMAS, SINGLES
from side_by_side import Task


def certify_group(group: str, sigma: float, folders: list[Path], options: argparse.Namespace) -> None:
    """Every lane of a group of networks from one pass: single members, mean softmax, max-margin, SWEEN."""
    import torch

    from ringfence.certification import Certification
    from ringfence.data import load_dataset
    from ringfence.driver import Execution
    from ringfence.mechanisms import mechanism
    from ringfence.models import load_model
    from ringfence.noise import Gaussian
    from ringfence.procedures import Fixed

    torch.set_num_threads(1)
    files = [file for folder in folders for file in sorted(folder.glob("final-*.safetensors"))]
    models = [load_model("lenet", weights=file).module for file in files]
    ensemble = len(folders) == 1 and len(files) > 1
    weights = sween_weights(models, sigma, options) if group in ("gaussian", "smoothadv") else None
    classifier = table_lanes(models, ensemble, weights)
    names = [f"{one.parent.name}/{one.name}" for one in files]
    lanes = [f"member-{i + 1}" for i in range(len(files))] if ensemble else [folder.name for folder in folders]
    lanes += ["softmax-3", "max-margin-3"] if ensemble else []
    lanes += ["sween-3"] if weights is not None else []
    dataset = load_dataset(f"mnist:{options.data}", skip=options.skip, num_classes=10)
    procedure = Fixed(alpha=0.001, n0=100, n=options.n)
    certificate = mechanism("one-sided")
    begin = time.perf_counter()
    value = Certification(
        classifier,
        dataset,
        noise=Gaussian(sigma),
        procedure=procedure,
        mechanism=certificate,
        precision="bf16",
        lanes=lanes,
    )
    execution = Execution(device=options.device, compile=options.compile, batch=options.batch)
    run = value.run(options.work / "runs" / f"{group}-{sigma:g}", execution)
    told = {"group": group, "sween_weights": weights, "models": names}
    told["training"] = {folder.name: json.loads((folder / "config.json").read_text())["plan"] for folder in folders}
    (options.work / "runs" / f"{group}-{sigma:g}.json").write_text(json.dumps(told))  # what the tables need beside it
    (options.work / "runs" / f"{group}-{sigma:g}.done").touch()
    print(f"certified {run.path.name}: {len(dataset)} inputs, {time.perf_counter() - begin:.0f} s", flush=True)


def table_lanes(models: list[Any], ensemble: bool, weights: list[float] | None) -> Any:
    """Scores (B, lanes, 10): every network alone; where they are one ensemble, its votes too."""
    import torch

    from ringfence.classifiers import Classifier, Members, Scored
    from ringfence.classifiers.votes import max_margin, softmax

    class TableLanes(Classifier):
        def __init__(self) -> None:
            super().__init__()
            self.members = Members(models)

        def score(self, x: torch.Tensor) -> Scored:
            every = self.members.score(x).scores
            lanes = list(every.unbind(1))
            if ensemble:
                lanes += [softmax(every), max_margin(every)]
            if weights is not None:
                shares = every.float().softmax(-1).unbind(1)
                lanes.append(torch.stack([w * one for w, one in zip(weights, shares, strict=True)]).sum(0))
            return Scored(torch.stack(lanes, dim=1), len(models))

    return TableLanes()


def sween_weights(models: list[Any], sigma: float, options: argparse.Namespace) -> list[float]:
    """Weights on the simplex that minimise the noisy cross-entropy of the weighted softmax on training images."""
    from ringfence.analysis.ranking import holdout_scores
    from ringfence.analysis.sween import gradient_weights
    from ringfence.data import load_dataset
    from ringfence.noise import Gaussian
    from ringfence.sampling import pick_device

    dataset = load_dataset(f"mnist:{options.data}", split="train", skip=30)
    scores = holdout_scores(models, dataset, Gaussian(sigma), draws=4, device=pick_device(options.device))
    return [round(value, 6) for value in gradient_weights(scores, "softmax", steps=300).weights]


def certification_tasks(options: argparse.Namespace) -> list[Task]:
    """One task per group and sigma; rows whose training is unfinished are left out."""
    zoo, tasks = options.work / "zoo", []
    for sigma in options.sigmas:
        groups = {row: [f"{row}-{sigma:g}"] for row in ("gaussian", "smoothadv", "drt-gaussian", "drt-smoothadv")}
        if sigma == SIGMAS[0]:
            groups |= {"single": [f"{row}-{sigma:g}" for row in SINGLES]}
            groups |= {row: [f"{row}-{sigma:g}"] for row in ("adp", "gal")}
        for group, names in groups.items():
            if options.rows and group not in options.rows:
                continue
            folders = [zoo / name for name in names if trained(zoo / name)]
            if folders:
                done = options.work / "runs" / f"{group}-{sigma:g}.done"
                run = partial(certify_group, group, sigma, folders, options)
                tasks.append(Task(f"certify {group}-{sigma:g}", run, done))
            else:
                print(f"not trained yet: {', '.join(names)}", flush=True)
    return tasks
