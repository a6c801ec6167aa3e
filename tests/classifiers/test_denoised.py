"""A denoiser in front: composition, the diffusion adapter's arithmetic, and what is refused."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from ringfence.classifiers import SoftVote
from ringfence.classifiers.architectures import LeNet
from ringfence.classifiers.architectures.denoisers import CDnCNN, DnCNN, FDnCNN, FFDNet
from ringfence.classifiers.denoised import Denoised, DiffusionDenoiser
from ringfence.errors import ArgumentError, ClassifierError

ALPHAS = [0.999, 0.9, 0.8, 0.5, 0.2, 0.05]


class Half(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x / 2


def test_the_classifier_sees_the_denoised_batch_and_work_counts_both() -> None:
    classifier = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    x = torch.rand(5, 1, 2, 2)
    found = Denoised(Half(), classifier).score(x)
    assert torch.equal(found.scores, classifier(x / 2))
    assert found.work == 2


def test_several_denoisers_vote() -> None:
    classifier = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    x = torch.rand(5, 1, 2, 2)
    vote = SoftVote([Denoised(Half(), classifier), Denoised(nn.Identity(), classifier)])
    assert torch.allclose(vote(x), (classifier(x / 2) + classifier(x)) / 2, atol=1e-6)
    assert vote.score(x).work == 4


def test_a_classifier_in_the_denoisers_place_is_refused() -> None:
    with pytest.raises(ClassifierError, match="returns the shape it was given"):
        Denoised(LeNet(), LeNet())(torch.rand(2, 1, 28, 28))


def test_dncnn_keeps_the_shape_and_has_the_published_layers() -> None:
    network = DnCNN(channels=3).eval()
    assert network(torch.rand(2, 3, 8, 8)).shape == (2, 3, 8, 8)
    convolutions = [one for one in network.modules() if isinstance(one, nn.Conv2d)]
    assert len(convolutions) == 17
    assert sum(one.numel() for one in DnCNN(channels=1).parameters()) == 556_097


def test_the_diffusion_adapter_inverts_the_forward_process() -> None:
    torch.manual_seed(0)
    x = torch.rand(4, 1, 3, 3)
    sigma = math.sqrt((1 - 0.5) / 0.5) / 2  # exactly the noise of step 3
    noise = torch.randn_like(x)
    seen: list[int] = []

    def knows_the_noise(scaled: Tensor, step: Tensor) -> Tensor:
        seen.extend(step.tolist())
        return noise

    cleaned = DiffusionDenoiser(knows_the_noise, ALPHAS, sigma)(x + sigma * noise)
    assert seen == [3, 3, 3, 3]
    assert torch.allclose(cleaned, x, atol=1e-5)
    clean = DiffusionDenoiser(lambda scaled, step: 2 * x - 1, ALPHAS, sigma, returns="clean")
    assert torch.allclose(clean(x + sigma * noise), x, atol=1e-6)


def test_bad_schedules_are_refused() -> None:
    for alphas in ([], [0.5, 0.9], [1.0, 0.5]):
        with pytest.raises(ArgumentError, match="alphas"):
            DiffusionDenoiser(lambda x, t: x, alphas, 0.5)
    with pytest.raises(ArgumentError, match="noise, clean or velocity"):
        DiffusionDenoiser(lambda x, t: x, ALPHAS, 0.5, returns="both")


def test_blind_denoisers_subtract_and_guided_ones_are_told_sigma() -> None:
    torch.manual_seed(0)
    x = torch.rand(2, 3, 6, 4)
    blind, told, halved = CDnCNN(depth=3, width=4), FDnCNN(0.25, depth=3, width=4), FFDNet(0.25, depth=3, width=4)
    torch.testing.assert_close(blind(x), x - blind.model(x))
    level = torch.full((2, 1, 6, 4), 0.25)
    torch.testing.assert_close(told(x), told.model(torch.cat([x, level], 1)))
    # A pixel's four neighbours in one 2 x 2 square become channels (colour, row, column), and back.
    squares = x.view(2, 3, 3, 2, 2, 2).permute(0, 1, 3, 5, 2, 4).reshape(2, 12, 3, 2)
    answer = halved.model(torch.cat([squares, level[:, :, :3, :2]], 1))
    spread = answer.view(2, 3, 2, 2, 3, 2).permute(0, 1, 4, 2, 5, 3).reshape(2, 3, 6, 4)
    torch.testing.assert_close(halved(x), spread)


@pytest.mark.parametrize("shape", [(5, 4), (4, 5), (7, 7)])
def test_ffdnet_pads_odd_sides_by_their_last_pixels(shape: tuple[int, int]) -> None:
    torch.manual_seed(1)
    network = FFDNet(0.1, channels=1, depth=3, width=4).eval()
    x = torch.rand(2, 1, *shape)
    rows, columns = ([*range(side), *[side - 1] * (side % 2)] for side in shape)
    whole = network(x[:, :, rows][..., columns])
    torch.testing.assert_close(network(x), whole[..., : shape[0], : shape[1]])
    halved = network.bfloat16()(x.bfloat16())
    assert halved.dtype == torch.bfloat16
    assert halved.shape == x.shape


def test_published_sizes_have_the_published_parameters() -> None:
    def count(network: nn.Module) -> int:
        return sum(one.numel() for one in network.parameters())

    assert count(CDnCNN()) == 668_227
    assert count(FDnCNN(0.25)) == 668_803
    assert count(FFDNet(0.25)) == 852_108
    assert count(FFDNet(0.25, channels=1, depth=15, width=64)) == 485_316
