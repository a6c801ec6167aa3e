"""What a program has set for the whole of torch is no part of what is certified."""

from collections.abc import Iterable

import pytest
import torch
from torch import Tensor, nn

import ringfence as rf
from ringfence.data import Input
from ringfence.record import Record
from ringfence.sampling import Facts


class Noted(nn.Module):
    """A linear network that notes in which types it computes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 3)
        self.types: set[torch.dtype] = set()
        with torch.no_grad():
            self.layer.weight.copy_(torch.linspace(-1, 1, 48).view(3, 16) ** 3)
            self.layer.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.layer(x.flatten(1))
        self.types.add(scores.dtype)
        return scores


def inputs() -> Tensor:
    return torch.linspace(0, 1, 48, dtype=torch.float32).view(3, 1, 4, 4)


def counts(records: Iterable[Record]) -> list[tuple[int, int, float]]:
    return sorted((one.input_id, one.prediction, one.p_a) for one in records)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("form", ["float", "exact"])
@pytest.mark.parametrize("family", [rf.Gaussian, rf.Laplace])
def test_noise_is_drawn_and_added_in_float32_whatever_the_default_type(
    dtype: torch.dtype, form: str, family: type[rf.Gaussian]
) -> None:
    net, x = Noted().eval(), (inputs() * 255).round().byte()
    asked = {"noise": family(2.0, form), "procedure": rf.Fixed(n=2000), "check": False}
    usual = counts(rf.certify(net, x, **asked))
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        assert counts(rf.certify(net, x, **asked)) == usual
    finally:
        torch.set_default_dtype(before)


def test_an_autocast_around_a_certification_is_left_outside() -> None:
    net = Noted().eval()
    usual = counts(rf.certify(net, inputs(), sigma=0.5, n=500, check=False))
    with torch.autocast("cpu", torch.bfloat16):
        records = rf.certify(net, inputs(), sigma=0.5, n=500, check=False)
        first = next(records)
        net.types.clear()  # the number of classes was read off one answer, whose precision is no matter
        assert counts([first, *records]) == usual
    assert net.types == {torch.float32}


def test_the_core_of_aces_is_asked_outside_of_an_autocast() -> None:
    core = Noted().eval()
    aces = rf.Aces(Noted().eval(), rf.EntropySelector(0.5), core)
    with torch.autocast("cpu", torch.bfloat16):
        list(Facts(aces, torch.device("cpu")).of(iter([Input(0, inputs()[0], None, "0")])))
    assert core.types == {torch.float32}


def test_an_autocast_of_the_network_itself_is_part_of_it() -> None:
    class Own(Noted):
        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                return super().forward(x)

    net = Own().eval()
    list(rf.certify(net, inputs(), sigma=0.5, n=200, check=False))
    assert net.types == {torch.bfloat16}
