"""Trains the small 3-D CNN on clips with Gaussian noise raised in steps, as Joshi et al. 2022 do (appendix C).

    cd reproduce/joshi2022-smooth-reduce
    python train_video.py --data video_colored_shapes.npz --frames 4,8 --sigma 0.25 --out shapes-0.25.safetensors
    python train_video.py --data mnist-motion:mnist.npz --frames 8,16 --sigma 0.25 --out motion-0.25.safetensors
    python train_video.py ... --sigma 0.5 --init motion-0.25.safetensors --out motion-0.5.safetensors

Of an .npz without a split every third clip (0, 3, 6, ...) is kept out of training: certify those with --skip 3.
Every step sees one chunk of one of the lengths --frames per clip, from a random place of the clip. Stopped at any time,
the same command goes on after the last whole epoch and ends with the same weights; once they are there it does nothing.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from video_cnn import motion_cnn, shapes_cnn

from ringfence.classifiers.patches import Chunks
from ringfence.data import Dataset, load_dataset
from ringfence.data.video import motion_dataset

KEEP = 3
"""Every so many-th clip of a file without a split is for testing."""

LEVELS = 4
"""Noise levels on the way to sigma, over the first half of the epochs; the second half is at sigma."""

TELL_SECONDS = 10.0


def clips_of(dataset: Dataset, chosen: list[int]) -> tuple[Tensor, Tensor]:
    """Clips uint8 (N, T, C, H, W) and labels (N,)."""
    clips = [(dataset[index].x * 255).round().to(torch.uint8) for index in chosen]
    return torch.stack(clips), torch.tensor([dataset.labels[index] or 0 for index in chosen])


def load(spec: str, count: int) -> tuple[nn.Module, Tensor, Tensor, Tensor, Tensor]:
    """A fresh network, training clips and labels, held-out clips and labels."""
    if spec.startswith("mnist-motion:"):
        place = spec.partition(":")[2]
        parts = [(motion_dataset(place, "train", count=count), count), (motion_dataset(place, "test", count=200), 200)]
        train, held = (clips_of(dataset, list(range(size))) for dataset, size in parts)
        return motion_cnn(), *train, *held
    whole = load_dataset(spec)
    chosen = [[index for index in range(len(whole)) if (index % KEEP == 0) == test] for test in (False, True)]
    train, held = (clips_of(whole, indices) for indices in chosen)
    return shapes_cnn(), *train, *held


def sigma_at(epoch: int, epochs: int, low: float, sigma: float) -> float:
    """From low to sigma in equal steps over the first half."""
    return low + (sigma - low) * min(LEVELS, 1 + epoch * 2 * (LEVELS - 1) // epochs) / LEVELS


def train(model: nn.Module, x: Tensor, y: Tensor, low: float, options: argparse.Namespace) -> None:
    """SGD with Nesterov momentum and a cosine learning rate; a fresh chunk and fresh noise at every step."""
    steps = -(-len(x) // options.batch)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9, nesterov=True, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.epochs * steps)
    lengths = [int(part) for part in options.frames.split(",")]
    state = options.out.with_suffix(".resume")
    parts: dict[str, Any] = {"model": model, "optimizer": optimizer, "schedule": schedule}
    first = resume(state, parts, describe(options)) if state.exists() else 0
    model.train()
    begun = told = time.perf_counter()
    for epoch in range(first, options.epochs):
        total = 0.0
        for rows in torch.randperm(len(x)).chunk(steps):
            frames = lengths[int(torch.randint(len(lengths), ()))]
            start = int(torch.randint(x.shape[1] - frames + 1, ()))
            clean = x[rows, start : start + frames].float() / 255
            noisy = clean + sigma_at(epoch, options.epochs, low, options.sigma) * torch.randn(clean.shape)
            optimizer.zero_grad(set_to_none=True)
            loss = cross_entropy(model(noisy), y[rows])
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item() * len(rows)
        now = time.perf_counter()
        keep(state, parts, describe(options), epoch + 1)
        if now - told > TELL_SECONDS:
            left = (options.epochs - epoch - 1) * (now - begun) / (epoch + 1 - first)
            print(f"epoch {epoch + 1}/{options.epochs}: loss {total / len(x):.3f}, about {left:.0f} s left", flush=True)
            told = now
    model.eval()


def describe(options: argparse.Namespace) -> dict[str, Any]:
    """What a continued training must have in common with its beginning."""
    return {key: str(value) for key, value in vars(options).items() if key not in ("data", "out")}


def keep(path: Path, parts: dict[str, Any], settings: dict[str, Any], epoch: int) -> None:
    """Everything needed to go on, replaced in one step."""
    states = {name: part.state_dict() for name, part in parts.items()}
    fresh = path.with_suffix(".resume.tmp")
    torch.save({"settings": settings, "epoch": epoch, "rng": torch.get_rng_state(), **states}, fresh)
    fresh.replace(path)


def resume(path: Path, parts: dict[str, Any], settings: dict[str, Any]) -> int:
    """Put everything back; the epoch to go on with."""
    found = torch.load(path, weights_only=True)
    if found["settings"] != settings:
        raise SystemExit(f"{path} was begun with {found['settings']}, not {settings}: delete it or repeat those")
    for name, part in parts.items():
        part.load_state_dict(found[name])
    torch.set_rng_state(found["rng"])
    print(f"going on after epoch {found['epoch']}", flush=True)
    return int(found["epoch"])


@torch.inference_mode()
def accuracy(model: nn.Module, x: Tensor, y: Tensor, sigma: float, frames: int) -> float:
    """Share of right answers of the mean logits over all chunks, one noise draw a clip."""
    chunked = Chunks(model, frames).eval()
    hits = 0
    for rows in torch.arange(len(x)).split(16):
        clean = x[rows].float() / 255
        hits += int((chunked(clean + sigma * torch.randn(clean.shape)).argmax(1) == y[rows]).sum())
    return hits / len(x)


def main() -> None:
    """Train, or go on, and say how accurate the network is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="an .npz of clips, or mnist-motion:PATH")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--init", type=Path, help="weights to start from, and with them their sigma")
    parser.add_argument("--sigma", type=float, default=0.25)
    parser.add_argument("--frames", default="8,16", help="lengths of chunks, by commas")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--clips", type=int, default=2000, help="training clips of mnist-motion")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.out.exists():
        print(f"{options.out} is already there")
        return
    options.out.parent.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(options.seed)
    begun, low = time.perf_counter(), 0.0
    model, x, y, held_x, held_y = load(options.data, options.clips)
    if options.init:
        model.load_state_dict(load_file(options.init))
        with safe_open(options.init, "pt") as file:
            low = float(file.metadata()["sigma"])
    train(model, x, y, low, options)
    weights = {key: value.detach().contiguous() for key, value in model.state_dict().items()}
    save_file(weights, options.out, metadata={"sigma": f"{options.sigma:g}", "frames": options.frames})
    options.out.with_suffix(".resume").unlink()
    shares = []
    for frames in map(int, options.frames.split(",")):
        noisy, clean = (accuracy(model, held_x, held_y, level, frames) for level in (options.sigma, 0.0))
        shares.append(f"chunks of {frames}: {noisy:.3f} under noise {options.sigma:g}, {clean:.3f} clean")
    spent = time.perf_counter() - begun
    print(f"{options.out.name}: {len(x)} training clips, held-out accuracy {'; '.join(shares)}; {spent:.0f} s")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("stopped; the same command goes on") from None
