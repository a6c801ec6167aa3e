"""Kernels of ours are compiled as CUDA, by NVRTC, with the options of the product: for no GPU that is here."""

from __future__ import annotations

import re
from functools import lru_cache

import nvrtc
import pytest
from noted_launches import RUNS, Launch, launched
from nvrtc import Compiled

pytestmark = pytest.mark.skipif(nvrtc.library() is None, reason=nvrtc.MISSING)

ROOM = {"sm_80": 163 * 1024, "sm_89": 99 * 1024, "sm_90": 227 * 1024}
"""Bytes of shared memory that a block can have, by architecture; 89 has the least of all that kernels are for."""
HOPPERS = ("attention",)
"""Runs of instructions that no other architecture has."""
QUICK = ("attention", "narrow convolutions")
"""Runs whose kernels are compiled within seconds."""
REGISTERS = 65536
"""Of a multiprocessor, given to warps in blocks of 256."""
LAID_OUT = {
    "fused_resnet": "SHARED_BYTES",
    "fused_resnet_signs": "SHARED_BYTES",
    "fused_resnet_back": "SHARED_BYTES",
    "pooled_twice": "AT_WARPS + WARPS * WARP_BYTES",
    "attention": "BARRIERS + 4 * 8",
    "narrow_forward": "PADDED + C * ROW",
    "narrow_back": "PADDED + C * ROW",
    "narrow_weight": "PADDED + IMAGES * PIXELS * C * 2",
    "narrow_sum": "0",
}
"""Of the shared memory that is asked for, how much a source lays out, in its own words."""
CASES = [
    pytest.param(run, one, marks=[] if run in QUICK and one == "sm_90" else [pytest.mark.slow], id=f"{run}-{one}")
    for run in RUNS
    for one in ROOM
    if one == "sm_90" or run not in HOPPERS
]


@lru_cache(maxsize=64)
def compiled(text: str, options: tuple[str, ...]) -> Compiled:
    return nvrtc.compiled(text, options)


def compiled_for(launch: Launch) -> Compiled:
    """With a number for each layout of shared memory that the source has."""
    names = [one for one in LAID_OUT if re.search(rf"__global__[^;{{}}]*?\b{one}\(", launch.text)]
    layouts = "".join(f'\nextern "C" __constant__ int room_of_{name} = {LAID_OUT[name]};' for name in names)
    return compiled(launch.text + layouts, launch.options)


@pytest.mark.parametrize(("run", "architecture"), CASES)
def test_every_kernel_is_compiled_and_can_be_launched(
    run: str, architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for launch, _ in launched(run, monkeypatch, architecture, ROOM[architecture]):
        found = compiled_for(launch)
        entry = found.entries[launch.name]
        assert entry.parameters == tuple(8 if type(one) is int else one.nbytes for one in launch.arguments)
        assert launch.threads <= entry.threads
        assert launch.threads // 32 * (-(-32 * entry.registers // 256) * 256) <= REGISTERS
        assert found.constants[f"room_of_{launch.name}"] == launch.shared
        assert entry.shared + launch.shared <= ROOM[architecture]


@pytest.mark.parametrize(
    ("there", "instead", "told"),
    [
        ("mbarrier.try_wait.parity", "mbarrier.try_wait.parety", "parety"),  # the assembler's
        ("make_barrier(full + 8 * s, 1)", "make_barrier(full + 8 * s)", "too few arguments"),  # the compiler's
    ],
)
def test_what_is_wrong_with_a_source_is_told(
    there: str, instead: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ((launch, _),) = launched("attention", monkeypatch)
    assert there in launch.text
    with pytest.raises(RuntimeError, match=told):
        compiled(launch.text.replace(there, instead), launch.options)


def test_other_architectures_have_no_instructions_of_hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    ((launch, _),) = launched("attention", monkeypatch)
    options = tuple(one.replace("sm_90a", "sm_90") for one in launch.options)
    with pytest.raises(RuntimeError, match=r"wgmma.*not supported"):
        compiled(launch.text, options)
