"""Libraries that only some models need: imported when they are asked for, or their pip command is told."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

import torch

from ringfence.errors import ModelError

PATIENCE: Final = 5.0
"""Seconds that a hub may take to say that it is there."""
_OPERATORS: list[torch.library.Library] = []
"""Operators defined here live as long as this list."""


def needed(module: str, extra: str, spec: str) -> Any:
    """The module of an optional dependency of Ringfence, which the model ``spec`` needs."""
    try:
        if extra != "onnx":  # all others import torchvision where it is installed
            _mend_torchvision()
        return import_module(module)
    except ModuleNotFoundError as error:
        rule, received = f"needs {module}", f"no module {error.name}"
        raise ModelError(spec, rule, received, f"Install it: pip install 'ringfence[{extra}]'.") from error
    except Exception as error:  # a library that does not fit its neighbours may fail in any way
        received = f"{type(error).__name__}: {error}"
        remedy = f"Install versions that fit each other: pip install -U 'ringfence[{extra}]'."
        raise ModelError(spec, f"needs {module}, which cannot be imported here", received, remedy) from error


@contextmanager
def hub_asked_once(spec: str) -> Iterator[None]:
    """Where Hugging Face's hub does not answer its cache alone is asked: its client would try for most of a minute."""
    constants, network = (needed(f"huggingface_hub.{name}", "timm", spec) for name in ("constants", "utils"))
    before = constants.HF_HUB_OFFLINE
    try:
        network.get_session().head(constants.ENDPOINT, timeout=PATIENCE)
    except Exception:  # no network, no name, no route, a proxy that refuses
        constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


@cache
def _mend_torchvision() -> None:
    """Import torchvision; where it was built for another torch, give it the two operators that its import asks for.

    No classifier uses them (they thin out boxes of detectors), and without them it could not be imported at all.
    """
    if find_spec("torchvision") is None:
        return
    try:
        import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
        for name in [one for one in sys.modules if one.partition(".")[0] == "torchvision"]:
            del sys.modules[name]  # half imported
        library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
        for operator in ("nms", "qnms"):
            schema = f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            library.define(schema)  # type: ignore[no-untyped-call]
        _OPERATORS.append(library)
        import_module("torchvision")
