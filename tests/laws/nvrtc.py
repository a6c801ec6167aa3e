"""NVRTC, the compiler that CuPy asks, without a GPU: what becomes of a CUDA source for an architecture."""

from __future__ import annotations

import ctypes
import re
from ctypes.util import find_library
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

MISSING = "NVRTC is not installed: pip install nvidia-cuda-nvrtc-cu12"
TOLD = "--ptxas-options=-v"
"""Has the assembler tell of registers and memory, and changes nothing."""


class Entry(NamedTuple):
    """A kernel as it was compiled: bytes of each argument, the most threads of a block, registers of a thread, and the
    shared memory that a block has without asking."""

    parameters: tuple[int, ...]
    threads: int
    registers: int
    shared: int


class Compiled(NamedTuple):
    """The kernels of a source by name, and whole numbers that it keeps in memory."""

    entries: dict[str, Entry]
    constants: dict[str, int]


@lru_cache(maxsize=1)
def library() -> Any:
    """Of a package of NVIDIA's or of the system; None where there is neither."""
    found = find_spec("nvidia")
    folders = [] if found is None else [Path(one) for one in found.submodule_search_locations or ()]
    files = [str(file) for folder in folders for file in sorted(folder.glob("*/lib/libnvrtc.so.*"))]
    name = files[0] if files else find_library("nvrtc")
    return None if name is None else ctypes.CDLL(name)


def compiled(text: str, options: tuple[str, ...]) -> Compiled:
    """A source with these options, down to what a GPU runs; what the compiler says is the error."""
    nvrtc, program = library(), ctypes.c_void_p()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None) == 0
    words = [one.encode() for one in (*options, TOLD)]
    code = nvrtc.nvrtcCompileProgram(program, len(words), (ctypes.c_char_p * len(words))(*words))
    log = _read(nvrtc, program, "ProgramLog")
    if code:
        raise RuntimeError(log)
    instructions = _read(nvrtc, program, "PTX")
    assert nvrtc.nvrtcDestroyProgram(ctypes.byref(program)) == 0
    constants = re.findall(r"\.(?:const|global) \.align 4 \.u32 (\w+)(?: = (\d+))?;", instructions)
    return Compiled(_entries(instructions, log), {name: int(value or 0) for name, value in constants})


def _read(nvrtc: Any, program: ctypes.c_void_p, what: str) -> str:
    size = ctypes.c_size_t()
    assert getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)) == 0
    room = ctypes.create_string_buffer(size.value)
    assert getattr(nvrtc, f"nvrtcGet{what}")(program, room) == 0
    return room.value.decode()


def _entries(instructions: str, log: str) -> dict[str, Entry]:
    found = {}
    for name, given, bounds in re.findall(r"\.entry (\w+)\((.*?)\)(.*?)\{", instructions, re.DOTALL):
        sizes = re.findall(r"\.param (?:\.align \d+ )?\.[bfsu](\d+)[^,\[]*(?:\[(\d+)\])?", given)
        parameters = tuple(int(bits) // 8 * int(count or 1) for bits, count in sizes)
        (threads,) = re.findall(r"\.maxntid (\d+)", bounds)
        told = log.split(f"entry function '{name}'")[1].split("Compile time")[0]
        (registers,), shared = re.findall(r"Used (\d+) registers", told), re.findall(r"(\d+) bytes smem", told)
        found[name] = Entry(parameters, int(threads), int(registers), int(shared[0]) if shared else 0)
    return found
