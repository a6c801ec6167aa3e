"""Seconds of a training step and epoch beside plain PyTorch's, in one run; rows are chosen by name.

    python benchmarks/gpu_training.py [--cases plain110,ours110] [--limit 240] [--cache FOLDER] [--profile plain110]

First all compiled code is made, in parallel; then every case is measured alone, in a process of its own that was
started beforehand: cuDNN keeps the algorithms it first chose for a shape, so that cases would share them. Data are
random images of CIFAR-10's size. Every row is printed as soon as it is measured, and all of them are written as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
MARK = "ROW "


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="all", help="names, separated by commas")
    parser.add_argument("--limit", type=float, default=240.0, help="seconds for everything")
    parser.add_argument("--compile-limit", type=float, default=140.0, help="of them for compiling")
    parser.add_argument("--cache", type=Path, default=Path("runs/training-cache"), help="of compiled code")
    parser.add_argument("--profile", default="", help="cases whose kernels are listed")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--repeats", type=int, default=20, help="steps of one timing")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true", help="tiny, on the CPU: shows that it runs")
    parser.add_argument("--depth", type=int, help="instead of the case's own")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--prepare", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.batch, options.images, options.repeats, options.device, options.depth = 4, 8, 1, "cpu", 8
    return options


def child(options: argparse.Namespace) -> None:
    """One case in this process: wait until it is our turn, then print a line per row."""
    import torch
    from gpu_training_cases import CASES, Asked
    from gpu_training_steps import Size

    if options.device == "cpu":
        torch.set_num_threads(1)
    if not options.prepare:
        sys.stdin.readline()
    case = CASES[options.case]
    size = Size(torch.device(options.device), options.batch, options.images, options.repeats)
    asked = Asked(size, options.depth or case.depth, options.prepare, options.case in options.profile.split(","))
    for one in case.run(asked):
        print(MARK + json.dumps({"case": options.case, **one}), flush=True)


def environment(options: argparse.Namespace, threads: int) -> dict[str, str]:
    cache = options.cache.resolve()
    return {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
        "TRITON_CACHE_DIR": str(cache / "triton"),
        "TORCHINDUCTOR_FX_GRAPH_CACHE": "1",
        "TORCHINDUCTOR_AUTOGRAD_CACHE": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": str(threads),
        "PYTHONUNBUFFERED": "1",
    }


def log_of(options: argparse.Namespace, case: str, prepare: bool) -> Path:
    return Path(options.cache / f"{'prepare' if prepare else 'case'}-{case}.log")


def complaint(options: argparse.Namespace, case: str, prepare: bool) -> None:
    """The end of what a process that failed wrote."""
    lines = log_of(options, case, prepare).read_text().splitlines()
    print("\n".join(f"    {line[:160]}" for line in lines[-12:]), flush=True)


def started(options: argparse.Namespace, case: str, prepare: bool, threads: int) -> subprocess.Popen[str]:
    log = log_of(options, case, prepare).open("w")
    given = [*sys.argv[1:], "--case", case, *(["--prepare"] if prepare else [])]
    return subprocess.Popen(
        [sys.executable, str(HERE), *given],
        stdin=subprocess.DEVNULL if prepare else subprocess.PIPE,
        stdout=log if prepare else subprocess.PIPE,
        stderr=log,
        text=True,
        env=environment(options, threads),
    )


def prepared(options: argparse.Namespace, cases: dict[str, Any], until: float) -> None:
    """Compile what the cases need, each graph once, all at the same time."""
    wanted = {case.compiles: name for name, case in reversed(cases.items()) if case.compiles}
    begin, processes = time.monotonic(), dict[str, subprocess.Popen[str]]()
    for name in sorted(wanted.values(), key=lambda one: -cases[one].depth):
        processes[name] = started(options, name, True, 6 if cases[name].depth > 56 else 3)
    while processes and time.monotonic() < until:
        for name, process in list(processes.items()):
            if process.poll() is not None:
                print(f"compiled {name}: {time.monotonic() - begin:.0f} s, code {process.returncode}", flush=True)
                if process.returncode:
                    complaint(options, name, True)
                processes.pop(name)
        time.sleep(0.2)
    for name, process in processes.items():
        print(f"compiling {name} was stopped", flush=True)
        process.kill()
        process.wait()


def rows_of(process: subprocess.Popen[str], until: float) -> list[dict[str, Any]]:
    """Let a waiting process measure; its rows, printed as they come. It is ended at the limit."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    stop = threading.Timer(max(0.0, until - time.monotonic()), process.kill)
    stop.start()
    found = []
    for line in process.stdout:
        if line.startswith(MARK):
            found.append(json.loads(line.removeprefix(MARK)))
            print(shown(found[-1]), flush=True)
    process.wait()
    stop.cancel()
    return found


def shown(one: dict[str, Any]) -> str:
    """A row as a line; of a profile only the totals."""
    head = f"{one['case']:>12} d{one['depth']:<3} {one['row']}: "
    if "profile" in one:
        return head + f"{one['profile']['launches']} kernels, {one['profile']['us'] / 1000:.2f} ms"
    rest = {key: value for key, value in one.items() if key not in ("case", "depth", "row")}
    return head + " ".join(f"{key}={value}" for key, value in rest.items())


def profiles(rows: list[dict[str, Any]], top: int = 25) -> None:
    for one in rows:
        if "profile" in one:
            print(f"-- kernels of {one['case']}: {one['row']}")
            for name, count, us in one["profile"]["kernels"][:top]:
                print(f"{us:9.0f} us {count:6.0f} x {name[:80]}")


def main() -> int:
    options = parsed()
    if options.case:
        child(options)
        return 0
    from gpu_training_cases import CASES

    chosen = CASES if options.cases == "all" else {name: CASES[name] for name in options.cases.split(",")}
    begin = time.monotonic()
    for folder in (options.out, options.cache):
        folder.mkdir(parents=True, exist_ok=True)
    waiting = {name: started(options, name, False, 6) for name in chosen}
    rows: list[dict[str, Any]] = []
    try:
        prepared(options, chosen, begin + options.compile_limit)
        for name, process in waiting.items():
            if time.monotonic() > begin + options.limit - 5:
                print(f"{name}: no time left", flush=True)
                continue
            turn = time.monotonic()
            rows += rows_of(process, begin + options.limit)
            print(f"{name:>12} took {time.monotonic() - turn:.0f} s, code {process.returncode}", flush=True)
            if process.returncode:
                complaint(options, name, False)
            written(options, rows)
    finally:
        for process in waiting.values():
            process.kill()
            process.wait()
    profiles(rows)
    return 0


def written(options: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    content = {"batch": options.batch, "images": options.images, "quick": options.quick, "rows": rows}
    (options.out / "gpu_training.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
