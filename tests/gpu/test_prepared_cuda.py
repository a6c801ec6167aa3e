"""Prepared networks on a GPU: fused, compiled and folded ones pass the check, and what is not the network does not."""

from __future__ import annotations

import os

import pytest
import torch
from invalid_rows import assert_only_its_row_is_invalid
from torch import Tensor, nn
from toys import Buckets

import ringfence as rf
from ringfence.classifiers import KConsensus, Normalize, SoftVote
from ringfence.classifiers.architectures import resnet
from ringfence.classifiers.fused import why_not
from ringfence.classifiers.joining import Joined
from ringfence.data import Input
from ringfence.errors import ClassifierError
from ringfence.noise import philox
from ringfence.sampling import Forward, ForwardPlan
from ringfence.sampling.check import Checked, checked_forward

DEVICE = os.environ.get("RINGFENCE_TEST_DEVICE", "cuda")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore"),  # the compiler's own
    pytest.mark.skipif(DEVICE == "cuda" and not torch.cuda.is_available(), reason="no CUDA device is visible"),
]
needs_kernel = pytest.mark.skipif(DEVICE == "cpu", reason="the kernel needs a GPU")
IMAGES = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def trained_like(depth: int, seed: int = 0) -> nn.Module:
    """Norms that have seen data, and scores that differ from input to input."""
    torch.manual_seed(seed)
    network = resnet(depth)
    for _ in range(3):
        network(torch.rand(32, 3, 32, 32))
    return network.eval()


def checked(classifier: nn.Module, plan: ForwardPlan) -> Checked:
    def draw(rows: int) -> Tensor:
        noise = torch.randn(rows, 3, 32, 32, generator=torch.Generator().manual_seed(1))
        return (IMAGES[torch.arange(rows) % 4] + 0.25 * noise).to(DEVICE)

    return checked_forward(classifier, plan, torch.device(DEVICE), 10, draw)


@needs_kernel
@pytest.mark.parametrize("depth", [8, 20, 110])
@pytest.mark.parametrize("kind", ["one", "normalised", "vote", "consensus"])
def test_fused_networks_are_the_networks(depth: int, kind: str) -> None:
    if (problem := why_not(torch.device(DEVICE))) is not None:
        pytest.skip(problem)
    members = [trained_like(depth, seed) for seed in range(3 if kind in ("vote", "consensus") else 1)]
    classifier = {
        "one": lambda: members[0],
        "normalised": lambda: Normalize(members[0], [0.4, 0.5, 0.6], [0.2, 0.25, 0.3]),
        "vote": lambda: SoftVote(members),
        "consensus": lambda: KConsensus(members, 2),
    }[kind]().eval()
    plan = ForwardPlan(512, "bf16", channels_last=True, compile=True, fold=True, fused=True)
    assert checked(classifier, plan).forward.plan == plan


@pytest.mark.parametrize(
    "plan",
    [
        ForwardPlan(256, channels_last=True, fold=True),
        ForwardPlan(256, channels_last=True, compile=True, fold=True),
        ForwardPlan(256, "bf16", channels_last=True, compile=True, fold=True),
    ],
    ids=["folded", "compiled", "compiled half"],
)
def test_compiled_and_folded_networks_are_the_networks(plan: ForwardPlan) -> None:
    assert checked(trained_like(20), plan).forward.plan == plan


class LikeImageNets(nn.Module):
    """How networks for ImageNet begin, and a shortcut with a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16)
        self.left, self.right = nn.Conv2d(16, 32, 3, padding=1), nn.Conv2d(16, 32, 1)
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.stem(x)))
        found: Tensor = self.head(torch.relu(self.left(x) + self.right(x)).mean((2, 3)))
        return found


def like_imagenets() -> nn.Module:
    torch.manual_seed(0)
    network = LikeImageNets()
    for _ in range(3):
        network(torch.rand(32, 3, 32, 32))
    return network.eval()


@pytest.mark.parametrize("compile", [False, True])
def test_joined_networks_are_the_networks(compile: bool) -> None:
    network = like_imagenets()
    plan = ForwardPlan(256, "bf16", channels_last=True, compile=compile, fold=True, joined=True)
    found = checked(network, plan)
    assert found.forward.plan == plan
    rows, device = found.sample[:64], torch.device(DEVICE)
    exact, plain = (Forward(network, ForwardPlan(64, one), device, 10)(rows).scores for one in ("fp32", "bf16"))
    assert (found.answer.scores[:64] - exact).norm() <= 1.5 * (plain - exact).norm()


@needs_kernel
def test_a_fused_network_that_is_another_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    if (problem := why_not(torch.device(DEVICE))) is not None:
        pytest.skip(problem)
    network = trained_like(8)
    plan = ForwardPlan(256, "bf16", channels_last=True, fold=True, fused=True)
    from ringfence.classifiers import fused

    right = fused.convolutions
    monkeypatch.setattr(fused, "convolutions", lambda *one: [(1.1 * weight, bias) for weight, bias in right(*one)])
    found = checked(network, plan).forward.plan
    assert not found.fused
    assert found.fold
    assert found.refused[0].startswith("fused: scores of ")


@needs_kernel
@pytest.mark.parametrize("form", ["fused", "joined"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_an_invalid_row_of_a_form_is_invalid_and_alone(bad: float, form: str) -> None:
    """cuDNN's ReLU may make zeros of NaN: what is joined must not use it then."""
    device = torch.device(DEVICE)
    if (problem := why_not(device)) is not None:
        pytest.skip(problem)
    network, x = trained_like(8) if form == "fused" else like_imagenets(), torch.rand(257, 3, 32, 32, device=DEVICE)
    plan = ForwardPlan(257, "bf16", channels_last=True, fold=True, **{form: True})  # type: ignore[arg-type]
    assert_only_its_row_is_invalid(Forward(network, plan, device, 10), x, 100, bad)


@needs_kernel
def test_the_noise_kernel_is_checked_with_keys_of_all_64_bits() -> None:
    from ringfence.noise import kernel

    def short(out: Tensor, clean: Tensor, table: Tensor, sigma: float, family: str) -> None:
        """Loses the highest bit of a key."""
        kernel.add_noise(out, clean, torch.stack([table[0], table[1] & (2**63 - 1), table[2]]), sigma, family)

    device = torch.device(DEVICE)
    for family in kernel.FAMILIES:
        assert philox.are_drawn_by(kernel.add_noise, device, family)
        assert not philox.are_drawn_by(short, device, family)


@pytest.mark.parametrize("calls", [40, 80])
def test_a_network_that_changes_stops_the_run(calls: int) -> None:
    class Changing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.left = Buckets(), calls

        def forward(self, x: Tensor) -> Tensor:
            self.left -= 1
            scores: Tensor = self.inner(x)
            return scores if self.left >= 0 else scores.roll(1, 1)

    inputs = [Input(i, torch.tensor([0.2 * i, 0.0, 0.0]), None, str(i)) for i in range(40)]
    options = {"noise": rf.Gaussian(0.5), "procedure": rf.Fixed(n=1000), "precision": "fp32", "seed": 3}
    execution = rf.Execution(DEVICE, plan=ForwardPlan(256))
    whole = {one.input_id: one.p_a for one in rf.certify(Buckets(), inputs, execution=execution, **options)}
    assert len(whole) == 40
    found: dict[int, float] = {}
    records = rf.certify(Changing(), inputs, execution=execution, **options)
    with pytest.raises(ClassifierError, match="must stay the same"):
        found.update((one.input_id, one.p_a) for one in records)
    assert found.items() < whole.items()


@needs_kernel
def test_tf32_is_the_default_its_forms_pass_and_float32_stays_float32() -> None:
    network, device = trained_like(20), torch.device(DEVICE)
    said: list[str] = []
    execution = rf.Execution(DEVICE, batch=64, on_remark=said.append)
    found = rf.certify(network, IMAGES, sigma=0.25, procedure=rf.Fixed(n=500), execution=execution, check=False)
    assert len(list(found)) == len(IMAGES)
    assert any(line.startswith("plan on cuda") and "tf32" in line for line in said)
    rows = IMAGES.to(device)
    exact, rounded = (Forward(network, ForwardPlan(4, one), device, 10)(rows).scores for one in ("fp32", "tf32"))
    again = Forward(network, ForwardPlan(4), device, 10)(rows).scores
    assert torch.equal(exact, again), "a forward in tf32 leaves no other in it"
    difference = (exact - rounded).abs().max()
    assert 0 < difference < 0.05 * exact.abs().max()
    for form in ({"fold": True}, {"channels_last": True}, {"compile": True, "fold": True}):
        plan = ForwardPlan(64, "tf32", **form)
        draw = lambda count: torch.rand(count, 3, 32, 32, device=device)  # noqa: E731
        assert checked_forward(network, plan, device, 10, draw).forward.plan.refused == (), form


@pytest.mark.parametrize(
    "shape", [(1, 64, 14, 14), (1, 64, 1, 1), (64, 14, 14), (), (8, 64, 14, 14), (3, 8, 64, 14, 14)]
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_shortcuts_of_any_shape_and_type_are_added_as_torch_does(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """cuDNN's kernel reads them as if they had the output's shape: beyond their end, unless it is not asked."""
    torch.manual_seed(0)
    layer = nn.Conv2d(64, 64, 3, padding=1).to(DEVICE, torch.bfloat16).to(memory_format=torch.channels_last)
    x, shortcut = torch.randn(8, 64, 14, 14, device=DEVICE), torch.randn(shape, device=DEVICE).to(dtype)
    x = x.bfloat16().contiguous(memory_format=torch.channels_last)
    wider = torch.randn(8, 128, 28, 14, device=DEVICE).to(dtype)
    given = [shortcut, wider[:, 64:, ::2]]  # of the output's shape, and laid out in another way
    given += [shortcut.expand(8, 64, 14, 14)] if shortcut.dim() < 5 else []
    with torch.inference_mode():
        for one in given:
            found, wanted = Joined(layer)(x, one), torch.relu(layer(x) + one)
            assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
            assert (found.float() - wanted.float()).norm() <= 1e-2 * wanted.float().norm()
