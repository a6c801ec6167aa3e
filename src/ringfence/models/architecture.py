"""Known architectures with weights: which one a file belongs to, how many classes, and what stands in front of it: the
normalisation that a network brings, or the one that is given; never both.

Weights that others published have the names their code gave them; here it says what they are called by us.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor, nn

from ringfence.classifiers.architectures import ARCHITECTURES, DENOISERS, NORMALIZATION, ResNet, build_architecture
from ringfence.classifiers.architectures.imagenet_resnet import CHANNELS, SIZES, ImageNetResNet
from ringfence.classifiers.normalize import Normalize
from ringfence.classifiers.resized import Resized
from ringfence.errors import ModelError
from ringfence.models.weights import Fitted, Weights, fit_weights

Normalization = tuple[Sequence[float], Sequence[float]]
"""Channel means and deviations."""

GIVEN, REMEDY = "mean, std", "Leave `mean` and `std` out."

_NAMES = (("mean", "std"), ("means", "sds"))
"""What normalising layers call their numbers: ours, torchvision's and Cohen's."""

_COHEN_CIFAR = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
"""Channel means and deviations in Cohen's normalising layer, which its checkpoints do not store."""

_LAST_BIASES = {
    "lenet": "head.5.bias",
    "lenet-wide": "head.3.bias",
    "efficientnet_lite0": "_fc.bias",
    **dict.fromkeys(SIZES, "fc.bias"),
}
"""Where weights say the number of classes; ``linear.bias`` for the others."""

_LENET = {"conv1": "features.0", "conv2": "features.3", "fc1": "head.1", "fc2": "head.3"}
"""Layers of the wide LeNet of Jeong and Shin (2020), behind a layer that does nothing at position 0."""
_LENET_KEY = re.compile(r"(?:1\.)?(?:module\.)?(conv[12]|fc[12])\.(weight|bias)")


@final
@dataclass(frozen=True)
class Preprocessing:
    """What a network was trained behind: channel means and deviations, and the size it sees, each None for none.

    usual: the size that its configuration names, also where the network takes any.
    """

    normalization: Normalization | None = None
    size: tuple[int, int] | None = None
    interpolation: str = "bicubic"
    usual: tuple[int, int] | None = None

    @property
    def side(self) -> int | None:
        """Pixels that pictures of several sizes are brought to where nobody says how many."""
        height, width = self.size or self.usual or (None, None)
        return height if height == width else None


@final
@dataclass(frozen=True)
class Built:
    """A network before any preprocessing: its classes if known, how weights met it, what its digest needs.

    before: what stands in front of it, and nothing else may; usual: the same, for as long as nobody says otherwise.
    structured: its layers and their settings are part of its digest, because no file of the user's says them.
    """

    module: nn.Module
    num_classes: int | None
    fitted: Fitted | None = None
    arch: str | None = None
    extra: bytes = b""
    factory: str | None = None
    before: Preprocessing = Preprocessing()
    usual: Preprocessing = Preprocessing()
    structured: bool = False

    def wrapped(self, source: str, given: Normalization | None) -> nn.Module:
        """The network behind its normalisation, and behind the resizing to the only size it knows."""
        normalization = self.normalization(source, given)
        module = self.module if normalization is None else Normalize(self.module, *normalization)
        told = self.before if self.before.size else self.usual
        return module if told.size is None else Resized(module, told.size, told.interpolation)

    @property
    def side(self) -> int | None:
        """As its preprocessing says."""
        return self.before.side or self.usual.side

    def normalization(self, source: str, given: Normalization | None = None) -> Normalization | None:
        """Means and deviations that belong in front, as the weights or the architecture say, or as given; None for
        none. Where the weights were trained behind a layer whose numbers they do not tell, the given ones are used."""
        refuse_second(given, self.module, source)
        stored = None if self.fitted is None else self.fitted.stored or NORMALIZATION.get(self.arch or "")
        known = chosen_normalization(given, self.before.normalization or stored, source) or self.usual.normalization
        if known is not None or self.fitted is None or not self.fitted.behind_normalizer:
            return known
        if isinstance(self.module, ResNet):
            return _COHEN_CIFAR
        if isinstance(self.module, ImageNetResNet):
            return CHANNELS
        raise ModelError(
            source, "needs the numbers of the normalising layer it was trained with", "none", "Give `mean` and `std`."
        )


def build_with_weights(arch: str, weights: Weights, num_classes: int | None, source: str) -> Built:
    """The architecture, filled with the weights; they also say the number of classes where none is given."""
    arch, state = in_our_names(arch, weights.state)
    if num_classes is None:
        last_bias = _LAST_BIASES.get(arch, "linear.bias")
        num_classes = next((len(value) for key, value in state.items() if key.endswith(last_bias)), 10)
    module = build_architecture(arch, num_classes)
    try:
        return Built(module, num_classes, fit_weights(module, state, source), arch)
    except ModelError as error:
        fitting = [one for one in ARCHITECTURES if one != arch and _fits(one, num_classes, state)]
        if not fitting:
            raise
        remedy = f"These are weights of {' or '.join(fitting)}: give that as the architecture."
        raise ModelError(source, error.rule, error.received, remedy) from error


def _fits(arch: str, num_classes: int, state: Mapping[str, Tensor]) -> bool:
    """Whether weights are those of an architecture, as far as their names and shapes tell."""
    try:
        with warnings.catch_warnings(), torch.device("meta"):  # nothing is drawn, and nothing copied
            warnings.simplefilter("ignore")
            fit_weights(build_architecture(arch, num_classes), state, arch)
    except ModelError:
        return False
    return True


def architecture_of(weights: Weights, spec: str) -> str:
    """The architecture that a file names."""
    name = (weights.arch or "").removeprefix("cifar_")
    if denoiser_name(name) in DENOISERS:
        remedy = f"Write denoised({spec}, CLASSIFIER)."
        raise ModelError(spec, "must hold a classifier", f"a denoiser, '{name}'", remedy)
    if name not in ARCHITECTURES:
        raise ModelError(
            spec,
            "must name an architecture known here under 'arch'",
            f"'{weights.arch}'" if weights.arch else "a file without one",
            "Give the architecture and the file: resnet20@FILE, timm:NAME@FILE or file.py:factory@FILE.",
        )
    projects = any(".shortcut." in key or ".downsample." in key for key in weights.state)
    whole = projects or name in SIZES or name.endswith("-pad") or not name.startswith("resnet")
    return name if whole else f"{name}-pad"


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


def chosen_normalization(
    given: Normalization | None, brought: Normalization | None, source: str
) -> Normalization | None:
    """What is given, or else what the trained network brings; two that differ are refused."""
    if given is not None and brought is not None and not _agree(given, brought):
        raise _normalization_clash(given, brought, source)
    return given or brought


def refuse_second(
    given: Normalization | None, module: nn.Module, source: str, argument: str = GIVEN, remedy: str = REMEDY
) -> None:
    """Refuse normalisation in front of a module that normalises by itself: even the same numbers would act twice."""
    inside = normalization_inside(module)
    if given is not None and inside is not None:
        raise _normalization_clash(given, inside, source, argument, remedy)


def normalization_inside(module: nn.Module) -> Normalization | None:
    """The numbers of the first normalising layer in a module, None where there is none."""
    for part in module.modules():
        for names in _NAMES:
            mean, std = (_numbers(getattr(part, name, None)) for name in names)
            if mean and std:
                return mean, std
    return None


def preprocessing_in_words(module: nn.Module, given: tuple[int, ...] = ()) -> str | None:
    """What a classifier does to its inputs before its networks see them, in one line; None where it does nothing.

    given: shape of the inputs, which are not resized to a size that they have.
    """
    sizes = [one for one in module.modules() if isinstance(one, Resized) and one.size != given[-2:]]
    numbers = [one for one in module.modules() if isinstance(one, Normalize)]
    told = [f"resized to {one.size[0]} x {one.size[1]} ({one.kind})" for one in sizes]
    told += [f"normalised by {_in_words((_numbers(one.mean), _numbers(one.std)))}" for one in numbers]
    return f"behind the noise, inputs are {', '.join(dict.fromkeys(told))}" if told else None


def _numbers(value: object) -> list[float]:
    """A few numbers, one per channel; nothing for whatever else bears such a name."""
    if isinstance(value, Tensor):
        return value.detach().float().flatten().tolist()
    plain = isinstance(value, Iterable) and not isinstance(value, str | bytes)
    numbers = list(value) if plain else []  # type: ignore[call-overload]
    return [float(one) for one in numbers] if all(isinstance(one, int | float) for one in numbers) else []


def _agree(one: Normalization, other: Normalization) -> bool:
    """Whether both mean the same, a single number standing for all channels; weights store them in float32."""
    pairs = list(zip(one, other, strict=True))
    fitting = all(len(a) == len(b) or 1 in (len(a), len(b)) for a, b in pairs)
    return fitting and all(np.allclose(np.array(a), np.array(b), rtol=1e-6, atol=1e-7) for a, b in pairs)


def _normalization_clash(
    given: Normalization, brought: Normalization, source: str, argument: str = GIVEN, remedy: str = REMEDY
) -> ModelError:
    rule = f"{source} brings its own normalisation, {_in_words(brought)}"
    return ModelError(argument, rule, _in_words(given), remedy)


def _in_words(normalization: Normalization) -> str:
    mean, std = (",".join(f"{value:.6g}" for value in part) for part in normalization)
    return f"mean {mean} and std {std}"
