"""Compiled networks kept on disk (AOTInductor): the next process loads one, and not torch's compiler.

Importing that, tracing the network and looking its code up in the compiler's own cache take seconds of every start.
A package is made where a network is compiled for the first time, for one shape. Its name is a digest of all that the
compiler has read, where that can be known: of networks whose classes are Ringfence's or installed ones. Code of the
user's own may call anything, so that a package might be older than it. That a package computes the network is checked
before a run as of every form (check.py).
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn

from ringfence.classifiers.base import scores_in
from ringfence.digests import hashed
from ringfence.models.code import code_parts
from ringfence.models.weights import model_digest
from ringfence.sampling.plan import ForwardPlan

FOLDER = "RINGFENCE_COMPILED"
"""Environment variable that names the folder of packages; empty: none are kept."""
KEPT = 32
"""Packages, of which the latest used stay."""
OURS = ("sampling.forward", "classifiers.folding", "classifiers.joining", "classifiers.reshaping")
"""What makes a form of a network."""

Answers = Callable[[Tensor], Tensor]


def packages_folder() -> Path | None:
    """Where packages are kept."""
    if (named := os.environ.get(FOLDER)) is not None:
        return Path(named) if named else None
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ringfence" / "compiled"


@final
class Packaged:
    """A network in the plan's form, (B, *shape) -> scores: from its package, or compiled now by ``compiled``.

    network: as the user gave it. What cannot be exported or built here is compiled by torch as ever.
    """

    def __init__(self, form: nn.Module, network: nn.Module, plan: ForwardPlan, compiled: Answers) -> None:
        self._form, self._network, self._plan, self._compiled = form, network, plan, compiled
        self._run: Answers | None = None
        self._taken: tuple[Any, ...] = ()

    def __call__(self, x: Tensor) -> Tensor:
        """Scores; a package takes batches of one kind alone, others go to the compiler."""
        kind = kind_of(x)
        if self._run is None:
            self._run, self._taken = self._found(x) or self._compiled, kind
        return (self._run if kind == self._taken else self._compiled)(x)

    def _found(self, x: Tensor) -> Answers | None:
        folder = packages_folder()
        if folder is None or "code" in code_parts(self._network):
            return None
        path = folder / f"{self._name(x)}.pt2"
        try:
            if not path.exists():
                self._make(x, path)
            return loaded(path, x.device)
        except Exception:  # no compiler for C++, a network that cannot be exported, a damaged file, a full disk
            return None

    def _name(self, x: Tensor) -> str:
        """A digest of the network's weights and code, its form, the batch, the device and versions."""
        modules = {type(part).__module__ for part in self._network.modules()} | {f"ringfence.{one}" for one in OURS}
        files = {getattr(sys.modules.get(name), "__file__", None) for name in modules}
        gpu: Any = torch.cuda.get_device_properties(x.device) if x.is_cuda else None
        device = (gpu.name, gpu.major, gpu.minor, gpu.multi_processor_count) if x.is_cuda else x.device.type
        told = (model_digest(self._network, structured=True), self._plan.settings(), kind_of(x), device)
        libraries = sorted({name.partition(".")[0] for name in modules})
        versions = [(name, getattr(sys.modules.get(name), "__version__", None)) for name in ("torch", *libraries)]
        sources = [Path(file).read_bytes() for file in sorted(filter(None, files)) if Path(file).exists()]
        return hashed([repr((told, versions, torch.version.cuda)).encode(), *sources])

    def _make(self, x: Tensor, path: Path) -> None:
        """Beside others who make the same: the last one's stays."""
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        now = path.with_suffix(f".{os.getpid()}.pt2")
        with torch.no_grad(), warnings.catch_warnings(action="ignore"):  # torch's own, about itself
            program = torch.export.export(_Alone(self._form), (x.clone(),), strict=False)
            try:
                torch._inductor.aoti_compile_and_package(program, package_path=str(now))
                now.replace(path)
            finally:
                now.unlink(missing_ok=True)
        for old in sorted(path.parent.glob("*.pt2"), key=lambda one: one.stat().st_mtime)[:-KEPT]:
            with contextlib.suppress(OSError):
                old.unlink()


def kind_of(x: Tensor) -> tuple[object, ...]:
    """What code made for a batch takes for granted: shape, layout (of a side of 1 nobody asks) and type."""
    layout = (step if size > 1 else 0 for size, step in zip(x.shape, x.stride(), strict=True))
    return tuple(x.shape), tuple(layout), x.dtype, x.device.type, x.device.index


class _Alone(nn.Module):
    """A network that answers with its scores and nothing else."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """Scores (B, K)."""
        return scores_in(self.network(x), x.shape[0])


def loaded(path: Path, device: torch.device) -> Answers:
    """The network of a package, without torch's compiler; it queues its work on the current stream."""
    os.utime(path)
    place = torch.cuda.current_device() if device.type == "cuda" and device.index is None else device.index
    loader = torch._C._aoti.AOTIModelPackageLoader(str(path), "model", True, 1, -1 if place is None else place)

    def run(x: Tensor) -> Tensor:
        scores: Tensor = loader.boxed_run([x])[0]
        return scores

    return run
