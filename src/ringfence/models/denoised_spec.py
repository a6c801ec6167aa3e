"""The denoiser of ``denoised(DENOISER, CLASSIFIER)``: its name, its weights, and what identifies it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

from torch import Tensor, nn

from ringfence.classifiers.architectures.denoisers import CDnCNN, DnCNN, FDnCNN, FFDNet
from ringfence.classifiers.normalize import Normalize
from ringfence.errors import ModelError
from ringfence.models.architecture import denoiser_name, published_dncnn
from ringfence.models.diffusion import DIFFUSION, load_diffusion
from ringfence.models.factory import build_from_factory
from ringfence.models.identity import model_digest
from ringfence.models.source import BLIND, FACTORIES, GUIDED, Kind, source_of
from ringfence.models.weights import Weights, fit_weights, read_weights
from ringfence.models.zoo import zoo_file

_FORMS = (
    "dncnn@FILE, cdncnn@FILE, fdncnn-SIGMA@FILE, ffdnet-SIGMA@FILE, diffusion:FOLDER, file.py:factory, "
    "or a file that names one"
)


@final
@dataclass(frozen=True)
class Denoiser:
    """A module (B, C, H, W) -> the same shape; digest covers its weights, its kind and the noise level it is told."""

    module: nn.Module
    digest: str


def load_denoiser(spec: str, sigma: float | None = None) -> Denoiser:
    """The denoiser a spec names: a known one with its weights, a file that names it, ``zoo:NAME``, ``diffusion:FOLDER``
    for noise of this sigma, or a factory."""
    source = source_of(spec, denoiser=True)
    name, file = source.name, source.weights
    if name.startswith(DIFFUSION):
        diffusion, settings = load_diffusion(name.removeprefix(DIFFUSION), sigma)
        return Denoiser(diffusion, model_digest(diffusion, settings, structured=True))
    if source.kind in FACTORIES:
        module = build_from_factory(name, None)
        if file is not None:
            fit_weights(module, read_weights(Path(file)).state, file)
        return Denoiser(module, model_digest(module, factory=name))
    if source.kind is Kind.ZOO or (source.kind is Kind.CHECKPOINT and file is None):
        weights = read_weights(zoo_file(spec.partition(":")[2]) if source.kind is Kind.ZOO else Path(spec))
        if weights.arch is None:
            raise ModelError(spec, "must name its denoiser under 'arch'", "a file without one", f"Give {_FORMS}.")
        return _known(weights.arch, weights, spec)
    kind, sigma = _parsed(name)
    if file is None:
        said = kind if sigma is None else f"{kind}-{sigma:g}"
        raise ModelError(spec, "a denoiser needs trained weights", "none", f"Write {said}@FILE.")
    return _known(name, read_weights(Path(file)), file)


def _known(name: str, weights: Weights, source: str) -> Denoiser:
    kind, sigma = _parsed(name)
    published = published_dncnn(weights.state) if kind == "dncnn" else None
    module = _network(kind, sigma, weights.state, published is not None)
    fitted = fit_weights(module, published or weights.state, source)
    if fitted.stored is not None:
        module = Normalize(module, *fitted.stored)
    elif fitted.behind_normalizer:
        rule, remedy = "needs the numbers of the normalising layer it was trained with", "Write a factory for it."
        raise ModelError(source, rule, "none", remedy)
    form = " published" if published else ""
    return Denoiser(module, model_digest(module, f"{kind} {sigma!r}{form}".encode()))


def _parsed(name: str) -> tuple[str, float | None]:
    """``cdncnn`` -> (cdncnn, None); ``ffdnet-0.25`` -> (ffdnet, 0.25)."""
    kind, dash, level = name.partition("-")
    kind = denoiser_name(kind)
    if kind in BLIND and not dash:
        return kind, None
    if kind not in GUIDED:
        raise ModelError(name, "must be a denoiser", f"'{name}'", f"Give {_FORMS}.")
    try:
        sigma = float(level)
    except ValueError:
        sigma = 0.0
    if not 0 < sigma <= 1:
        rule = f"{kind} is told the noise level, above 0 and at most 1 in [0,1] pixel units"
        raise ModelError(name, rule, f"'{level}'" if dash else "none", f"Write e.g. {kind}-0.25@FILE.")
    return kind, sigma


def _network(kind: str, sigma: float | None, state: Mapping[str, Tensor], published: bool) -> nn.Module:
    """The network that weights belong to: channels, depth and width are read off the shapes of its convolutions.

    Weights of another network give one that they do not fit, and fit_weights says where.
    """
    numbered = [(re.search(r"\.(\d+)\.weight$", key), value.shape) for key, value in state.items() if value.dim() == 4]
    shapes = [shape for _, shape in sorted((int(match[1]), shape) for match, shape in numbered if match)]
    depth, width, outputs = (len(shapes), shapes[0][0], shapes[-1][0]) if len(shapes) > 2 else (20, 64, 3)
    if kind == "dncnn":
        return DnCNN(outputs, depth, width, eps=1e-4, bias=False) if published else DnCNN(outputs, depth, width)
    if kind == "cdncnn":
        return CDnCNN(outputs, depth, width)
    assert sigma is not None
    if kind == "fdncnn":
        return FDnCNN(sigma, outputs, depth, width)
    return FFDNet(sigma, max(outputs // 4, 1), depth, width)
