"""Laws of prepared networks: whatever form was wanted, what is certified is the module that was given, or nothing."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from noisy_votes import CPU, INPUTS, hooked, noisy, replaced, votes
from torch import Tensor, nn
from torch.nn.utils import parametrizations, spectral_norm

from ringfence.classifiers import Aces, Denoised, KConsensus, Lanes, NetworkSelector, SoftVote
from ringfence.errors import ClassifierError
from ringfence.sampling import ForwardPlan, preparing
from ringfence.sampling.check import checked_forward


def shaken(module: nn.Module, head: nn.Linear) -> nn.Module:
    """Batch norms as after training, so that folding changes weights; on average no class is ahead."""
    torch.manual_seed(3)
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.uniform_(part.weight, -2, 2)
            nn.init.normal_(part.bias)
            nn.init.normal_(part.running_mean)  # type: ignore[arg-type]
            nn.init.uniform_(part.running_var, 0.3, 3)  # type: ignore[arg-type]
    with torch.no_grad():
        head.bias -= module.eval()(noisy(256)).mean(0)
    return module


def network(seed: int = 0, first: nn.Module | None = None) -> nn.Module:
    torch.manual_seed(seed)
    convolution, head = first or nn.Conv2d(3, 8, 3), nn.Linear(128, 4)
    return shaken(nn.Sequential(convolution, nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), head), head)


class Twice(nn.Module):
    """One convolution, called twice, with a norm after each."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.one, self.two = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.BatchNorm2d(3)
        self.head = nn.Linear(108, 4)
        shaken(self, self.head)

    def forward(self, x: Tensor) -> Tensor:
        x = self.one(self.conv(x)).relu()
        scores: Tensor = self.head(self.two(self.conv(x)).flatten(1))
        return scores


class OneNorm(nn.Module):
    """One norm after two convolutions."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two, self.norm = nn.Conv2d(3, 3, 3), nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3)
        self.head = nn.Linear(12, 4)
        shaken(self, self.head)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.norm(self.two(self.norm(self.one(x)))).flatten(1))
        return scores


class ReadsWeights(Twice):
    """Its convolution's weights are used once more, by themselves."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.one(self.conv(x)).relu()
        x = nn.functional.conv2d(x, self.conv.weight, padding=1)
        scores: Tensor = self.head(x.flatten(1))
        return scores


class OwnConvolution(nn.Conv2d):
    """A kind of convolution that is none."""

    def forward(self, x: Tensor) -> Tensor:
        return -2 * super().forward(x)


def weight_norm_of_old(convolution: nn.Conv2d) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return nn.utils.weight_norm(convolution)


STRANGE: dict[str, Callable[[], nn.Module]] = {
    "an ordinary one": network,
    "convolution called twice": Twice,
    "norm called twice": OneNorm,
    "weights read apart": ReadsWeights,
    "subclassed convolution": lambda: network(first=OwnConvolution(3, 8, 3)),
    "hook on the root": lambda: hooked(network(), ""),
    "hook before the root": lambda: hooked(network(), "", before=True),
    "hook on a batch norm": lambda: hooked(network(), "1"),
    "hook on a convolution": lambda: hooked(network(), "0", before=True),
    "weight norm": lambda: network(first=parametrizations.weight_norm(nn.Conv2d(3, 8, 3))),
    "spectral norm": lambda: network(first=parametrizations.spectral_norm(nn.Conv2d(3, 8, 3))),
    "spectral norm of old": lambda: network(first=spectral_norm(nn.Conv2d(3, 8, 3))),
    "weight norm of old": lambda: network(first=weight_norm_of_old(nn.Conv2d(3, 8, 3))),
}
FORMS: dict[str, dict[str, Any]] = {
    "folded": {"fold": True},
    "folded, channels last": {"fold": True, "channels_last": True},
    "folded in half precision": {"fold": True, "precision": "bf16"},
    "channels last": {"channels_last": True},
    "joined": {"fold": True, "joined": True},
    "joined in half precision": {"fold": True, "joined": True, "channels_last": True, "precision": "bf16"},
}


def far_apart(one: list[list[int]], other: list[list[int]]) -> int:
    """The largest number of draws of an input that went to other classes."""
    return max(sum(abs(a - b) for a, b in zip(*rows, strict=True)) // 2 for rows in zip(one, other, strict=True))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", STRANGE)
def test_whatever_form_is_wanted_the_votes_are_the_plain_networks(name: str, form: str) -> None:
    module = STRANGE[name]()
    plan = ForwardPlan(64, **FORMS[form])
    plain = votes(module, ForwardPlan(64))
    assert far_apart(votes(module, plan), plain) <= (10 if plan.precision == "bf16" else 0)


@pytest.mark.parametrize("name", STRANGE)
def test_the_users_module_is_left_as_it_was(name: str) -> None:
    module = STRANGE[name]().train()
    module.get_submodule("0" if isinstance(module, nn.Sequential) else "head").eval()
    with torch.no_grad():
        module(noisy(8))  # old weight norm has its weight afterwards, which can then be copied

    def described() -> list[object]:
        parts = [(path, type(part), part.training, len(part._forward_hooks)) for path, part in module.named_modules()]
        values = [(path, value.tolist(), value.dtype, value.stride()) for path, value in module.state_dict().items()]
        return [parts, values]

    before = described()
    for form in FORMS.values():
        votes(module, ForwardPlan(64, **form), n=20)
    assert described() == before


# Where a form is not the network ---------------------------------------------------------------------------------


class Freezes(nn.Module):
    """What tracing finds is not what runs: its forward looks at the batch in a way that a trace cannot see."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()
        self.sign = 1.0

    def forward(self, x: Tensor) -> Tensor:
        sign = self.sign if isinstance(x, torch.fx.Proxy) else -self.sign
        scores: Tensor = sign * self.inner(x)
        return scores


def test_a_form_that_is_not_the_network_gives_way_to_a_plainer_one_and_the_plan_says_why() -> None:
    module = Freezes().eval()
    wanted = ForwardPlan(64, fold=True, channels_last=True)
    found = checked_forward(module, wanted, CPU, 4, noisy)
    assert found.forward.plan == replace(wanted, fold=False, refused=found.forward.plan.refused)
    (why,) = found.forward.plan.refused
    assert why.startswith("fold: scores of 64 in 64 rows are not the plain network's")
    stored = found.forward.plan.settings()
    assert stored["refused"] == [why]
    assert ForwardPlan(**stored) == found.forward.plan
    assert "refused" not in wanted.settings(), "plans stored before there were reasons are equal to those without"
    with pytest.raises(ClassifierError, match=r"form in the given plan.*scores of 64 in 64 rows"):
        votes(module, wanted)
    with pytest.raises(ClassifierError, match="form in the given plan"):
        checked_forward(module, wanted, CPU, 4, noisy, keep=True)


def test_a_form_of_the_network_that_selects_is_compared_too() -> None:
    torch.manual_seed(5)
    selector = NetworkSelector(nn.Sequential(Freezes(), nn.Linear(4, 2)), [0.5])
    found = checked_forward(Aces(network(), selector, network(1)).eval(), ForwardPlan(64, fold=True), CPU, 4, noisy)
    assert not found.forward.plan.fold
    (why,) = found.forward.plan.refused
    assert re.match(r"fold: scores of \d+ in 64 rows are not the plain network's", why)


class ErrsInTheMiddle(nn.Module):
    """As a kernel might that runs out of addresses: its rows are wrong where no batch begins or ends."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.inner(x)
        third = len(x) // 3
        return torch.cat([scores[:third], scores[third:-third].flip(1), scores[-third:]])


def test_rows_are_compared_at_all_places_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "fold_batch_norm", lambda module, joined: ErrsInTheMiddle(module))
    (why,) = checked_forward(network().eval(), ForwardPlan(600, fold=True), CPU, 4, noisy).forward.plan.refused
    assert re.fullmatch(r"fold: scores of \d+ in 128 rows are not the plain network's, and of \d+ the class", why)


def test_a_form_that_cannot_be_made_gives_way_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(function: object, **_: object) -> object:
        raise KeyError("nothing a user should see")

    monkeypatch.setattr(torch, "compile", broken)
    found = checked_forward(network().eval(), ForwardPlan(64, compile=True, fold=True), CPU, 4, noisy)
    assert found.forward.plan.compile is False
    assert found.forward.plan.refused[-1].startswith("compile: KeyError: 'nothing a user should see'")


@pytest.mark.parametrize("form", FORMS)
def test_randomness_that_tracing_would_freeze_is_refused(form: str) -> None:
    class Random(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network()

        def forward(self, x: Tensor) -> Tensor:
            scores: Tensor = self.inner(x) + 5 * torch.randn(4)  # of no tensor that is traced
            return scores

    with pytest.raises(ClassifierError, match="asked twice"):
        votes(Random().eval(), ForwardPlan(64, **FORMS[form]))


def test_hooks_on_classifiers_of_our_own_are_refused() -> None:
    ensemble = SoftVote([network(seed).eval() for seed in range(2)]).eval()
    hooked(ensemble, "")
    with pytest.raises(ClassifierError, match="take no hooks"):
        votes(ensemble, ForwardPlan(64))


class Flipped(SoftVote):  # type: ignore[misc]
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).flip(1)


class FlippedCall(SoftVote):  # type: ignore[misc]
    def __call__(self, x: Tensor) -> Tensor:
        scores: Tensor = super().__call__(x).flip(1)
        return scores


@pytest.mark.parametrize("kind", ["forward of its own", "Flipped with a forward", "with a __call__", "forward hook"])
def test_what_score_would_pass_by_is_refused(kind: str) -> None:
    made = {"Flipped with a forward": Flipped, "with a __call__": FlippedCall}.get(kind, SoftVote)
    ensemble = made([network(seed).eval() for seed in range(2)]).eval()
    if kind == "forward of its own":
        replaced(ensemble)
    handle = nn.modules.module.register_module_forward_hook(lambda module, args, out: None)
    if kind != "forward hook":
        handle.remove()
    try:
        with pytest.raises(ClassifierError, match=f"no other forward than their score.*{kind}"):
            votes(ensemble, ForwardPlan(64))
    finally:
        handle.remove()


class Rewrites(nn.Module):
    """Idempotent: asking twice does not show it."""

    def forward(self, x: Tensor) -> Tensor:
        level = x.sub_(0.5).sign_().mean((1, 2, 3)).unsqueeze(1)
        return torch.cat([-level, level, -level - 1, level - 1], 1)


@pytest.mark.parametrize("inside", ["alone", "a vote", "behind a denoiser"])
def test_a_network_that_changes_its_input_is_refused(inside: str) -> None:
    classifier: nn.Module = Rewrites()
    if inside != "alone":
        classifier = SoftVote([Rewrites(), network().eval()])
    if inside == "behind a denoiser":
        classifier = Denoised(nn.Hardtanh(-9.0, 9.0), classifier)
    with pytest.raises(ClassifierError, match=r"must not change its input.*x\.clone\(\)"):
        votes(classifier.eval(), ForwardPlan(64))


class Clamps(nn.Module):
    """What it changes in place is rare: no check sees such a row."""

    def __init__(self, seed: int, own: bool) -> None:
        super().__init__()
        self.inner, self.own = network(seed), own

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.inner((x if self.own else x.clone()).clamp_(-1, 1))
        return scores


SHARED: dict[str, Callable[[list[nn.Module]], nn.Module]] = {
    "a vote": SoftVote,
    "a stacked vote": lambda every: stacked(SoftVote(every[:2])),
    "a consensus": lambda every: KConsensus(every, 2),
    "lanes": lambda every: Lanes(every, singles=True),
    "a selector": lambda every: Aces(
        every[0], NetworkSelector(nn.Sequential(every[2], nn.Linear(4, 2)), [0.5]), every[1]
    ),
}


def stacked(vote: SoftVote) -> SoftVote:
    vote.members.use_stack(True)
    return vote


@pytest.mark.parametrize("name", SHARED)
def test_what_one_network_changes_in_place_no_other_sees(name: str) -> None:
    """A vote of one that clamps outliers in place was the other's vote on clamped inputs."""
    answers = []
    for own in (True, False):
        every: list[nn.Module] = [Clamps(1, own), Clamps(2, own), network(3)]
        torch.manual_seed(0)
        classifier, x = SHARED[name](every).eval(), 5 * noisy(64)
        with torch.inference_mode():
            answers.append(classifier(x))
        assert torch.equal(x, 5 * noisy(64))
    torch.testing.assert_close(*answers)


def test_scores_that_are_invalid_in_half_precision_alone_are_named() -> None:
    class Saturated(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            level = x.mean((1, 2, 3)).unsqueeze(1) + 7
            return torch.log(1 - torch.cat([level, 0 * level], 1).softmax(1))

    assert len(votes(Saturated(), ForwardPlan(64))) == len(INPUTS)
    with pytest.raises(ClassifierError, match=r"must return finite scores.*in bf16 they are not: use fp32"):
        votes(Saturated(), ForwardPlan(64, "bf16"))


def test_a_row_by_itself_has_the_scores_it_has_in_a_batch() -> None:
    class Single(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            scores = x.flatten(1)[:, :4]
            return -scores if len(x) == 1 else scores

    with pytest.raises(ClassifierError, match="rows by themselves have other scores"):
        votes(Single(), ForwardPlan(64))


def test_a_module_that_cannot_be_copied_says_so_and_runs_as_it_is() -> None:
    class Alone(nn.Sequential):
        def __deepcopy__(self, memo: object) -> Alone:
            raise TypeError("cannot be copied")

    module = Alone(*network().children()).eval()
    assert votes(module, ForwardPlan(64)) == votes(network().eval(), ForwardPlan(64))
    with pytest.raises(ClassifierError, match=r"copy\.deepcopy can copy.*TypeError: cannot be copied.*eval\(\)"):
        votes(module.train(), ForwardPlan(64))
