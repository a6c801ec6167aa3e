"""Weights that others published, in the names their code gave them: what they are called here, and what differs."""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

from ringfence.classifiers.architectures.imagenet_resnet import SIZES

_LENET = {"conv1": "features.0", "conv2": "features.3", "fc1": "head.1", "fc2": "head.3"}
"""Layers of the wide LeNet of Jeong and Shin (2020), behind a layer that does nothing at position 0."""
_LENET_KEY = re.compile(r"(?:1\.)?(?:module\.)?(conv[12]|fc[12])\.(weight|bias)")


def in_our_names(arch: str, state: Mapping[str, Tensor]) -> tuple[str, dict[str, Tensor]]:
    """The architecture that weights of this name truly belong to, and their keys as ours are called.

    Codes for CIFAR call ``linear`` fc and ``shortcut`` downsample. What is published as ``lenet`` is the wide one.
    """
    found = {key: match for key in state if (match := _LENET_KEY.fullmatch(key))}
    if arch in ("lenet", "lenet-wide") and found:
        renamed = {f"{_LENET[match[1]]}.{match[2]}": state[key] for key, match in found.items()}
        return "lenet-wide", {**{key: value for key, value in state.items() if key not in found}, **renamed}
    if not arch.startswith("resnet") or arch in SIZES:
        return arch, dict(state)
    last = {key: ".".join("linear" if part == "fc" else part for part in key.split(".")) for key in state}
    return arch, {last[key].replace(".downsample.", ".shortcut."): value for key, value in state.items()}


def denoiser_name(name: str) -> str:
    """``cifar_dncnn_wide`` and ``imagenet_dncnn`` of Salman et al. (2020) are dncnn: weights say how wide."""
    return name.removeprefix("cifar_").removeprefix("imagenet_").removesuffix("_wide")


def published_dncnn(state: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
    """Weights of Salman et al.'s DnCNN in our names, None if they are none: it ends without a bias, and its norms
    divide by sqrt(v + 0.0001)."""
    named = re.compile(r"((?:module\.)?)dncnn\.")
    if not all(named.match(key) for key in state):
        return None
    return {named.sub(r"\1estimate.", key, count=1): value for key, value in state.items()}
