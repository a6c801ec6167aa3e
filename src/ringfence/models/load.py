"""load_model: from what the user writes after ``--model`` to a module in evaluation mode."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

import torch
from torch import Tensor, nn

from ringfence.classifiers.architectures import ARCHITECTURES, ResNet, build_architecture
from ringfence.classifiers.normalize import Normalize
from ringfence.errors import ModelError
from ringfence.models.exported import load_exported
from ringfence.models.factory import build_from_factory
from ringfence.models.weights import Fitted, Weights, fit_weights, read_weights, state_digest
from ringfence.models.zoo import zoo_file

DEFAULT_COUNT = 3
"""Embedded networks: ``default`` (the same as ``default:0``), ``default:1``, ``default:2``."""

_COHEN_CIFAR = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
"""Channel means and deviations in Cohen's normalising layer, which its checkpoints do not store."""

_CHECKPOINTS = (".pt", ".pth", ".tar", ".ckpt", ".bin", ".safetensors")


@dataclass(frozen=True)
class LoadedModel:
    """A module in evaluation mode, batch (B, ...) in [0, 1] -> scores (B, K), and what identifies it.

    num_classes is None where only a forward pass can tell; digest covers weights and normalisation.
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
    a checkpoint file that names its architecture; ``zoo:mnist/gaussian-0.5:1`` (models/zoo.py).
    mean and std put a Normalize in front.
    """
    if (mean is None) != (std is None):
        raise ModelError("--mean, --std", "must be given together", "only one", "Give both, one number per channel.")
    head, _, member = spec.partition(":")
    path = Path(spec)
    extra = b""
    fitted: Fitted | None = None
    if head == "zoo":
        _refuse_weights(spec, weights)
        path = zoo_file(member)
        found = read_weights(path)
        module, num_classes, fitted = _build(_architecture_of(found, spec), found, num_classes, str(path))
    elif head == "default":
        _refuse_weights(spec, weights)
        module, num_classes, fitted = _build("lenet", _embedded(spec, member), num_classes, spec)
    elif path.suffix == ".pt2":
        _refuse_weights(spec, weights)
        module, extra = load_exported(path, device)
    elif ":" in spec:
        module = build_from_factory(spec, num_classes)
        if weights is not None:
            fitted = fit_weights(module, read_weights(Path(weights)).state, str(weights))
    elif spec in ARCHITECTURES:
        module, num_classes, fitted = _build(spec, _required(spec, weights), num_classes, str(weights))
    elif path.suffix in _CHECKPOINTS:
        _refuse_weights(spec, weights)
        found = read_weights(path)
        module, num_classes, fitted = _build(_architecture_of(found, spec), found, num_classes, spec)
    else:
        raise _unknown(spec)
    given = None if mean is None or std is None else (mean, std)
    normalization = given or _stored_normalization(fitted, module, str(weights or spec))
    if normalization is not None:
        module = Normalize(module, *normalization)
    module = module.to(device).eval()
    return LoadedModel(module, num_classes, state_digest(module, extra), spec)


def _build(arch: str, weights: Weights, num_classes: int | None, source: str) -> tuple[nn.Module, int, Fitted]:
    state = _renamed(weights.state) if arch.startswith("resnet") else weights.state
    if num_classes is None:
        last_bias = "head.5.bias" if arch == "lenet" else "linear.bias"
        num_classes = next((len(value) for key, value in state.items() if key.endswith(last_bias)), 10)
    module = build_architecture(arch, num_classes)
    return module, num_classes, fit_weights(module, state, source)


def _renamed(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Keys of the common CIFAR ResNet codes in our names: ``fc`` is ``linear``, ``downsample`` is ``shortcut``."""
    last = {key: ".".join("linear" if part == "fc" else part for part in key.split(".")) for key in state}
    return {last[key].replace(".downsample.", ".shortcut."): value for key, value in state.items()}


def _architecture_of(weights: Weights, spec: str) -> str:
    name = (weights.arch or "").removeprefix("cifar_")
    if name not in ARCHITECTURES:
        raise ModelError(
            spec,
            "must name an architecture known here under 'arch'",
            f"'{weights.arch}'" if weights.arch else "a file without one",
            "Give the architecture and the file: --model resnet20 --weights FILE, or --model file.py:factory.",
        )
    projects = any(".shortcut." in key or ".downsample." in key for key in weights.state)
    return name if projects or not name.startswith("resnet") or name.endswith("-pad") else f"{name}-pad"


def _stored_normalization(
    fitted: Fitted | None, module: nn.Module, source: str
) -> tuple[Sequence[float], Sequence[float]] | None:
    if fitted is None or not fitted.behind_normalizer:
        return None
    if fitted.stored is not None:
        return fitted.stored
    if isinstance(module, ResNet):
        return _COHEN_CIFAR
    raise ModelError(
        source, "needs the numbers of the normalising layer it was trained with", "none", "Give --mean and --std."
    )


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
            f"Give --weights FILE (where one spec is one word: {spec}@FILE), or use default.",
        )
    return read_weights(Path(weights))


def _refuse_weights(spec: str, weights: str | Path | None) -> None:
    if weights is not None:
        raise ModelError(
            "--weights", f"does not go with --model {spec}, which has its own", weights, "Leave --weights away."
        )


def _unknown(spec: str) -> ModelError:
    near = difflib.get_close_matches(spec, ["default", *ARCHITECTURES], n=1)
    hint = f"Did you mean '{near[0]}'?" if near else "Give pkg.module:factory, file.py:factory or a file."
    return ModelError(spec, "must be a known model", f"'{spec}'", hint)
