"""Trains the small 3-D CNN on clips with Gaussian noise raised in steps, as paper 003 does (appendix C).

    python tools/train_video.py --data video_colored_shapes.npz --sigma 0.25 --out shapes-sigma0.25.safetensors
    python tools/train_video.py --data mnist-motion:mnist.npz --sigma 0.25 --out motion-sigma0.25.safetensors

Of an .npz without a split every fifth clip (0, 5, 10, ...) is kept out of training: certify those with --skip 5.
Every step sees one chunk of --frames frames per clip, from a random place of the clip.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ringfence.classifiers.architectures.video_cnn import motion_cnn, shapes_cnn
from ringfence.data import Dataset, load_dataset
from ringfence.data.video import motion_dataset

STEPS = 4
"""Noise levels: sigma/4, sigma/2, 3 sigma/4, sigma; the last one for half of the epochs."""


def clips_of(dataset: Dataset, keep: int, rest: bool) -> tuple[Tensor, Tensor]:
    """Clips uint8 (N, T, C, H, W) and labels; every keep-th clip, or all the others."""
    chosen = [index for index in range(len(dataset)) if keep == 1 or (index % keep != 0) == rest]
    clips = [(dataset[index].x * 255).round().to(torch.uint8) for index in chosen]
    return torch.stack(clips), torch.tensor([dataset.labels[index] or 0 for index in chosen])


def load(spec: str, count: int) -> tuple[nn.Module, Tensor, Tensor, Tensor, Tensor]:
    """A fresh network, training clips and labels, held-out clips and labels."""
    if spec.startswith("mnist-motion:"):
        place = spec.partition(":")[2]
        train, held = motion_dataset(place, "train", count=count), motion_dataset(place, "test", count=200)
        return motion_cnn(), *clips_of(train, 1, True), *clips_of(held, 1, True)
    whole = load_dataset(spec)
    return shapes_cnn(), *clips_of(whole, 5, True), *clips_of(whole, 5, False)


def sigma_at(epoch: int, epochs: int, sigma: float) -> float:
    """Raised in equal steps over the first half."""
    return sigma * min(STEPS, 1 + epoch * 2 * (STEPS - 1) // epochs) / STEPS


def train(
    model: nn.Module, x: Tensor, y: Tensor, *, sigma: float, frames: int, epochs: int, batch: int, lr: float
) -> None:
    """SGD with Nesterov momentum and a cosine learning rate; a fresh chunk and fresh noise at every step."""
    steps = -(-len(x) // batch)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, nesterov=True, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * steps)
    model.train()
    for epoch in range(epochs):
        for rows in torch.randperm(len(x)).chunk(steps):
            start = int(torch.randint(x.shape[1] - frames + 1, ()))
            clean = x[rows, start : start + frames].float() / 255
            noisy = clean + sigma_at(epoch, epochs, sigma) * torch.randn(clean.shape)
            optimizer.zero_grad(set_to_none=True)
            cross_entropy(model(noisy), y[rows]).backward()
            optimizer.step()
            schedule.step()
    model.eval()


@torch.inference_mode()
def accuracy(model: nn.Module, x: Tensor, y: Tensor, sigma: float, frames: int) -> float:
    """Share of right answers of the mean logits over all chunks, one noise draw a clip."""
    hits = 0
    for rows in torch.arange(len(x)).split(16):
        clean = x[rows].float() / 255
        noisy = clean + sigma * torch.randn(clean.shape)
        chunks = noisy.reshape(-1, frames, *noisy.shape[2:])
        hits += int((model(chunks).view(len(rows), -1, model.linear.out_features).mean(1).argmax(1) == y[rows]).sum())
    return hits / len(x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="an .npz of clips, or mnist-motion:PATH")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sigma", type=float, default=0.25)
    parser.add_argument("--frames", type=int, default=8, help="frames of a chunk")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--clips", type=int, default=2000, help="training clips of mnist-motion")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    torch.manual_seed(options.seed)
    begun = time.perf_counter()
    model, x, y, held_x, held_y = load(options.data, options.clips)
    train(
        model,
        x,
        y,
        sigma=options.sigma,
        frames=options.frames,
        epochs=options.epochs,
        batch=options.batch,
        lr=options.lr,
    )
    noisy, clean = (accuracy(model, held_x, held_y, level, options.frames) for level in (options.sigma, 0.0))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    weights = {key: value.detach().contiguous() for key, value in model.state_dict().items()}
    save_file(weights, options.out, metadata={"sigma": f"{options.sigma:g}", "frames": str(options.frames)})
    print(
        f"{options.out.name}: {len(x)} training clips, held-out accuracy {noisy:.3f} under noise {options.sigma:g}, "
        f"{clean:.3f} clean, {time.perf_counter() - begun:.0f} s",
        flush=True,
    )


if __name__ == "__main__":
    main()
