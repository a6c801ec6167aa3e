"""(3) Memory does not grow with n: peak resident memory of certifying one input, a fresh process for each n."""

from __future__ import annotations

import subprocess
import sys
from statistics import median

from common import Bar, Grid, Report, arguments, finish, interleaved

SHAPE = (1, 8, 8)
LIMIT_MB = 16.0
"""Most growth from the smallest to the largest n; keeping the draws of n = 10^6 would take 244 MB."""

CHILD = """
import resource, sys, torch
import ringfence as rf

class Hoarder(torch.nn.Module):  # the control: a classifier that keeps every batch it sees
    def __init__(self, inner):
        super().__init__()
        self.inner, self.kept = inner, []

    def forward(self, x):
        self.kept.append(x.clone())
        return self.inner(x)

torch.set_num_threads(1)
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
net = Hoarder(net) if sys.argv[2] == "hoard" else net
procedure = rf.Fixed(n=int(sys.argv[1]))
execution = rf.Execution(device="cpu", batch=400)
x = torch.full((1, 8, 8), 0.5)
record, = rf.certify(net, [x], noise=rf.Gaussian(0.25), procedure=procedure, execution=execution)
assert record.draws == procedure.n0 + procedure.n
try:
    peak, = [int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")]
except OSError:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1024 if sys.platform == "darwin" else 1)
print(peak)
"""
# VmHWM where there is one: on Linux ru_maxrss outlives exec, so that a large parent would hide its children.


def peak_megabytes(n: int, mode: str = "plain") -> float:
    """Peak resident memory of a process that certifies one input with n draws."""
    done = subprocess.run([sys.executable, "-c", CHILD, str(n), mode], capture_output=True, text=True, check=True)
    return int(done.stdout) / 1024


def row(name: str, n: int, peak: float, smallest: float) -> list[str]:
    """One line of the table."""
    return [name, f"{peak:.1f}", f"{peak - smallest:+.1f}", f"{4 * 64 * n / 2**20:.1f}"]


def main() -> int:
    options = arguments(__doc__ or "")
    sizes = [10**3, 10**4] if options.quick else [10**3, 10**4, 10**5, 10**6]
    control = sizes[-1] // 10
    tasks = {str(n): lambda n=n: peak_megabytes(n) for n in sizes}
    tasks["control"] = lambda: peak_megabytes(control, "hoard")
    peaks = interleaved(tasks, options.repetitions)
    at = {name: median(values) for name, values in peaks.items()}
    smallest, largest = at[str(sizes[0])], at[str(sizes[-1])]
    rows = [row(f"{n:,}", n, at[str(n)], smallest) for n in sizes]
    rows.append(row(f"{control:,}, control: every batch kept", control, at["control"], smallest))
    grid = Grid(
        "One input of 64 numbers, a linear classifier, batches of 400",
        ["n", "peak MB", "MB over the smallest n", "MB of n stored draws"],
        rows,
    )
    bars = [Bar(f"growth from n = {sizes[0]:,} to {sizes[-1]:,}", "at most", LIMIT_MB, largest - smallest, "MB")]
    if not options.quick:
        bars.append(
            Bar("growth of the control, which must be seen", "at least", LIMIT_MB, at["control"] - smallest, "MB")
        )
    settings = {"shape": SHAPE, "batch": 400, "sizes": sizes}
    return finish(Report("memory", settings, [grid], bars, {"peak_megabytes": peaks}), options)


if __name__ == "__main__":
    sys.exit(main())
