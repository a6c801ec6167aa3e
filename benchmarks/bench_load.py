"""(13) Ten thousand inputs by a sequential test on two Ray workers: memory that stays, parts, and the way back in."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from common import Bar, Grid, Report, arguments, finish

import ringfence as rf
from ringfence.data import Input


class Halves(torch.nn.Module):
    """Which half of the line a point lies in: forwards cost nothing, so that all else shows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of two classes."""
        return torch.stack([-x.mean(1), x.mean(1)], 1)


def resident(process: int) -> float:
    """MiB that a process holds."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def workers() -> list[int]:
    """Processes of the actors of a Ray that this process started: others on this machine are not ours."""
    import psutil  # comes with Ray

    found = []
    for one in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # gone meanwhile
            if "ray::_Actor" in " ".join(one.cmdline()):
                found.append(one.pid)
    return sorted(found)


def main() -> int:
    options = arguments(__doc__ or "")
    inputs, early = (300, 100) if options.quick else (10_000, 1_000)
    points = torch.linspace(-1.5, 1.5, inputs)
    data = [Input(i, x.repeat(8), int(x > 0), str(i), range_told=True) for i, x in enumerate(points)]
    value = rf.Certification(Halves(), data, noise=rf.Gaussian(0.5), procedure=rf.Sequential(0.3, n=10_000), seed=1)
    memory: dict[str, list[float]] = {}

    def look(progress: rf.Progress) -> None:
        for name, least in (("early", early), ("end", inputs)):
            if progress.inputs >= least and name not in memory:
                memory[name] = [resident(os.getpid()), *(resident(one) for one in workers())]

    with tempfile.TemporaryDirectory() as folder:
        execution = rf.Execution("cpu", batch=2000, engine=rf.Ray(workers=2), check=False)
        begin = time.perf_counter()
        run = rf.certify_into(value, Path(folder) / "run", execution, look)
        seconds = time.perf_counter() - begin
        parts = len(list((run.path / "parts").glob("part-*")))
        begin = time.perf_counter()
        again = rf.certify_into(value, Path(folder) / "run", execution)
        resumed = time.perf_counter() - begin
        assert len(again.done_ids()) == inputs
        assert rf.verify(again) == []
    names = ["driver", *(f"worker {i}" for i in range(len(memory["early"]) - 1))]
    pairs = list(zip(names, memory["early"], memory["end"], strict=True))
    rows = [[name, f"{first:.0f}", f"{last:.0f}", f"{last / first:.3f}"] for name, first, last in pairs]
    columns = ["process", f"MiB after {early:,}", f"MiB after {inputs:,}", "ratio"]
    facts: list[list[str]] = [
        ["seconds", f"{seconds:.1f}"],
        ["parts at the end", str(parts)],
        ["seconds of the same command again", f"{resumed:.2f}"],
    ]
    bars = [
        Bar(
            "memory of driver and workers over that after the first tenth",
            "at most",
            1.05,
            max(b / a for _, a, b in pairs),
        ),
        Bar("parts of the finished run", "at most", 1, parts),
        Bar("the same command again on a finished run", "at most", 2, resumed, "s"),
    ]
    grids = [Grid(f"{inputs:,} inputs, sequential", columns, rows), Grid("The run", ["", "measured"], facts)]
    measured: dict[str, Any] = {"memory": memory, "seconds": seconds, "resumed": resumed, "parts": parts}
    return finish(Report("load", {"inputs": inputs, "workers": 2}, grids, bars, measured), options)


if __name__ == "__main__":
    sys.exit(main())
