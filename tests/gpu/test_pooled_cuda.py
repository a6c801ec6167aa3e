"""Small convolutional networks whose first layers are one kernel, on a GPU."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
import torch
from exchanged import assert_exchanged_is_the_network
from invalid_rows import assert_only_its_row_is_invalid
from torch import nn

from ringfence.classifiers import Members
from ringfence.classifiers.architectures.lenet import LeNet, wide_lenet
from ringfence.classifiers.fused import why_not
from ringfence.classifiers.pooling import KERNEL, Layers, layers_of
from ringfence.noise.checked import checked_kernel
from ringfence.sampling import Forward, ForwardPlan

DEVICE = torch.device(os.environ.get("RINGFENCE_TEST_DEVICE", "cuda"))
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore"),  # the compiler's own
    pytest.mark.skipif(DEVICE.type == "cuda" and not torch.cuda.is_available(), reason="no CUDA device is visible"),
]
ROWS = 3000
PLAN = ForwardPlan(ROWS, "bf16", channels_last=True, compile=True, fold=True, joined=True, exchanged=True)
COLOURS = Layers((3, 32, 32), (5, 0, 6), (5, 0, 16))
SHAPES = [
    Layers((1, 28, 28), (5, 0, 20), (5, 0, 50)),
    Layers((1, 28, 28), (5, 2, 6), (5, 0, 16)),
    Layers((1, 28, 28), (3, 1, 32), (3, 1, 64)),
    COLOURS,
    Layers(COLOURS.image, COLOURS.first, COLOURS.second, last=True),
    Layers((2, 13, 11), (4, 1, 7), (2, 0, 5)),
]


@pytest.fixture
def kernels() -> None:
    if (problem := why_not(DEVICE)) is not None:
        pytest.skip(problem)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("layers", SHAPES, ids=str)
def test_the_kernel_is_used_and_gives_the_same_bits_in_any_company(layers: Layers) -> None:
    assert checked_kernel(KERNEL, DEVICE, layers) is not None
    (_, edge, _), (_, around, _) = layers.first, layers.second
    weights = [torch.randn(shape, device=DEVICE).bfloat16() / 5 for shape in layers.weights]
    x = torch.randn(ROWS, *layers.image, device=DEVICE).bfloat16()
    x = x.contiguous(memory_format=torch.channels_last) if layers.last else x
    assert layers_of(x, weights[0], weights[2], edge, around) == layers
    every = torch.ops.ringfence.pooled_twice(x, *weights, edge, around)
    assert torch.equal(torch.ops.ringfence.pooled_twice(x, *weights, edge, around), every)
    assert torch.equal(torch.ops.ringfence.pooled_twice(x.flip(0), *weights, edge, around).flip(0), every)
    assert torch.equal(torch.ops.ringfence.pooled_twice(x[7:8], *weights, edge, around), every[7:8])


@pytest.mark.parametrize("make", [LeNet, wide_lenet])
@pytest.mark.parametrize("members", [1, 3])
def test_exchanged_lenets_are_the_lenets(make: Callable[[], nn.Module], members: int) -> None:
    torch.manual_seed(0)
    network = make() if members == 1 else Members([make() for _ in range(members)])
    network = network.eval()
    assert_exchanged_is_the_network(network, PLAN, (1, 28, 28), DEVICE)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_an_invalid_row_is_invalid_and_alone(bad: float) -> None:
    torch.manual_seed(0)
    x = torch.rand(ROWS, 1, 28, 28, device=DEVICE)
    assert_only_its_row_is_invalid(Forward(wide_lenet().eval(), PLAN, DEVICE, 10), x, 50, bad)
