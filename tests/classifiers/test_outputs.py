"""What networks return, and what becomes of the user's own network."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ringfence as rf
from ringfence.analysis.member_scores import collect_logits, score_gradients
from ringfence.classifiers import HardVote, Members, SoftVote
from ringfence.classifiers.base import scores_in
from ringfence.errors import ClassifierError

Answer = namedtuple("Answer", ["hidden", "logits"])


class Net(nn.Module):
    """(B, 3, 4, 4) -> whatever wraps its scores."""

    def __init__(self, wrap: Callable[[Tensor], Any] = lambda scores: scores, classes: int = 3) -> None:
        super().__init__()
        self.linear, self.drop, self.wrap = nn.Linear(48, classes), nn.Dropout(), wrap

    def forward(self, x: Tensor) -> Any:
        return self.wrap(self.drop(self.linear(x.flatten(1))))


WRAPPED: dict[str, Callable[[Tensor], Any]] = {
    "tensor": lambda scores: scores,
    "tuple": lambda scores: (scores, scores * 0),
    "list": lambda scores: [scores, "more"],
    "dict": lambda scores: {"loss": None, "logits": scores},
    "ordered": lambda scores: OrderedDict(hidden=0, logits=scores),
    "named": lambda scores: Answer(0, scores),
    "object": lambda scores: SimpleNamespace(logits=scores, loss=None),
    "nested": lambda scores: {"logits": (scores,)},
}
X = torch.rand(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))


def certified(net: nn.Module, **more: Any) -> list[tuple[int, float]]:
    records = rf.certify(net, X, noise=rf.Gaussian(0.2), procedure=rf.Fixed(n=200), **more)
    return [(one.prediction, one.radius) for one in sorted(records, key=lambda one: one.input_id)]


@pytest.mark.parametrize("form", WRAPPED)
def test_scores_are_found_in_whatever_a_network_returns(form: str) -> None:
    plain, wrapped = Net(), Net(WRAPPED[form])
    wrapped.load_state_dict(plain.state_dict())
    assert certified(wrapped) == certified(plain)
    assert certified(SoftVote([wrapped, wrapped])) == certified(SoftVote([plain, plain]))


def test_model_outputs_of_transformers_are_read() -> None:
    from ringfence.models.extras import needed

    output = needed("transformers.modeling_outputs", "hf", "").ImageClassifierOutput
    scores = torch.rand(2, 3)
    assert scores_in(output(logits=scores, hidden_states=(scores * 0,)), 2) is scores


@pytest.mark.parametrize("flat", [False, True])
def test_one_logit_is_two_classes(flat: bool) -> None:
    """Class 1 where it is positive: as two scores (0, z)."""
    single = Net((lambda z: z[:, 0]) if flat else (lambda z: z), classes=1)
    double = Net(lambda z: torch.cat([torch.zeros_like(z), z], 1), classes=1)
    double.load_state_dict(single.state_dict())
    assert certified(single) == certified(double)
    assert certified(single, num_classes=2) == certified(double)
    assert scores_in(torch.tensor([-1.0, 2.0]), 2).argmax(1).tolist() == [0, 1]
    assert scores_in(torch.tensor([[0.7]]), 1).softmax(1)[0, 1].item() == pytest.approx(
        torch.tensor(0.7).sigmoid().item()
    )


def test_members_with_wrapped_scores_are_stacked_as_they_are_looped() -> None:
    nets = [Net(WRAPPED["dict"]).eval() for _ in range(2)]
    members = Members(nets)
    looped = members(X)
    members.use_stack(members.stackable)
    torch.testing.assert_close(members(X), looped)
    singles = Members([Net(classes=1).eval() for _ in range(2)])
    looped = singles(X)
    assert looped.shape == (2, 2, 2)
    singles.use_stack(singles.stackable)
    torch.testing.assert_close(singles(X), looped)


@pytest.mark.parametrize(
    ("wrap", "message"),
    [
        (lambda scores: {"out": scores}, r"mapping with 'logits'; got a dict with 'out'"),
        (lambda scores: {}, r"got a dict with nothing"),
        (lambda scores: None, r"must map \(B, \*shape\) to scores \(B, K\); got NoneType"),
        (lambda scores: "cat", r"got str"),
        (lambda scores: scores.argmax(1).tolist(), r"got int"),
        (lambda scores: scores[:, :, None, None], r"got \(1, 3, 1, 1\)"),
        (lambda scores: (), r"got tuple"),
    ],
)
def test_what_holds_no_scores_is_named(wrap: Callable[[Tensor], Any], message: str) -> None:
    with pytest.raises(ClassifierError, match=message):
        certified(Net(wrap))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_networks_of_other_precisions_run(dtype: torch.dtype) -> None:
    net = Net().to(dtype)
    again = Net()
    again.load_state_dict(net.state_dict())
    assert certified(net) == certified(again), "in float32, with the weights that they have"
    assert net.linear.weight.dtype == dtype


class Likelihoods(nn.Module):
    """Log-likelihoods whose large common part leaves nothing of their differences in float32: class 1 in float64, and
    class 0, because all are equal, in float32."""

    common: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("common", torch.tensor([1e9], dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        level = x.flatten(1).mean(1)
        return torch.stack([level, level + 1, level - 1], 1) + self.common


def biased() -> nn.Module:
    """The same by a bias, in a network that takes float64 alone."""
    net = Net().double()
    with torch.no_grad():
        net.linear.bias.copy_(1e9 + torch.tensor([0.0, 1.0, -1.0]).double())
    return net


@pytest.mark.parametrize(
    ("net", "procedure"),
    [
        (Likelihoods(), rf.Fixed(n=200)),
        (biased(), rf.Fixed(n=200)),
        (rf.soft(Likelihoods(), Net()), rf.Fixed(n=200)),
        (rf.soft(biased(), Net()), rf.Fixed(n=200)),
        (rf.Aces(Net().eval(), rf.EntropySelector([1.0]), Likelihoods()), rf.AcesCertify(n=200)),
    ],
    ids=["a buffer", "all of it", "a member", "a member beside float32", "the core of ACES"],
)
def test_a_network_that_is_another_in_float32_is_refused(net: Any, procedure: rf.Procedure) -> None:
    assert Likelihoods()(X).argmax(1).tolist() == [1, 1]
    with pytest.raises(ClassifierError, match=r"must be the same function in float32, .* other scores for \d+ of 64"):
        list(rf.certify(net, X, noise=rf.Gaussian(0.2), procedure=procedure))


class Picky(Net):
    """Of float64, and says so in its own words."""

    def forward(self, x: Tensor) -> Any:
        if x.dtype != self.linear.weight.dtype:
            raise TypeError(f"I take {self.linear.weight.dtype}")
        return super().forward(x)


def test_a_network_of_float64_may_refuse_float32() -> None:
    net, plain = Picky().double(), Net()
    plain.load_state_dict(net.state_dict())
    assert certified(net) == certified(plain)


class Widening(Net):
    """Makes float64 of whatever comes, so that weights of float32 cannot be multiplied with it."""

    def forward(self, x: Tensor) -> Any:
        return super().forward(x.double())


def test_a_core_that_cannot_run_in_float32_is_named() -> None:
    aces = rf.Aces(Net().eval(), rf.EntropySelector([1.0]), Widening().double())
    with pytest.raises(ClassifierError, match="must answer every batch; got RuntimeError"):
        list(rf.certify(aces, X, noise=rf.Gaussian(0.2), procedure=rf.AcesCertify(n=200)))


class Breaks(Net):
    """Raises at its third batch."""

    def __init__(self, error: type[BaseException]) -> None:
        super().__init__()
        self.error, self.calls = error, [0]

    def __deepcopy__(self, memo: dict[int, Any]) -> Breaks:
        twin = Breaks(self.error)
        twin.load_state_dict(self.state_dict())
        twin.calls = self.calls
        return twin

    def forward(self, x: Tensor) -> Any:
        self.calls[0] += 1
        if self.calls[0] > 3:
            raise self.error("in the middle")
        return super().forward(x)


def state_of(net: nn.Module) -> list[Any]:
    return [
        *((name, part.training, len(part._forward_hooks)) for name, part in net.named_modules()),
        *((name, value.dtype, value.device, value.requires_grad) for name, value in net.named_parameters()),
        *(value.clone().tolist() for value in net.parameters()),
    ]


@pytest.mark.parametrize("error", [None, RuntimeError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("wrap", [lambda net: net, lambda net: HardVote([net, Net().eval()])])
def test_the_users_network_stays_as_it_was(error: type[BaseException] | None, wrap: Any) -> None:
    net = (Net() if error is None else Breaks(error)).double().train()
    net.drop.eval()  # parts may have a mode of their own
    before = state_of(net)
    try:
        certified(wrap(net))
        assert error is None
    except (KeyboardInterrupt, ClassifierError):
        assert error is not None
    assert state_of(net) == before


def test_diagnostics_leave_the_mode_alone() -> None:
    net = Net().train()
    collect_logits([net], X[0], 0.1, draws=4, seed=0)
    score_gradients([net], X[0], 0)
    assert net.training
    assert net.drop.training
