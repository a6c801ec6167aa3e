"""How the program uses a processor: threads wait asleep, freed memory is kept, unless its user wants it otherwise."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import ringfence

PROGRAM = """
import os, sys
from types import ModuleType
command_line = ModuleType("ringfence.cli")
command_line.main = lambda: print(os.environ.get("OMP_WAIT_POLICY"), "torch" in sys.modules)
sys.modules["ringfence.cli"] = command_line
from ringfence.__main__ import main
main()
"""


@pytest.mark.parametrize(
    ("said", "policy"),
    [
        ({}, "PASSIVE"),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE"),
        ({"GOMP_SPINCOUNT": "1"}, None),
        ({"KMP_BLOCKTIME": "0"}, None),
    ],
)
def test_threads_wait_asleep_unless_the_user_says_otherwise(said: dict[str, str], policy: str | None) -> None:
    names = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY")
    kept = {name: value for name, value in os.environ.items() if name not in names}
    environment = {**kept, "PYTHONPATH": str(Path(ringfence.__file__).parents[1]), **said}
    told = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.split() == [str(policy), "False"]  # said before torch, which loads OpenMP, is imported


FAULTS = """
import resource
from ringfence.beginning import keep_freed_memory
keep_freed_memory()
for _ in range(20):
    blocks = [b"x" * 2**23 for _ in range(5)]
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries keep freed memory as they like")
@pytest.mark.parametrize(("said", "keeps"), [({}, True), ({"MALLOC_TRIM_THRESHOLD_": "1000000"}, False)])
def test_freed_memory_is_used_again_unless_the_user_says_otherwise(said: dict[str, str], keeps: bool) -> None:
    kept = {name: value for name, value in os.environ.items() if "MALLOC" not in name and name != "GLIBC_TUNABLES"}
    environment = {**kept, "PYTHONPATH": str(Path(ringfence.__file__).parents[1]), **said}
    told = subprocess.run([sys.executable, "-c", FAULTS], env=environment, capture_output=True, text=True, check=True)
    touched = 20 * 5 * 2**23 // resource.getpagesize()  # pages of all blocks
    assert (int(told.stdout) < touched / 4) is keeps


FAULTS_OF_A_RUN = """
import resource, torch, ringfence as rf
net = torch.nn.Sequential(torch.nn.Conv2d(3, 64, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
certified = lambda: list(rf.certify(net.eval(), torch.rand(1, 3, 32, 32), sigma=0.25, n=1000, device="cpu"))
certified()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
certified()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries keep freed memory as they like")
def test_a_program_that_certifies_keeps_freed_memory() -> None:
    kept = {name: value for name, value in os.environ.items() if "MALLOC" not in name and name != "GLIBC_TUNABLES"}
    environment = {**kept, "PYTHONPATH": str(Path(ringfence.__file__).parents[1])}
    program = [sys.executable, "-c", FAULTS_OF_A_RUN]
    told = subprocess.run(program, env=environment, capture_output=True, text=True, check=True)
    touched = 1100 * 64 * 30 * 30 * 4 // resource.getpagesize()  # pages of what the first layer returned
    assert int(told.stdout) < touched / 4
