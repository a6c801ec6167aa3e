"""Verify replays every procedure on the stored counts, and finds what does not follow from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from configs import altered, small_config
from torch import nn
from toys import Buckets, Double
from typer.testing import CliRunner

import ringfence as rf
from ringfence.cli import app
from ringfence.contradictions import AS_WRITTEN, Disagreement, contradicted
from ringfence.errors import StoreError
from ringfence.lift import MODES, Lift
from ringfence.mechanisms import Mechanism, mechanisms_named
from ringfence.models.registry import NODES, NodeKind
from ringfence.procedures import Procedure
from ringfence.record import Lane, StageTally
from ringfence.sampling import ForwardPlan
from ringfence.store import InputInfo, RunConfig, StoreWarning, import_cohen
from ringfence.store.claims import given_in
from ringfence.store.config import LiftConfig, Migrated
from ringfence.store.guarded import Guarded
from ringfence.types import BINS

FIXTURES = Path(__file__).parent / "fixtures" / "cohen"
PROCEDURES: list[Procedure] = [
    rf.Fixed(n=800),
    rf.TwoSided(n=800),
    rf.Predict(n=300),
    rf.Staged(0.2, stages=(150, 900)),
    rf.Sequential(0.2, n=3000, larger=(0.3, 0.5)),
    rf.Anytime(n=1500, tolerance=0.1),
    rf.Anytime(n=10**8, seconds=0.02),
]


def config(procedure: Procedure) -> RunConfig:
    return small_config(
        model="in-memory:Buckets",
        data="line",
        num_classes=4,
        sigma=0.5,
        procedure=procedure.name,
        procedure_settings=procedure.settings(),
        mechanisms=[one.name for one in mechanisms_named("all")],
        lift=rf.Identity().settings(),
        lanes=["main"],
    )


def records(procedure: Procedure) -> list[rf.Record]:
    mechanisms = list(mechanisms_named("all"))
    inputs = [(x, 1) for x in torch.linspace(-1, 2, 9)[:, None]]
    found = rf.certify(
        Buckets(),
        inputs,
        noise=rf.Gaussian(0.5),
        procedure=procedure,
        mechanism=mechanisms[0],
        also=tuple(mechanisms[1:]),
        execution=rf.Execution(device="cpu", plan=ForwardPlan(100)),
    )
    digest = config(procedure).digest
    return sorted((replace(one, config_hash=digest) for one in found), key=lambda record: record.input_id)


def stored(path: Path, procedure: Procedure, rows: list[rf.Record]) -> rf.RunFolder:
    run = rf.RunFolder.create_or_resume(path, config(procedure))
    run.append(rows)
    return rf.RunFolder.open(path)


@pytest.mark.parametrize("procedure", PROCEDURES, ids=lambda one: one.name)
def test_honest_runs_agree(tmp_path: Path, procedure: Procedure) -> None:
    assert rf.verify(stored(tmp_path / "run", procedure, records(procedure))) == []


def with_votes(record: rf.Record, stage: int, change: Callable[[list[int]], list[int]]) -> rf.Record:
    stages = list(record.stages)
    entry = stages[stage]
    votes = torch.tensor(change(entry.cells["votes"].tolist())).numpy()
    stages[stage] = StageTally(entry.stage, entry.start, entry.draws, {"votes": votes})
    return replace(record, stages=tuple(stages))


def moved(votes: list[int]) -> list[int]:
    """One draw that voted for a loser now votes for the winner, or the other way round."""
    winner, loser = max(range(4), key=votes.__getitem__), min(range(4), key=votes.__getitem__)
    step = 1 if votes[loser] else -1
    votes[winner] += step
    votes[loser] -= step
    return votes


@pytest.mark.parametrize(
    ("what", "tamper"),
    [
        ("radius", lambda r: replace(r, radius=r.radius + 1e-9)),
        ("prediction", lambda r: replace(r, prediction=(r.prediction + 1) % 4)),
        ("p_a", lambda r: replace(r, p_a=r.p_a + 1e-12)),
        ("p_b", lambda r: replace(r, p_b=0.0)),
        ("alpha", lambda r: replace(r, alpha=1e-4)),
        ("draws", lambda r: replace(r, draws=r.draws + 1)),
        ("lift_norm", lambda r: replace(r, lift_norm=2.0)),
        ("target", lambda r: replace(r, target=0.2)),
        ("procedure", lambda r: replace(r, procedure="sequential")),
        ("radius by renyi", lambda r: replace(r, radii={**r.radii, "renyi": 3.0})),
        ("radius by renyi", lambda r: replace(r, radii={k: v for k, v in r.radii.items() if k != "renyi"})),
        ("sound", lambda r: replace(r, sound=False)),
        ("seed", lambda r: replace(r, seed=1)),
        ("spent", lambda r: replace(r, spent={"lower bound": r.alpha / 2})),
        ("norm", lambda r: replace(r, norm="linf")),
        ("forwards", lambda r: replace(r, forwards=2 * r.forwards)),
        ("names of radii", lambda r: replace(r, radii={**r.radii, "wishful": 9.0})),
        ("counts that cannot be", lambda r: with_votes(r, 1, lambda v: [2**62] * 4 + [800])),
        ("votes of request 1", lambda r: with_votes(r, 1, lambda v: [v[0] + 1, *v[1:]])),
        ("votes of request 1", lambda r: with_votes(r, 1, lambda v: [v[0] - 801, *v[1:-1], v[-1] + 801])),
        ("radius", lambda r: with_votes(r, 1, moved)),
        (
            "request 1 (stage, start, draws)",
            lambda r: replace(r, stages=(r.stages[0], replace(r.stages[1], start=100))),
        ),
        ("draws still wanted", lambda r: replace(r, stages=r.stages[:1])),
        ("facts", lambda r: replace(r, facts={"core": 1})),
        ("request 2 (stage, start, draws)", lambda r: replace(r, stages=(*r.stages, r.stages[1]))),
    ],
)
def test_tampering_is_found(tmp_path: Path, what: str, tamper: Callable[[rf.Record], rf.Record]) -> None:
    rows = records(rf.Fixed(n=800))
    victim = max(range(len(rows)), key=lambda k: rows[k].radius)
    rows[victim] = tamper(rows[victim])
    found = rf.verify(stored(tmp_path / "run", rf.Fixed(n=800), rows))
    assert {one.input_id for one in found} == {rows[victim].input_id}
    assert what in {one.what for one in found}


@pytest.mark.parametrize(("off", "agrees"), [(-1e-12, True), (1e-12, True), (3e-10, False), (-3e-10, False)])
def test_another_processor_may_have_computed_radii(tmp_path: Path, off: float, agrees: bool) -> None:
    """The last bits of NumPy's logarithms and sums are those of a processor; what was rounded down holds on all."""
    rows = records(rf.Fixed(n=800))
    assert any(one.radius > 0 for one in rows)
    moved_radii = [replace(one, radius=one.radius * (1 + off), p_a=one.p_a * (1 - 1e-14)) for one in rows]
    found = rf.verify(stored(tmp_path / "run", rf.Fixed(n=800), moved_radii))
    assert (found == []) is agrees


def test_votes_are_as_many_as_draws(tmp_path: Path) -> None:
    """Two votes for every draw would be a multiple of them, as the cells of other readouts are."""
    rows = records(rf.Fixed(n=800))
    rows[4] = with_votes(rows[4], 1, lambda votes: [2 * one for one in votes])
    found = rf.verify(stored(tmp_path / "run", rf.Fixed(n=800), rows))
    assert [(one.input_id, one.what, one.stored, one.recomputed) for one in found] == [
        (rows[4].input_id, "votes of request 1", 1600, 800)
    ]


def all_for_the_first(counts: list[int], draws: int) -> list[int]:
    """As many cells in all, but the first class has those of the others, too."""
    return [0] * (BINS - 1) + [sum(counts)] + [0] * (len(counts) - BINS)


@pytest.mark.parametrize(
    ("classifier", "procedure", "name", "tamper"),
    [
        (Buckets(), rf.Softmax(n=800), "scores", all_for_the_first),
        (rf.lanes(Buckets(), Buckets(), votes="none", singles=True), rf.EnsembleAfterSmoothing(n=800), "member_votes",
         lambda counts, draws: [2 * draws] + [0] * (len(counts) - 1)),
        (rf.aces(certify=Buckets(), core=Buckets(), theta=0.5), rf.AcesCertify(n=800), "bits",
         lambda counts, draws: [draws, draws, 0]),
    ],
    ids=["scores", "member votes", "bits"],
)  # fmt: skip
def test_a_draw_is_one_score_of_each_class_one_vote_of_each_member_and_one_bit(
    tmp_path: Path,
    classifier: Any,
    procedure: Procedure,
    name: str,
    tamper: Callable[[list[int], int], list[int]],
) -> None:
    data = torch.zeros(1, 1), torch.ones(1, dtype=torch.int64)
    run = rf.certify(classifier, data, noise=rf.Gaussian(0.5), procedure=procedure, check=False, out=tmp_path / "run")
    (honest,) = run.folder.read()
    assert contradicted(run.folder.config, [honest], "config") == []
    last = honest.stages[-1]
    counts = np.array(tamper(last.cells[name].tolist(), last.draws))
    assert counts.sum() % last.draws == 0
    forged = replace(honest, stages=(honest.stages[0], replace(last, cells={**last.cells, name: counts})))
    found = contradicted(run.folder.config, [forged], "config")
    assert [one.what for one in found] == [f"{name} of request 1"]
    assert found[0].recomputed == last.draws


@pytest.mark.parametrize("procedure", [rf.Fixed(n=800), rf.Sequential(0.1, n=3000)], ids=lambda one: one.name)
def test_the_norm_of_the_lift_is_verified(tmp_path: Path, procedure: Procedure) -> None:
    """Records made behind a lift agree with a config that names its norm, and with no other."""
    lifted = altered(config(procedure), {"lift": Double().settings(), "mechanisms": ["neyman_pearson"]})
    options = {"noise": rf.Gaussian(0.5), "procedure": procedure, "lift": Double()}
    execution = rf.Execution(device="cpu", plan=ForwardPlan(100))
    found = rf.certify(Buckets(), torch.linspace(-1, 2, 9)[:, None], execution=execution, **options)
    rows = [replace(one, config_hash=lifted.digest) for one in found]
    run = rf.RunFolder.create_or_resume(tmp_path / "run", lifted)
    run.append(rows)
    assert rf.verify(run) == []
    other = rf.RunFolder.create_or_resume(tmp_path / "other", config(procedure))
    other.append([replace(one, config_hash=other.config.digest) for one in rows])
    assert "lift_norm" in {one.what for one in rf.verify(other)}


LIFTS = [
    (mode, sampling, noise)
    for mode in MODES
    for sampling in ("dense", "random")
    for noise in (rf.Gaussian(0.5), rf.Uniform(0.5))
    if (mode, sampling) != ("input", "dense")  # has no lift
    and (mode, sampling, noise.name) != ("per-patch-input", "dense", "uniform")  # is refused
]


@pytest.mark.parametrize(("mode", "sampling", "noise"), LIFTS, ids=lambda one: getattr(one, "name", one))
def test_a_smaller_norm_than_that_of_the_trees_lift_is_found(
    tmp_path: Path, mode: str, sampling: str, noise: rf.Noise
) -> None:
    """Radii that follow from their counts and a forged norm: the tree and the shape of the inputs say which it is."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(9, 2))
    tree = rf.patches(net, size=3, resize=5, count=2, noise=mode, sampling=sampling)
    value = rf.Certification(tree, torch.rand(2, 1, 4, 4), noise=noise, procedure=rf.Fixed(n0=10, n=50))
    run = value.run(tmp_path / "run", rf.Execution(device="cpu", plan=ForwardPlan(100), check=False))
    assert rf.verify(run) == []
    none = run.config.model_copy(update={"lift": LiftConfig()})
    whats = {one.what for one in rf.verify(forge(run, none, tmp_path / "none", value.mechanisms[0]))}
    assert "lift.name" in whats
    for part, told in ((0.999, ["lift.norm_bound"]), (1.001, [])):
        norm = part * run.config.lift.norm_bound
        other = run.config.with_entries({"lift": {"norm_bound": norm}})
        assert [one.what for one in rf.verify(forge(run, other, tmp_path / f"{part}", value.mechanisms[0]))] == told


def forge(run: rf.RunFolder, config: RunConfig, path: Path, rule: Mechanism, sound: bool = True) -> rf.RunFolder:
    """The same counts under other settings of the lift, and what follows from them."""
    found = rf.RunFolder.create_or_resume(path, config)
    given = given_in(config)
    rows = []
    for row in run.read():
        radius = float(given.radius(np.array(row.p_a), np.array(row.p_b)))
        told = {"radius": radius, "radii": {rule.name: radius}, "lift_norm": given.norm_bound, "sound": sound}
        rows.append(replace(row, config_hash=found.digest, **told))
    found.append(rows)
    found.write_inputs(run.inputs())
    found.write_summary(run.summary() or {})
    return found


@dataclass(frozen=True)
class DoubledNode(NodeKind):
    """A node of a plugin, whose setting no node of Ringfence has."""

    times: int = 1

    @property
    def at_input(self) -> bool:
        return self.times == 1

    def build(self, models: Sequence[nn.Module], named: Mapping[str, nn.Module]) -> nn.Module:
        return models[0]

    def placed(self, module: nn.Module, shape: tuple[int, ...]) -> tuple[nn.Module, Lift]:
        return module, Double()


def test_a_node_of_a_plugin_declares_its_lift_and_one_that_nobody_knows_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(NODES, "doubled", DoubledNode)
    monkeypatch.setattr(DoubledNode, "name", "doubled", raising=False)
    fixed, data = rf.Fixed(n0=10, n=50), rf.Data("default", limit=2)
    value = rf.Certification("doubled(default, times=2)", data, noise=rf.Gaussian(0.5), procedure=fixed)
    run = value.run(tmp_path / "run", rf.Execution(device="cpu", plan=ForwardPlan(100), check=False))
    assert (run.config.lift.name, rf.verify(run)) == ("double", [])
    none = run.config.model_copy(update={"lift": LiftConfig()})
    forged = forge(run, none, tmp_path / "none", value.mechanisms[0])
    assert "lift.name" in {one.what for one in rf.verify(forged)}
    monkeypatch.delitem(NODES, "doubled")
    for one in (run, forged):
        (told,) = rf.verify(one)
        assert (told.what, told.stored) == ("classifier.tree", "doubled(default, times=2)")
        assert "its plugins loaded (doubled(...) must be one of aces" in str(told.recomputed)
    assert CliRunner().invoke(app, ["verify", str(run.path)]).exit_code == 1


def test_a_lift_whose_shape_nobody_tells_is_named(tmp_path: Path) -> None:
    """Without the end of the run nobody knows the norm; that there is a lift is known from the tree."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(9, 2))
    tree = rf.patches(net, size=3, resize=5, count=2, noise="patch")
    value = rf.Certification(tree, torch.rand(2, 1, 4, 4), noise=rf.Gaussian(0.5), procedure=rf.Fixed(n0=10, n=50))
    run = value.run(tmp_path / "run", rf.Execution(device="cpu", plan=ForwardPlan(100), check=False))
    none = run.config.model_copy(update={"lift": LiftConfig()})
    forged = forge(run, none, tmp_path / "none", value.mechanisms[0])
    for one in (run, forged):
        one.write_summary({})
        (told,) = rf.verify(one)
        assert told.what == "classifier.tree"
        assert "patches(...) has a lift, whose norm takes the shape of the inputs" in str(told.recomputed)
    assert rf.verify(run, partial=True) == []
    assert [one.what for one in rf.verify(forged, partial=True)] == ["classifier.tree"]


def test_a_lift_beside_a_source_that_has_none_is_found(tmp_path: Path) -> None:
    """A norm below 1 makes radii larger; only a network of the program can have a lift that no tree names."""
    fixed, noise = rf.Fixed(n0=10, n=50), rf.Gaussian(0.5, form="float")
    value = rf.Certification("default", rf.Data("default", limit=2), noise=noise, procedure=fixed)
    run = value.run(tmp_path / "run", rf.Execution(device="cpu", plan=ForwardPlan(100), check=False))
    shrinking = run.config.with_entries({"lift": {"name": "shrinking", "norm_bound": 0.5}})
    found = {one.what for one in rf.verify(forge(run, shrinking, tmp_path / "forged", value.mechanisms[0]))}
    assert {"lift.name", "lift.norm_bound"} <= found


def with_lanes(run: rf.RunFolder, path: Path, changes: Mapping[str, dict[str, object]]) -> list[str]:
    """What is found wrong with the same run whose lanes are called otherwise, in its settings and in its records."""
    lanes = [changes.get(one.name, one.settings()) for one in run.config.classifier.lanes]
    names = dict(zip(run.config.classifier.names, (str(one["name"]) for one in lanes), strict=True))
    found = rf.RunFolder.create_or_resume(path, run.config.with_entries({"classifier": {"lanes": lanes}}))
    found.append([replace(row, config_hash=found.digest, lane=names[row.lane]) for row in run.read()])
    found.write_inputs(run.inputs())
    found.write_summary({"shape": run.shape})
    return [one.what for one in rf.verify(found)]


def test_lanes_that_are_not_those_of_the_tree_are_found(tmp_path: Path) -> None:
    """Whoever calls a member the vote shows the radii of one classifier as those of another."""

    def certified(classifier: Any, name: str, **more: Any) -> rf.RunFolder:
        data = torch.rand(2, 1, 28, 28, generator=torch.Generator().manual_seed(0))
        value = rf.Certification(classifier, data, noise=rf.Gaussian(0.5), **{"procedure": rf.Fixed(n=50), **more})
        run = value.run(tmp_path / name, rf.Execution(device="cpu", plan=ForwardPlan(100), check=False))
        assert rf.verify(run) == []
        return run

    member, vote = {"name": "member-1", "member": 1}, {"name": "soft-2", "vote": "soft", "prefix": 2}
    net, lanes = rf.load_model("default").module, {"votes": "soft", "singles": True}
    for name, tree in {"named": rf.lanes("default", "default:1", **lanes), "live": rf.lanes(net, net, **lanes)}.items():
        run = certified(tree, name)
        assert run.config.classifier.names == ["member-1", "member-2", "soft-2"]
        swapped = with_lanes(run, tmp_path / f"{name}-swapped", {"member-1": vote, "soft-2": member})
        assert swapped == ["classifier.lanes", "classifier.lanes"]
        claimed = {"member-1": {"name": "member-1", "vote": "soft", "prefix": 2}}
        assert with_lanes(run, tmp_path / f"{name}-claimed", claimed) == ["classifier.lanes"]
    whole = {"main": {"name": "soft-2", "vote": "soft", "prefix": 2}}
    assert with_lanes(certified("default", "source"), tmp_path / "called", whole) == ["classifier.lanes"]
    certified(
        rf.lanes("default", "default:1", votes="none", singles=True),
        "joint",
        procedure=rf.EnsembleAfterSmoothing(n0=10, n=50),
    )
    own = rf.Lanes([net, net], ("soft",), singles=True)  # a network of the program names its lanes itself
    certified(own, "own")
    certified(rf.normalize(own, mean=0.5, std=0.5), "wrapped")


def test_a_published_form_that_is_called_sound_is_found(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(9, 2))
    tree = rf.patches(net, size=3, resize=5, count=2, noise="patch", form="paper")
    value = rf.Certification(tree, torch.rand(2, 1, 4, 4), noise=rf.Gaussian(0.5), procedure=rf.Fixed(n0=10, n=50))
    run = value.run(tmp_path / "run", rf.Execution(device="cpu", plan=ForwardPlan(100), check=False))
    assert rf.verify(run) == []
    proved = run.config.model_copy(update={"lift": LiftConfig(name=run.config.lift.name, norm_bound=1.0)})
    forged = forge(run, proved, tmp_path / "forged", value.mechanisms[0])
    assert [one.what for one in rf.verify(forged)] == ["lift.form"]


def test_stopping_a_sequential_test_early_is_found(tmp_path: Path) -> None:
    procedure = rf.Sequential(0.2, n=3000)
    rows = records(procedure)
    victim = max(range(len(rows)), key=lambda k: len(rows[k].stages))
    rows[victim] = replace(rows[victim], stages=rows[victim].stages[:-1], radius=0.2)
    found = {one.what for one in rf.verify(stored(tmp_path / "run", procedure, rows))}
    assert "draws still wanted" in found


def test_imported_logs_cannot_be_verified(tmp_path: Path) -> None:
    run = import_cohen(FIXTURES / "cifar10_noise_0.12_sigma_0.12_cut", 0.12, tmp_path / "run")
    with pytest.raises(StoreError, match="raw counts"):
        rf.verify(run)


def test_an_empty_run_verifies_nothing_and_says_so(tmp_path: Path) -> None:
    (found,) = rf.verify(rf.RunFolder.create_or_resume(tmp_path / "run", config(rf.Fixed(n=800))), partial=True)
    assert "nothing was verified" in found.what


def test_a_run_that_is_not_whole_is_a_finding_unless_it_is_known(tmp_path: Path) -> None:
    run = stored(tmp_path / "run", rf.Fixed(n=800), records(rf.Fixed(n=800)))
    run.note_inputs(11, {40: "cannot be decoded"})
    assert [(one.input_id, one.what, one.stored, one.recomputed) for one in rf.verify(run)] == [
        (None, "inputs", 9, 11),
        (40, "failed", "cannot be decoded", "a record"),
    ]
    assert rf.verify(run, partial=True) == []


def test_the_command_says_of_an_unfinished_run_how_to_go_on(tmp_path: Path) -> None:
    run = stored(tmp_path / "run", rf.Fixed(n=800), records(rf.Fixed(n=800)))
    run.note_inputs(11, {})
    told = CliRunner().invoke(app, ["verify", str(run.path)])
    assert told.exit_code == 1
    assert "9 of 11 inputs, not finished: run its command again" in told.output
    assert "claims do not follow" not in told.output


def test_ids_and_labels_are_those_of_the_inputs(tmp_path: Path) -> None:
    run = stored(tmp_path / "run", rf.Fixed(n=800), records(rf.Fixed(n=800)))
    run.write_inputs([InputInfo(one, 2 if one == 3 else 1) for one in range(8)])
    assert {(one.input_id, one.what, one.recomputed) for one in rf.verify(run)} == {
        (3, "label", 2),
        (8, "input_id", "one of inputs.parquet"),
    }


def test_every_input_has_one_row_in_inputs_parquet(tmp_path: Path) -> None:
    """Of two rows the last would be believed: labels of the first are shown beside it, and nobody looked at them."""
    run = stored(tmp_path / "run", rf.Fixed(n=800), records(rf.Fixed(n=800)))
    run.note_inputs(9, {})
    once = [InputInfo(one, 1) for one in range(9)]
    for rows in (once, [InputInfo(3, 2), *once], [*once, InputInfo(9, 1)]):
        run.write_inputs(rows)
        found = [(one.what, one.stored, one.recomputed) for one in rf.verify(run)]
        assert found == [("rows of inputs.parquet", 10, "9, one for each input")] * (len(rows) > 9)


def test_forms_that_ran_in_another_precision_than_the_one_claimed_are_found(tmp_path: Path) -> None:
    run = stored(tmp_path / "run", rf.Fixed(n=800), records(rf.Fixed(n=800)))
    run.add_forward_plan(ForwardPlan(100).settings())
    assert rf.verify(run) == []
    run.add_forward_plan(ForwardPlan(50, "bf16").settings())
    (found,) = rf.verify(run)
    assert (found.what, found.stored, found.recomputed) == ("precision in forward.json", "bf16", "fp32")


@pytest.mark.parametrize("name", ["environment.json", "forward.json"])
def test_what_parts_name_must_be_told(tmp_path: Path, name: str) -> None:
    data = torch.zeros(2, 1), torch.ones(2, dtype=torch.int64)
    run = rf.certify(Buckets(), data, sigma=0.5, n=200, check=False, out=tmp_path / "run").folder
    assert rf.verify(run) == []
    Guarded(run.path).replace(name, b"[]")
    (found,) = rf.verify(rf.RunFolder.open(run.path))
    assert (found.what, found.stored) == (f"entries of {name}", 0)
    (run.path / name).unlink()
    assert [one.what for one in rf.verify(rf.RunFolder.open(run.path))] == [name]


def test_a_lane_that_is_missing_and_a_row_that_stands_twice_are_found(tmp_path: Path) -> None:
    test = rf.Fixed(n=800)
    two = altered(config(test), {"lanes": ["main", "other"]})
    rows = [replace(one, config_hash=two.digest) for one in records(test)]
    run = rf.RunFolder.create_or_resume(tmp_path / "run", two)
    run.append([*rows, *(replace(one, lane="other") for one in rows[1:])])
    run.append(rows[:2])
    found = {(one.input_id, one.what) for one in rf.verify(run)}
    assert found == {(0, "lanes"), (None, "rows, some of them twice")}


def test_rows_of_other_settings_do_not_count(tmp_path: Path) -> None:
    """Not even where the manifest lists them: a folder put together from two runs."""
    test = rf.Fixed(n=800)
    rows = records(test)
    run = stored(tmp_path / "run", test, rows[:5])
    other = rf.RunFolder.create_or_resume(tmp_path / "other", altered(config(test), {"seed": 1}))
    part = other.append([replace(one, config_hash=other.config.digest) for one in rows[5:]])
    run._files.add_part(part.read_bytes(), 4)
    with pytest.warns(StoreWarning, match=r"part-000001\.parquet is damaged \(4 rows are of other settings\)"):
        assert run.done_ids() == {0, 1, 2, 3, 4}
    assert [one.what for one in rf.verify(run)] == ["parts/part-000001.parquet"]
    with pytest.raises(StoreError, match="own settings"):
        run.append([replace(rows[5], config_hash="0" * 16)])


ON_LATTICE = {"form": "exact", "lattice": 255, "coordinates": 1}


def test_settings_that_say_another_norm_or_a_shrinking_identity_are_found(tmp_path: Path) -> None:
    """Radii are shown in the norm of the config, and divided by the bound of its lift: both must be those proved."""
    test = rf.Fixed(n=800)
    honest = config(test)
    for told, name, forged in (
        ({"norm": "linf"}, "norm", 1.0),
        ({"lift": {"name": "identity", "norm_bound": 0.5}}, "lift.norm_bound", 2.0),
        ({"lift": {"name": "patch"}, "noise": ON_LATTICE}, "noise.form", 1.0),
    ):
        lying = honest.with_entries(told)
        rows = [
            replace(
                one,
                config_hash=lying.digest,
                lift_norm=lying.lift.norm_bound,
                radius=one.radius * forged,
                radii={key: radius * forged for key, radius in one.radii.items()},
            )
            for one in records(test)
        ]
        run = rf.RunFolder.create_or_resume(tmp_path / name, lying)
        run.append(rows)
        found = rf.verify(rf.RunFolder.open(tmp_path / name))
        assert name in [one.what for one in found]


def small_run(path: Path, tree: Any, labels: Sequence[int] | None = None, **more: Any) -> rf.RunFolder:
    """Two grey pictures; what is made agrees with itself."""
    data: Any = torch.rand(2, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    data = data if labels is None else (data, torch.tensor(labels))
    given = {"noise": rf.Gaussian(0.5), "procedure": rf.Fixed(n0=10, n=50), **more}
    value = rf.Certification(tree, data, **given)
    run = value.run(path, rf.Execution(device="cpu", plan=ForwardPlan(100), check=False))
    assert rf.verify(run) == []
    return run


def flat(size: int = 16) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(size, 2))


RULE = mechanisms_named("neyman_pearson")[0]


def test_what_no_lift_of_the_tree_says_is_found(tmp_path: Path) -> None:
    """Noise below a node, a norm that nobody proves, and a lift that is called proved."""
    cut = "patches(in-memory:Sequential, size=3, resize=5, count=2, noise={})"
    run = small_run(tmp_path / "run", rf.patches(flat(9), size=3, resize=5, count=2, noise="patch"))
    inside = f"normalize({cut.format('patch')}, mean=0, std=1)"
    config = run.config.with_entries({"classifier": {"tree": inside}}).model_copy(update={"lift": LiftConfig()})
    (told,) = rf.verify(forge(run, config, tmp_path / "inside", RULE))
    assert told.what == "classifier.tree"
    assert "only as the outermost node" in str(told.recomputed)
    uniform = small_run(tmp_path / "uniform", rf.patches(flat(9), size=3, resize=5, count=2), noise=rf.Uniform(0.5))
    lift = {"name": "patches-per-patch-input", "norm_bound": 0.01}
    each = uniform.config.with_entries({"classifier": {"tree": cut.format("per-patch-input")}, "lift": lift})
    rule = mechanisms_named(uniform.config.mechanisms[0])[0]
    found = {one.what for one in rf.verify(forge(uniform, each, tmp_path / "each", rule))}
    assert "lift.norm_bound" in found


def test_a_lift_that_nobody_proved_is_not_called_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NODES, "doubled", DoubledNode)
    monkeypatch.setattr(DoubledNode, "name", "doubled", raising=False)
    fixed, data = rf.Fixed(n0=10, n=50), rf.Data("default", limit=2)
    value = rf.Certification("doubled(default, times=2)", data, noise=rf.Gaussian(0.5), procedure=fixed)
    run = value.run(tmp_path / "run", rf.Execution(device="cpu", plan=ForwardPlan(100), check=False))
    assert rf.verify(run) == []
    monkeypatch.setattr(Double, "settings_in", lambda self, norm: {**Lift.settings_in(self, norm), "sound": False})
    assert "lift.sound" in {one.what for one in rf.verify(run)}


def test_published_forms_with_noise_at_the_input_agree(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", rf.patches(flat(9), size=3, resize=5, count=2, form="paper"))
    assert (run.config.lift.model_extra or {})["form"] == "paper"


def test_a_classifier_is_read_by_its_own_procedure(tmp_path: Path) -> None:
    """By another, an ACES tree showed radii of its certification network, and two members those of the better one."""
    both = rf.lanes(flat(), flat(), votes="none", singles=True)
    run = small_run(tmp_path / "run", both, procedure=rf.EnsembleAfterSmoothing(n0=10, n=50))
    assert run.config.procedure.name == "after-smoothing"
    three = run.config.with_entries(
        {"classifier": {"tree": str(rf.lanes(flat(), flat(), flat(), votes="none", singles=True))}}
    )
    found = {(one.what, one.stored, one.recomputed) for one in rf.verify(recast(run, three, tmp_path / "three"))}
    assert ("members counted", 2.0, 3) in found
    vote = run.config.with_entries({"classifier": {"tree": str(rf.soft(flat(), flat()))}})
    assert "procedure.name" in {one.what for one in rf.verify(recast(run, vote, tmp_path / "vote"))}
    soft = small_run(tmp_path / "soft", rf.soft(flat(), flat()))
    tree = "aces(in-memory:Sequential, in-memory:Sequential, by=entropy, theta=0.5)"
    aces = soft.config.with_entries({"classifier": {"tree": tree}})
    assert {"procedure.name", "classifier.tree"} & {
        one.what for one in rf.verify(recast(soft, aces, tmp_path / "aces"))
    }


def recast(run: rf.RunFolder, config: RunConfig, path: Path) -> rf.RunFolder:
    """The same records under other settings."""
    found = rf.RunFolder.create_or_resume(path, config)
    found.append([replace(row, config_hash=found.digest) for row in run.read()])
    found.write_inputs(run.inputs())
    found.write_summary(run.summary() or {})
    return found


def test_settings_said_to_be_rewritten_are_asked_no_less(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", rf.soft(flat(), flat()))
    lanes = [Lane("x", vote="hard", prefix=2)]
    classifier = run.config.classifier.model_copy(update={"lanes": lanes})
    said = {"migrated": Migrated.model_validate({"from": 1}), "classifier": classifier}
    called = recast(run, run.config.model_copy(update=said), tmp_path / "called")
    assert "classifier.lanes" in {one.what for one in rf.verify(called)}


def test_a_class_may_have_any_name(tmp_path: Path) -> None:
    odd = type("Net(1), x", (nn.Flatten,), {})()
    small_run(tmp_path / "run", rf.soft(nn.Sequential(odd, nn.Linear(16, 2)), flat()))
    small_run(tmp_path / "odd", rf.normalize(type("Net(1), x", (nn.Flatten,), {})(), mean=0.5, std=0.5))


def test_a_disagreement_is_told_in_a_sentence() -> None:
    assert Disagreement(3, "", "radius", 0.9, 0.5).told == "input 3 lane -: radius is 0.9, it should be 0.5"
    changed = Disagreement(None, "", "config.json", "was changed after it was written", AS_WRITTEN)
    assert changed.told == "config.json was changed after it was written"


def test_no_more_inputs_than_were_chosen(tmp_path: Path) -> None:
    """limit and stop say how many there can be at most: a number above that is of another choice."""
    run = small_run(tmp_path / "run", flat())
    for choice, most in (
        ({"limit": 1}, 1),
        ({"stop": 1}, 1),
        ({"stop": 3, "skip": 3}, 1),
        ({"stop": 2, "limit": 5}, 2),
    ):
        other = recast(run, run.config.with_entries({"data": choice}), tmp_path / str(choice))
        found = [(one.what, one.stored, one.recomputed) for one in rf.verify(other)]
        assert found == [("data.count", 2, f"at most {most}, by limit, stop and skip")] * (most < 2)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"count": 3}, ["count"]),
        ({"abstention": 0.25}, ["abstention"]),
        ({"certified_accuracy": {"0.0": 0.9, "0.1": 0.9}}, ["certified accuracy at 0.0", "certified accuracy at 0.1"]),
        ({"count": "many"}, ["lanes of"]),
        ({"certified_accuracy": [1.0]}, ["lanes of"]),
    ],
)
def test_a_summary_that_says_other_numbers_than_the_records_is_found(
    tmp_path: Path, change: dict[str, object], told: list[str]
) -> None:
    run = small_run(tmp_path / "run", rf.lanes(flat(), flat(), votes="none", singles=True), labels=[0, 1])
    first, second = (run.summary() or {})["lanes"]
    run.write_summary({"lanes": [first, second | change], "shape": run.shape})
    assert [one.what.removesuffix("summary.json").removesuffix(" in ").strip() for one in rf.verify(run)] == told


def test_thresholds_of_one_selector_counted_the_same_draws(tmp_path: Path) -> None:
    """Counts of another input in one lane follow from its procedure; those of the other lanes say otherwise."""
    torch.manual_seed(0)
    aces = rf.Aces(flat(), rf.EntropySelector([0.9, 0.95, 0.99]), flat())
    run = small_run(tmp_path / "run", aces, procedure=rf.AcesCertify(n0=10, n=50))

    def forged(name: str, lane: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> list[str]:
        rows = [
            replace(row, stages=tuple(replace(one, cells=change({**one.cells})) for one in row.stages))
            if row.lane == lane and row.input_id == 0
            else row
            for row in run.read()
        ]
        found = rf.RunFolder.create_or_resume(tmp_path / name, run.config)
        found.append(rows)
        return [one.what for one in rf.verify(found, partial=True) if one.what in ("votes", "bits")]

    middle = run.config.classifier.names[1]
    assert forged("none", middle, lambda cells: cells) == []
    swapped = forged("votes", middle, lambda cells: cells | {"votes": cells["votes"][[1, 0, 2]]})
    assert swapped == ["votes"] * 4  # in both requests, beside the lane below and the one above
    fewer = forged("bits", run.config.classifier.names[2], lambda cells: cells | {"bits": cells["bits"][[1, 0, 2]]})
    assert fewer
    assert set(fewer) == {"bits"}
