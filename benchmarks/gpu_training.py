"""Seconds of a training step and epoch beside plain PyTorch's, in one run; rows are chosen by name.

    python benchmarks/gpu_training.py [--cases plain-resnet110,gaussian-resnet110] [--limit 240] [--cache FOLDER]
    python benchmarks/gpu_training.py --cases missing --keep EARLIER.json    # every objective that has no row yet
    python benchmarks/gpu_training.py --list
    python benchmarks/gpu_training.py --cases "" --keep EARLIER.json [LATER.json] [--logs ZOO/*/member-0/log.csv]

First all compiled code is made, in parallel; then every case is measured alone, in a process of its own that was
started beforehand: cuDNN keeps the algorithms it first chose for a shape, so that cases would share them. Data are
random images of CIFAR-10's size, MNIST's for LeNets. Rows are printed as they come, and written to
gpu_training_rows.json beside the result. --keep takes those of earlier runs along that are not measured again; the last
form measures nothing and makes the tables.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from common import RESULTS, finish, where

HERE = Path(__file__).resolve()
MARK = "ROW "


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="all", help="names, separated by commas, or missing; empty: none")
    parser.add_argument("--list", action="store_true", help="name the cases and stop")
    parser.add_argument("--limit", type=float, default=240.0, help="seconds for everything")
    parser.add_argument("--compile-limit", type=float, default=140.0, help="of them for compiling")
    parser.add_argument("--cache", type=Path, default=Path("runs/training-cache"), help="of compiled code")
    parser.add_argument("--profile", default="", help="cases whose kernels are listed")
    parser.add_argument("--beside", help="trainings side by side: numbers, separated by commas; empty: none")
    parser.add_argument("--brief", action="store_true", help="neither pieces of a step nor whole epochs")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--keep", type=Path, nargs="+", help="files of earlier runs, the latest last")
    parser.add_argument("--logs", type=Path, nargs="*", default=[], help="log.csv of trainings side by side")
    parser.add_argument("--rate", type=float, default=790.0, help="TFLOP/s of dense bf16 where no row says it")
    parser.add_argument("--note", action="append", default=[], help="a remark below the tables")
    parser.add_argument("--machine", type=Path, help="result of the machine where --keep was measured and does not say")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=20, help="steps of one timing")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true", help="tiny, on the CPU: shows that it runs")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--prepare", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.repetitions, options.strict = 5, False
    if options.quick:
        options.batch, options.repeats, options.device = 4, 1, "cpu"
    return options


def child(options: argparse.Namespace) -> None:
    """One case in this process: wait until it is our turn, then print a line per row."""
    import torch
    from gpu_training_cases import CASES, NETWORKS, Asked
    from gpu_training_steps import Size

    if options.device == "cpu":
        torch.set_num_threads(1)
    if not options.prepare:
        import torch._inductor.compile_fx  # seconds, which no case before it needs

        sys.stdin.readline()
    case = CASES[options.case]
    arch = "resnet8" if options.quick and case.arch.startswith("resnet") else case.arch
    images = 2 * options.batch if options.quick else NETWORKS.get(case.arch, 50_000)
    size = Size(arch, torch.device(options.device), options.batch, images, options.repeats)
    beside = None if options.beside is None else tuple(int(one) for one in options.beside.split(",") if one)
    asked = Asked(size, options.prepare, options.case in options.profile.split(","), beside, options.brief)
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


def mark_of(options: argparse.Namespace, case: str) -> Path:
    """There once what the case needs is compiled."""
    return Path(options.cache / f"{case}.compiled")


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
    """Compile what the cases need, all at the same time; what an earlier call has compiled is in the cache."""
    begin, processes = time.monotonic(), dict[str, subprocess.Popen[str]]()
    for name, case in cases.items():
        if case.compiles and not mark_of(options, name).exists():
            processes[name] = started(options, name, True, 6 if case.arch == "resnet110" else 3)
    while processes and time.monotonic() < until:
        for name, process in list(processes.items()):
            if process.poll() is not None:
                print(f"compiled {name}: {time.monotonic() - begin:.0f} s, code {process.returncode}", flush=True)
                if process.returncode:
                    complaint(options, name, True)
                else:
                    mark_of(options, name).touch()
                processes.pop(name)
        time.sleep(0.2)
    for name, process in processes.items():
        print(f"compiling {name} was stopped", flush=True)
        process.kill()
        process.wait()


def rows_of(process: subprocess.Popen[str], until: float) -> Iterator[dict[str, Any]]:
    """Let a waiting process measure; its rows as they come, printed. It is ended at the limit."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    stop = threading.Timer(max(0.0, until - time.monotonic()), process.kill)
    stop.start()
    for line in process.stdout:
        if line.startswith(MARK):
            found = json.loads(line.removeprefix(MARK))
            print(shown(found), flush=True)
            yield found
    process.wait()
    stop.cancel()


def shown(one: dict[str, Any]) -> str:
    """A row as a line; of a profile only the totals."""
    head = f"{one['case']:>20} {one['row']}: "
    if "profile" in one:
        return head + f"{one['profile']['launches']} kernels, {one['profile']['us'] / 1000:.2f} ms"
    rest = {key: value for key, value in one.items() if key not in ("case", "network", "row")}
    return head + " ".join(f"{key}={value}" for key, value in rest.items())


def profiles(rows: list[dict[str, Any]], top: int = 25) -> None:
    for one in rows:
        if "profile" in one:
            print(f"-- kernels of {one['case']}: {one['row']}")
            for name, count, us in one["profile"]["kernels"][:top]:
                print(f"{us:9.0f} us {count:6.0f} x {name[:80]}")


def measured(options: argparse.Namespace, chosen: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of these cases, as far as the time goes."""
    begin = time.monotonic()
    for folder in (options.cache, options.out):
        folder.mkdir(parents=True, exist_ok=True)
    waiting = {name: started(options, name, False, 6) for name in chosen}
    rows: list[dict[str, Any]] = []
    today, machine = datetime.now(UTC).date().isoformat(), where()
    try:
        prepared(options, chosen, begin + options.compile_limit)
        for name, process in waiting.items():
            if time.monotonic() > begin + options.limit - 5:
                print(f"{name}: no time left", flush=True)
                continue
            turn = time.monotonic()
            for one in rows_of(process, begin + options.limit):
                rows.append({**one, "measured": today})
                # What is measured stays, whatever ends this process.
                told = {"batch": options.batch, "rows": rows, "environment": machine}
                (options.out / "gpu_training_rows.json").write_text(json.dumps(told) + "\n")
            print(f"{name:>20} took {time.monotonic() - turn:.0f} s, code {process.returncode}", flush=True)
            if process.returncode:
                complaint(options, name, False)
    finally:
        for process in waiting.values():
            process.kill()
            process.wait()
    profiles(rows)
    return rows


def main() -> int:
    options = parsed()
    if options.case:
        child(options)
        return 0
    from gpu_training_cases import CASES, missing
    from gpu_training_kept import kept, merged
    from gpu_training_report import epochs_of, report

    if options.list:
        print("\n".join(CASES))
        return 0
    earlier = kept(options.keep, options.machine) if options.keep else None
    names = list(CASES) if options.cases == "all" else [one for one in options.cases.split(",") if one]
    if options.cases == "missing":
        names = missing(earlier.rows if earlier else ())
    if unknown := [one for one in names if one not in CASES]:
        raise SystemExit(f"--cases: unknown {', '.join(unknown)}; --list names them.")
    rows = measured(options, {name: CASES[name] for name in names}) if names else []
    anew = {one["case"] for one in rows}
    logs = {path.parent.parent.name: epochs_of(path) for path in options.logs}
    settings = {"batch": options.batch, "rate": options.rate, "device": options.device}
    if earlier is not None:
        rows = merged(earlier.rows, rows)
        logs = logs or earlier.logs
    made = report(rows, logs, settings, options.note)
    return finish(made, options, None if anew or earlier is None else earlier.origin)


if __name__ == "__main__":
    sys.exit(main())
