"""Folding batch norm into the convolution before it: the same function with fewer passes over memory."""

from __future__ import annotations

import builtins
import operator
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from inspect import signature
from threading import RLock
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Node, Proxy, Tracer
from torch.fx.proxy import TraceError
from torch.nn.utils.fusion import fuse_conv_bn_eval

from ringfence.classifiers.base import Composed, runs_its_code_alone, with_networks

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def fold_batch_norm(module: nn.Module, joined: bool = False) -> nn.Module:
    """A copy in which every plain network has its batch norms folded; networks that cannot be traced stay as they are.

    joined: what follows a convolution is joined to it, too (joining.py).
    A convolution or a norm that is called twice, or read elsewhere, keeps its weights: folding for one call would
    change the other. That the copy computes what the network does is checked where it is used (sampling/check.py).
    w' = w g / sqrt(v + eps), b' = (b - m) g / sqrt(v + eps) + c for a norm with mean m, variance v, scale g, shift c.
    """
    return with_networks(module, partial(_folded, joined=joined))


def _folded(module: nn.Module, joined: bool) -> nn.Module | None:
    composed = isinstance(module, Composed | nn.ModuleList)
    if composed or not any(isinstance(part, NORMS) for part in module.modules()) or not runs_its_code_alone(module):
        return None
    try:
        return _fold_traced(traced_alone(module), joined)
    except Exception:  # control flow, data-dependent shapes: tracing may fail in any way, and nothing is lost
        return None


def traced_alone(module: nn.Module) -> GraphModule:
    """The module as it runs on a batch and nothing else.

    torch's tracer takes every argument for given: it would follow "if mask is not None" where no mask ever comes.
    """
    arguments = signature(module.forward).parameters.items()
    tracer = _Tracer()
    with _taken_for_tensors():
        graph = tracer.trace(module, {name: one.default for name, one in arguments if one.default is not one.empty})
    if tracer.asked:  # whoever caught the error went on as if the values were others
        raise TraceError("a network asked for values that no trace knows")
    return GraphModule(module, graph, type(module).__name__)


def _in_place(name: str) -> Any:
    return lambda x, y: x.tracer.create_proxy("call_function", getattr(operator, name), (x, y), {})


IN_PLACE = ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "imatmul", "iand", "ior", "ixor")
ASKING = ("len", "float", "int", "index", "setitem")
LEAVING = ("item", "tolist", "numpy", "equal", "allclose", "is_nonzero")
"""What gives values that are no tensors, of which code may ask what no stand-in answers: "is True", a dictionary."""


def _unknown(x: Any, *given: Any) -> Any:
    x.tracer.asked = True
    raise TraceError("a trace knows no values")


def _attribute(x: Any, name: str) -> Any:
    return _unknown(x) if name.startswith("__") else Proxy.__getattr__(x, name)  # NumPy asks for its own


_Proxy: Any = type(
    "_Proxy",
    (Proxy,),
    {f"__{name}__": _in_place(name) for name in IN_PLACE}
    | {f"__{name}__": _unknown for name in ASKING}
    | {"__getattr__": _attribute},
)
"""torch's takes x += y for x = x + y: whatever else is called x would keep its old value."""


@contextmanager
def _taken_for_tensors() -> Iterator[None]:
    """Where code that asks is told that a proxy is a Tensor, as a batch is.

    No ``__class__`` tells it: torch's C++ would ask that, and read a proxy as the tensor that it is not. The process
    crashed at torch.as_tensor(x), a scripted function or an autograd.Function in a network.
    """

    def is_one(thing: Any, kinds: Any) -> bool:
        return usual(thing, kinds) or (type(thing) is _Proxy and issubclass(Tensor, kinds))

    with _TRACING:  # of two that overlap the first would take the other's for the usual one, and leave it there
        usual = builtins.isinstance
        builtins.isinstance = is_one
        try:
            yield
        finally:
            builtins.isinstance = usual


_TRACING = RLock()


class _Tracer(Tracer):
    asked = False
    """Whether the code wanted to know values: in a ``try`` it may have gone on without them."""

    def to_bool(self, obj: Proxy) -> bool:
        return bool(_unknown(obj))

    def iter(self, obj: Proxy) -> Iterator[Any]:
        return iter(_unknown(obj))

    def proxy(self, node: Node) -> Any:
        return _Proxy(node, self)

    def create_arg(self, a: Any) -> Any:
        return a.node if isinstance(a, Proxy) else super().create_arg(a)

    def create_node(self, *given: Any, **more: Any) -> Node:
        if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
            raise TraceError("a traced network does not know of autocast")
        return super().create_node(*given, **more)

    def create_proxy(self, kind: str, target: Any, *given: Any, **more: Any) -> Any:
        found = super().create_proxy(kind, target, *given, **more)
        if kind.startswith("call_") and kind != "call_module" and getattr(target, "__name__", target) in LEAVING:
            _unknown(found)
        return found


def uses_of(traced: GraphModule) -> Counter[str]:
    """How often each module is called or one of its weights read by itself."""
    nodes = traced.graph.nodes
    uses = Counter(str(node.target) for node in nodes if node.op == "call_module")
    uses.update(str(node.target).rpartition(".")[0] for node in nodes if node.op == "get_attr")  # conv.weight: conv
    return uses


def _fold_traced(traced: GraphModule, joined: bool) -> GraphModule:
    modules, graph, uses = dict(traced.named_modules()), traced.graph, uses_of(traced)
    for node in list(graph.nodes):
        before = node.args[0] if _calls(node, modules, NORMS) and node.args else None
        if not isinstance(before, Node) or not _calls(before, modules, CONVOLUTIONS) or len(before.users) > 1:
            continue
        if uses[str(before.target)] > 1 or uses[str(node.target)] > 1:
            continue
        convolution, norm = modules[str(before.target)], modules[str(node.target)]
        if norm.running_mean is None:
            continue  # no stored statistics: the check for row independence will refuse such a network
        traced.set_submodule(str(before.target), fuse_conv_bn_eval(convolution, norm))
        node.replace_all_uses_with(before)
        graph.erase_node(node)
    if joined:
        from ringfence.classifiers.joining import join  # has an operator, which other runs need not wait for

        join(traced)
    traced.delete_all_unused_submodules()
    graph.lint()
    traced.recompile()
    return _of_a_known_class(traced)


_CLASSES: dict[tuple[str, frozenset[tuple[str, int]]], type[GraphModule]] = {}
"""By the code of their forward and what its names mean."""


def _of_a_known_class(traced: GraphModule) -> GraphModule:
    """The network as one of an earlier one's class, where their code is the same and only weights differ.

    torch makes a class for every traced network, and compiles each apart: ten members, and each again in the next run
    of a process. Of one class they are compiled once.
    """
    names = type(traced).forward.__globals__  # torch among them, and whatever functions of others the network calls
    key = traced.code, frozenset((name, id(value)) for name, value in names.items() if name != "__builtins__")
    traced.__class__ = _CLASSES.setdefault(key, type(traced))
    return traced


def _calls(node: Node, modules: dict[str, nn.Module], kinds: tuple[type[nn.Module], ...]) -> bool:
    """Whether a node calls a module of exactly one of these kinds: a subclass may compute something else."""
    return node.op == "call_module" and type(modules[str(node.target)]) in kinds
