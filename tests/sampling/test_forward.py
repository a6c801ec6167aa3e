"""Only classifiers whose every row is a fixed function of that row are certified."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from toys import BucketLanes, Buckets, SomeInvalid

from ringfence.classifiers.architectures import build_architecture
from ringfence.classifiers.patches import Patches
from ringfence.errors import ArgumentError, ClassifierError
from ringfence.lift import noise_place
from ringfence.operators import Crops
from ringfence.sampling import Forward, ForwardPlan
from ringfence.sampling.check import checked_forward

CPU = torch.device("cpu")
SHAPE = (1, 6, 6)


class Call(nn.Module):
    """Any function as a classifier, with a fixed linear layer in front."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(36, 4)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.linear(x.flatten(1)))


class AlwaysTraining(nn.Module):
    """A batch norm that ignores eval mode."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.linear = nn.BatchNorm2d(1), nn.Linear(36, 4)

    def forward(self, x: Tensor) -> Tensor:
        self.norm.train()
        scores: Tensor = self.linear(self.norm(x).flatten(1))
        return scores


def check(module: nn.Module, batch: int = 16, num_classes: int = 4, **plan: object) -> int:
    """The number of lanes of a classifier that passes."""
    torch.manual_seed(1)
    sample = torch.randn(batch, *SHAPE) * 0.5 + 0.5
    wanted = ForwardPlan(batch, **plan)  # type: ignore[arg-type]
    checked = checked_forward(module, wanted, CPU, num_classes, lambda rows: sample.repeat(-(-rows // batch), 1, 1, 1))
    return int(checked.answer.scores.shape[1])


def unfrozen_norm() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.BatchNorm2d(1, track_running_stats=False), nn.Flatten(), nn.Linear(36, 4))


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (AlwaysTraining(), r"treat every row alone.*batch statistics.*running statistics"),
        (unfrozen_norm(), r"treat every row alone.*batch statistics"),
        (Call(lambda s: s - s.mean(0)), r"treat every row alone.*batch statistics"),
        (Call(lambda s: functional.dropout(s, 0.1, training=True)), r"asked twice \(dropout"),
        (Call(lambda s: s + 0.1 * torch.randn_like(s)), r"asked twice"),
        (Call(lambda s: s[:, :3]), r"shape \(16, 4\); got \(16, 3\).*num_classes"),
        (Call(lambda s: s[:8]), r"shape \(16, 4\); got \(8, 4\)"),
        (Call(lambda s: s * float("nan")), r"finite scores; got NaN or infinite.*`mean` and `std`"),
        (Call(lambda s: s / 0.0), r"finite scores"),
        (Call(lambda s: s.to_sparse()), r"shape \(16, 4\); got torch\.sparse_coo"),
    ],
    ids=["training", "no-stats", "mean", "dropout", "random", "classes", "rows", "nan", "inf", "sparse"],
)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_what_cannot_be_certified_is_refused(module: nn.Module, message: str, precision: str) -> None:
    with pytest.raises(ClassifierError, match=message):
        check(module, precision=precision)


@pytest.mark.parametrize("batch", [1, 2, 15, 16])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_ordinary_networks_pass_and_eval_mode_is_set(batch: int, precision: str) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(64, 4)
    ).train()
    assert check(network, batch, precision=precision) == 1


def test_lanes_and_some_invalid_rows_pass() -> None:
    assert check(BucketLanes()) == 2
    for bad in (float("nan"), float("inf"), -float("inf")):
        assert check(SomeInvalid(bad=bad)) == 1


def test_half_precision_leaves_the_users_network_alone() -> None:
    network = build_architecture("lenet", 10).eval()
    forward = Forward(network, ForwardPlan(8, "bf16"), CPU, 10)
    x = torch.rand(8, 1, 28, 28)
    scores = forward(x).scores
    assert scores.dtype == torch.float32
    assert scores.shape == (8, 1, 10)
    assert torch.allclose(scores[:, 0], network(x), atol=0.05)
    assert not torch.equal(scores[:, 0], network(x))
    assert all(parameter.dtype == torch.float32 for parameter in network.parameters())


def test_a_plan_means_the_same_whichever_plans_were_tried_before() -> None:
    # Else a resumed run, which tries no layouts, would run other kernels than the session it continues.
    network = build_architecture("lenet", 10).eval()
    x = torch.rand(16, 1, 28, 28)
    before = Forward(network, ForwardPlan(16), CPU, 10)(x).scores
    Forward(network, ForwardPlan(16, channels_last=True), CPU, 10)(x)
    after = Forward(network, ForwardPlan(16), CPU, 10)
    weight = network.features[3].weight
    assert weight.is_contiguous()
    assert torch.equal(after(x).scores, before)


@pytest.mark.parametrize(("precision", "training"), [("fp32", True), ("fp32", False), ("bf16", False)])
def test_complex_weights_stay_complex(precision: str, training: bool) -> None:
    class Filter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.polar(torch.ones(6, 4), torch.arange(24.0).view(6, 4)))

        def forward(self, x: Tensor) -> Tensor:
            return torch.fft.irfft2(torch.fft.rfft2(x[:, 0].float()) * self.weight, s=(6, 6))[:, 0].to(x.dtype)

    net, x = Filter().train(training), torch.rand(8, *SHAPE, generator=torch.Generator().manual_seed(0))
    plan = ForwardPlan(8, precision)  # type: ignore[arg-type]
    found = Forward(net, plan, CPU, 6)(x).scores[:, 0]
    assert net.weight.is_complex()
    torch.testing.assert_close(found, net(x.to(plan.dtype)).detach().float(), atol=1e-5, rtol=1e-2)


def test_layouts_agree() -> None:
    network = build_architecture("lenet", 10).eval()
    x = torch.rand(16, 1, 28, 28)
    plain = Forward(network, ForwardPlan(16), CPU, 10)(x).scores
    other = Forward(network, ForwardPlan(16, channels_last=True), CPU, 10)(x).scores
    assert torch.allclose(other, plain, atol=1e-5)


def test_plans_are_checked_and_stored_whole() -> None:
    assert ForwardPlan(**ForwardPlan(7, "bf16", True, False).settings()) == ForwardPlan(7, "bf16", True, False)
    with pytest.raises(ArgumentError, match="batch: must be at least 1; got 0"):
        ForwardPlan(0)
    with pytest.raises(ArgumentError, match="precision: must be one of bf16, fp32, tf32; got 'fp8'"):
        ForwardPlan(1, "fp8")  # type: ignore[arg-type]


def test_buckets_are_a_fixed_function_of_the_row() -> None:
    assert check(Buckets()) == 1


def test_matrices_of_patches_are_made_before_anything_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's compiler refuses to trace how a matrix becomes a tensor."""
    lift, rest = noise_place("per-patch-input", Crops(size=6, resize=8, count=4), SHAPE)
    found: list[int] = []

    def compiled(function: Callable[..., object], **_: object) -> Callable[..., object]:
        def traced(*inputs: object) -> object:
            found.append(len(rest._rows._made))
            return function(*inputs)

        return traced

    monkeypatch.setattr(torch, "compile", compiled)
    forward = Forward(Patches(Call(lambda x: x), rest).eval(), ForwardPlan(3, compile=True), CPU, 4)
    batch = torch.stack([lift(torch.rand(SHAPE)) for _ in range(3)])
    plain = Forward(Patches(Call(lambda x: x), rest), ForwardPlan(3), CPU, 4)
    assert found == []
    assert torch.equal(forward(batch).scores, plain(batch).scores)
    assert found == [1]


@pytest.mark.parametrize("offset", [0.0, 1e9])
def test_no_row_of_float64_gets_another_class_by_rounding(offset: float) -> None:
    """Log-likelihoods may be large and close together: in float32 they tie, and a tie would be class 0."""
    network = Call(lambda scores: scores.double() + offset)
    rows = torch.randn(8, *SHAPE)
    wanted = network(rows).argmax(-1)
    found = Forward(network.eval(), ForwardPlan(8), CPU, 4)(rows).scores[:, 0]
    valid = torch.isfinite(found).all(-1)
    assert torch.equal(found.argmax(-1)[valid], wanted[valid])
    assert bool(valid.all()) == (offset == 0)
    assert wanted.unique().numel() > 1
