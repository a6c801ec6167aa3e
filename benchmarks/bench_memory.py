"""(3) Memory does not grow with n: peak resident memory of certifying one input, a fresh process for each n."""

from __future__ import annotations

import subprocess
import sys
from statistics import median

from common import Bar, Grid, Report, arguments, finish, interleaved

SHAPE = (1, 8, 8)
LIMIT_MB = 16.0
"""Most growth from the smallest to the largest n; keeping the draws of n = 10^6 would take 256 MB."""

CHILD = """
import resource, sys, torch
import ringfence as rf

torch.set_num_threads(1)
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
execution = rf.Execution(device="cpu", plan=None, batch=400)
procedure = rf.Fixed(n=int(sys.argv[1]))
record, = rf.certify(net, [torch.full((1, 8, 8), 0.5)], noise=rf.Gaussian(0.25), procedure=procedure, execution=execution)
assert record.draws == procedure.n0 + procedure.n
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def peak_megabytes(n: int) -> float:
    """Peak resident memory of a process that certifies one input with n draws."""
    done = subprocess.run([sys.executable, "-c", CHILD, str(n)], capture_output=True, text=True, check=True)
    unit = 2**20 if sys.platform == "darwin" else 2**10  # bytes there, kilobytes elsewhere
    return int(done.stdout) / unit


def main() -> int:
    options = arguments(__doc__ or "")
    sizes = [10**3, 10**4] if options.quick else [10**3, 10**4, 10**5, 10**6]
    peaks = interleaved({str(n): lambda n=n: peak_megabytes(n) for n in sizes}, options.repetitions)
    at = {n: median(peaks[str(n)]) for n in sizes}
    rows = [
        [f"{n:,}", f"{at[n]:.1f}", f"{at[n] - at[sizes[0]]:+.1f}", f"{4e-6 * 64 * n:.1f}"] for n in sizes
    ]
    grid = Grid(
        "One input of 64 numbers, a linear classifier, batches of 400",
        ["n", "peak MB", "MB over the smallest n", "MB of n stored draws"],
        rows,
    )
    bars = [Bar(f"growth from n = {sizes[0]:,} to {sizes[-1]:,}", "at most", LIMIT_MB, at[sizes[-1]] - at[sizes[0]], "MB")]
    settings = {"shape": SHAPE, "batch": 400, "sizes": sizes}
    return finish(Report("memory", settings, [grid], bars, {"peak_megabytes": peaks}), options)


if __name__ == "__main__":
    sys.exit(main())
