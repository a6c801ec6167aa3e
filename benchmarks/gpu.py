"""How close certification comes to what one GPU can do: rates of noisy forwards, as ratios in one run.

    python benchmarks/gpu.py --depths 20,110 --autotune --out results/benchmarks/gpu.json

Rows: the per-image loop of research code (TF32, batch 1000), the raw forward of the very network and shape
that the engine uses, the engine itself on a fixed-n certification. Weights are random: rates do not depend on them.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

import ringfence as rf
from ringfence.classifiers.architectures import resnet
from ringfence.data import Input
from ringfence.sampling import Forward, ForwardPlan

SHAPE, CLASSES, SIGMA = (3, 32, 32), 10, 0.25


def per_image_loop(model: torch.nn.Module, seconds: float, batch: int = 1000) -> float:
    """Cohen-style sampling: one image, batch after batch, counted on the host."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    image, counts, done = torch.rand(SHAPE, device="cuda"), [0] * CLASSES, 0
    model = model.cuda().eval()
    with torch.no_grad():
        for phase in (1.0, seconds):
            begin, done = time.perf_counter(), 0
            while time.perf_counter() - begin < phase:
                noise = torch.randn(batch, *SHAPE, device="cuda") * SIGMA
                for guess in model(image.repeat(batch, 1, 1, 1) + noise).argmax(1).cpu().numpy():
                    counts[guess] += 1
                done += batch
    return done / (time.perf_counter() - begin)


def raw_forward(model: torch.nn.Module, plan: ForwardPlan, seconds: float) -> tuple[float, float]:
    """Forwards per second at the plan's shape, and the seconds until the first answer (compilation)."""
    begin = time.perf_counter()
    forward = Forward(model, plan, torch.device("cuda"), CLASSES)
    noise, clean = torch.randn(plan.batch, *SHAPE, device="cuda"), torch.rand(1, *SHAPE, device="cuda")
    batch = forward.merge(noise, clean, torch.zeros(plan.batch, dtype=torch.int64, device="cuda"))
    forward(batch)
    torch.cuda.synchronize()
    ready = time.perf_counter() - begin
    for _ in range(5):
        forward(batch)
    torch.cuda.synchronize()
    begin, done = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        for _ in range(10):
            forward(batch)
        torch.cuda.synchronize()
        done += 10 * plan.batch
    return done / (time.perf_counter() - begin), ready


def engine(model: torch.nn.Module, plan: ForwardPlan, draws: int, inputs: int = 40) -> tuple[float, float]:
    """Draws per second of a fixed-n certification, and the seconds before its first batch."""
    started: list[float] = []
    execution = rf.Execution("cuda", plan=plan, on_plan=lambda plan: started.append(time.perf_counter()))
    items = [Input(i, torch.rand(SHAPE), None, str(i)) for i in range(inputs)]
    procedure = rf.Fixed(n=max(100, draws // inputs // 100 * 100))
    begin = time.perf_counter()
    records = list(
        rf.certify(
            model, items, noise=rf.Gaussian(SIGMA), procedure=procedure, num_classes=CLASSES, execution=execution
        )
    )
    end = time.perf_counter()
    return sum(record.draws for record in records) / (end - started[0]), started[0] - begin


def measure(depth: int, batch: int, autotune: bool, seconds: float, repeats: int) -> dict[str, Any]:
    torch.manual_seed(0)
    model = resnet(depth)
    plan = ForwardPlan(batch, "bf16", channels_last=True, compile=True, fold=True, autotune=autotune)
    loop = per_image_loop(resnet(depth), seconds)
    raw, ready = raw_forward(model, plan, seconds)
    rows: list[tuple[float, float]] = []
    start = 0.0
    for _ in range(repeats):
        raw_again, _ = raw_forward(model, plan, seconds)
        rate, start = engine(model, plan, int(raw * seconds * 2))
        rows.append((raw_again, rate))
    ratios = sorted(rate / raw_again for raw_again, rate in rows)
    best = sorted(rate for _, rate in rows)[len(rows) // 2]
    return {
        "depth": depth,
        "plan": plan.settings(),
        "loop_tf32": loop,
        "raw": raw,
        "engine": best,
        "engine_over_raw": ratios[len(ratios) // 2],
        "engine_over_loop": best / loop,
        "first_start_seconds": ready,
        "next_start_seconds": start,
        "repetitions": rows,
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depths", default="20,110")
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--autotune", action="store_true")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    answers = []
    for depth in map(int, options.depths.split(",")):
        answers.append(measure(depth, options.batch, options.autotune, options.seconds, options.repeats))
        print(json.dumps(answers[-1]), flush=True)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(answers, indent=2) + "\n")


if __name__ == "__main__":
    main()
