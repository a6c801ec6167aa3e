"""``diffusion:FOLDER``: the step that belongs to sigma, and the posterior mean that a perfect network would give."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from foreign_models import saved_diffusion, saved_vit
from torch import Tensor

import ringfence as rf
from ringfence.errors import ModelError
from ringfence.models import load_model
from ringfence.models.diffusion import load_diffusion

MEANS = torch.tensor([-0.5, 0.1, 0.6])
WEIGHTS = torch.tensor([0.2, 0.5, 0.3])
SPREAD = 0.05
"""A mixture of Gaussians in [-1, 1], for every pixel by itself."""


def posterior_mean(noisy: Tensor, level: float) -> Tensor:
    """E[x0 | x0 + level e = noisy] for the mixture, in its own units, by Bayes' rule."""
    total = SPREAD**2 + level**2
    away = noisy[..., None] - MEANS
    share = (WEIGHTS.log() - away**2 / (2 * total)).softmax(-1)
    return (share * (MEANS + SPREAD**2 / total * away)).sum(-1)


@pytest.mark.parametrize("predicts", ["epsilon", "sample", "v_prediction"])
@pytest.mark.parametrize("sigma", [0.12, 0.25, 0.5, 1.0])
def test_a_perfect_network_gives_the_posterior_mean(
    tmp_path: Path, predicts: str, sigma: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved_diffusion(tmp_path, predicts)
    denoiser, _ = load_diffusion(str(tmp_path), sigma)
    alpha = denoiser.alpha
    # alpha-bar = 1 / (1 + 4 sigma^2): noise of sigma on [0, 1] is noise of 2 sigma on [-1, 1].
    assert alpha == pytest.approx(1 / (1 + 4 * sigma**2), rel=0.02)

    class Perfect(torch.nn.Module):
        """Predicts exactly, from x_t = sqrt(a) x0 + sqrt(1 - a) e."""

        def forward(self, x: Tensor, step: Tensor) -> Any:
            assert step.tolist() == [denoiser.step] * len(x)
            clean = posterior_mean(x / math.sqrt(alpha), math.sqrt((1 - alpha) / alpha))
            noise = (x - math.sqrt(alpha) * clean) / math.sqrt(1 - alpha)
            velocity = math.sqrt(alpha) * noise - math.sqrt(1 - alpha) * clean
            found = {"epsilon": noise, "sample": clean, "v_prediction": velocity}[predicts]
            return type("Output", (), {"sample": found})

    monkeypatch.setattr(denoiser.network, "unet", Perfect())
    torch.manual_seed(0)
    x0 = MEANS[torch.multinomial(WEIGHTS, 2 * 3 * 256, replacement=True)].view(2, 3, 16, 16)
    x0 = x0 + SPREAD * torch.randn(x0.shape)
    noisy = (x0 + 1) / 2 + sigma * torch.randn(x0.shape)  # in pixels
    expected = (posterior_mean(2 * noisy - 1, 2 * sigma) + 1) / 2
    torch.testing.assert_close(denoiser(noisy), expected, atol=2e-3, rtol=0)
    # It does denoise: nearer to the clean image than what it was given, by far.
    clean = (x0 + 1) / 2
    assert (denoiser(noisy) - clean).square().mean() < 0.7 * (noisy - clean).square().mean()


def test_a_unet_is_asked_as_diffusers_asks_it(tmp_path: Path) -> None:
    unet, schedule = saved_diffusion(tmp_path)
    denoiser, _ = load_diffusion(str(tmp_path), 0.25)
    x = torch.rand(2, 3, 16, 16)
    scaled = math.sqrt(denoiser.alpha) * (2 * x - 1)
    with torch.no_grad():
        predicted = unet(scaled, denoiser.step).sample
        found = schedule.step(predicted, denoiser.step, scaled).pred_original_sample  # type: ignore[attr-defined]
        torch.testing.assert_close(denoiser(x), (found.clamp(-1, 1) + 1) / 2, atol=1e-5, rtol=1e-5)


def test_the_level_comes_from_the_noise_and_is_part_of_the_digest(tmp_path: Path) -> None:
    saved_diffusion(tmp_path / "ddpm")
    saved_vit(tmp_path / "vit")
    tree = f"denoised(diffusion:{tmp_path / 'ddpm'}, hf:{tmp_path / 'vit'})"
    digests = {sigma: load_model(tree, sigma=sigma).digest for sigma in (0.25, 0.5)}
    assert len(set(digests.values())) == 2
    written = tree.replace("ddpm,", "ddpm@0.5,")
    assert load_model(written, sigma=0.25).digest == digests[0.5]
    x = torch.rand(2, 3, 16, 16)
    value = rf.Certification(tree, x, noise=rf.Gaussian(0.25), procedure=rf.Fixed(n=50))
    assert value.config().classifier.digest == digests[0.25]
    assert len(list(value.stream())) == 2
    with pytest.raises(ModelError, match=r"is told the noise level, which is not known here.*@0\.25"):
        load_model(tree)


def test_runs_with_a_diffusion_denoiser_are_attacked_as_they_were_certified(tmp_path: Path) -> None:
    from ringfence.attacks.target import AttackJob, certification_of, load_attacked
    from ringfence.store import RunFolder

    saved_diffusion(tmp_path / "ddpm")
    saved_vit(tmp_path / "vit")
    tree = f"denoised(diffusion:{tmp_path / 'ddpm'}, hf:{tmp_path / 'vit'})"
    value = rf.Certification(tree, torch.rand(1, 3, 16, 16), noise=rf.Gaussian(0.25), procedure=rf.Fixed(n=20))
    value.run(tmp_path / "run")
    run = RunFolder.open(tmp_path / "run")
    attacked = certification_of(AttackJob(tmp_path / "run"), run)
    assert load_attacked(attacked, run).digest == run.config.classifier.digest
