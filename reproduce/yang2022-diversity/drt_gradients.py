"""How steep DRT's terms are where its fine-tuning begins: `python drt_gradients.py mnist.npz` writes gradients.json.

Of each way to add up pairs: the size of each term at rho = 1, the length of its gradient in the weights of all members,
and the mean cosine between the gradients of different batches, which is small where steps are mostly chance.
"""

from __future__ import annotations

import json
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ringfence.classifiers.architectures import build_architecture
from ringfence.data import load_dataset
from ringfence.models.weights import read_weights
from ringfence.training.data import Batch, DeviceData, TrainingNoise, load_device_data
from ringfence.training.objectives import Drt, SmoothAdv
from ringfence.training.objectives.base import Objective

FILE = Path(__file__).resolve().parent / "gradients.json"
ZOO = Path(__file__).resolve().parents[2] / "zoo" / "mnist"
BASES = (("gaussian-wide-0.5", 0.5), ("smoothadv-wide-1.0", 1.0))
IMAGES, BATCHES = 128, 3


def ways(attacked: bool) -> dict[str, Objective]:
    """The paper's and a public derivative's at weights of 1; over Gaussian bases also the one between."""
    if attacked:
        base = SmoothAdv(eps=1.0, steps=10)
        derivative = Drt(base, 1.0, 1.0, "mean", squared=True, regularise_at="attacked")
        return {"paper_sum": Drt(base, 1.0, 1.0), "mean, squared, attacked": derivative}
    return {
        "paper_sum": Drt(rho1=1.0, rho2=1.0),
        "mean": Drt(rho1=1.0, rho2=1.0, reduction="mean"),
        "mean, squared": Drt(rho1=1.0, rho2=1.0, reduction="mean", squared=True),
    }


def members_of(training: str) -> list[nn.Module]:
    """The three networks that fine-tuning begins with."""
    members = []
    for place in range(3):
        member = build_architecture("lenet-wide")
        state = read_weights(ZOO / training / f"final-{place}.safetensors").state
        member.load_state_dict({name: value.float() for name, value in state.items()})
        members.append(member)
    return members


def terms_of(objective: Objective, members: list[nn.Module], data: DeviceData, sigma: float) -> dict[str, Any]:
    """Term by term, over batches of different images and noise."""
    weights = [one for member in members for one in member.parameters()]
    sizes: dict[str, list[float]] = {}
    gradients: dict[str, list[Tensor]] = {}
    for place in range(BATCHES):
        generator = torch.Generator().manual_seed(place)
        numbers = torch.randint(len(data), (IMAGES,), generator=generator)
        batch: Batch = data.batch(numbers)
        found = objective(members, batch, TrainingNoise(sigma), generator)
        for name, value in found.terms.items():
            parts = torch.autograd.grad(value, weights, retain_graph=True, allow_unused=True)
            flat = torch.cat([one.flatten() for one in parts if one is not None])
            sizes.setdefault(name, []).append(float(value.detach()))
            gradients.setdefault(name, []).append(flat)
    return {
        name: {
            "size": sum(sizes[name]) / BATCHES,
            "length": float(torch.stack([one.norm() for one in each]).mean()),
            "cosine": float(torch.stack([torch.cosine_similarity(a, b, 0) for a, b in combinations(each, 2)]).mean()),
        }
        for name, each in gradients.items()
    }


def main(file: str) -> None:
    """Measure every way at every base."""
    data = load_device_data(load_dataset(f"mnist:{file}", split="train"))
    found = [
        {"training": training, "sigma": sigma, "way": way, "terms": terms_of(objective, members, data, sigma)}
        for training, sigma in BASES
        for members in [members_of(training)]
        for way, objective in ways(training.startswith("smoothadv")).items()
    ]
    FILE.write_text(
        json.dumps({"images": IMAGES, "batches": BATCHES, "found": found}, indent=1) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main(sys.argv[1])
