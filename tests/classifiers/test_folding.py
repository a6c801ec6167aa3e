from __future__ import annotations

import torch
from torch import Tensor, fx, nn

from ringfence.classifiers import SoftVote, fold_batch_norm
from ringfence.classifiers.architectures import resnet
from ringfence.classifiers.folding import _of_a_known_class
from ringfence.classifiers.joining import Cut, Joined, cut_as_products


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


def test_networks_that_differ_in_weights_alone_are_of_one_class() -> None:
    """torch's compiler makes a graph for every class of traced networks."""
    members, x = [trained_like(8), trained_like(8), trained_like(14)], torch.randn(4, 3, 32, 32)
    with torch.no_grad():
        members[1].linear.weight.mul_(2)
    folded = [fold_batch_norm(one) for one in members]
    assert type(folded[0]) is type(folded[1])
    assert type(folded[0]) is not type(folded[2])
    for one, member in zip(folded, members, strict=True):
        torch.testing.assert_close(one(x), member(x), rtol=1e-3, atol=1e-4)


def test_networks_whose_names_mean_other_functions_are_not() -> None:
    def times(factor: float) -> fx.GraphModule:
        def scaled(x: Tensor) -> Tensor:
            return factor * x

        graph = fx.Graph()
        graph.output(graph.call_function(scaled, (graph.placeholder("x"),)))
        return _of_a_known_class(fx.GraphModule(nn.Module(), graph))

    twice, thrice = times(2), times(3)
    assert twice.code == thrice.code
    assert [float(one(torch.ones(1))) for one in (twice, thrice)] == [2, 3]


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x).flatten(1)[:, :2] if float(x.sum()) > 0 else x.flatten(1)[:, :2]


def test_networks_that_cannot_be_traced_stay_as_they_are() -> None:
    model, x = Branching().eval(), torch.rand(2, 3, 4, 4)
    torch.testing.assert_close(fold_batch_norm(model)(x), model(x))


class Residual(nn.Module):
    """Sums and ReLUs of every kind around convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three = (nn.Conv2d(4, 4, 3, padding=1) for _ in range(3))
        self.norm, self.act, self.nothing = nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.nothing(self.norm(self.one(x))))
        left = self.two(x)
        left += x
        left = torch.relu(left)
        right = self.three(left)
        return torch.nn.functional.relu(x + right) + right  # read again


def test_what_follows_a_convolution_is_joined_to_it() -> None:
    torch.manual_seed(0)
    model, x = Residual().eval(), torch.randn(2, 4, 6, 6)
    joined = fold_batch_norm(model, joined=True)
    assert [isinstance(getattr(joined, name), Joined) for name in ("one", "two", "three")] == [True, True, False]
    torch.testing.assert_close(joined(x), model(x), rtol=1e-4, atol=1e-5)


def test_a_residual_network_is_joined_throughout() -> None:
    model, x = trained_like(8), torch.randn(4, 3, 32, 32)
    joined = fold_batch_norm(model, joined=True)
    assert sum(isinstance(part, Joined) for part in joined.modules()) == 7
    assert type(joined) is not type(fold_batch_norm(model))
    torch.testing.assert_close(joined(x), model(x), rtol=1e-3, atol=1e-4)


def test_patches_side_by_side_are_cut_as_products() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 4, 4), nn.ReLU(), nn.Conv2d(8, 5, 1), nn.Conv2d(5, 5, 2, 2, padding=1))
    x = torch.randn(2, 3, 18, 16)
    cut = cut_as_products(model)
    assert [type(one) for one in cut] == [Cut, nn.ReLU, nn.Conv2d, nn.Conv2d]
    torch.testing.assert_close(cut(x), model(x), rtol=1e-4, atol=1e-5)
    assert type(model[0]) is nn.Conv2d
