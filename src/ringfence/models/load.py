"""load_model: from what the user writes after ``--model`` to a module in evaluation mode."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

import torch
from torch import nn

from ringfence.classifiers.architectures import ARCHITECTURES
from ringfence.classifiers.denoised import Denoised
from ringfence.classifiers.normalize import Normalize
from ringfence.digests import joined
from ringfence.errors import ModelError
from ringfence.models.architecture import Built, architecture_of, build_with_weights
from ringfence.models.denoised_spec import is_denoiser, load_denoiser, split_denoised
from ringfence.models.exported import load_exported
from ringfence.models.factory import build_from_factory
from ringfence.models.weights import CHECKPOINTS, Weights, fit_weights, model_digest, read_weights, split_weights
from ringfence.models.zoo import zoo_file

DEFAULT_COUNT = 3
"""Embedded networks: ``default`` (the same as ``default:0``), ``default:1``, ``default:2``."""


@dataclass(frozen=True)
class LoadedModel:
    """A module in evaluation mode, batch (B, ...) in [0, 1] -> scores (B, K), and what identifies it.

    num_classes is None where only a forward pass can tell; digest covers weights, normalisation and code
    (ringfence/digests.py).
    """

    module: nn.Module
    num_classes: int | None
    digest: str
    spec: str


def load_model(
    spec: str,
    *,
    weights: str | Path | None = None,
    num_classes: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    device: str | torch.device = "cpu",
) -> LoadedModel:
    """The model a spec names.

    ``default``, ``default:1``, ``default:2``; ``lenet``, ``resnet20``, ``resnet20-pad``, ... with weights;
    ``pkg.module:factory`` or ``file.py:factory``, weights optional; an exported ``program.pt2``;
    a checkpoint file that names its architecture; ``zoo:mnist/gaussian-0.5:1`` (models/zoo.py);
    ``denoised:DENOISER+CLASSIFIER`` (models/denoised_spec.py). ``resnet20@FILE`` names weights in one word.
    mean and std put a Normalize in front; like weights, they belong to the classifier behind a denoiser.
    """
    if (mean is None) != (std is None):
        raise ModelError("--mean, --std", "must be given together", "only one", "Give both, one number per channel.")
    if spec.partition(":")[0] == "denoised":
        first, second = split_denoised(spec)
        denoiser = load_denoiser(first)
        behind = load_model(second, weights=weights, num_classes=num_classes, mean=mean, std=std, device=device)
        both = Denoised(denoiser.module, behind.module).to(device).eval()
        digest = joined([denoiser.digest, behind.digest], lambda parts: " ".join(["denoised", *parts]))
        return LoadedModel(both, behind.num_classes, digest, spec)
    built = _built(spec, weights, num_classes, device)
    given = None if mean is None or std is None else (mean, std)
    normalization = given or built.normalization(str(weights or spec))
    module = built.module if normalization is None else Normalize(built.module, *normalization)
    module = module.to(device).eval()
    return LoadedModel(module, built.num_classes, model_digest(module, built.extra, built.factory), spec)


def _built(spec: str, weights: str | Path | None, num_classes: int | None, device: str | torch.device) -> Built:
    """The network of a spec, before any normalisation."""
    name, file = split_weights(spec)
    if file is not None:
        _refuse_weights(spec, weights)
        return _built(name, file, num_classes, device)
    head, _, member = spec.partition(":")
    path = Path(spec)
    if head == "zoo":
        _refuse_weights(spec, weights)
        path = zoo_file(member)
        found = read_weights(path)
        return build_with_weights(architecture_of(found, spec), found, num_classes, str(path))
    if head == "default":
        _refuse_weights(spec, weights)
        return build_with_weights("lenet", _embedded(spec, member), num_classes, spec)
    if path.suffix == ".pt2":
        _refuse_weights(spec, weights)
        exported, content = load_exported(path, device)
        return Built(exported, num_classes, extra=content)
    if ":" in spec:
        module = build_from_factory(spec, num_classes)
        fitted = fit_weights(module, read_weights(Path(weights)).state, str(weights)) if weights is not None else None
        return Built(module, num_classes, fitted, factory=spec)
    if spec in ARCHITECTURES:
        return build_with_weights(spec, _required(spec, weights), num_classes, str(weights))
    if path.suffix in CHECKPOINTS:
        _refuse_weights(spec, weights)
        found = read_weights(path)
        return build_with_weights(architecture_of(found, spec), found, num_classes, spec)
    raise _unknown(spec)


def _embedded(spec: str, member: str) -> Weights:
    if member not in ("", *map(str, range(DEFAULT_COUNT))):
        raise ModelError(
            spec, f"must be default:0 to default:{DEFAULT_COUNT - 1}", f"'{member}'", "Choose one of those."
        )
    resource = files("ringfence") / "data" / "embedded" / f"lenet-sigma0.5-{member or 0}.safetensors"
    with as_file(resource) as path:
        return read_weights(path)


def _required(spec: str, weights: str | Path | None) -> Weights:
    if weights is None:
        raise ModelError(
            spec,
            "an architecture needs trained weights",
            "none",
            f"Give --weights FILE, or write {spec}@FILE.",
        )
    return read_weights(Path(weights))


def _refuse_weights(spec: str, weights: str | Path | None) -> None:
    if weights is not None:
        raise ModelError(
            "--weights", f"does not go with --model {spec}, which has its own", weights, "Leave --weights away."
        )


def _unknown(spec: str) -> ModelError:
    if is_denoiser(spec):
        remedy = f"Put a classifier behind it: denoised:{spec}@FILE+CLASSIFIER."
        return ModelError(spec, "must be a classifier", "a denoiser", remedy)
    near = difflib.get_close_matches(spec, ["default", *ARCHITECTURES], n=1)
    hint = f"Did you mean '{near[0]}'?" if near else "Give pkg.module:factory, file.py:factory or a file."
    return ModelError(spec, "must be a known model", f"'{spec}'", hint)
