"""Sweeps of commands that need no network: touch, fail, wait."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from packed_files import put

from ringfence.errors import ArgumentError
from ringfence.sweep import Checked, Sweep, SweepFolder, read_sweep

WORKER = """
import json, os, pathlib, sys, threading, time
def run(words):
    done = pathlib.Path(words[-1])
    with open("order", "a") as file:
        file.write(done.name + "\\n")
    if "--bad" in words:
        print("it broke", flush=True)
        return 1
    if "--die" in words:
        sys.exit(5)
    while "--long" in words and not ended.is_set():
        time.sleep(0.01)
    if "--long" in words:
        return 130
    done.mkdir(parents=True, exist_ok=True)
    return 0
def listen():
    for line in sys.stdin:
        lines.append(line)
    ended.set()
lines, ended = [], threading.Event()
threading.Thread(target=listen, daemon=True).start()
while lines or not ended.is_set():
    if not lines:
        time.sleep(0.01)
        continue
    told = json.loads(lines.pop(0))
    os.chdir(told["folder"])
    out, sys.stdout = sys.stdout, open(told["log"], "w")
    codes = [run(words) for words in told["commands"]]
    sys.stdout = out
    print(max(codes), flush=True)
"""


class FakeCommands:
    """Options bad, die, long, first and x; trainings share a process unless they are given x."""

    names = ("train", "certify")

    def words(self, command: str, settings: dict[str, Any]) -> list[str]:
        known = {"bad", "die", "long", "x", "first"}
        for key in settings:
            if key not in known:
                raise ArgumentError(key, f"must be an option of {command}", "none", "See the fixture.")
        return [word for key, value in settings.items() for word in (f"--{key}", str(value))]

    def settings(self, command: str, words: Sequence[str]) -> dict[str, Any]:
        if len(words) % 2:
            raise ArgumentError("settings", "must be options with values", "stray words", "See the fixture.")
        return {key[2:]: value for key, value in zip(words[::2], words[1::2], strict=True)}

    def check(self, words: Sequence[str]) -> Checked:
        if "wrong" in words:
            raise ArgumentError("x", "must not be wrong", "wrong", "Write something else.")
        share = "data" if words[0] == "train" and "--x" not in words else None
        return Checked(
            (Path(words[-1]),), share, first=float(words[words.index("--first") + 1]) if "--first" in words else 0.0
        )


@pytest.fixture
def program(tmp_path: Path) -> list[str]:
    """A worker that runs such commands."""
    file = tmp_path / "worker.py"
    file.write_text(WORKER)
    return [sys.executable, str(file)]


@pytest.fixture
def sweep(tmp_path: Path) -> Callable[..., Sweep]:
    """A sweep from its text, in the folder ``work``."""

    def read(
        text: str, tiny: bool = False, zoos: Sequence[Path] = (), work: Path = tmp_path / "work", **more: Any
    ) -> Sweep:
        file = tmp_path / "sweep.yaml"
        file.write_text(text)
        return read_sweep(file, FakeCommands(), tiny, zoos, SweepFolder(work, more.get("sweep", "sweep")), **more)

    return read


@pytest.fixture
def work(tmp_path: Path) -> SweepFolder:
    """Two independent members, one finished; a finished pair trained together, and one that is half exported; a run."""
    root = tmp_path / "work"
    zoo = root / "zoo" / "z"
    for training in ("two", "pair", "half", "other"):
        put(zoo / training / "config.json").write_text(json.dumps({"members": 2}))
        put(zoo / training / "final-0.safetensors")
    put(zoo / "pair" / "final-1.safetensors")
    for folder in ("two/member-0", "two/member-1", "pair/joint", "half/joint"):
        for name in ("log.csv", "last.json", "epoch-00003.safetensors", ".writing-epoch-00004"):
            put(zoo / folder / name)
    for name in ("parts/part-1", "lock", "summary.json"):
        put(root / "runs" / "run" / name)
    return SweepFolder(root)
