"""Transformers with exchanged layers, and the kernel of attention, on a GPU."""

from __future__ import annotations

import os

import pytest
import torch
from exchanged import assert_exchanged_is_the_network
from invalid_rows import assert_only_its_row_is_invalid
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from ringfence.classifiers.fused import is_hopper, why_not
from ringfence.sampling import Forward, ForwardPlan

DEVICE = torch.device(os.environ.get("RINGFENCE_TEST_DEVICE", "cuda"))
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore"),  # the compiler's own
    pytest.mark.skipif(DEVICE.type == "cuda" and not torch.cuda.is_available(), reason="no CUDA device is visible"),
]


@pytest.fixture
def hopper() -> None:
    if not is_hopper(DEVICE):
        pytest.skip("the kernel is for Hopper")
    if (problem := why_not(DEVICE)) is not None:
        pytest.skip(problem)


def off(found: Tensor, wanted: Tensor) -> float:
    return float((found.double() - wanted).norm() / wanted.norm())


@pytest.mark.usefixtures("hopper")
def test_the_kernel_is_used() -> None:
    from ringfence.classifiers.attention_kernel import is_right

    assert is_right(DEVICE)


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize(("images", "rows", "heads"), [(3, 197, 12), (400, 208, 3), (1, 193, 1)])
def test_attention_is_torchs_in_float64(images: int, rows: int, heads: int) -> None:
    from ringfence.classifiers.attention_kernel import attention

    every = 2 * torch.randn(images, rows, 3, heads, 64, device=DEVICE).bfloat16()
    query, key, value = every.permute(2, 0, 3, 1, 4)
    found = attention(query, key, value)
    wanted = scaled_dot_product_attention(query.double(), key.double(), value.double())
    assert off(found, wanted) < 1.2 * off(scaled_dot_product_attention(query, key, value), wanted)
    assert torch.equal(attention(query, key, value), found)


class Transformer(nn.Module):
    """197 tokens, two heads of 64 numbers, and a layer with a GELU."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cut, self.norm, self.every = nn.Conv2d(3, 128, 16, 16), nn.LayerNorm(128), nn.Linear(128, 384)
        self.first, self.act, self.last, self.head = (
            nn.Linear(128, 512),
            nn.GELU(),
            nn.Linear(512, 128),
            nn.Linear(128, 10),
        )

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.cut(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([tokens.mean(1, keepdim=True), tokens], 1)
        query, key, value = self.every(self.norm(tokens)).view(len(x), 197, 3, 2, 64).permute(2, 0, 3, 1, 4)
        tokens = tokens + scaled_dot_product_attention(query, key, value).transpose(1, 2).reshape(len(x), 197, 128)
        found: Tensor = self.head((tokens + self.last(self.act(self.first(self.norm(tokens)))))[:, 0])
        return found


PLAN = ForwardPlan(96, "bf16", channels_last=True, compile=True, fold=True, joined=True, exchanged=True)


def test_exchanged_transformers_are_the_transformers() -> None:
    network = Transformer().eval()
    assert_exchanged_is_the_network(network, PLAN, (3, 224, 224), DEVICE)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_an_invalid_row_of_an_exchanged_transformer_is_invalid_and_alone(bad: float) -> None:
    x = torch.rand(96, 3, 224, 224, device=DEVICE)
    assert_only_its_row_is_invalid(Forward(Transformer().eval(), PLAN, DEVICE, 10), x, 50, bad)
