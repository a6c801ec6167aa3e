"""Trains the three embedded LeNets on noisy MNIST (Gaussian augmentation, Cohen et al. 2019, sec. 3.3).

    python tools/train_default.py --data mnist.npz --out src/ringfence/data/embedded
    python tools/train_default.py --data mnist.npz --measure results/default/accuracy.json

The 500 embedded digits (test images 0, 20, ..., 9980) are never looked at: the printed accuracy is that of the
other 9,500 test images, so nothing can have been tuned on what the default run certifies.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ringfence.classifiers.architectures.lenet import LeNet
from ringfence.models import load_model


def load_digits(path: Path, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Train images and labels, held-out test images and labels; images (N, 1, 28, 28) in [0, 1], on the device."""
    with np.load(path) as arrays:
        kept = np.arange(len(arrays["x_test"])) % 20 != 0
        pairs = [
            (arrays["x_train"], arrays["y_train"]),
            (arrays["x_test"][kept], arrays["y_test"][kept]),
        ]
    tensors: list[Tensor] = []
    for x, y in pairs:
        tensors.append((torch.from_numpy(x).to(device).float() / 255).unsqueeze(1))
        tensors.append(torch.from_numpy(y.astype(np.int64)).to(device))
    return tensors[0], tensors[1], tensors[2], tensors[3]


def train(x: Tensor, y: Tensor, *, sigma: float, epochs: int, batch: int, peak: float, seed: int) -> LeNet:
    """One network, fresh noise at every step; SGD with Nesterov momentum and a one-cycle learning rate."""
    torch.manual_seed(seed)
    model = LeNet().to(x.device)
    draws = torch.Generator(x.device).manual_seed(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=peak, momentum=0.9, nesterov=True, weight_decay=1e-4)
    steps = len(x) // batch
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=peak, total_steps=epochs * steps, pct_start=0.2, cycle_momentum=False
    )
    model.train()
    for _ in range(epochs):
        order = torch.randperm(len(x), generator=draws, device=x.device)[: steps * batch].view(steps, batch)
        for rows in order:
            clean = x[rows]
            noise = torch.randn(clean.shape, generator=draws, device=x.device)
            optimizer.zero_grad(set_to_none=True)
            cross_entropy(model(clean + sigma * noise), y[rows]).backward()
            optimizer.step()
            schedule.step()
    return model.eval()


@torch.no_grad()
def noisy_accuracy(model: nn.Module, x: Tensor, y: Tensor, sigma: float, repeats: int = 10) -> float:
    """Share of right answers over repeats noise draws per image."""
    draws = torch.Generator(x.device).manual_seed(12345)
    hits = torch.zeros((), device=x.device)
    for _ in range(repeats):
        noise = torch.randn(x.shape, generator=draws, device=x.device)
        hits += (model(x + sigma * noise).argmax(1) == y).sum()
    return hits.item() / (repeats * len(x))


def measure(digits: Path, out: Path, sigma: float = 0.5) -> None:
    """Accuracies of the three embedded networks, with and without noise."""
    _, _, x, y = load_digits(digits, torch.device("cpu"))
    found = {}
    for name in (f"default:{i}" for i in range(3)):
        module = load_model(name).module.eval()
        noisy, clean = noisy_accuracy(module, x, y, sigma), noisy_accuracy(module, x, y, 0.0, repeats=1)
        found[name] = {"noisy": noisy, "clean": clean}
    out.write_text(json.dumps({"sigma": sigma, "images": len(y), "accuracy": found}, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="MNIST as npz: x_train, y_train, x_test, y_test")
    parser.add_argument("--out", type=Path, help="folder for lenet-sigma<sigma>-<i>.safetensors")
    parser.add_argument("--measure", type=Path, help="train nothing: write the embedded networks' accuracies here")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--lr", type=float, default=0.05, help="peak learning rate")
    parser.add_argument("--sigma", type=float, default=0.5)
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0, help="seed of member 0; member i uses seed + i")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    if options.measure:
        measure(options.data, options.measure)
        return
    if options.out is None:
        parser.error("--out or --measure is needed")

    name = ("cuda" if torch.cuda.is_available() else "cpu") if options.device == "auto" else options.device
    x, y, held_x, held_y = load_digits(options.data, torch.device(name))
    options.out.mkdir(parents=True, exist_ok=True)
    for i in range(options.members):
        begun = time.perf_counter()
        model = train(
            x,
            y,
            sigma=options.sigma,
            epochs=options.epochs,
            batch=options.batch,
            peak=options.lr,
            seed=options.seed + i,
        )
        noisy = noisy_accuracy(model, held_x, held_y, options.sigma)
        clean = noisy_accuracy(model, held_x, held_y, 0.0, repeats=1)
        path = options.out / f"lenet-sigma{options.sigma:g}-{i}.safetensors"
        weights = {key: value.detach().cpu().contiguous() for key, value in model.state_dict().items()}
        save_file(weights, path, metadata={"arch": "lenet", "sigma": f"{options.sigma:g}"})
        print(
            f"{path.name}: held-out accuracy {noisy:.4f} under noise {options.sigma:g}, {clean:.4f} clean, "
            f"{time.perf_counter() - begun:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
