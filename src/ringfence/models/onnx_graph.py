"""``onnx:FILE``: a graph run by onnxruntime, on its GPU where it has one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Self, final

import torch
from torch import Tensor, nn

from ringfence.classifiers.base import APART
from ringfence.errors import ClassifierError, ModelError, first_line
from ringfence.models.architecture import Built, Preprocessing
from ringfence.models.exported import in_pieces
from ringfence.models.extras import needed
from ringfence.models.library import Library

FLOATS: Final[Mapping[str, torch.dtype]] = {
    "tensor(float)": torch.float32,
    "tensor(float16)": torch.float16,
    "tensor(double)": torch.float64,
}


@final
class OnnxGraph(nn.Module):
    """A session of onnxruntime: batch (B, ...) -> scores (B, K), in the precision of the graph and without gradients.

    session: shared by copies, because nothing in it changes; fixed_batch: the only batch size the graph takes.
    """

    def __init__(self, session: Any, given: str, asked: str, dtype: torch.dtype, fixed_batch: int | None) -> None:
        super().__init__()
        self.session, self.given, self.asked, self.dtype, self.fixed_batch = session, given, asked, dtype, fixed_batch

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return type(self)(self.session, self.given, self.asked, self.dtype, self.fixed_batch).train(self.training)

    def forward(self, x: Tensor) -> Tensor:
        """Scores (B, K), on the device of x."""
        if torch.is_grad_enabled() and x.requires_grad:
            rule, remedy = "is asked for gradients", "Attack or train the network it was exported from."
            raise ClassifierError("classifier", rule, "an ONNX graph, which has none", remedy)
        scores: Tensor = in_pieces(self._run, x.detach().to("cpu", self.dtype), self.fixed_batch)
        return scores.to(x.device)

    def _run(self, x: Tensor) -> Tensor:
        return torch.from_numpy(self.session.run([self.asked], {self.given: x.contiguous().numpy()})[0])


APART.append((OnnxGraph, "forward", True))  # compiled by its own runtime


@final
class OnnxFile(Library):
    """``onnx:model.onnx``. It is somebody's program, if not in Python: a stranger's folder may not start it."""

    name: ClassVar[str] = "onnx"
    trusted: ClassVar[bool] = False
    has_gradients: ClassVar[bool] = False

    def built(self, rest: str, num_classes: int | None) -> Built:
        """The graph; its file, and files that hold its weights, are its digest."""
        spec, path = f"{self.name}:{rest}", Path(rest)
        if not path.is_file():
            raise ModelError(spec, "must be an existing file", "no such file", "Check the path of the graph.")
        session = _session(spec, path)
        inputs, outputs = session.get_inputs(), session.get_outputs()
        if len(inputs) != 1 or inputs[0].type not in FLOATS or not inputs[0].shape:
            received = ", ".join(f"{one.name}: {one.type} {one.shape}" for one in inputs)
            raise ModelError(spec, "must take one batch of floating-point inputs", received, "Export it so.")
        asked = _scores(spec, outputs, num_classes)
        shape = inputs[0].shape
        batch = shape[0] if isinstance(shape[0], int) else None
        graph = OnnxGraph(session, inputs[0].name, asked.name, FLOATS[inputs[0].type], batch)
        sides = tuple(shape[2:]) if len(shape) == 4 and all(isinstance(side, int) for side in shape[2:]) else None
        known = asked.shape[-1] if len(asked.shape) == 2 and isinstance(asked.shape[-1], int) else None
        classes = 2 if known == 1 else known
        if None not in (num_classes, classes) and num_classes != classes:
            raise ModelError("num_classes", f"{spec} returns {classes} scores", num_classes, "Leave it out.")
        return Built(graph, num_classes or classes, extra=_contents(spec, path), usual=Preprocessing(None, sides))


def _scores(spec: str, outputs: Sequence[Any], num_classes: int | None) -> Any:
    """The output that holds the scores: the one called logits, or the only one it can be. Features beside them have as
    good a shape, and a certificate about those would be about another function."""
    floating = [one for one in outputs if one.type in FLOATS and len(one.shape) <= 2]
    named = [one for one in floating if one.name == "logits"]
    fitting = [one for one in floating if num_classes is not None and one.shape[-1:] == [num_classes]]
    found = next((some for some in (named, floating, fitting) if len(some) == 1), None)
    if found is None:
        received = ", ".join(f"{one.name}: {one.type} {one.shape}" for one in outputs)
        remedy = "Export the logits alone, call them logits, or give `num_classes`."
        raise ModelError(spec, "must return scores (B, K), one output of them", received, remedy)
    return found[0]


def _session(spec: str, path: Path) -> Any:
    runtime = needed("onnxruntime", "onnx", spec)
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    options.use_deterministic_compute = True
    options.intra_op_num_threads = torch.get_num_threads()
    settings = {"CUDAExecutionProvider": {"use_tf32": "0"}, "CPUExecutionProvider": {}}  # 24 bits, as elsewhere here
    chosen = [(name, settings[name]) for name in settings if name in runtime.get_available_providers()]
    try:
        return runtime.InferenceSession(str(path), options, providers=chosen)
    except Exception as error:
        received = first_line(error)
        raise ModelError(
            spec, "must be a graph that onnxruntime can run", received, "Export the model again."
        ) from error


def _contents(spec: str, path: Path) -> bytes:
    """A hash over the file and the files beside it that hold its large weights."""
    onnx = needed("onnx", "onnx", spec)
    graph = onnx.load(str(path), load_external_data=False)
    outside = {
        entry.value
        for tensor in onnx.external_data_helper._get_all_tensors(graph)
        if onnx.external_data_helper.uses_external_data(tensor)
        for entry in tensor.external_data
        if entry.key == "location"
    }
    digest = hashlib.blake2b(path.read_bytes(), digest_size=16)
    for name in sorted(outside):
        digest.update(name.encode())
        digest.update((path.parent / name).read_bytes())
    return digest.digest()
