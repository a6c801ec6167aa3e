"""Laws of prepared networks: whatever form was wanted, what is certified is the module that was given, or nothing."""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, spectral_norm

import ringfence as rf
from ringfence.classifiers import Aces, Denoised, Members, NetworkSelector, SoftVote
from ringfence.errors import ClassifierError
from ringfence.sampling import ForwardPlan, preparing
from ringfence.sampling.check import checked_forward

CPU = torch.device("cpu")
SHAPE = (3, 6, 6)
SIGMA = 0.25
INPUTS = torch.rand(4, *SHAPE, generator=torch.Generator().manual_seed(1))


def noisy(rows: int) -> Tensor:
    noise = torch.randn(rows, *SHAPE, generator=torch.Generator().manual_seed(2))
    return INPUTS[torch.arange(rows) % len(INPUTS)] + SIGMA * noise


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


def hooked(module: nn.Module, path: str, before: bool = False) -> nn.Module:
    part = module.get_submodule(path)
    if before:
        part.register_forward_pre_hook(lambda _, args: (3 - 2 * args[0],))
    else:
        part.register_forward_hook(lambda _, args, out: -out)
    return module


def replaced(module: nn.Module) -> nn.Module:
    """An object with a ``forward`` of its own."""
    ordinary = module.forward
    module.forward = lambda x: -ordinary(x)
    return module


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


def votes(classifier: nn.Module, plan: ForwardPlan, n: int = 200) -> list[list[int]]:
    """Class counts of every input."""
    found = rf.certify(
        classifier,
        INPUTS,
        noise=rf.Gaussian(SIGMA),
        procedure=rf.Fixed(n0=10, n=n),
        precision=plan.precision,
        execution=rf.Execution(device="cpu", plan=plan),
    )
    records = sorted(found, key=lambda record: record.input_id)
    assert all(record.sound for record in records)
    return [record.stages[-1].cells["votes"].tolist() for record in records]


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


# Members that run as one -----------------------------------------------------------------------------------------


class Private(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.inner, self._factor = nn.Sequential(nn.Flatten(), nn.Linear(108, 4)), factor

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self._factor * self.inner(x)
        return scores


class Secret(Private):
    """Differs in what no attribute shows: Python code may keep anything anywhere."""

    FACTORS: ClassVar[dict[int, float]] = {}

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.FACTORS[id(self.inner)] * self.inner(x)
        return scores

    def __deepcopy__(self, memo: dict[int, Any]) -> Secret:
        twin = Secret(1.0)
        twin.inner = copy.deepcopy(self.inner, memo)
        twin.FACTORS[id(twin.inner)] = self.FACTORS[id(self.inner)]
        return twin.train(self.training)


def secret(factor: float) -> Secret:
    made = Secret(1.0)
    made.FACTORS[id(made.inner)] = factor
    return made


def linear() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(108, 4))


def tied() -> nn.Module:
    module = nn.Sequential(nn.Flatten(), nn.Linear(108, 108), nn.Linear(108, 108), nn.Linear(108, 4))
    module[2] = module[1]
    return module


def normed(module: nn.Sequential) -> nn.Sequential:
    parametrizations.weight_norm(module[1])
    return module


PAIRS: dict[str, Callable[[], list[nn.Module]]] = {
    "alike": lambda: [linear(), linear(), linear()],
    "private attributes": lambda: [Private(1.0), Private(-3.0), Private(-3.0)],
    "attributes equal but for their type": lambda: [Private(1.0), Private(True), Private(1)],
    "hooks": lambda: [linear(), hooked(linear(), ""), hooked(linear(), "1")],
    "hooks of the first": lambda: [hooked(linear(), ""), linear(), linear()],
    "a forward of their own": lambda: [linear(), replaced(linear()), linear()],
    "parametrised": lambda: [linear(), normed(linear()), normed(linear())],
    "secrets": lambda: [secret(1.0), secret(-3.0), secret(-3.0)],
    "shared parts": lambda: [
        nn.Sequential(nn.Flatten(), nn.Linear(108, 108), nn.Linear(108, 108), nn.Linear(108, 4)),
        tied(),
        tied(),
    ],
}
DIFFERENT = [name for name in PAIRS if name not in ("alike", "secrets")]


@pytest.mark.parametrize("name", PAIRS)
def test_members_run_as_one_only_if_that_is_running_each(name: str) -> None:
    torch.manual_seed(0)
    ensemble = SoftVote(PAIRS[name]()).eval()
    with torch.inference_mode():
        x = noisy(64)
        wanted = sum(member(x) for member in ensemble.members.members) / 3
    found = checked_forward(ensemble, ForwardPlan(64, stacked=True), CPU, 4, noisy)
    torch.testing.assert_close(found.answer.scores.squeeze(1), wanted, rtol=1e-4, atol=1e-5)
    assert found.forward.plan.stacked == (name != "secrets")
    assert votes(ensemble, ForwardPlan(64)) == votes(ensemble, replace(found.forward.plan, refused=()))


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_can_be_seen_to_differ_is_not_even_tried(name: str) -> None:
    assert not Members(PAIRS[name]()).eval().stackable


def test_modes_of_members_count_too() -> None:
    members = Members([linear(), linear()]).eval()
    assert members.stackable
    members.members[1][1].train()
    assert not members.stackable


# Rows ------------------------------------------------------------------------------------------------------------


class ByCompany(nn.Module):
    """The class is decided by the mean of the batch; a common offset is far larger than the scores."""

    def __init__(self, offset: float, share: float = 1.0) -> None:
        super().__init__()
        self.offset, self.share = offset, share

    def forward(self, x: Tensor) -> Tensor:
        own = x.flatten(1).mean(1, keepdim=True)
        level = self.share * own.mean() + (1 - self.share) * own
        return self.offset + torch.cat([level - 0.5, 0.5 - level], 1).expand(len(x), 2)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("offset", [0.0, 1000.0, -1000.0])
@pytest.mark.parametrize("share", [1.0, 0.1])
def test_an_offset_hides_no_company(precision: str, offset: float, share: float) -> None:
    with pytest.raises(ClassifierError, match="every row alone"):
        votes(ByCompany(offset, share), ForwardPlan(64, precision))  # type: ignore[arg-type]


@pytest.mark.parametrize(("offset", "size"), [(0.0, 0.4), (1e6, 0.4), (1e3, 4e-4), (100.0, 4e-5)])
def test_an_offset_hides_no_company_that_decides_by_a_small_gap(offset: float, size: float) -> None:
    class Sign(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            level = size * torch.sign(x.mean() - 0.5).expand(len(x), 1)
            return offset + torch.cat([level, -level], 1)

    with pytest.raises(ClassifierError, match="every row alone"):
        votes(Sign(), ForwardPlan(64))


def test_a_loud_input_hides_no_company_of_the_others() -> None:
    class Loud(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            own = x.flatten(1).mean(1, keepdim=True)
            level = torch.where(own > 2, 1e6, own.clamp(max=1).mean() - 0.5)
            return torch.cat([level, -level], 1)

    inputs = [torch.full(SHAPE, value) for value in (3.0, 0.9, 0.8, 0.1, 0.2, 0.85, 0.15, 0.9)]
    with pytest.raises(ClassifierError, match="every row alone"):
        next(rf.certify(Loud(), inputs, noise=rf.Gaussian(SIGMA), procedure=rf.Fixed(n=100), check=False))


def test_a_score_far_below_the_others_hides_no_company() -> None:
    class Masked(ByCompany):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([super().forward(x), torch.full((len(x), 2), -1e9)], 1)

    with pytest.raises(ClassifierError, match="every row alone"):
        votes(Masked(0.0, 0.1), ForwardPlan(64))
    assert len(votes(Masked(0.0, 0.0), ForwardPlan(64))) == len(INPUTS)
    assert len(votes(ByCompany(1000.0, 0.0), ForwardPlan(64))) == len(INPUTS), "an offset alone is nothing wrong"


def test_company_that_makes_a_row_invalid_is_refused() -> None:
    class Infects(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            scores = x.flatten(1)[:, :4].clone()
            scores[0] = torch.where(x[-1].mean() > 1.2, torch.nan, scores[0])
            return scores

    with pytest.raises(ClassifierError, match="every row alone"):
        votes(Infects(), ForwardPlan(64))


@pytest.mark.parametrize("place", [0, 1, 31, 63])
def test_one_row_that_looks_at_its_neighbour_is_found(place: int) -> None:
    class Looks(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            scores = x.flatten(1)[:, :4].clone()
            scores[place % len(x)] += scores[place % len(x) - 1]
            return scores

    with pytest.raises(ClassifierError, match="every row alone"):
        votes(Looks(), ForwardPlan(64))


def test_a_module_that_cannot_be_copied_says_so_and_runs_as_it_is() -> None:
    class Alone(nn.Sequential):
        def __deepcopy__(self, memo: object) -> Alone:
            raise TypeError("cannot be copied")

    module = Alone(*network().children()).eval()
    assert votes(module, ForwardPlan(64)) == votes(network().eval(), ForwardPlan(64))
    with pytest.raises(ClassifierError, match=r"copy\.deepcopy can copy.*TypeError: cannot be copied.*eval\(\)"):
        votes(module.train(), ForwardPlan(64))
