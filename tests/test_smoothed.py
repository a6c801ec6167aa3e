"""One model, one sigma: the short way in."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from toys import BucketLanes, Buckets

import ringfence as rf
from ringfence.errors import ArgumentError, ClassifierError, DataError
from ringfence.mechanisms import one_sided
from ringfence.sampling import ForwardPlan, fastest_plan, probe

X = torch.tensor([[0.25, 0.0], [1.6, 0.0], [0.5, 0.0]])


@pytest.fixture
def smoothed() -> rf.Smoothed:
    return rf.Smoothed(Buckets(), sigma=0.5, num_classes=4, execution=rf.Execution(device="cpu", batch=100))


def test_a_batch_gives_a_record_per_input_in_order(smoothed: rf.Smoothed) -> None:
    many = smoothed.certify(X, n=1000)
    assert [record.input_id for record in many] == [0, 1, 2]
    assert (many[1].prediction, many[1].procedure) == (3, "fixed")
    assert 0 < many[1].radius < 0.6  # the truth for a cut at 1.0 is 0.6
    listed = smoothed.certify(list(X), n=1000)
    assert [(one.prediction, one.radius) for one in listed] == [(one.prediction, one.radius) for one in many]
    [alone] = smoothed.certify(X[:1], n=1000)
    assert alone.radius == many[0].radius


def test_bytes_get_exact_noise_as_they_do_everywhere() -> None:
    """What is proved then holds for what is computed; floats may be anything."""
    off: list[float] = []

    class Watched(Buckets):
        def forward(self, x: Tensor) -> Tensor:
            off.append(float((x * 255 - (x * 255).round()).abs().max()))
            return super().forward(x)

    watched = rf.Smoothed(Watched(), 0.5, 4, execution=rf.Execution("cpu", plan=ForwardPlan(100)))
    x = torch.tensor([[10, 200], [3, 4]], dtype=torch.uint8)
    for batch, exact in ((x, True), (x.numpy(), True), (list(x), True), (x / 200, False)):
        off.clear()
        watched.certify(batch, n=200)
        assert (max(off) < 1e-3) == exact


def test_a_single_input_is_no_batch(smoothed: rf.Smoothed) -> None:
    for call in (smoothed.certify, smoothed.predict):
        with pytest.raises(DataError, match=r"batch: must be a batch .*got shape \(2,\).*x\[None\]"):
            call(X[0], n=100)


class Picture(nn.Module):
    """A network of images (B, 3, 4, 4), as most are: it takes no other shape."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 2, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.net(x)
        return scores


def test_an_image_is_not_taken_for_a_batch_of_its_channels() -> None:
    image = torch.rand(3, 4, 4)
    smoothed = rf.Smoothed(Picture(), sigma=0.5, execution=rf.Execution(device="cpu", batch=100))
    with pytest.raises(ClassifierError):
        smoothed.certify(image, n=100)
    assert len(smoothed.certify(image[None], n=100)) == 1


def test_a_radius_asks_the_sequential_test(smoothed: rf.Smoothed) -> None:
    [record] = smoothed.certify(X[1:2], radius=0.3)
    assert (record.procedure, record.target, record.radius, record.prediction) == ("sequential", 0.3, 0.3, 3)
    assert smoothed.certify(X[1:2], radius=0.3, n=2000)[0].draws <= 2100
    assert smoothed.certify(X[2:], radius=0.3, n=2000)[0].abstained


def test_alpha_procedure_mechanism_and_seed_are_passed_on(smoothed: rf.Smoothed) -> None:
    [loose], [strict] = (smoothed.certify(X[1:2], n=500, alpha=alpha) for alpha in (0.1, 1e-6))
    assert (loose.alpha, strict.alpha) == (0.1, 1e-6)
    assert loose.radius > strict.radius
    [chosen] = smoothed.certify(X[1:2], procedure=rf.TwoSided(n=800), mechanism=one_sided, seed=5)
    assert (chosen.procedure, list(chosen.radii), chosen.seed) == ("two-sided", ["one_sided"], 5)


def test_predict_claims_a_class_and_no_radius(smoothed: rf.Smoothed) -> None:
    [record] = smoothed.predict(X[1:2])
    assert (record.prediction, record.radius, record.procedure, record.draws) == (3, 0.0, "predict", 1000)
    many = smoothed.predict(list(X), n=200, alpha=0.01)
    assert [one.draws for one in many] == [200, 200, 200]


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[ForwardPlan]:
    """Every plan that is looked for, as the run has it."""
    found: list[ForwardPlan] = []

    def remembered(*given: Any, **named: Any) -> ForwardPlan:
        found.append(fastest_plan(*given, **named))
        return found[-1]

    monkeypatch.setattr("ringfence.work.fastest_plan", remembered)
    return found


def test_a_forward_shape_that_takes_time_to_find_is_found_once(
    plans: list[ForwardPlan], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "SHORT_RUN", 100)
    smoothed = rf.Smoothed(Buckets(), sigma=0.5, execution=rf.Execution(device="cpu"))
    smoothed.certify(X, n=100)
    smoothed.predict(X, n=300)
    assert len(plans) == 1


def test_each_call_has_the_rows_that_suit_it(plans: list[ForwardPlan]) -> None:
    """A first call for one input is not what a table of them should run in, nor the other way round."""
    smoothed = rf.Smoothed(Buckets(), sigma=0.5, execution=rf.Execution(device="cpu"))
    for batch, n in ((X[:1], 100), (X, 40_000), (X[:1], 100)):
        smoothed.certify(batch, n=n)
    assert [plan.batch for plan in plans] == [
        probe.FEATURES_USUAL,
        probe.LARGE_FEATURES_BATCH,
        probe.FEATURES_USUAL,
    ]


def test_a_plan_that_was_given_is_kept(plans: list[ForwardPlan]) -> None:
    rf.Smoothed(Buckets(), 0.5, execution=rf.Execution("cpu", plan=ForwardPlan(50))).certify(X, n=100)
    assert not plans


def test_bad_arguments(smoothed: rf.Smoothed) -> None:
    with pytest.raises(ArgumentError, match="sigma"):
        rf.Smoothed(Buckets(), sigma=0.0)
    with pytest.raises(DataError, match="at least one input"):
        smoothed.certify([])
    with pytest.raises(ArgumentError, match="alpha"):
        smoothed.certify(X[:1], alpha=2.0)
    with pytest.raises(ArgumentError, match="n: must be at least 1"):
        smoothed.certify(X[:1], n=0)
    with pytest.raises(ClassifierError, match="7 scores"):
        rf.Smoothed(Buckets(), sigma=0.5, num_classes=7).certify(X[:1], n=100)


def test_several_lanes_are_no_single_classifier() -> None:
    several = rf.Smoothed(BucketLanes(), sigma=0.5, execution=rf.Execution(device="cpu", batch=100))
    with pytest.raises(ClassifierError, match=r"one lane for each name, main; got 2 lanes.*certify\(\)"):
        several.certify(X[:1], n=100)
