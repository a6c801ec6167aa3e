"""Uniform and Laplace noise as drawn: their law in both forms, on the host, by the kernel's arithmetic, in training."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import kstest
from torch import Tensor

import ringfence as rf
from ringfence import laws
from ringfence.errors import ArgumentError
from ringfence.named_parts import noise_of
from ringfence.noise import NOISES, Noise, noise_with, philox
from ringfence.stats import NoiseLaw
from ringfence.training.data import Batch, TrainingNoise
from ringfence.training.job import TrainingJob

FAMILIES = (rf.Gaussian, rf.Uniform, rf.Laplace)
every_family = pytest.mark.parametrize("kind", FAMILIES, ids=lambda kind: kind.name)


@every_family
def test_every_family_is_drawn_by_its_law(kind: type[rf.Gaussian]) -> None:
    laws.check_noise(kind(0.7))
    laws.check_noise(kind(0.7, "exact", 1000))  # so many steps that rounding to them is not seen


@every_family
def test_a_draw_depends_on_its_key_alone_and_odd_sizes_are_filled(kind: type[rf.Gaussian]) -> None:
    for noise in (kind(0.5), kind(0.5, "exact")):
        out, again = torch.full((3, 7), torch.nan), torch.empty(3, 7)
        noise.fill(out, (1 << 64) - 5)
        noise.fill(again, (1 << 64) - 5)
        assert torch.equal(out, again)
        assert torch.isfinite(out).all()


@every_family
@pytest.mark.parametrize("shape", [(3, 7), (100, 30), (100, 1, 28, 28)], ids=str)
def test_keys_drawn_together_have_the_draws_of_each_alone(kind: type[rf.Gaussian], shape: tuple[int, ...]) -> None:
    for noise in (kind(0.5), kind(0.5, "exact")):
        keys = [(1 << 64) - 5, *range(24)]  # of features more than are drawn at once
        together = torch.full((len(keys), *shape), torch.nan)
        noise.fill_chunks(together, keys)
        alone = torch.empty(shape)
        for key, found in zip(keys, together, strict=True):
            noise.fill_steps(alone, key)
            assert torch.equal(found, alone)


@pytest.mark.parametrize("shape", [(100, 3, 32, 32), (100, 7), (3, 5)], ids=str)
def test_gaussian_numbers_are_those_of_their_words(shape: tuple[int, ...]) -> None:
    """Large draws are made piece by piece, in threads where there are some."""
    drawn = torch.empty(shape)
    rf.Gaussian(0.5).fill(drawn, 7)
    half = (drawn.numel() + 1) // 2
    first, second = np.random.SFC64(7).random_raw(half).view(np.int32).reshape(2, half).astype(np.int64)
    radius = 0.5 * np.sqrt(-2 * np.log(((first & 0x7FFFFFFF) + 1) * 2.0**-31))
    angle = second * (np.pi * 2.0**-31)
    wanted = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[: drawn.numel()]
    assert np.abs(drawn.numpy().ravel() - wanted).max() < 1e-4  # near u = 1 float32 knows few digits of ln u


@every_family
def test_the_reference_of_the_kernel_has_the_law(kind: type[rf.Gaussian]) -> None:
    """What the kernel is checked against on its device before it is used."""
    drawn = philox.REFERENCES[kind.name]((1 << 64) - 5, 3, 200_001)
    assert drawn.shape == (200_001,)
    assert kstest(drawn, NoiseLaw(kind.name, 1.0).cdf).pvalue > 1e-6
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 5 / len(drawn) ** 0.5


@every_family
def test_the_check_of_a_kernel_knows_its_families(kind: type[rf.Gaussian]) -> None:
    def kernel(out: Tensor, clean: Tensor, table: Tensor, sigma: float, family: str) -> None:
        for row, (slot, key, place) in zip(out, table.T.tolist(), strict=True):
            drawn = philox.REFERENCES[family](key % (1 << 64), place, row.numel())
            row.copy_(clean[slot] + sigma * torch.from_numpy(drawn))

    def another(out: Tensor, clean: Tensor, table: Tensor, sigma: float, family: str) -> None:
        kernel(out, clean, table, sigma, "uniform" if family != "uniform" else "laplace")

    assert philox.are_drawn_by(kernel, torch.device("cpu"), kind.name)
    assert not philox.are_drawn_by(another, torch.device("cpu"), kind.name)


def test_names_and_parameters() -> None:
    assert set(NOISES) == {"gaussian", "uniform", "laplace"}
    assert rf.Laplace(2.0).scale == pytest.approx(2**0.5)
    for kind in FAMILIES:
        exact = kind(0.5, "exact")
        assert noise_of(exact.settings()) == exact == noise_with(kind.name, 0.5, "exact", 255)
        with pytest.raises(ArgumentError, match="sigma: must be a positive number"):
            kind(-1.0)


@every_family
def test_training_draws_the_family(kind: type[rf.Gaussian]) -> None:
    job = TrainingJob(noise=kind.name, sigma=0.3)
    assert TrainingJob.of(job.config()) == job
    noise = TrainingNoise(job.sigma, unit=job.unit_noise)
    batch = Batch(torch.zeros(200, 1, 10, 10), torch.zeros(200, dtype=torch.int64))
    drawn = noise.draw(batch, 2, torch.Generator().manual_seed(1))
    assert drawn.shape == (2, 200, 1, 10, 10)
    assert kstest(drawn.flatten().numpy(), NoiseLaw(kind.name, 0.3).cdf).pvalue > 1e-6
    again = noise.draw(batch, 2, torch.Generator().manual_seed(1))
    assert torch.equal(drawn, again)


def test_gaussian_training_draws_what_it_always_drew() -> None:
    batch = Batch(torch.zeros(5, 3), torch.zeros(5, dtype=torch.int64))
    reached = torch.tensor(0.3)
    drawn = TrainingNoise(0.25, reached).draw(batch, 2, torch.Generator().manual_seed(4))
    wanted = torch.randn((2, 5, 3), generator=torch.Generator().manual_seed(4)) * (0.25 * reached)
    assert torch.equal(drawn, wanted)


def test_a_noise_of_a_plugin_can_be_trained_with() -> None:
    class Signs(Noise):
        """Plus or minus its scale."""

        law = NoiseLaw("signs", 0.5)

        def fill(self, out: Tensor, key: int) -> None:
            out.copy_(torch.from_numpy(np.random.default_rng(key).choice([-0.5, 0.5], tuple(out.shape))))

    drawn = Signs().standard((100, 3), torch.Generator().manual_seed(1))
    assert set(drawn.unique().tolist()) == {-1.0, 1.0}
    assert not torch.equal(drawn, Signs().standard((100, 3), torch.Generator().manual_seed(2)))


@every_family
@pytest.mark.parametrize("form", ["float", "exact"])
def test_batches_change_no_count(kind: type[rf.Gaussian], form: str) -> None:
    """The noise of a draw depends on seed, input, stage and place alone."""
    inputs = torch.randint(0, 256, (3, 1, 4, 4), generator=torch.Generator().manual_seed(0)) / 255

    def votes(batch: int) -> list[object]:
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Threshold(0.5, 0.0))
        found = rf.certify(
            model,
            inputs,
            noise=kind(0.5, form),
            procedure=rf.Fixed(n0=30, n=210),
            execution=rf.Execution("cpu", batch=batch),
        )
        order = sorted(found, key=lambda one: one.input_id)
        return [(one.radius, one.norm, [stage.cells["votes"].tolist() for stage in one.stages]) for one in order]

    assert votes(37) == votes(240)
