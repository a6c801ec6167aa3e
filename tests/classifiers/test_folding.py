from __future__ import annotations

import torch
from torch import nn

from ringfence.classifiers import SoftVote, fold_batch_norm
from ringfence.classifiers.architectures import resnet


def trained_like(depth: int) -> nn.Module:
    """A network whose norms have seen data, so that folding changes the weights."""
    torch.manual_seed(depth)
    model = resnet(depth)
    for _ in range(3):
        model(torch.randn(16, 3, 32, 32))
    return model.eval()


def norms(module: nn.Module) -> int:
    return sum(isinstance(part, nn.BatchNorm2d) for part in module.modules())


def test_folded_networks_give_the_same_scores_without_norms() -> None:
    model, x = trained_like(8), torch.randn(4, 3, 32, 32)
    folded = fold_batch_norm(model)
    assert norms(model) > 0
    assert norms(folded) == 0
    torch.testing.assert_close(folded(x), model(x), rtol=1e-3, atol=1e-4)


def test_members_of_an_ensemble_are_folded_one_by_one() -> None:
    ensemble, x = SoftVote([trained_like(8), trained_like(14)]).eval(), torch.randn(4, 3, 32, 32)
    folded = fold_batch_norm(ensemble)
    assert norms(folded) == 0
    torch.testing.assert_close(folded(x), ensemble(x), rtol=1e-3, atol=1e-4)


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x).flatten(1)[:, :2] if float(x.sum()) > 0 else x.flatten(1)[:, :2]


def test_networks_that_cannot_be_traced_stay_as_they_are() -> None:
    model, x = Branching().eval(), torch.rand(2, 3, 4, 4)
    torch.testing.assert_close(fold_batch_norm(model)(x), model(x))
