"""Convolutions of few channels in compiled training steps: ours (``narrow_kernel.py``) in the place of cuDNN's.

They are exchanged in the graph that the compiler has made of a network or of its gradients, so that all else is
compiled as before, and any network profits that has such convolutions. The kernels are compared with torch's before
they are used, because rounding hides much where a member's gradients are compared with the plain network's
(``fabric.py``).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node
from torch.nn.grad import conv2d_weight

from ringfence.noise.checked import checked_kernel

CONVOLVED, TO_WEIGHT = (16,), (16, 32)
"""Channels, of input and output, where our kernels are faster: of a convolution and its adjoint; to the weight."""
PLAIN = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
"""Stride, padding, dilation, transposed or not, padding of outputs, groups."""
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
        if node.target is forward and _channels(node.args[0], node.args[1], node.args[2], node.args[3:]) in CONVOLVED:
            _put(graph, node, ours["convolved"], (*node.args[:2], False))
        # A gradient is told the size of its bias, [0] for none, and what is asked for.
        if node.target is not backward or node.args[10][2]:
            continue
        (gradient, x, weight), asked = node.args[:3], list(node.args[10])
        channels = _channels(x, weight, None, node.args[4:10])
        for part in list(node.users):
            if part.args[1] == 0 and channels in CONVOLVED:
                _put(graph, part, ours["convolved"], (gradient, weight, True))
                asked[0] = False
            elif part.args[1] == 1 and channels in TO_WEIGHT:
                _put(graph, part, ours["to_weight"], (x, gradient))
                asked[1] = False
        node.args = (*node.args[:10], asked)
        if not node.users:
            graph.erase_node(node)


def _put(graph: Graph, node: Node, operator: Any, arguments: tuple[Any, ...]) -> None:
    with graph.inserting_before(node):
        new = graph.call_function(operator, arguments)
    new.meta.update(node.meta)
    node.replace_all_uses_with(new)
    graph.erase_node(node)


def _channels(x: Any, weight: Any, bias: Any, how: Any) -> int:
    """Of the input x and of the output of a convolution that our kernels could take; 0: of any other."""
    image, taps = x.meta["val"], weight.meta["val"]
    plain = bias is None and tuple(how) == PLAIN and tuple(taps.shape[1:]) == (taps.shape[0], 3, 3)
    placed = _placed(image) and image.is_contiguous(memory_format=LAST) and image.numel() < ADDRESSES
    return taps.shape[0] if plain and placed else 0


def _placed(image: Tensor) -> bool:
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
