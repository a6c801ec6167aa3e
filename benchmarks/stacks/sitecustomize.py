"""Where a program's time goes, its children's included, without a profiler: for machines that have none.

    STACKS=OUT PYTHONPATH=benchmarks/stacks:src python -m ringfence sweep FILE

Python imports this module at its start. A thread looks at the main thread fifty times a second; OUT/PID.txt holds lines
of seconds, when it was first seen, and the calls that were open: ours, and the innermost. Seconds in which no thread
could run, as while a library is loaded, count for the call in which they passed.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from types import FrameType

EVERY = 0.02


def _calls(frame: FrameType | None) -> str:
    """Ours from the outermost, and the innermost of all."""
    names, leaf = list[str](), frame
    while frame is not None:
        code = frame.f_code
        if frame is leaf or "ringfence" in code.co_filename:
            names.append(f"{Path(code.co_filename).stem}.{code.co_name}")
        frame = frame.f_back
    return ";".join(reversed(names))


def _watch(out: Path, main: int) -> None:
    begun = last = written = time.monotonic()
    seconds, first = dict[str, float](), dict[str, float]()
    while True:
        time.sleep(EVERY)
        now = time.monotonic()
        calls = _calls(sys._current_frames().get(main))
        seconds[calls] = seconds.get(calls, 0.0) + now - last
        first.setdefault(calls, now - begun)
        last = now
        if now - written > 1:
            written = now
            lines = [f"{seconds[one]:8.2f} {first[one]:8.2f} {one}" for one in sorted(seconds, key=first.__getitem__)]
            words = " ".join(getattr(sys, "argv", []))
            (out / f"{os.getpid()}.txt").write_text("\n".join([words, *lines, ""]))


def _begin() -> None:
    out = Path(os.environ["STACKS"])
    out.mkdir(parents=True, exist_ok=True)
    threading.Thread(target=_watch, args=(out, threading.get_ident()), daemon=True).start()


if os.environ.get("STACKS"):
    _begin()
    os.register_at_fork(after_in_child=_begin)  # threads stay behind
