"""Law: nothing is certified under noise that the mechanism has no proof for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import pytest
import torch
from torch import Tensor
from toys import Buckets, Double

import ringfence as rf
from ringfence.errors import ArgumentError
from ringfence.lift import Lift
from ringfence.mechanisms import MECHANISMS, Mechanism
from ringfence.noise import Noise
from ringfence.stats import NoiseLaw
from ringfence.types import FloatArray


@final
@dataclass(frozen=True)
class Logistic(Noise):
    """Independent Logistic coordinates."""

    scale: float

    @property
    def law(self) -> NoiseLaw:
        return NoiseLaw("logistic", self.scale)

    def fill(self, out: Tensor, key: int) -> None:
        generator = torch.Generator().manual_seed(key % 2**31)
        out.copy_(torch.rand(out.shape, generator=generator).logit(1e-7) * self.scale)


@final
class L1(Mechanism):
    """Any positive radius, in l1."""

    name, families, norm = "l1", frozenset({"logistic"}), "l1"

    def _radius(self, p_a: FloatArray, p_b: FloatArray, law: NoiseLaw) -> FloatArray:
        return p_a - p_b


X = [torch.full((1,), 0.75)]


@pytest.mark.parametrize("rule", MECHANISMS.values(), ids=MECHANISMS)
@pytest.mark.parametrize("procedure", [rf.Fixed(n=100), rf.Sequential(0.1, n=200), rf.Predict(n=50)])
def test_logistic_noise_gets_no_certificate_of_ours(rule: Mechanism, procedure: rf.Procedure) -> None:
    with pytest.raises(ArgumentError, match=f"{rule.spelled} is a proof about .* noise; got logistic noise"):
        list(rf.certify(Buckets(), X, noise=Logistic(0.5), procedure=procedure, mechanism=rule))


def test_nor_does_a_mechanism_recorded_beside_one_that_is_proved() -> None:
    with pytest.raises(ArgumentError, match="renyi is a proof about gaussian noise"):
        list(
            rf.certify(
                Buckets(),
                X,
                noise=Logistic(0.5),
                procedure=rf.Fixed(n=100),
                mechanism=L1(),
                also=(MECHANISMS["renyi"],),
            )
        )


def test_its_own_mechanism_serves_it_but_not_behind_a_lift_bounded_in_another_norm() -> None:
    def run(lift: Lift) -> list[rf.Record]:
        told = {"noise": Logistic(0.01), "procedure": rf.Fixed(n=100), "mechanism": L1(), "lift": lift}
        return list(rf.certify(Buckets(), X, **told))  # type: ignore[arg-type]

    assert run(rf.Identity())[0].radius > 0
    with pytest.raises(ArgumentError, match="no certified bound in l1, the norm of l1; got double"):
        run(Double())


def test_a_noise_must_say_what_it_draws() -> None:
    class Silent(Noise):
        """No law."""

        def fill(self, out: Tensor, key: int) -> None:
            out.zero_()

    with pytest.raises(TypeError, match="law"):
        Silent()  # type: ignore[abstract]


def test_a_record_names_the_norm_of_its_radius() -> None:
    told = {"noise": Logistic(0.01), "procedure": rf.Fixed(n=100), "mechanism": L1()}
    assert [one.norm for one in rf.certify(Buckets(), X, **told)] == ["l1"]  # type: ignore[arg-type]
    assert [one.norm for one in rf.certify(Buckets(), X, noise=rf.Gaussian(0.1), procedure=rf.Fixed(n=100))] == ["l2"]
