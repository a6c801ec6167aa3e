"""Weights from files, read without running code, and fitted to a network key by key."""

from __future__ import annotations

import pickle
import re
import warnings
from argparse import Namespace
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from ringfence.errors import ModelError

CHECKPOINTS = (".pt", ".pth", ".tar", ".ckpt", ".bin", ".safetensors")
"""Endings of files that hold weights."""

_CONTAINERS = ("state_dict", "model", "net", "model_state_dict", "ema")
"""Where checkpoints keep their weights; of several that are there the first."""

_WRAPPERS = ("module", "model", "net", "1")
"""What wrappers put before a network's keys: data parallel, trainers, or 1 behind a normalising layer at position 0."""

_COMPILED = "_orig_mod."
"""What torch.compile puts into keys, at any place."""

_METRIC = re.compile(
    r"(?:.*[._])?(?:acc|accuracy|metrics?|loss|criterion|auroc|f1|confmat|total_ops|total_params)\d*(?:[._].*)?"
)
"""Keys of metrics and losses that trainers keep beside the network; no prediction reads them."""

_STORED_NORMALIZERS = (("mean", "std"), ("0.mean", "0.std"), ("0.means", "0.sds"))


class WeightsWarning(UserWarning):
    """A file with several sets of weights, such as a running average beside the last ones: another network each."""


@dataclass(frozen=True)
class Weights:
    """A file's tensors, and the architecture it names, if any."""

    state: Mapping[str, Tensor]
    arch: str | None


@dataclass(frozen=True)
class Fitted:
    """How a file's keys met a network's: was a normalising layer in front, and are its numbers in the file?"""

    behind_normalizer: bool
    stored: tuple[list[float], list[float]] | None


def split_weights(spec: str) -> tuple[str, str | None]:
    """``resnet20@FILE`` or ``file.py:factory@FILE`` -> name and file; paths may have an @ of their own."""
    found = None if Path(spec).is_file() else re.fullmatch(r"((?:.*:)?[^@:/\\]+)@(.+)", spec)
    return (found[1], found[2]) if found else (spec, None)


def read_weights(path: Path) -> Weights:
    """Tensors of a ``.safetensors`` file or of a checkpoint; a pickle that holds anything else is refused."""
    if not path.is_file():
        raise ModelError(path, "must be an existing file", "no such file", "Check the path of the weights.")
    return _read_safetensors(path) if path.suffix == ".safetensors" else _read_checkpoint(path)


def _read_safetensors(path: Path) -> Weights:
    try:
        with safe_open(path, framework="pt") as file:
            metadata: dict[str, str] = file.metadata() or {}
            return Weights({key: file.get_tensor(key) for key in file.keys()}, metadata.get("arch"))  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ModelError(path, "must be a safetensors file", error, "Save the weights again.") from error


def _read_checkpoint(path: Path) -> Weights:
    try:
        with warnings.catch_warnings(), torch.serialization.safe_globals([Namespace]):  # options of a training script
            # About the pickle protocol: either the file is read all the same, or the error below says why not.
            warnings.simplefilter("ignore", UserWarning)
            content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        named = re.search(r"GLOBAL (\S+)", str(error))
        raise ModelError(
            path,
            "must hold plain tensors (it is read without running code)",
            f"a pickle of {named[1] if named else 'something else'}",
            "Save model.state_dict(), best as .safetensors, and name what builds the network: file.py:factory@FILE.",
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError) as error:
        raise ModelError(path, "must be a PyTorch checkpoint", error, "Save model.state_dict() again.") from error
    arch = content.get("arch") if isinstance(content, dict) else None
    state = _state_in(content, path)
    if isinstance(state, Mapping):
        state = {key: one for key, one in state.items() if isinstance(one, Tensor) or not _METRIC.fullmatch(str(key))}
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()) or not state:
        raise ModelError(
            path,
            f"must be a state dict, alone or under one of {', '.join(map(repr, _CONTAINERS))}",
            f"a {type(state).__name__}" if not isinstance(state, Mapping) else "entries that are not tensors",
            "Save model.state_dict().",
        )
    return Weights({str(key): value for key, value in state.items()}, arch if isinstance(arch, str) else None)


def _state_in(content: object, path: Path) -> object:
    """The innermost mapping below the usual names; beside other weights, which were taken is said."""
    while isinstance(content, Mapping):
        taken = next((name for name in _CONTAINERS if isinstance(content.get(name), Mapping)), None)
        if taken is None:
            break
        others = [str(name) for name, one in content.items() if name != taken and _like(one, content[taken])]
        if others:
            told = f"{path}: the weights under {taken!r} are taken, not those under {', '.join(map(repr, others))};"
            warnings.warn(f"{told} to certify others save them in a file of their own", WeightsWarning, stacklevel=2)
        content = content[taken]
    return content


def _like(other: object, taken: Mapping[str, object]) -> bool:
    """Whether something in a file may be weights of the same network: tensors, and not far fewer."""
    tensors = [one for one in other.values() if isinstance(one, Tensor)] if isinstance(other, Mapping) else []
    return 2 * len(tensors) > len(taken)


def fit_weights(module: nn.Module, state: Mapping[str, Tensor], source: str) -> Fitted:
    """Copies the tensors into the module, or says which key differs first and how.

    Prefixes of wrappers are removed; batch counters, which no prediction reads, may be missing, and states of metrics
    are passed over.
    """
    wanted = {_plain(key): value for key, value in module.state_dict().items() if not _is_counter(key)}
    every = [(_plain(key), value) for key, value in state.items() if not _is_counter(key)]
    given = dict(every)
    prefix = _prefix(wanted, given)
    stored = None
    for mean, std in ((start + a, start + b) for start in _starts(prefix) for a, b in _STORED_NORMALIZERS):
        if stored is None and prefix and mean in given and std in given:
            stored = (given.pop(mean).float().flatten().tolist(), given.pop(std).float().flatten().tolist())
    inner = {key.removeprefix(prefix): value for key, value in given.items()}
    twice = len(inner) < len(given) or len({key for key, _ in every}) < len(every)
    inner = {key: value for key, value in inner.items() if key in wanted or not _METRIC.fullmatch(key)}
    difference = _first_difference(wanted, inner)
    if twice:
        difference = f"weights twice, with and without '{prefix or _COMPILED}' before their names"
    if difference is not None:
        remedy = "Choose the architecture these weights belong to; `classes`, where given, must be theirs too."
        raise ModelError(source, "must fit the model", difference, remedy)
    ours = {_plain(key): key for key in module.state_dict()}
    module.load_state_dict({ours[key]: value for key, value in inner.items()}, strict=False)
    return Fitted("1" in prefix.split(".") or stored is not None, stored)


def _plain(key: str) -> str:
    return key.replace(_COMPILED, "")


def _starts(key: str) -> list[str]:
    """What wrappers may have put before a key: nothing, the first of their names, the first two, ..."""
    found = [""]
    for part in key.split("."):
        if part not in _WRAPPERS:
            break
        found.append(f"{found[-1]}{part}.")
    return found


def _prefix(wanted: Container[str], given: Iterable[str]) -> str:
    """The shortest of those behind which most of the wanted keys are."""
    found = Counter(start for key in given for start in _starts(key) if key.removeprefix(start) in wanted)
    return max(found, key=lambda start: (found[start], -len(start)), default="")


def _first_difference(wanted: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> str | None:
    for key, value in wanted.items():
        if key not in given:
            return f"key '{key}' missing from the weights"
        if given[key].shape != value.shape:
            return f"key '{key}' of shape {tuple(given[key].shape)} where the model has {tuple(value.shape)}"
    extra = next((key for key in given if key not in wanted), None)
    return None if extra is None else f"unexpected key '{extra}'"


def _is_counter(key: str) -> bool:
    return key.endswith("num_batches_tracked")
