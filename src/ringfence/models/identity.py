"""What a model is known by: the digest of its weights, its code, what that reads, and what its layers hold."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor, nn

from ringfence.digests import EARLIER, READ, STRUCTURE, UNFILLED, hashed, write_digest
from ringfence.errors import ModelError
from ringfence.models.code import code_parts
from ringfence.models.reads import Reached
from ringfence.models.structure import structure


def model_digest(module: nn.Module, extra: bytes = b"", factory: str | None = None, structured: bool = False) -> str:
    """Weights and code of a model: extra stands for what no tensor holds, factory is the spec that built it.

    structured: a program built it, or a library from a name, and only its layers tell how.
    """
    weights, code, reached = state_digest(module), code_parts(module, factory), Reached(module)
    if extra:
        code["program"] = hashed([extra])
    if structured:
        code[STRUCTURE] = structure(module)
        if reached.written and (unfilled := structure(module, reached.fills)) != code[STRUCTURE]:
            code[UNFILLED] = unfilled
    elif "code" not in code:
        code[EARLIER] = state_digest(module, extra) if extra else weights
    if (read := reached.digest) is not None:
        code[READ] = read
    return write_digest({"weights": weights, **code})


def state_digest(module: nn.Module, extra: bytes = b"") -> str:
    """blake2b over the names, types, shapes and bytes of the state dict, in the order of names."""
    digest = hashlib.blake2b(extra, digest_size=16)
    for key, value in sorted(module.state_dict().items()):
        if not isinstance(value, Tensor) or value.is_meta or value.is_quantized or value.layout != torch.strided:
            found = f"'{key}', {_kind(value)}"
            remedy = "Give the network with weights in memory, and as it was before they were packed or quantized."
            raise ModelError(type(module).__name__, "must have weights that are plain tensors", found, remedy)
        digest.update(f"{key}|{value.dtype}|{tuple(value.shape)}|".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _kind(value: object) -> str:
    """What stands in the place of weights."""
    if not isinstance(value, Tensor):
        return f"a {type(value).__name__}"
    return f"a tensor of {value.dtype}, {str(value.layout).removeprefix('torch.')}, on {value.device}"
