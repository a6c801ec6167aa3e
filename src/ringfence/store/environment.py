"""What a part of a run was computed on: recorded beside it and warned about, never a reason to refuse."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_PACKAGES = ("ringfence", "torch", "numpy", "scipy")


def describe_environment() -> dict[str, Any]:
    """Versions and hardware of this process; torch is asked for the GPU only where it is loaded already."""
    return {
        "python": platform.python_version(),
        **{package: _version(package) for package in _PACKAGES},
        "platform": platform.platform(),
        "cpu": _cpu_name(),
        "gpu": _gpu_name(),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu_name() -> str:
    """The processor's name; platform.processor() is empty on most Linux machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _gpu_name() -> str | None:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    return str(torch.cuda.get_device_name(torch.cuda.current_device()))
