"""Tasks side by side, a process each, until the time is over: what is unfinished then is stopped."""

from __future__ import annotations

import multiprocessing
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Task:
    """A piece of work for one process, to which run is sent; after: outputs that must exist before it may start."""

    name: str
    run: Callable[[], None]
    done: Path
    after: tuple[Path, ...] = ()


def guarded(task: Task) -> None:
    """The task with its traceback printed at once."""
    try:
        task.run()
    except BaseException:
        print(f"FAILED {task.name}\n{traceback.format_exc()}", flush=True)
        raise SystemExit(1) from None


def run_tasks(tasks: list[Task], processes: int, seconds: float) -> bool:
    """Run what is not done, side by side, until the seconds are over; whether all of it is done then."""
    begin = time.monotonic()
    spawn = multiprocessing.get_context("spawn")
    waiting = [task for task in tasks if not task.done.exists()]
    running: dict[str, Any] = {}
    failed: list[str] = []
    while (waiting or running) and time.monotonic() - begin < seconds:
        for task in list(waiting):
            if len(running) < processes and all(path.exists() for path in task.after):
                waiting.remove(task)
                running[task.name] = spawn.Process(target=guarded, args=(task,))
                running[task.name].start()
        for name, process in list(running.items()):
            if process.exitcode is not None:
                del running[name]
                failed += [name] if process.exitcode else []
        if not running and not any(all(path.exists() for path in task.after) for task in waiting):
            break  # what the others wait for has failed
        time.sleep(0.2)
    for process in running.values():
        process.terminate()
    for process in running.values():
        process.join()
    unfinished = [*running, *(task.name for task in waiting)]
    print(
        f"{time.monotonic() - begin:.0f} s; unfinished: {unfinished or 'none'}; failed: {failed or 'none'}", flush=True
    )
    return not unfinished and not failed
