"""A stem: a process that has imported what workers of a sweep need, and forks one whenever one is wanted.

It is started before the sweep itself imports anything heavy, so that both import at the same time, and workers then
begin at once. It never touches a device: CUDA does not survive a fork. Nor does it run anything: threads do not either,
and the few that NumPy and Arrow begin when they are imported they begin anew behind a fork, or do without.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, final

from ringfence.beginning import hear_interrupts, keep_freed_memory, worker_environment
from ringfence.signals import leave
from ringfence.sources import flush_files, read_sources

NEEDED = ("ringfence.cli.sweep_commands", "ringfence.engines.into_folder", "ringfence.job_file", "pyarrow.parquet")
"""What every certification imports, and torch with it."""
USEFUL = ("triton", "cupy")
"""What it needs on a GPU, where it is installed."""
NOT_INITIALIZED = 3
"""What CUDA's driver answers before its first use in a process."""
MESSAGE = 1 << 20


@final
class Offshoot:
    """A worker that a stem forked, with the part of subprocess.Popen that a worker's owner uses."""

    def __init__(self, stem: Stem, pid: int, pidfd: int, told: int, answers: int) -> None:
        self._stem, self._pid, self._pidfd = stem, pid, pidfd
        self._code: int | None = None
        self.stdin, self.stdout = os.fdopen(told, "w"), os.fdopen(answers)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it has ended; subprocess.TimeoutExpired where that takes longer."""
        if self._code is None:
            if not select.select([self._pidfd], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("worker", timeout or 0.0)
            self._code = self._stem.code_of(self._pid)
            os.close(self._pidfd)
        return self._code

    def kill(self) -> None:
        """End it at once."""
        if self._code is None:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)


@final
class Stem:
    """The process, seen from the sweep: workers are asked for, and it ends when it is closed or the sweep is gone."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # a message is read as a whole
        with theirs:
            # Without -P the folder in which the sweep was called would be searched for libraries.
            words = [sys.executable, "-P", "-m", "ringfence.cli.stem", str(theirs.fileno())]
            self._process = subprocess.Popen(
                words,
                env={**os.environ, **worker_environment()},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                preexec_fn=hear_interrupts,
                start_new_session=True,
            )

    def worker(self, folder: Path, environment: Mapping[str, str]) -> Offshoot:
        """A worker that begins in this folder, with these variables too; OSError where there is no stem any more."""
        (theirs, told), (answers, mine) = os.pipe(), os.pipe()
        try:
            asked = {"folder": str(folder.resolve()), "environment": dict(environment)}
            socket.send_fds(self._ours, [_message(asked)], [theirs, mine])
            text, received, _, _ = socket.recv_fds(self._ours, MESSAGE, 1)
            if not received:
                raise ConnectionError("the stem has ended")
        except BaseException:
            self._ours.close()  # its answer may still come, and must not be taken for that to another question
            os.close(told)
            os.close(answers)
            raise
        finally:
            os.close(theirs)
            os.close(mine)
        return Offshoot(self, json.loads(text)["pid"], received[0], told, answers)

    def code_of(self, pid: int) -> int:
        """The exit code of a worker that has ended; 1 where the stem has ended too."""
        try:
            self._ours.sendall(_message({"ended": pid}))
            return int(json.loads(self._ours.recv(MESSAGE) or b'{"code": 1}')["code"])
        except OSError:
            return 1

    def close(self) -> None:
        """It is needed no more; workers stay."""
        self._ours.close()
        self._process.kill()  # it may still be importing, and has nothing to lose
        self._process.wait()


def _message(told: dict[str, Any]) -> bytes:
    return json.dumps(told).encode()


def be_stem(asked: socket.socket) -> None:
    """Be the process: fork a worker for each request, until nobody asks any more."""
    # Python 3.12 warns of the libraries' threads at each fork.
    warnings.filterwarnings("ignore", ".*multi-threaded, use of fork", DeprecationWarning)
    while True:
        text, given, _, _ = socket.recv_fds(asked, MESSAGE, 2)
        if not text:
            return
        told = json.loads(text)
        if "ended" in told:
            asked.sendall(_message({"code": os.waitstatus_to_exitcode(os.waitpid(told["ended"], 0)[1])}))
            continue
        pid = os.fork()
        if pid == 0:
            asked.close()
            _be_worker(told, given)
        for one in given:
            os.close(one)
        pidfd = os.pidfd_open(pid)
        socket.send_fds(asked, [_message({"pid": pid})], [pidfd])
        os.close(pidfd)


def _be_worker(told: dict[str, Any], given: list[int]) -> None:
    """What is behind a fork: a worker like one that was started by itself, and never back into the stem."""
    code = 1
    try:
        os.setsid()  # Ctrl-C goes to all of a terminal: the sweep tells its workers, once
        for place, one in enumerate(given):
            os.dup2(one, place)
            os.close(one)
        os.environ.update(told["environment"])
        from ringfence.cli.sweep_commands import PROGRAM, work

        if not may_fork():  # nothing is taken over, then
            os.chdir(told["folder"])
            os.execv(sys.executable, PROGRAM)
        if threads := told["environment"].get("OMP_NUM_THREADS"):
            import torch

            torch.set_num_threads(int(threads))
        os.chdir(told["folder"])
        work()
        code = 0
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(BaseException):
            flush_files()
            leave(code)
        os._exit(code)


def may_fork() -> bool:
    """Whether CUDA is untouched in this process, as far as its driver knows; where there is none it is."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return True
    return bool(driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) == NOT_INITIALIZED)


def main() -> None:
    """Import what workers need, then fork them."""
    asked = socket.socket(fileno=int(sys.argv[1]))
    read_sources()
    keep_freed_memory()
    for name in (*NEEDED, *(one for one in USEFUL if find_spec(one))):
        with suppress(Exception):  # a worker that needs it says what is wrong
            import_module(name)
    be_stem(asked)


if __name__ == "__main__":
    main()
