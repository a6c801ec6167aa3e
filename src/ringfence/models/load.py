"""load_model: from what the user writes after ``--model`` to a module in evaluation mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path

import torch

from ringfence.classifiers.architectures import ARCHITECTURES
from ringfence.errors import ArgumentError, Collected, ModelError, did_you_mean
from ringfence.models.architecture import Built, architecture_of, build_with_weights
from ringfence.models.compose import Part, tree_of, with_weights
from ringfence.models.denoised_spec import load_denoiser
from ringfence.models.diffusion import Diffusion
from ringfence.models.exported import load_exported
from ringfence.models.factory import build_from_factory
from ringfence.models.grammar import LIVE, Leaf
from ringfence.models.hugging_face import HuggingFace
from ringfence.models.identity import model_digest
from ringfence.models.library import Library, Timm, Torchvision
from ringfence.models.onnx_graph import OnnxFile
from ringfence.models.registry import NODES, SOURCES
from ringfence.models.resolve import LoadedModel, Sources, resolve
from ringfence.models.source import FACTORIES, Kind, LeafSource, is_denoiser, source_of
from ringfence.models.weights import Weights, fit_weights, read_weights
from ringfence.models.zoo import zoo_file

for _source_kind in (Timm, Torchvision, HuggingFace, OnnxFile, Diffusion):
    SOURCES.setdefault(_source_kind.name, _source_kind())

_LOOKS_LIKE = {
    "*.py": "{}:NAME",
    "*.onnx": "onnx:{}",
    "config.json": "hf:{}",
    "scheduler/scheduler_config.json": "denoised(diffusion:{}, CLASSIFIER)",
    "final-0.safetensors": "{}/final-0.safetensors",
}
"""Patterns of files, and files in folders, that a model may be taken for, and how that is written."""
DEFAULT_COUNT = 3
"""Embedded networks: ``default`` (the same as ``default:0``), ``default:1``, ``default:2``."""


def load_model(
    spec: Part,
    *,
    weights: str | Path | None = None,
    num_classes: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    device: str | torch.device = "cpu",
    sigma: float | None = None,
) -> LoadedModel:
    """The model a spec names.

    ``default``, ``default:1``, ``default:2``; ``lenet``, ``resnet20``, ``resnet20-pad``, ... with weights;
    ``timm:NAME``, ``torchvision:NAME`` (models/library.py), ``hf:FOLDER``, ``onnx:FILE``;
    ``pkg.module:factory`` or ``file.py:factory``, weights optional; an exported ``program.pt2`` or TorchScript;
    a checkpoint file that names its architecture; ``zoo:mnist/gaussian-0.5:1`` (models/zoo.py);
    ``resnet20@FILE`` names weights in one word. Or a tree of these: ``soft(A, B)``, ``denoised(DENOISER, A)``,
    ``consensus(A, B, C, agree=2)`` (models/nodes.py). mean and std put a Normalize in front of every source, and are
    refused for a network that brings its own. sigma: of the Gaussian noise, for denoisers that must be told.
    """
    if (mean is None) != (std is None):
        raise ModelError("mean, std", "must be given together", "only one", "Give both, one number per channel.")
    check_classes(num_classes, "num_classes")
    source = partial(_source, weights=weights, mean=mean, std=std, device=device)
    denoiser = partial(_denoiser, sigma=sigma)
    sources = Sources(partial(source, num_classes=num_classes), denoiser, partial(_selector, source))
    found = resolve(tree_of(spec), sources)
    return replace(found, module=found.module.to(device))


def check_classes(count: int | None, name: str) -> None:
    """Refuse numbers of classes that no network has."""
    if count is not None and (type(count) is not int or not 2 <= count < 2**31):
        raise ArgumentError(name, f"must be at least 2 and at most {2**31 - 1}", count, "Leave it out.")


def load_members(
    specs: Sequence[str], num_classes: int | None, mean: Sequence[float] | None, std: Sequence[float] | None
) -> list[LoadedModel]:
    """Every member on its own; they must have the same classes."""
    loaded = [load_model(spec, num_classes=num_classes, mean=mean, std=std) for spec in specs]
    if len({one.num_classes for one in loaded} - {None}) > 1:
        listed = ", ".join(f"{one.spec}: {one.num_classes}" for one in loaded)
        raise ModelError("members", "must have the same classes", listed, "Leave out the ones that differ.")
    return loaded


def _denoiser(spec: str, sigma: float | None) -> LoadedModel:
    found = load_denoiser(spec, sigma)
    return LoadedModel(found.module, None, found.digest, spec)


def _selector(source: Callable[..., LoadedModel], spec: str) -> LoadedModel:
    """A factory must be told that there are two outputs; weights tell themselves."""
    return source(spec, num_classes=2 if source_of(spec).kind in FACTORIES else None)


def _source(
    spec: str,
    *,
    weights: str | Path | None,
    num_classes: int | None,
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
    device: str | torch.device,
) -> LoadedModel:
    """A leaf."""
    source = source_of(spec)
    if weights is not None:
        with_weights(Leaf(spec), weights)  # refused where it has its own
        source = replace(source, weights=str(weights))
    built = _built(spec, source, num_classes, device)
    given = None if mean is None or std is None else (mean, std)
    module = built.wrapped(source.weights or spec, given).to(device).eval()
    digest = model_digest(module, built.extra, built.factory, built.structured)
    return LoadedModel(module, built.num_classes, digest, spec, side=built.side)


def _built(spec: str, source: LeafSource, num_classes: int | None, device: str | torch.device) -> Built:
    """The network of a spec, before any normalisation."""
    if spec.startswith(LIVE):
        rule, remedy = (
            "was a network of somebody's program, which no text builds",
            "Give the network itself, in Python.",
        )
        raise ModelError(spec, rule, "its name", remedy)
    node, _, models = spec.partition(":")
    if node in NODES and "+" in models:
        remedy = f"Write {node}({models.replace('+', ', ')}), in quotes."
        raise ModelError(spec, "must be written as a node", "the form with a plus sign", remedy)
    kind, weights = source.kind, source.weights
    if isinstance(library := SOURCES.get(spec.partition(":")[0]), Library):
        rest = source.name.partition(":")[2]
        return library.built(rest if weights is None else f"{rest}@{weights}", num_classes)
    if kind in FACTORIES:
        module = build_from_factory(source.name, num_classes)
        fitted = None if weights is None else fit_weights(module, read_weights(Path(weights)).state, weights)
        return Built(module, num_classes, fitted, factory=source.name)
    if kind is Kind.ARCHITECTURE:
        if weights is None:
            remedy = f"Give `weights`, or write {spec}@FILE."
            raise ModelError(spec, "an architecture needs trained weights", "none", remedy)
        return build_with_weights(source.name, read_weights(Path(weights)), num_classes, weights)
    if kind is Kind.UNKNOWN:
        wrong = Collected()
        wrong.problems.append(_unknown(source.name))
        if weights is not None:  # they may be wrong too
            wrong.ask(lambda: read_weights(Path(weights)))
        wrong.tell()
    if weights is not None:
        raise ModelError("weights", f"does not go with {source.name}, which has its own", weights, "Leave it out.")
    if kind is Kind.EMBEDDED:
        return build_with_weights("lenet", _embedded(spec, source.member), num_classes, spec)
    if kind is Kind.PROGRAM:
        exported, content = load_exported(Path(spec), device)
        return Built(exported, num_classes, extra=content)
    path = zoo_file(source.member or "") if kind is Kind.ZOO else Path(spec)
    found = read_weights(path)
    return build_with_weights(architecture_of(found, spec), found, num_classes, str(path))


def _embedded(spec: str, member: str | None) -> Weights:
    if member is not None and member not in map(str, range(DEFAULT_COUNT)):
        raise ModelError(
            spec, f"must be default:0 to default:{DEFAULT_COUNT - 1}", f"'{member}'", "Choose one of those."
        )
    resource = files("ringfence") / "data" / "embedded" / f"lenet-sigma0.5-{member or 0}.safetensors"
    with as_file(resource) as path:
        return read_weights(path)


def _unknown(spec: str) -> ModelError:
    if is_denoiser(spec):
        remedy = f"Put a classifier behind it: denoised({spec}@FILE, CLASSIFIER)."
        return ModelError(spec, "must be a classifier", "a denoiser", remedy)
    alike = [meant for found, meant in _LOOKS_LIKE.items() if Path(spec).match(found) or (Path(spec) / found).is_file()]
    kinds = (
        "default, zoo:NAME, timm:NAME, torchvision:NAME, hf:FOLDER, onnx:FILE, file.py:factory, pkg.module:factory, "
        "a file, an architecture with weights or a tree"
    )
    known = f"Architectures: {', '.join(ARCHITECTURES)}. Nodes of a tree: {', '.join(sorted(NODES))}."
    near = did_you_mean(spec, ["default", *ARCHITECTURES], known, written=repr)
    remedy = f"Did you mean '{alike[-1].format(spec)}'?" if alike else near
    return ModelError(spec, f"must be {kinds}", f"'{spec}'", remedy)
