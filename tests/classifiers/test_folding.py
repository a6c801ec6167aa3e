from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import hardtanh

from ringfence.classifiers import Aces, NetworkSelector, SoftVote, fold_batch_norm
from ringfence.classifiers.architectures import resnet
from ringfence.classifiers.folding import _of_a_known_class
from ringfence.classifiers.joining import Joined, _fits
from ringfence.classifiers.reshaping import Cut, Halved, reshaped


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


def test_the_network_that_selects_is_folded_too() -> None:
    x = torch.randn(4, 3, 32, 32)
    selector = NetworkSelector(nn.Sequential(trained_like(8), nn.Linear(10, 2)), [0.2, 0.5])
    aces = Aces(trained_like(14), selector, trained_like(8)).eval()
    folded = fold_batch_norm(aces)
    assert norms(aces.select) > 0
    assert norms(folded) == 0
    torch.testing.assert_close(folded(x), aces(x), rtol=1e-3, atol=1e-4)


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
    cut = reshaped(model)
    assert [type(one) for one in cut] == [Cut, nn.ReLU, nn.Conv2d, nn.Conv2d]
    torch.testing.assert_close(cut(x), model(x), rtol=1e-4, atol=1e-5)
    assert type(model[0]) is nn.Conv2d


@pytest.mark.parametrize("size", [(7, 7, 3, 3), (3, 3, 1, 1), (5, 4, 0, 2), (3, 6, 2, 1)])
@pytest.mark.parametrize("pixels", [(12, 13), (15, 16)])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_two_by_two_pixels_are_the_channels_of_one(
    size: tuple[int, int, int, int], pixels: tuple[int, int], channels: int
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(channels, 6, size[:2], 2, size[2:]), nn.ReLU())
    found, x = reshaped(model), torch.randn(2, channels, *pixels)
    assert isinstance(found[0], Halved)
    assert found[0].convolution.in_channels % 8 == 0
    torch.testing.assert_close(found(x), model(x), rtol=1e-4, atol=1e-5)


def test_other_convolutions_keep_their_shape() -> None:
    others = [nn.Conv2d(3, 6, 3), nn.Conv2d(5, 6, 3, 2), nn.Conv2d(3, 6, 3, 2, groups=3), nn.Conv2d(3, 6, 3, (2, 1))]
    others += [nn.Conv2d(3, 6, 3, 2, dilation=2), nn.Conv2d(3, 6, 3, 2, 1, padding_mode="reflect")]
    assert all(type(one) is nn.Conv2d for one in reshaped(nn.Sequential(*others)))


class Bottleneck(nn.Module):
    """How networks for ImageNet begin, a shortcut with a convolution, and a sum of one with itself."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8)
        self.left, self.right, self.last = (nn.Conv2d(8, 8, 1) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.stem(x)))
        x = torch.relu(self.left(x) + self.right(x))
        last = self.last(x)
        return torch.relu(last + last)


def test_a_stem_and_two_convolutions_that_are_added_up_are_joined() -> None:
    torch.manual_seed(0)
    model, x = Bottleneck(), torch.randn(4, 3, 20, 20)
    for _ in range(3):
        model(x)
    model.eval()
    found = fold_batch_norm(reshaped(model), joined=True)
    assert [name for name, part in found.named_modules() if isinstance(part, Joined)] == ["stem.convolution", "right"]
    assert found.left.bias is None
    torch.testing.assert_close(found(x), model(x), rtol=1e-4, atol=1e-5)


def _clamped(model: Bottleneck, x: Tensor) -> Tensor:
    found = model.left(x)
    return torch.relu(found + hardtanh(x, -2, 2, inplace=True))


def _doubled(model: Bottleneck, x: Tensor) -> Tensor:
    found = model.left(x)
    x.mul_(2)
    return torch.relu(found)


def _through_a_view(model: Bottleneck, x: Tensor) -> Tensor:
    rows = x.flatten(1)
    found = model.left(x)
    rows.clamp_(max=1)
    return torch.relu(found + x)


@pytest.mark.parametrize("after", [_clamped, _doubled, _through_a_view])
def test_a_convolution_stays_before_what_changes_its_input(after: Callable[[Bottleneck, Tensor], Tensor]) -> None:
    """Where a clamp seldom acts, no comparison of a few rows would have told."""

    class Changing(Bottleneck):
        def forward(self, x: Tensor) -> Tensor:
            return after(self, self.norm(self.stem(x)))

    torch.manual_seed(0)
    model, x = Changing().eval(), 9 * torch.randn(4, 3, 20, 20)
    torch.testing.assert_close(fold_batch_norm(model, joined=True)(x), model(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "shape", [(2, 6, 4, 5), (2, 6, 1, 1), (1, 6, 4, 5), (6, 4, 5), (), (2, 1, 4, 5), (2, 6, 8, 5), (3, 2, 6, 4, 5)]
)
def test_only_a_shortcut_of_the_outputs_shape_and_type_is_given_to_the_kernel(shape: tuple[int, ...]) -> None:
    model, x = nn.Conv2d(3, 6, 3, (2, 1), (1, 2), (1, 2)), torch.zeros(2, 3, 7, 5)
    out, shortcut = model(x), torch.zeros(shape)
    how = [list(one) for one in (model.stride, model.padding, model.dilation)]
    assert _fits(x, model.weight, shortcut, *how) == (shortcut.shape == out.shape)
    assert not _fits(x, model.weight, shortcut.double(), *how)


@pytest.mark.parametrize("rows", [8191, 8192])
def test_tensors_that_32_bits_cannot_address_are_not_given_to_the_kernel(rows: int) -> None:
    x, weight = torch.empty(rows, 8, 32, 32, device="meta"), torch.empty(256, 8, 1, 1, device="meta")
    assert _fits(x, weight, None, [1, 1], [0, 0], [1, 1]) == (rows < 8192)


@pytest.mark.parametrize(("shape", "kind"), [((2, 6, 4, 5), torch.float64), ((3, 2, 6, 4, 5), torch.float32)])
def test_compilers_are_told_what_a_joined_convolution_answers(shape: tuple[int, ...], kind: torch.dtype) -> None:
    model, x, shortcut = Joined(nn.Conv2d(3, 6, 1)), torch.zeros(2, 3, 4, 5), torch.zeros(shape, dtype=kind)
    found = model(x, shortcut)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        told = model(*(mode.from_tensor(one) for one in (x, shortcut)))
    assert (told.shape, told.dtype) == (found.shape, found.dtype)
