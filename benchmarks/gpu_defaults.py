"""What a newcomer gets on a GPU: draws a second with default settings against the usual loop over images.

    python benchmarks/gpu_defaults.py [--seconds 20] [--networks resnet50 ...]

Four networks with random weights. The loop is the one that most scripts have: one image, batches of 1,000 noisy copies
(or as many as fit), argmax on the host, PyTorch's own settings. Ours is ``rf.certify`` without any, and what ``--fast``
asks for. No default may lose: with --strict the script exits with 1 if one does. A run before it, with --quick, leaves
compiled code in the compiler's cache, so that what is timed starts sooner; rates do not count starts.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from beside_loop import LOOP, Rate, tables
from common import Report, finish, options_parser
from torch import nn

import ringfence as rf
from ringfence.data import Input
from ringfence.models.extras import needed
from ringfence.sampling import ForwardPlan

SIGMA, INPUTS, LOOP_BATCH = 0.25, 8, 1000


def wide_resnet() -> nn.Module:
    """WRN-28-10 for CIFAR: timm and torchvision have wide ones for ImageNet alone."""

    class Block(nn.Module):
        def __init__(self, before: int, after: int, stride: int) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.BatchNorm2d(before), nn.BatchNorm2d(after)
            self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
            self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
            same = before == after and stride == 1
            self.short = nn.Identity() if same else nn.Conv2d(before, after, 1, stride, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen = torch.relu(self.norm1(x))
            left: torch.Tensor = self.conv2(torch.relu(self.norm2(self.conv1(seen))))
            return left + self.short(x if isinstance(self.short, nn.Identity) else seen)

    widths, layers = [16, 160, 320, 640], list[nn.Module]([nn.Conv2d(3, 16, 3, 1, 1, bias=False)])
    for place in range(3):
        for number in range(4):
            before = widths[place] if number == 0 else widths[place + 1]
            layers.append(Block(before, widths[place + 1], 2 if place and number == 0 else 1))
    head = [nn.BatchNorm2d(640), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(640, 10)]
    return nn.Sequential(*layers, *head)


def of_timm(name: str, classes: int) -> Callable[[], nn.Module]:
    """A network of timm with random weights."""

    def make() -> nn.Module:
        made: nn.Module = needed("timm", "timm", name).create_model(name, num_classes=classes)
        return made

    return make


NETWORKS: Mapping[str, tuple[Callable[[], nn.Module], tuple[int, int, int], int]] = {
    "resnet50": (of_timm("resnet50", 1000), (3, 224, 224), 1000),
    "vit-b-16": (of_timm("vit_base_patch16_224", 1000), (3, 224, 224), 1000),
    "wrn-28-10": (wide_resnet, (3, 32, 32), 10),
    "resnet18": (of_timm("resnet18", 10), (3, 32, 32), 10),
}
"""Network, shape of its inputs, classes."""


def per_image_loop(network: nn.Module, shape: tuple[int, ...], classes: int, seconds: float, device: str) -> float:
    """The usual script, with PyTorch's own flags."""
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = False, True
    network, image = network.to(device).eval(), torch.rand(shape, device=device)
    counts = torch.zeros(classes, dtype=torch.int64)
    done, begin = 0, time.perf_counter()
    with torch.no_grad():
        for phase in (min(2.0, seconds), seconds):  # the first one warms up
            done, begin = 0, time.perf_counter()
            while time.perf_counter() - begin < phase:
                noise = torch.randn(LOOP_BATCH, *shape, device=device) * SIGMA
                guesses = network(image.repeat(LOOP_BATCH, 1, 1, 1) + noise).argmax(1).cpu()
                counts += torch.bincount(guesses, minlength=classes)
                done += LOOP_BATCH
    return done / (time.perf_counter() - begin)


def certified(name: str, how: str, draws: int, device: str, **settings: Any) -> Rate:
    """The rate of a certification; precision and form are what it chooses, unless settings say so."""
    make, shape, classes = NETWORKS[name]
    torch.manual_seed(0)
    items = [Input(i, torch.randint(0, 256, shape) / 255, None, str(i)) for i in range(INPUTS)]
    ready: list[tuple[float, ForwardPlan]] = []
    execution = rf.Execution(
        device,
        compile=settings.pop("compile", None),
        draws=draws,
        on_plan=lambda plan: ready.append((time.perf_counter(), plan)),
        on_remark=lambda told: print(f"  {told}", flush=True),
    )
    test, begin = rf.Fixed(n0=100, n=max(1000, draws // INPUTS)), time.perf_counter()
    network = make().eval()
    records = list(
        rf.certify(
            network,
            items,
            sigma=SIGMA,
            procedure=test,
            num_classes=classes,
            execution=execution,
            check=False,
            **settings,
        )
    )
    end, drawn = time.perf_counter(), sum(record.draws for record in records)
    started, plan = ready[-1]
    return Rate(name, how, drawn / (end - started), drawn, started - begin, plan.settings())


def measured(name: str, seconds: float, device: str) -> list[Rate]:
    """The loop, the defaults of a short and of a long run, and --fast."""
    make, shape, classes = NETWORKS[name]
    torch.manual_seed(0)
    loop = per_image_loop(make(), shape, classes, seconds, device)
    torch.cuda.empty_cache()
    print(f"{name}: the loop makes {loop:,.0f} draws a second", flush=True)
    found = [Rate(name, LOOP, loop, int(loop * seconds), 0.0, {})]
    draws = int(loop * seconds)
    found.append(certified(name, "default, short run", draws, device))
    found.append(certified(name, "default, as in a long run", 3 * draws, device, compile=True))
    found.append(certified(name, "fast", 5 * draws, device, compile=True, precision="bf16"))
    for one in found[1:]:
        print(f"  {one.how}: {one.rate:,.0f}, {one.rate / loop:.2f} times the loop", flush=True)
    return found


def report(found: Sequence[Rate], seconds: float) -> Report:
    """What was measured so far."""
    settings = {"seconds": seconds, "sigma": SIGMA, "inputs": INPUTS, "loop_batch": LOOP_BATCH}
    grids, bar = tables(found, "Draws a second beside the usual loop's")
    return Report("gpu_defaults", settings, grids, [bar], {"rates": [asdict(one) for one in found]})


def main() -> int:
    parser = options_parser(__doc__ or "")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    options = parser.parse_args()
    options.repetitions, seconds = 1, 0.2 if options.quick else options.seconds
    found: list[Rate] = []
    for name in options.networks:
        found += measured(name, seconds, options.device)
        code = finish(report(found, seconds), options)  # what is measured stays, whatever ends this process
    return code


if __name__ == "__main__":
    sys.exit(main())
