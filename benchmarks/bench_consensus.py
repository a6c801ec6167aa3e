"""K-consensus against its ideal: the member forwards really run, times the time of one at its fastest batch."""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Callable
from statistics import median

import torch
from common import Bar, Grid, Report, arguments, finish, interleaved
from torch import Tensor, nn

import ringfence as rf
from ringfence.classifiers import KConsensus, SoftVote, score
from ringfence.classifiers.consensus import micro_batch_size
from ringfence.sampling.probe import CONSENSUS_PARTS

SIGMA, MEMBERS, AGREE = 0.5, 10, (2, 3, 5)
MEMBER_BATCH, PARTS = 400, CONSENSUS_PARTS
BATCH = PARTS * MEMBER_BATCH


def networks() -> list[nn.Module]:
    """The three embedded LeNets, and copies of them with slightly disturbed weights."""
    generator = torch.Generator().manual_seed(0)
    found: list[nn.Module] = [rf.load_model(f"default:{k}").module for k in range(3)]
    while len(found) < MEMBERS:
        twin = copy.deepcopy(found[len(found) % 3])
        with torch.no_grad():
            for weight in twin.parameters():
                weight.add_(0.3 * weight.std() * torch.randn(weight.shape, generator=generator))
        found.append(twin.eval())
    return found


def noisy_batches(count: int, seed: int = 1) -> list[Tensor]:
    """Batches (BATCH, 1, 28, 28) of noisy digits."""
    generator = torch.Generator().manual_seed(seed)
    clean = torch.stack([item.x for item in rf.load_dataset("default")])
    chosen = [clean[torch.randint(len(clean), (BATCH,), generator=generator)] for _ in range(count)]
    return [x + SIGMA * torch.randn(x.shape, generator=generator) for x in chosen]


@torch.inference_mode()
def undecided_share(members: list[nn.Module], agree: int, x: Tensor) -> float:
    """Share of the rows on which the first members differ: what chooses the micro-batch, seen on another batch."""
    asked = torch.as_tensor(score(KConsensus(members, agree).eval(), x).work)
    return max(float((asked > agree).double().mean()), 1 / len(x))


def main() -> int:
    options = arguments(__doc__ or "")
    torch.set_num_threads(1)
    members, batches = networks(), noisy_batches(1)
    rows = BATCH * len(batches)
    shares = {agree: undecided_share(members, agree, noisy_batches(1, seed=2)[0]) for agree in AGREE}
    consensus = {agree: KConsensus(members, agree, undecided=share).eval() for agree, share in shares.items()}
    for one in consensus.values():
        one.parts = PARTS  # as the engine's plan has it
    ensembles: dict[str, nn.Module] = {f"K={agree}": one for agree, one in consensus.items()}
    ensembles["full"] = SoftVote(members).eval()

    def each_member() -> float:
        begin = time.perf_counter()
        for x in batches:
            for part in x.split(MEMBER_BATCH):
                for member in members:
                    member(part)
        return time.perf_counter() - begin

    def run(ensemble: nn.Module) -> Callable[[], float]:
        rows = BATCH if isinstance(ensemble, KConsensus) else MEMBER_BATCH

        def task() -> float:
            begin = time.perf_counter()
            for x in batches:
                for part in x.split(rows):
                    ensemble(part)
            return time.perf_counter() - begin

        return task

    with torch.inference_mode():
        forwards = {
            name: sum(int(torch.as_tensor(score(one, x).work).expand(BATCH).sum()) for x in batches)
            for name, one in ensembles.items()
        }
        tasks = {"every member": each_member, **{name: run(one) for name, one in ensembles.items()}}
        seconds = interleaved(tasks, options.repetitions)
    base = seconds["every member"]
    table, bars, measured = [], [], {}
    for name, wall in seconds.items():
        if name == "every member":
            continue
        per_draw = forwards[name] / rows
        share = per_draw / MEMBERS
        over = median(a / (b * share) for a, b in zip(wall, base, strict=True)) - 1
        saved = median(b / a for a, b in zip(wall, seconds["full"], strict=True))
        kcr = "-" if name == "full" else f"{100 * (MEMBERS - per_draw) / (MEMBERS - int(name[2:])):.1f}"
        table.append(
            [name, kcr, f"{per_draw:.2f}", f"{1e6 * median(wall) / rows:.0f}", f"{100 * over:.1f}", f"{saved:.2f}"]
        )
        measured[name] = {"forwards_per_draw": per_draw, "over_ideal": over, "time_rf": saved, "seconds": wall}
        if name != "full":
            bars.append(Bar(f"{name} of {MEMBERS}: wall time above the ideal", "at most", 15.0, 100 * over, "%"))
    columns = ["ensemble", "KCR %", "forwards/draw", "us/draw", "above ideal %", "TimeRF"]
    sizes = {agree: micro_batch_size(BATCH, share, "cpu") for agree, share in shares.items()}
    settings = {
        "members": MEMBERS,
        "batch": BATCH,
        "parts": PARTS,
        "micro_batch": sizes,
        "rows": rows,
        "sigma": SIGMA,
        "threads": 1,
    }
    note = "Ideal: forwards really run times one member forward at the member batch; wall time, one thread"
    title = f"K-consensus of {MEMBERS} LeNets on the CPU"
    report = Report("consensus", settings, [Grid(title, columns, table)], bars, measured, [note])
    return finish(report, options)


if __name__ == "__main__":
    sys.exit(main())
