"""Convolutions of few channels in compiled training steps: ours (``narrow_kernel.py``) in the place of cuDNN's.

They are exchanged in the graph that the compiler has made of a network or of its gradients, so that all else is
compiled as before, and any network profits that has such convolutions. What cuDNN would copy to another layout is made
in that layout. The kernels are compared with torch's before they are used, because rounding hides much where a member's
gradients are compared with the plain network's (``fabric.py``).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node
from torch.nn.grad import conv2d_weight

from ringfence.noise.checked import checked_kernel

SIDES = {16: 32, 32: 16}
"""Channels, of input and output, and height and width of images where our kernels are faster: of CIFAR ResNets."""
LAST = torch.channels_last
KERNEL = "ringfence.training.narrow_kernel"
ADDRESSES = 2**31
"""Numbers of a tensor that our kernels can tell apart."""


@cache
def narrow_options() -> dict[str, Any]:
    """Options of torch.compile by which the exchange takes place; the compiler is loaded by now."""
    _ops()  # code that the compiler finds in its cache calls them, and no exchange takes place before
    from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files

    class Exchange(CustomGraphPass):
        def __call__(self, graph: Graph) -> None:
            exchange(graph)

        def uuid(self) -> Any:
            return get_hash_for_files((__file__,))

    return {"post_grad_custom_pre_pass": Exchange()}


def exchange(graph: Graph) -> None:
    """Put ours in the place of every convolution and every gradient of one that fits."""
    forward, backward, ours = torch.ops.aten.convolution.default, torch.ops.aten.convolution_backward.default, _ops()
    for node in list(graph.nodes):
        if node.target is forward and node.args[2] is None and _fits(node.args[0], node.args[1], node.args[3:]):
            _put(graph, node, ours["convolved"], (*node.args[:2], node.args[6]))
        # A gradient is told the size of its bias, [0] for none, and what is asked for.
        if node.target is not backward or node.args[10][2]:
            continue
        gradient, x, weight = node.args[:3]
        if not node.args[7] and _fits(x, weight, node.args[4:10]):
            for part in list(node.users):
                if not part.users:  # what nobody asked for
                    graph.erase_node(part)
                    continue
                to_input = part.args[1] == 0
                given = (gradient, weight, True) if to_input else (x, gradient)
                _put(graph, part, ours["convolved" if to_input else "to_weight"], given)
        elif x.meta["val"].shape[1] > 1 and _is_last(x) != _is_last(gradient):  # else cuDNN copies one
            node.args = (_channels_last(graph, node, gradient), _channels_last(graph, node, x), *node.args[2:])
        if not node.users:
            graph.erase_node(node)


def _put(graph: Graph, node: Node, operator: Any, arguments: tuple[Any, ...]) -> None:
    with graph.inserting_before(node):
        given = [_channels_last(graph, node, one) if isinstance(one, Node) else one for one in arguments]
        new = graph.call_function(operator, tuple(given))
    new.meta.update(node.meta)
    node.replace_all_uses_with(new)
    graph.erase_node(node)


def _channels_last(graph: Graph, before: Node, value: Node) -> Node:
    """The value with channels last: the compiler lets the kernel that makes it write it so."""
    if _is_last(value):
        return value
    with graph.inserting_before(before):
        laid = graph.call_function(torch.ops.aten.clone.default, (value,), {"memory_format": LAST})
    laid.meta["val"] = value.meta["val"].clone(memory_format=LAST)
    return laid


def _is_last(value: Node) -> bool:
    return bool(value.meta["val"].is_contiguous(memory_format=LAST))


def _fits(x: Any, weight: Any, how: Any) -> bool:
    """Whether our kernels could take the convolution, or transposed one, of x: 3 x 3, no stride, channels last."""
    image, taps, (stride, padding, dilation, _, more, groups) = x.meta["val"], weight.meta["val"], how
    plain = [*stride, *padding, *dilation, groups] == [1] * 7 and not any(more)
    square = tuple(taps.shape) == (taps.shape[0], taps.shape[0], 3, 3) and image.numel() < ADDRESSES
    side = SIDES.get(taps.shape[0])
    return plain and square and tuple(image.shape[2:]) == (side, side) and _is_bf16(image) and _is_last(x)


def _is_bf16(image: Tensor) -> bool:
    return image.is_cuda and image.dtype == torch.bfloat16


@cache
def _ops() -> dict[str, Any]:
    """The operators: ours on CUDA where they are right, torch's elsewhere."""

    @torch.library.custom_op("ringfence::narrow_convolved", mutates_args=())
    def convolved(x: Tensor, weight: Tensor, back: bool) -> Tensor:
        x, weight = x.contiguous(memory_format=LAST), weight.contiguous(memory_format=LAST)
        if kernel := checked_kernel(KERNEL, x.device):
            found: Tensor = kernel.convolved(x, weight, back)
            return found
        run = torch.nn.functional.conv_transpose2d if back else torch.conv2d
        return run(x, weight, padding=1).contiguous(memory_format=LAST)

    @torch.library.custom_op("ringfence::narrow_to_weight", mutates_args=())
    def to_weight(x: Tensor, gradient: Tensor) -> Tensor:
        x, gradient = x.contiguous(memory_format=LAST), gradient.contiguous(memory_format=LAST)
        shape = (gradient.shape[1], x.shape[1], 3, 3)
        if kernel := checked_kernel(KERNEL, x.device):
            found: Tensor = kernel.to_weight(x, gradient)
            return found
        found = conv2d_weight(x, shape, gradient, padding=1)  # type: ignore[no-untyped-call]
        return found.contiguous(memory_format=LAST)

    @convolved.register_fake
    def _(x: Tensor, weight: Tensor, back: bool) -> Tensor:
        shape = (x.shape[0], weight.shape[1 if back else 0], *x.shape[2:])
        return torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=LAST)

    @to_weight.register_fake
    def _(x: Tensor, gradient: Tensor) -> Tensor:
        shape = (gradient.shape[1], x.shape[1], 3, 3)
        return torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=LAST)

    kinds = torch.ops.ringfence
    return {"convolved": kinds.narrow_convolved.default, "to_weight": kinds.narrow_to_weight.default}
