"""Exact noise in a certification: what the network sees, which inputs it is about, and what an attacker gains."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from toys import Buckets, Double

import ringfence as rf
from ringfence.data import Input
from ringfence.errors import ArgumentError, DataError
from ringfence.noise.exact import FARTHEST, Law, fill_integers, in_steps, onto_lattice
from ringfence.sampling import CHUNK, ForwardPlan, Precision, chunk_key
from ringfence.stats.lattice import thresholds

EXACT = rf.Gaussian(0.25, "exact")
CPU = rf.Execution(device="cpu", plan=ForwardPlan(70))


def records(
    classifier: nn.Module,
    inputs: list[Tensor],
    noise: rf.Gaussian,
    n: int = 300,
    precision: Precision = "fp32",
    batch: int = 70,
) -> list[rf.Record]:
    execution = rf.Execution(device="cpu", plan=ForwardPlan(batch, precision))
    items = [Input(number, x, None, str(number), range_told=True) for number, x in enumerate(inputs)]
    test = rf.Fixed(n0=20, n=n)
    found = rf.certify(classifier, items, noise=noise, procedure=test, execution=execution, precision=precision)
    return sorted(found, key=lambda record: record.input_id)


class Watched(nn.Module):
    """Keeps every row it is shown, in one list for all copies that are made of it."""

    seen: ClassVar[list[Tensor]] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(x.clone())
        return torch.stack([x.flatten(1).sum(1), -x.flatten(1).sum(1)], 1).float()


def test_what_the_form_is() -> None:
    assert rf.Gaussian(0.25, form="exact", lattice=255) == EXACT
    assert EXACT.settings() == {"family": "gaussian", "sigma": 0.25, "form": "exact", "lattice": 255}
    assert rf.Gaussian(0.25).settings() == {"family": "gaussian", "sigma": 0.25, "form": "auto", "lattice": None}
    for wrong in (
        {"form": "fixed"},
        {"lattice": 255},
        {"form": "exact", "lattice": 0},
        {"form": "exact", "lattice": 2.0},
    ):
        with pytest.raises(ArgumentError, match=r"form|lattice"):
            rf.Gaussian(0.25, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_network_sees_lattice_points_and_nothing_else(precision: Precision) -> None:
    watched, x = Watched(), torch.randint(0, 256, (3, 5, 5)) * (1 / 255)  # rounded otherwise than / 255
    watched.seen.clear()
    (record,) = records(watched, [x], EXACT, precision=precision)
    drawn = torch.empty(3 * CHUNK, 75)
    for chunk, part in enumerate(drawn.split(CHUNK)):
        fill_integers(part, chunk_key(0, 0, 1, chunk), Law("gaussian", 0.25, 255))
    wanted = (torch.round(x * 255).flatten() + drawn[:300]) * (1 / 255)
    dtype = torch.float32 if precision == "fp32" else torch.bfloat16
    rows = torch.cat(watched.seen[-5:]).flatten(1)  # those of the run; checks before it nudge rows on purpose
    assert rows.dtype == dtype
    seen = {bytes(row.float().numpy()) for row in rows}
    assert all(bytes(row.to(dtype).float().numpy()) in seen for row in wanted)
    if precision == "fp32":
        steps = torch.round(rows * 255)
        assert torch.equal(rows, steps * (1 / 255))
    assert record.draws == 320


def test_draws_do_not_depend_on_batches() -> None:
    inputs = [torch.full((4,), place / 255) for place in (0, 40, 255)]
    counts = [
        [
            [stage.cells["votes"].tolist() for stage in one.stages]
            for one in records(Buckets(), inputs, EXACT, batch=batch)
        ]
        for batch in (70, 33, 512)
    ]
    assert counts[0] == counts[1] == counts[2]


class LowBits(nn.Module):
    """Class 0 where some coordinate is no multiple of 2^-29 (Voracek and Hein 2023 attack float noise so)."""

    def forward(self, x: Tensor) -> Tensor:
        scaled = x.flatten(1).double() * 2**29
        odd = (scaled != scaled.round()).any(1)
        return torch.stack([odd, ~odd], 1).float()


def test_low_bits_break_a_certificate_of_float_noise_and_none_of_exact_noise() -> None:
    """At 0 float32 resolves small noise finely; 1/32 added, nothing below 2^-29 is left, whatever was drawn."""
    start, moved = torch.zeros(784), torch.full((784,), 1 / 32)
    distance = float(moved.norm())
    assert distance == 0.875
    at_0, near = records(LowBits(), [start, moved], rf.Gaussian(0.5), n=3000)
    assert at_0.prediction == 0
    assert at_0.radius > 1.4
    assert near.prediction == 1  # a false certificate: the other class, well inside
    moved = torch.full((784,), 8 / 255)
    at_0, near = records(LowBits(), [start, moved], rf.Gaussian(0.5, "exact"), n=3000)
    assert [at_0.prediction, near.prediction] == [0, 0]
    assert float(moved.norm()) < at_0.radius  # the same move, and what was certified holds there


class EveryBit(nn.Module):
    """Scores that change with any bit of any coordinate."""

    def forward(self, x: Tensor) -> Tensor:
        bits = x.float().flatten(1).contiguous().view(torch.int32).long()
        mixed = (bits * torch.arange(1, bits.shape[1] + 1) % 65521).sum(1) % 8191
        return torch.stack([mixed.float(), 8191 - mixed.float()], 1)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("lattice", [255, 100, 511])
def test_rows_asked_again_are_the_very_same(precision: Precision, lattice: int) -> None:
    """Were one of them another, its scores would be, and the run would end with a classifier that changed."""
    noise = rf.Gaussian(0.25, "exact", lattice)
    inputs = [torch.full((16,), place / lattice) for place in (0, 31, lattice)]
    assert len(records(EveryBit(), inputs, noise, n=3000, precision=precision, batch=200)) == 3


# Which inputs it is about -------------------------------------------------------------------------------------------


def test_inputs_off_the_lattice_are_refused() -> None:
    """A certificate about a point nearby is none about the input."""
    off, on = torch.tensor([0.1234, 0.9015]), torch.tensor([31.0, 230.0]) / 255
    rule = r"input 1: exact noise needs inputs on the lattice of step 1/255; got 2 of 2 values off it, such as 0.1234"
    with pytest.raises(DataError, match=rule):
        records(Buckets(), [on, off], EXACT)
    assert len(records(Buckets(), [on, off], rf.Gaussian(0.25))) == 2


def normalised(x: Tensor, mean: float, std: float) -> Tensor:
    """There and back, as torchvision's Normalize and its inverse."""
    return ((x - mean) / std - (-mean / std)) / (1 / std)


def test_images_are_on_the_lattice_however_they_were_divided() -> None:
    steps = torch.arange(256.0)
    x = steps / 255
    ways = [x, steps * (1 / 255), (steps.double() / 255).float(), steps.double() / 255, x * 255 / 255]
    ways += [((x * 2 - 1) + 1) / 2, (steps / 127.5 - 1 + 1) / 2, 0.299 * x + 0.587 * x + 0.114 * x]
    ways += [normalised(x, *both) for both in ((0.485, 0.229), (0.456, 0.224), (0.406, 0.225), (0.1307, 0.3081))]
    ways += [torch.tensor([round(one, 6) for one in (steps.double() / 255).tolist()])]  # as text
    for way in ways:
        assert torch.equal(onto_lattice("x", way, 255), x.mul(255).round() * (1 / 255))


@pytest.mark.parametrize("lattice", [7, 255])
@pytest.mark.parametrize("away", [-1e-6, 1e-6])
def test_an_input_nearly_on_the_lattice_is_another_input(lattice: int, away: float) -> None:
    """In 3 x 224 x 224 coordinates a millionth each is 4e-4 in l2: a radius about the image beside it says less."""
    nearly = torch.arange(lattice + 1.0, dtype=torch.float64) / lattice + away
    remedy = rf"Round what should lie on it yourself: \(x \* {lattice}\).round\(\) / {lattice}"
    with pytest.raises(DataError, match=f"got {lattice + 1} of {lattice + 1} values off it.*{remedy}"):
        onto_lattice("x", nearly, lattice)
    rounded = (nearly.float() * lattice).round() / lattice
    assert torch.equal(onto_lattice("x", rounded, lattice), torch.arange(lattice + 1.0) * (1 / lattice))


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_half_precision_has_no_8_bit_images(kind: torch.dtype) -> None:
    with pytest.raises(DataError, match="on the lattice of step 1/255"):
        onto_lattice("x", (torch.arange(256.0) / 255).to(kind), 255)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e6])
def test_inputs_that_no_sum_is_exact_for_are_refused(value: float) -> None:
    with pytest.raises(DataError, match="exact noise needs finite inputs"):
        onto_lattice("x", torch.tensor([0.5, value]), 255)


@pytest.mark.parametrize("lattice", [7, 255, 1000, 4095, 65535])
def test_an_input_stays_the_lattice_point_that_it_is(lattice: int) -> None:
    """It is brought onto the lattice once by whoever reads it, and again wherever draws are made: by then it is one of
    float32's numbers next to the point, and must not have become one next to another point."""
    farthest = torch.arange(FARTHEST - 100_000, FARTHEST + 1, dtype=torch.float64)
    read = onto_lattice("x", (farthest / lattice).float(), lattice)
    assert torch.equal(in_steps(onto_lattice("x", read, lattice), lattice).double(), farthest)


def test_a_lift_is_refused() -> None:
    inputs = [Input(0, torch.zeros(4), None, "0")]
    with pytest.raises(ArgumentError, match=r"to be exact.*exact in steps of 1/255, lift double.*Use float noise"):
        list(rf.certify(Buckets(), inputs, noise=EXACT, procedure=rf.Fixed(n=100), lift=Double(), execution=CPU))


def test_the_number_of_coordinates_is_that_of_the_input() -> None:
    """Radii of the run are those of the bounds under the law over 3 x 40 x 40 coordinates, to the last bit."""
    test = rf.Fixed(n0=20, n=1000)
    inputs = [Input(0, torch.full((3, 40, 40), 1.0), None, "0")]
    (record,) = rf.certify(Buckets((0.0, 0.1)), inputs, noise=EXACT, procedure=test, execution=CPU)
    law = EXACT.law
    wanted = float(rf.neyman_pearson(record.p_a, record.p_b, law.over(4800)))
    assert record.radius == wanted != float(rf.neyman_pearson(record.p_a, record.p_b, law.over(1)))


def test_exact_noise_in_units_of_the_input_is_its_integers_in_steps() -> None:
    out = torch.empty(50, 2000)
    EXACT.fill(out, 3)
    steps = out * 255
    assert torch.allclose(steps, steps.round(), atol=1e-3)
    assert float(out.std()) == pytest.approx(0.25, rel=0.02)
    EXACT.fill_steps(out, 3)
    assert torch.equal(out, steps.round())
    assert float(out.max()) <= thresholds("gaussian", 0.25, 255).highest


@pytest.mark.parametrize("sigma", ["0.5", None, 0.0, -1.0, float("nan"), float("inf")])
def test_a_sigma_that_is_no_positive_number_is_refused(sigma: Any) -> None:
    with pytest.raises(ArgumentError, match="sigma: must be a positive number"):
        rf.Gaussian(sigma)
