"""What only a GPU can show: run ``make test-gpu`` where there is one (RINGFENCE_TEST_DEVICE=cpu tries the tests)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from frequencies import assert_frequencies
from scipy.stats import binom, kstest, norm
from torch import nn
from toys import Buckets

import ringfence as rf
from ringfence.classifiers import Aces, EntropySelector, KConsensus, NetworkSelector, Normalize, Scored, SoftVote, score
from ringfence.classifiers.architectures import resnet
from ringfence.classifiers.architectures.resnet import Shortcut
from ringfence.classifiers.fused import rows_at_a_time, why_not
from ringfence.data import Input
from ringfence.driver import CHECKED_ON
from ringfence.noise import philox
from ringfence.noise.philox import signed
from ringfence.procedures import AcesCertify
from ringfence.sampling import Forward, ForwardPlan, fastest_plan
from ringfence.sampling.device_counts import DeviceCounts
from ringfence.sampling.readout import Votes
from ringfence.stats.lattice import thresholds
from ringfence.training import DeviceData, Schedule, TrainingJob, train
from ringfence.training.loop import train_together
from ringfence.training.objectives import NoiseAugmentation

DEVICE = os.environ.get("RINGFENCE_TEST_DEVICE", "cuda")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore"),  # the compiler's own
    pytest.mark.skipif(DEVICE == "cuda" and not torch.cuda.is_available(), reason="no CUDA device is visible"),
]
SIGMA = 0.5
INPUTS = [Input(i, torch.tensor([0.2 * i, 0.0, 0.0]), None, str(i)) for i in range(5)]


def counts(classifier: nn.Module, plan: ForwardPlan, procedure: rf.Fixed, seed: int = 0) -> list[tuple[object, ...]]:
    """What the records say: class, bound and draws of every input, in order."""
    execution = rf.Execution(DEVICE, plan=plan)
    found = rf.certify(
        classifier,
        INPUTS,
        noise=rf.Gaussian(SIGMA),
        procedure=procedure,
        seed=seed,
        precision=plan.precision,
        execution=execution,
    )
    return sorted((one.input_id, one.prediction, one.p_a, one.draws) for one in found)


@pytest.mark.parametrize("batch", [100, 777, 4096])
def test_counts_do_not_depend_on_the_batch(batch: int) -> None:
    procedure = rf.Fixed(n0=150, n=5_050)
    assert counts(Buckets(), ForwardPlan(batch), procedure) == counts(Buckets(), ForwardPlan(512), procedure)


def test_every_input_gets_its_own_answer_however_fast_slots_change_hands() -> None:
    """Inputs are placed and noise is drawn on a stream of their own: neither may overtake the other."""
    inputs = [Input(i, torch.tensor([(i % 2) - 0.5, 0.0, 0.0]), None, str(i)) for i in range(600)]
    inputs += [replace(one, id=one.id + 600, x=one.x.to(DEVICE)) for one in inputs]
    for batch in (100, 1024):
        execution = rf.Execution(DEVICE, plan=ForwardPlan(batch))
        options = {"noise": rf.Gaussian(1e-3), "precision": "fp32", "execution": execution}
        found = rf.certify(Buckets([0.0]), inputs, procedure=rf.Fixed(n0=100, n=200), **options)
        answers = {record.input_id: (record.prediction, record.draws) for record in found}
        assert answers == {one.id: (one.id % 2, 300) for one in inputs}


def test_an_input_may_be_written_over_once_it_is_taken() -> None:
    """Inputs go to the device with the next batch: until then they must not be the caller's."""
    buffer = torch.zeros(3)

    def inputs() -> Iterator[Input]:
        for number in range(600):
            buffer[0] = (number % 2) - 0.5
            yield Input(number, buffer, None, str(number))

    execution = rf.Execution(DEVICE, plan=ForwardPlan(1024), check=False)
    options = {"noise": rf.Gaussian(1e-3), "precision": "fp32", "execution": execution}
    found = rf.certify(Buckets([0.0]), inputs(), procedure=rf.Fixed(n0=100, n=200), **options)
    assert sum(one.prediction != one.input_id % 2 for one in found if one.input_id >= CHECKED_ON) == 0


def test_bounds_hold_as_often_as_they_say() -> None:
    """P(class 0) of an input at x is Phi(-x / sigma): the bound must lie below it, but for a share alpha."""
    alpha, runs = 0.05, 60
    wrong = 0
    for seed in range(runs):
        for number, prediction, bound, _ in counts(Buckets([0.0]), ForwardPlan(2048), rf.Fixed(alpha, n=500), seed):
            truth = norm.cdf((1 if prediction else -1) * 0.2 * int(str(number)) / SIGMA)
            wrong += float(str(bound)) > truth
    assert wrong <= binom.ppf(1 - 1e-6, runs * len(INPUTS), alpha)


FAMILIES = (rf.Gaussian, rf.Uniform, rf.Laplace)


@pytest.mark.parametrize("kind", FAMILIES)
def test_the_noise_has_its_law_and_is_new_in_every_chunk(kind: type[rf.Gaussian]) -> None:
    noise = kind(SIGMA)
    out = torch.empty(64, 100, 50, device=DEVICE)
    for number, chunk in enumerate(out):
        noise.fill(chunk, 1234 + number)
    values = out.flatten().cpu().numpy() / SIGMA
    assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 5 / len(values) ** 0.5
    assert kstest(values[::7], noise.law.unit.cdf).pvalue > 1e-6
    firsts = out[:, 0, 0].cpu().numpy()
    assert len(np.unique(firsts)) == len(firsts)


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("law", [(0.25, 255), (1.0, 255), (0.12, 1000)])
@pytest.mark.parametrize("key", [3, (1 << 64) - 5])
def test_exact_noise_is_the_same_integers_on_every_device(
    kind: type[rf.Gaussian], law: tuple[float, int], key: int
) -> None:
    wanted, out = torch.empty(300, 3073), torch.empty(300, 3073, device=DEVICE)
    kind(law[0], "exact", law[1]).fill_steps(wanted, key)
    kind(law[0], "exact", law[1]).fill_steps(out, key)
    assert torch.equal(out.cpu(), wanted)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_exact_noise_is_added_exactly_in_any_layout(layout: torch.memory_format, dtype: torch.dtype) -> None:
    noise, keys, places, slots = rf.Gaussian(SIGMA, "exact"), [3, 3, (1 << 64) - 5, 0], [0, 99, 7, -1], [1, 0, 2, 1]
    steps = torch.randint(0, 256, (3, 3, 5, 7), device=DEVICE).float()
    table = torch.tensor([slots, [signed(key) for key in keys], places], device=DEVICE)
    out = torch.empty(4, 3, 5, 7, device=DEVICE, memory_format=layout, dtype=dtype)
    assert noise.add(out, steps, table) == (DEVICE != "cpu")
    for row, key, place, slot in zip(out, keys, places, slots, strict=True):
        drawn = torch.zeros(100, 3, 5, 7)
        if place >= 0:
            noise.fill_steps(drawn, key)
        wanted = (steps[slot].cpu() + drawn[place]).mul_(1 / 255).to(dtype)
        assert DEVICE == "cpu" or torch.equal(row.cpu(), wanted)


@pytest.mark.skipif(DEVICE == "cpu", reason="both would be the CPU")
@pytest.mark.parametrize("plan", [ForwardPlan(512), ForwardPlan(777, compile=True)], ids=["plain", "compiled"])
def test_exact_noise_gives_the_counts_of_the_cpu(plan: ForwardPlan) -> None:
    """Comparisons only, so that no network rounds: then the counts are equal, vote by vote, on both."""
    inputs = [Input(i, torch.tensor([51.0 * i, 0.0, 0.0]) / 255, None, str(i)) for i in range(5)]

    def votes(device: str, plan: ForwardPlan) -> list[object]:
        execution = rf.Execution(device, plan=plan)
        options = {"noise": rf.Gaussian(SIGMA, "exact"), "precision": plan.precision, "execution": execution}
        edges = [0.001, 0.501, 1.002]  # between lattice points
        found = rf.certify(Buckets(edges), inputs, procedure=rf.Fixed(n0=150, n=5_050), **options)
        order = sorted(found, key=lambda one: one.input_id)
        return [(one.radius, [stage.cells["votes"].tolist() for stage in one.stages]) for one in order]

    assert votes(DEVICE, plan) == votes("cpu", ForwardPlan(100))


@pytest.mark.skipif(DEVICE == "cpu", reason="one of the CPU has 10^8")
@pytest.mark.parametrize("kind", FAMILIES)
def test_exact_noise_fits_its_law_over_a_billion_draws(kind: type[rf.Gaussian]) -> None:
    law = thresholds(kind.name, 0.25, 255)
    out = torch.empty(1000, 100_000, device=DEVICE)
    counts = torch.zeros(law.highest - law.lowest + 1, dtype=torch.int64, device=DEVICE)
    for key in range(10):
        kind(0.25, "exact").fill_steps(out, key)
        counts += torch.bincount((out.view(-1) - law.lowest).int(), minlength=len(counts))
    expected = law.probabilities() * int(counts.sum())
    assert_frequencies(counts.cpu().numpy(), expected)


@pytest.mark.skipif(DEVICE == "cpu", reason="the CPU draws otherwise")
@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_the_kernel_draws_what_it_says_in_any_layout(layout: torch.memory_format, kind: type[rf.Gaussian]) -> None:
    keys, places, slots = [3, 3, (1 << 64) - 5, 0], [0, 99, 7, -1], [1, 0, 2, 1]
    clean = torch.rand(3, 3, 5, 7, device=DEVICE)
    table = torch.tensor([slots, [signed(key) for key in keys], places], device=DEVICE)
    out = torch.empty(4, 3, 5, 7, device=DEVICE, memory_format=layout)
    assert kind(SIGMA).add(out, clean, table)
    for row, key, place, slot in zip(out, keys, places, slots, strict=True):
        drawn = philox.REFERENCES[kind.name](key, place, 105) if place >= 0 else np.zeros(105)
        wanted = clean[slot].cpu().numpy().reshape(-1) + SIGMA * drawn
        assert np.abs(row.cpu().numpy().reshape(-1) - wanted).max() < 1e-4


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_chunk_is_the_same_whole_or_in_rows(kind: type[rf.Gaussian]) -> None:
    """What ``fill`` gives is what the engine adds, however its batches cut the chunk."""
    noise, key = kind(SIGMA), (1 << 63) + 11
    whole, part = torch.empty(100, 3, 4, device=DEVICE), torch.empty(30, 3, 4, device=DEVICE)
    noise.fill(whole, key)
    rows = torch.arange(50, 80)
    table = torch.stack([torch.zeros_like(rows), torch.full_like(rows, signed(key)), rows]).to(DEVICE)
    if noise.add(part, torch.zeros(1, 3, 4, device=DEVICE), table):
        assert torch.equal(part, whole[50:80])


def test_the_compiled_half_precision_network_is_nearly_the_plain_one() -> None:
    torch.manual_seed(0)
    network = resnet(8).eval()
    x = torch.rand(256, 3, 32, 32, device=DEVICE)
    device = torch.device(DEVICE)
    plain = Forward(network, ForwardPlan(256), device, 10)(x).scores
    fast = ForwardPlan(256, "bf16", channels_last=True, compile=True, fold=True)
    again = Forward(network, fast, device, 10)(x).scores
    assert (plain - again).abs().max() < 0.1 * plain.abs().max()


@pytest.mark.parametrize(("rows", "lanes", "classes"), [(1, 1, 2), (8192, 1, 10), (777, 54, 10), (33, 2, 1000)])
def test_votes_land_in_the_cells_of_their_slots(rows: int, lanes: int, classes: int) -> None:
    generator = torch.Generator().manual_seed(rows)
    scores = torch.randn(rows, lanes, classes, generator=generator).mul_(3).round_()  # with ties
    scores[0, 0, 0] = torch.nan
    slots = torch.randint(0, 6, (rows,), generator=generator)  # 5 takes padding
    found = DeviceCounts((Votes(),), classes, Scored(scores.to(DEVICE), 1), 5, torch.device(DEVICE), fuse=False)
    found.add(Scored(scores.to(DEVICE), 1), slots.to(DEVICE))
    found.send([0, 1, 2, 3, 4], slots.bincount(minlength=6)[:5].tolist())
    wanted = np.zeros((6, lanes, classes + 1), np.int64)
    np.add.at(wanted, (slots[:, None], np.arange(lanes), Votes().cells(scores).squeeze(2)), 1)
    counted = found.landed(wait=True).tally.cells["votes"]
    assert np.array_equal(counted, wanted[:5].reshape(-1, classes + 1))


ALONE = """
import sys, torch, ringfence as rf
from ringfence.classifiers.architectures import resnet
from ringfence.data import Input
from ringfence.sampling import ForwardPlan
plan = ForwardPlan(512, "bf16", channels_last=True, compile=True, fold=True, fused=True)
found = list(rf.certify(resnet(8).eval(), [Input(0, torch.rand(3, 32, 32), None, "0")], noise=rf.Gaussian(0.25),
             procedure=rf.Fixed(n=1000), num_classes=10, precision="bf16",
             execution=rf.Execution("cuda", plan=plan)))
print(len(found), [name for name in ("torch._dynamo", "torch._inductor.compile_fx") if name in sys.modules])
"""


@pytest.mark.skipif(DEVICE == "cpu", reason="the kernel needs a GPU")
def test_a_fused_network_is_certified_without_torchs_compiler() -> None:
    if (problem := why_not(torch.device(DEVICE))) is not None:
        pytest.skip(problem)
    done = subprocess.run([sys.executable, "-c", ALONE], check=True, stdout=subprocess.PIPE, text=True)
    assert done.stdout.splitlines()[-1] == "1 []"


@pytest.mark.parametrize("stacked", [False, True])
def test_compiled_ensembles_answer_as_plain_ones(stacked: bool) -> None:
    torch.manual_seed(0)
    members = [nn.Sequential(nn.Flatten(), nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 4)).eval() for _ in range(5)]
    x = torch.randn(512, 3, 2, 2, device=DEVICE)
    for ensemble in (SoftVote(members), KConsensus(members, 2)):
        plan = ForwardPlan(512, compile=True, stacked=stacked, parts=2)
        found = Forward(ensemble, plan, torch.device(DEVICE), 4)(x)
        with torch.inference_mode():
            expected = score(ensemble.to(DEVICE), x)
        assert torch.allclose(found.scores.squeeze(1), expected.scores, atol=1e-5)
        assert torch.equal(torch.as_tensor(found.work).cpu(), torch.as_tensor(expected.work).cpu())


@pytest.mark.skipif(DEVICE == "cpu", reason="the kernel needs a GPU")
@pytest.mark.parametrize(("depth", "shortcut"), [(8, "projection"), (20, "projection"), (56, "pad")])
@pytest.mark.parametrize("rows", [1, 257])
def test_a_fused_network_answers_as_the_plain_one(depth: int, shortcut: Shortcut, rows: int) -> None:
    device = torch.device(DEVICE)
    if (problem := why_not(device)) is not None:
        pytest.skip(problem)
    torch.manual_seed(0)
    network = resnet(depth, 7, shortcut).eval()
    for part in network.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_var.fill_(2.0)
    normalised = Normalize(network, [0.4, 0.5, 0.6], [0.2, 0.25, 0.3]).eval()
    x = torch.rand(rows, 3, 32, 32, device=DEVICE)
    plain = Forward(normalised, ForwardPlan(rows), device, 7)(x).scores
    for compile in (False, True):
        plan = ForwardPlan(rows, "bf16", channels_last=True, compile=compile, fold=True, fused=True)
        forward = Forward(normalised, plan, device, 7)
        again = forward(x).scores
        assert (plain - again).abs().max() < 0.03 * plain.abs().max()
        assert torch.equal(again, forward(x).scores)
        if rows > 1:  # neighbours do not matter
            assert torch.equal(forward(x.flip(0)).scores, again.flip(0))
            planar = Forward(normalised, replace(plan, channels_last=False), device, 7)
            assert torch.equal(planar(x).scores, again)  # nor the layout
            smaller = Forward(normalised, replace(plan, batch=100), device, 7)
            assert torch.equal(smaller(x[:100]).scores, again[:100])  # nor does the size of the batch


@pytest.mark.skipif(DEVICE == "cpu", reason="the kernel needs a GPU")
def test_compiled_plans_fuse_where_they_can() -> None:
    device = torch.device(DEVICE)
    if (problem := why_not(device)) is not None:
        pytest.skip(problem)
    members = [resnet(8).eval() for _ in range(3)]
    aces = Aces(members[0], NetworkSelector(resnet(8, 2).eval(), [0.5]), members[1])
    for classifier in (members[0], KConsensus(members, 2), aces):
        plan = fastest_plan(classifier, (3, 32, 32), 10, device, "bf16", compile=True)
        assert plan.fused
        assert classifier is members[0] or plan.batch // plan.parts % rows_at_a_time(device) == 0
        assert not fastest_plan(classifier, (3, 40, 40), 10, device, "bf16", compile=True).fused
        assert not fastest_plan(classifier, (3, 32, 32), 10, device, "fp32", compile=True).fused
    x = torch.rand(64, 3, 32, 32, device=DEVICE)
    found = Forward(KConsensus(members, 2), ForwardPlan(64, "bf16", compile=True, fused=True), device, 10)(x)
    assert found.scores.shape == (64, 1, 10)


def test_facts_are_read_beside_the_batches() -> None:
    """ACES asks its core network about every clean input while batches of others are in flight."""
    torch.manual_seed(0)
    certify, core = (nn.Sequential(nn.Flatten(), nn.Linear(3, 4)).eval() for _ in range(2))
    inputs = [Input(i, torch.randn(3), None, str(i)) for i in range(40)]
    wanted = {one.id: int(core(one.x[None]).argmax()) for one in inputs}
    aces = Aces(certify, EntropySelector([0.2, 0.5]), core)
    execution = rf.Execution(DEVICE, plan=ForwardPlan(256))
    options = {"noise": rf.Gaussian(SIGMA), "precision": "fp32", "execution": execution}
    found = rf.certify(aces, inputs, procedure=AcesCertify(n=1000), lanes=aces.names, **options)
    assert {record.input_id: dict(record.facts) for record in found} == {i: {"core": c} for i, c in wanted.items()}


def test_a_recorded_step_trains_as_a_plain_one(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    data = DeviceData(torch.rand(256, 1, 4, 4, generator=generator), torch.arange(256) % 3, 3)
    plan = TrainingJob(NoiseAugmentation(), sigma=0.2, epochs=3, batch=64, schedule=Schedule(lr=0.05), seed=1)
    weights = []
    for graph in (False, True):
        torch.manual_seed(0)
        member = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3))
        (trained,) = train(replace(plan, graph=graph), [member], data, tmp_path / str(graph), device=DEVICE)
        weights.append(torch.cat([one.flatten() for one in trained.parameters()]))
    assert torch.allclose(*weights, atol=1e-5)


def test_recorded_trainings_that_end_apart_or_were_stopped_are_those_trained_alone(tmp_path: Path) -> None:
    """When one is finished the rest is recorded anew: momentum must survive that, and a stop."""
    generator = torch.Generator().manual_seed(0)
    data = DeviceData(torch.rand(256, 1, 4, 4, generator=generator), torch.arange(256) % 3, 3)
    plan = TrainingJob(
        NoiseAugmentation(), sigma=0.2, epochs=4, batch=64, schedule=Schedule(lr=0.05, every=9), graph=True
    )
    plans = [replace(plan, seed=1, epochs=2), replace(plan, seed=2)]

    def fresh() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3))

    alone = [train(replace(p, graph=False), [fresh()], data, tmp_path / f"a{p.seed}", device=DEVICE)[0] for p in plans]
    folders = [tmp_path / "1", tmp_path / "2"]
    train(plans[1], [fresh()], data, folders[1], device=DEVICE, stop_after=1)
    together = train_together(plans, [[fresh()], [fresh()]], data, folders, device=DEVICE)
    for one, (other,) in zip(alone, together, strict=True):
        for a, b in zip(one.parameters(), other.parameters(), strict=True):
            assert torch.allclose(a, b, atol=1e-5)


def test_a_stopped_training_of_images_goes_on(tmp_path: Path) -> None:
    """Their networks have channels last, which a checkpoint does not know."""
    torch.manual_seed(0)
    data = DeviceData(torch.rand(128, 3, 32, 32), torch.randint(10, (128,)), 10)
    plan = TrainingJob(NoiseAugmentation(), sigma=0.1, epochs=2, batch=64, schedule=Schedule(lr=0.01), graph=True)
    train(plan, [resnet(8)], data, tmp_path, device=DEVICE, stop_after=1)
    seen: list[int] = []
    train(plan, [resnet(8)], data, tmp_path, device=DEVICE, on_status=lambda status: seen.append(status.epoch))
    assert set(seen) == {2}


@pytest.mark.parametrize("compile", [False, True])
def test_members_of_one_recorded_step_are_those_trained_alone(tmp_path: Path, compile: bool) -> None:
    torch.manual_seed(0)
    data = DeviceData(torch.rand(256, 3, 32, 32), torch.randint(10, (256,)), 10)
    plans = [
        TrainingJob(
            NoiseAugmentation(copies=1),
            sigma=0.1,
            epochs=2,
            batch=64,
            schedule=Schedule(lr=0.01),
            graph=True,
            compile=compile,
            seed=i,
        )
        for i in range(3)
    ]

    def fresh(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return resnet(8)

    alone = [train(plan, [fresh(plan.seed)], data, tmp_path / f"alone-{plan.seed}", device=DEVICE)[0] for plan in plans]
    together = train_together(
        plans, [[fresh(i)] for i in range(3)], data, [tmp_path / f"{i}" for i in range(3)], device=DEVICE
    )
    for one, (other,) in zip(alone, together, strict=True):
        for key, value in one.state_dict().items():
            # Sums on a GPU are not repeatable to the bit; a wrong seed or a mixed-up member would differ by far more.
            assert torch.allclose(value.float(), other.state_dict()[key].float(), atol=2e-3), key
