"""The one value: checked as a whole, to config and back, the same by flags, file and Python; and odd compositions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from toys import BucketLanes, Buckets
from typer.testing import CliRunner

import ringfence as rf
from ringfence.cli import app
from ringfence.errors import ArgumentError, ModelError, Problems, RingfenceError, StoreError
from ringfence.job_file import Job, read_job
from ringfence.mechanisms import MECHANISMS, mechanisms_named, one_sided, renyi
from ringfence.models.compose import tree_of
from ringfence.models.grammar import Leaf, Node
from ringfence.models.registry import NODES
from ringfence.sampling import ForwardPlan
from ringfence.stats import AlphaLedger
from ringfence.store import RunConfig

FAST = rf.Execution(device="cpu", plan=ForwardPlan(100))
POINTS = torch.linspace(-1, 2, 5)[:, None].repeat(1, 3)


def value(classifier: Any = None, data: Any = POINTS, **changes: Any) -> rf.Certification:
    usual: dict[str, Any] = {"noise": rf.Gaussian(0.5), "procedure": rf.Fixed(n=200)}
    return rf.Certification(Buckets() if classifier is None else classifier, data, **(usual | changes))


def facts(records: Any) -> list[dict[str, Any]]:
    """What records say, seconds and config apart."""
    told = [vars(replace(one, seconds=0.0, config_hash="")) for one in records]
    for one in told:
        cells = [{name: counts.tolist() for name, counts in stage.cells.items()} for stage in one["stages"]]
        one["stages"] = [vars(stage) | {"cells": own} for stage, own in zip(one["stages"], cells, strict=True)]
    return sorted(told, key=lambda one: (one["input_id"], one["lane"]))


# What is written is what was certified


def test_a_run_cannot_say_anything_else_than_what_is_certified(tmp_path: Path) -> None:
    staged = rf.Staged(0.02, stages=(150, 900))
    made = value(noise=rf.Gaussian(0.25), procedure=staged, mechanism=renyi)
    run = rf.certify_into(made, tmp_path / "run", FAST)
    config = run.config
    assert (config.procedure.name, config.noise.sigma, config.mechanisms) == ("staged", 0.25, ["renyi"])
    assert {one.procedure for one in run.read()} == {"staged"}
    assert all(set(one.radii) <= {"renyi"} for one in run.read())
    with pytest.raises(StoreError, match=r"noise\.sigma: 0\.5 now, 0\.25 in the run"):
        value(procedure=staged, mechanism=renyi).run(tmp_path / "run", FAST)


def test_it_shows_itself_as_it_would_be_written(tmp_path: Path) -> None:
    made = value(data=rf.Data("digits", limit=5), mechanism=[renyi, one_sided], seed=3, split_alpha=True)
    assert repr(made) == (
        f"Certification('in-memory:Buckets', Data('digits', limit=5), noise={made.noise!r}, "
        f"procedure={made.procedure!r}, mechanism=['renyi', 'one-sided'], precision='fp32', seed=3, "
        "split_alpha=True)"
    )
    assert repr(value()).startswith("Certification('in-memory:Buckets', Data(<Tensor>), noise=")
    assert repr(rf.certify_into(value(), tmp_path, FAST)) == f"RunFolder({str(tmp_path)!r})"


def test_certify_always_yields_records_and_also_writes_them(tmp_path: Path) -> None:
    options: Any = {"noise": rf.Gaussian(0.5), "procedure": rf.Fixed(n=200), "execution": FAST, "mechanism": one_sided}
    streamed = list(rf.certify(Buckets(), POINTS, **options))
    written = list(rf.certify(Buckets(), POINTS, out=tmp_path / "run", **options))
    again = list(rf.certify(Buckets(), POINTS, out=tmp_path / "run", **options))
    assert facts(streamed) == facts(written) == facts(again) == facts(rf.RunFolder.open(tmp_path / "run").read())
    assert rf.verify(rf.RunFolder.open(tmp_path / "run")) == []


def test_the_precision_is_part_of_the_value_and_never_auto(tmp_path: Path) -> None:
    assert value(precision="auto").precision in ("fp32", "tf32")
    assert value(precision="bf16").config() != value().config()
    with pytest.raises(ArgumentError, match="precision certified, bf16"):
        list(value(precision="bf16").stream(FAST))
    with pytest.raises(ArgumentError, match="precision"):
        value(precision="fp8")
    value().run(tmp_path / "run", FAST)
    with pytest.raises(StoreError, match=r"precision: 'bf16' now, 'fp32' in the run"):
        value(precision="bf16").run(tmp_path / "run", FAST)


# Checked as a whole


def test_all_problems_are_told_together() -> None:
    content = {
        "classifier": {"tree": "soft(default, agree=2)", "mean": [0.5]},
        "data": {"source": "default", "skip": 0},
        "noise": {"sigma": -1},
        "procedure": {"name": "staged", "n": 7},
        "mechanisms": ["newman"],
        "precision": "fp8",
        "colour": "red",
    }
    with pytest.raises(Problems) as caught:
        Job.of(content)
    said = str(caught.value)
    for part in ("soft(agree=)", "skip", "sigma", "n: is no setting", "mechanism", "fp8", "mean, std", "colour"):
        assert part in said, part
    assert len(caught.value.problems) == 8


def test_a_single_problem_is_told_as_itself() -> None:
    with pytest.raises(ArgumentError, match="skip: must be at least 1; got 0"):
        value(data=rf.Data("default", skip=0))
    with pytest.raises(ModelError, match="mean, std: must be given together"):
        value("default", "default", mean=[0.5])
    with pytest.raises(ArgumentError, match="lift, lanes"):
        value("default", "default", lanes=("a",))
    with pytest.raises(ArgumentError, match="radius"):
        value(procedure=rf.Sequential(30.0))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"noise": {}}, "sigma"),
        ({"noise": 0.5}, "noise: is a mapping"),
        ({"noise": {"sigma": "big"}}, "sigma: must be a positive number"),
        ({"noise": {"family": "cauchy", "sigma": 1.0}}, "noise: must be one of gaussian"),
        ({"classifier": {"soft": "default"}}, "is a list of models"),
        ({"classifier": ["default"]}, "must be a tree"),
        ({"classifier": {"nosuch": ["default"]}}, "nosuch"),
        ({"procedure": {"name": "fixed", "n": "many"}}, "n: must be a whole number; got 'many'"),
        ({"procedure": {"name": "fixed", "n": 1.5}}, "n: must be a whole number"),
        ({"procedure": {"name": "fixed", "n": True}}, "n: must be a whole number"),
        ({"procedure": {"name": "fixed", "n": 10**23}}, "n: must be at least 1 and at most"),
        ({"data": {"limit": 10**20}}, "limit"),
        ({"mechanisms": []}, "mechanisms: is a list of names"),
        ({"data": {"sauce": "x"}}, "sauce"),
        ({"seed": "x"}, "seed"),
        ({"execution": {"batch": 0}}, "batch"),
        ({"execution": {"speed": 0}}, "speed"),
        ({"split_alpha": 1}, "split_alpha"),
    ],
)
def test_mistyped_entries_are_named(content: dict[str, Any], said: str) -> None:
    with pytest.raises(rf.errors.RingfenceError, match=said):
        Job.of({"noise": {"sigma": 0.5}} | content)


# To config and back

PROCEDURES = [
    rf.Fixed(n=300),
    rf.TwoSided(n=300),
    rf.Staged(0.02, stages=(150, 900)),
    rf.Sequential(0.02, larger=(0.03,)),
    rf.Anytime(n=500, tolerance=0.1),
    rf.Predict(),
]
TREES = [
    "default",
    "soft(default, default:1)",
    "soft(default, default:1, prefixes=true, singles=true)",
    "lanes(default, default:1, votes=soft/weighted, weights=0.1/0.7, consensus=1)",
    "consensus(default, normalize(default:1, mean=0.0, std=1.0), agree=1)",
    "patches(default, size=28, resize=32, count=4, noise=patch)",
]


@settings(max_examples=25, deadline=None)
@given(
    tree=st.sampled_from(TREES),
    sigma=st.floats(0.2, 2.0),
    procedure=st.sampled_from(PROCEDURES),
    names=st.lists(st.sampled_from([one.name for one in mechanisms_named("all")]), min_size=1, unique=True),
    alpha=st.floats(1e-6, 0.4),
    split=st.booleans(),
    seed=st.integers(0, 2**40),
    skip=st.integers(1, 600),
    limit=st.one_of(st.none(), st.integers(1, 3)),
)
def test_a_config_comes_back_as_the_value_and_a_file_too(
    tree: str,
    sigma: float,
    procedure: Any,
    names: list[str],
    alpha: float,
    split: bool,
    seed: int,
    skip: int,
    limit: Any,
) -> None:
    try:
        made = value(
            tree,
            rf.Data("default", skip=skip, limit=limit),
            noise=rf.Gaussian(sigma),
            procedure=replace(procedure, alpha=alpha),
            mechanism=[MECHANISMS[name] for name in names],
            split_alpha=split,
            seed=seed,
        )
    except ArgumentError as error:
        assume("no outcome of these draws can prove" not in str(error))  # weaker mechanisms reach less
        raise
    config = made.config()
    stored = RunConfig.model_validate(json.loads(json.dumps(config.model_dump())))
    assert stored == config
    again = rf.Certification.of(stored)
    assert again.config() == config
    assert again.test == made.test  # what each lane is certified with, to the last bit
    assert again.procedure.alpha == pytest.approx(made.procedure.alpha, rel=1e-15)  # several divide into one number
    said = replaced_classes(made.in_form(config.noise.lattice), 10)  # a config leaves nothing open
    assert hash(again) == hash(said)
    assert again == said
    job = Job(made)
    assert Job.of(json.loads(json.dumps(job.written()))) == job


def replaced_classes(made: rf.Certification, classes: int) -> rf.Certification:
    """The same, told how many classes there are, as a config tells it."""
    return rf.Certification(
        made.classifier,
        made.data,
        noise=made.noise,
        procedure=made.procedure,
        mechanism=made.mechanisms,
        split_alpha=made.split_alpha,
        seed=made.seed,
        classes=classes,
    )


def test_same_classifier_is_about_the_classifier_alone() -> None:
    made = value("soft(default, default:1)", rf.Data("default", limit=1))
    assert made.same_classifier(value("soft(default, default:1)", rf.Data("default", limit=2), seed=4)) == []
    for other in ("hard(default, default:1)", "soft(default:1, default)", "soft(default, default:2)"):
        assert made.same_classifier(value(other, rf.Data("default", limit=1)))
    assert made.same_classifier(value("soft(default, default:1)", "default", noise=rf.Gaussian(0.25)))


def test_one_alpha_for_all_lanes_is_divided_once() -> None:
    made = value("soft(default, default:1, prefixes=true)", rf.Data("default", limit=1), split_alpha=True)
    assert made.procedure.alpha == 0.001
    assert made.test.alpha == made.config().procedure.settings["alpha"] == 0.0005


# Networks and data of the program itself


def test_a_network_of_the_program_stays_as_it_is_and_must_be_given_again(tmp_path: Path) -> None:
    net = nn.Linear(3, 4)
    net.train()
    made = value(net, [(x, 1) for x in POINTS])
    run = made.run(tmp_path / "run", FAST)
    assert net.training
    assert run.config.classifier.tree == "in-memory:Linear"
    data = [(x, 1) for x in POINTS]
    assert rf.Certification.of(run.config, [net], data).config() == run.config
    with pytest.raises(ModelError, match="needs the 1 networks"):
        rf.Certification.of(run.config)
    with pytest.raises(ModelError, match="the model changed: weights"):
        rf.Certification.of(run.config, [nn.Linear(3, 4)], data)
    with pytest.raises(ModelError, match="the data changed"):
        rf.Certification.of(run.config, [net], [(x + 0.1, 1) for x in POINTS])
    with torch.no_grad():
        net.bias.add_(1.0)
    with pytest.raises(StoreError, match="the model changed: weights"):
        value(net, data).run(tmp_path / "run", FAST)
    with pytest.raises(ModelError, match="no text builds"):
        rf.load_model("in-memory:Linear")


def test_networks_of_the_program_stand_in_trees(tmp_path: Path) -> None:
    x = torch.rand(2, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    net = rf.load_model("default:1").module
    made = value(rf.soft(net, "default:2"), x, procedure=rf.Fixed(n=100))
    by_name = value("soft(default:1, default:2)", x, procedure=rf.Fixed(n=100))
    assert str(made.classifier) == "soft(in-memory:LeNet, default:2)"
    assert facts(made.stream(FAST)) == facts(by_name.stream(FAST))
    config = made.run(tmp_path / "run", FAST).config
    assert rf.Certification.of(config, [net], x).config() == config
    with pytest.raises(ModelError, match="stand before sources"):
        value(rf.soft(net, "default:2"), x, mean=[0.5], std=[0.5])


def test_lanes_of_a_network_are_named_by_it_or_by_the_user(tmp_path: Path) -> None:
    run = value(BucketLanes(), lanes=("a", "b")).run(tmp_path / "run", FAST)
    assert run.config.classifier.names == ["a", "b"]
    votes = rf.Lanes([nn.Linear(3, 4), nn.Linear(3, 4)], ("soft",), singles=True)
    lanes = value(votes).lanes
    assert [lane.settings() for lane in lanes] == [
        {"name": "member-1", "member": 1},
        {"name": "member-2", "member": 2},
        {"name": "soft-2", "vote": "soft", "prefix": 2},
    ]


def test_data_of_every_kind_gives_the_same_records() -> None:
    labels = torch.tensor([1, 0, 1, 2, 3])
    loader = DataLoader(TensorDataset(POINTS, labels), batch_size=2)
    pairs = list(zip(POINTS, labels.tolist(), strict=True))
    wanted = facts(value(data=pairs).stream(FAST))
    assert [one["label"] for one in wanted] == labels.tolist()
    assert facts(value(data=loader).stream(FAST)) == wanted
    assert facts(value(data=iter(pairs)).stream(FAST)) == wanted
    assert facts(value(data=rf.Data(pairs, skip=2, limit=2)).stream(FAST)) == [wanted[0], wanted[2]]
    assert value(data=pairs).config().data == value(data=loader).config().data.model_copy(
        update={"source": "in-memory:list"}
    )
    with pytest.raises(rf.errors.DataError, match="readable more than once"):
        value(data=iter(pairs)).config()


# By flags, by file, in Python


def test_flags_files_and_python_say_the_same(tmp_path: Path) -> None:
    def call(*words: object) -> None:
        done = CliRunner().invoke(app, ["certify", *map(str, words), "--quiet"], catch_exceptions=False)
        assert done.exit_code == 0, done.output

    flags = ["--members", "default,default:1,default:2", "--consensus", 2, "--radius", 0.25, "--sigma", 0.5]
    flags += ["--limit", 3, "--n", 2000, "--mechanism", "all", "--seed", 5, "--batch", 100, "--device", "cpu"]
    call(*flags, "--out", tmp_path / "flags")
    call(*flags, "--out", tmp_path / "yaml", "--save", tmp_path / "job.yaml")
    call(*flags, "--out", tmp_path / "json", "--save", tmp_path / "job.json")
    assert not (tmp_path / "yaml").exists()
    call(tmp_path / "job.yaml")
    call(tmp_path / "job.json")
    nested = read_job(tmp_path / "job.yaml")
    nested["classifier"] = {"consensus": {"models": ["default", "default:1", "default:2"], "agree": 2}}
    (tmp_path / "nested.json").write_text(json.dumps(nested))
    call(tmp_path / "nested.json", "--out", tmp_path / "nested")
    python = rf.Certification(
        rf.consensus("default", "default:1", "default:2", agree=2),
        rf.Data("default", limit=3),
        noise=rf.Gaussian(0.5),
        procedure=rf.Sequential(0.25, n=2000),
        mechanism=list(mechanisms_named("all")),
        seed=5,
    )
    python.run(tmp_path / "python", rf.Execution(device="cpu", batch=100))
    runs = [rf.RunFolder.open(tmp_path / name) for name in ("flags", "yaml", "json", "nested", "python")]
    assert all(run.config == runs[0].config for run in runs)
    assert all(facts(run.read()) == facts(runs[0].read()) for run in runs)


LAUGHS = "seed: &a [1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{name}: &{one} [{', '.join([f'*{before}'] * 9)}]\n"
    for name, before, one in zip(
        ["mechanisms", "precision", "split_alpha", "norm", "execution", "data", "procedure", "noise"],
        "abcdefgh",
        "bcdefghi",
        strict=True,
    )
)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.yaml", "noise: {sigma: 0.5}\nnoise: {sigma: 1.0}\n", "the key 'noise' stands twice"),
        ("a.yaml", "noise: {sigma: 0.5}\nprocedure: {alpha: 0.001, n: 9, alpha: 0.4}\n", "'alpha' stands twice"),
        ("a.json", '{"noise": {"sigma": 0.5, "sigma": 1.0}}', "the key 'sigma' stands twice"),
        ("a.yaml", "noise: &n {sigma: 0.5}\nprocedure: {<<: *n}\n", "<< is not followed: write out"),
        ("a.yaml", LAUGHS, "must hold at most 50,000 values"),
        ("a.yaml", "noise: {sigma: 0.5}\nclassifier: &c {soft: [*c, *c]}\n", "must hold at most 50,000 values"),
        ("a.yaml", "noise: &n {sigma: 0.5}\nprocedure: {<<: *n}\n", "must be a readable YAML or JSON file"),
    ],
)
def test_a_job_file_says_everything_once_and_is_short(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(StoreError, match=message):
        read_job(tmp_path / name)


def test_flags_given_beside_a_file_come_first(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(
        "classifier: default\nnoise: {sigma: 0.25}\nprocedure: {name: sequential, radius: 0.1, n: 700}\nseed: 3\n"
    )
    words = [
        "certify",
        tmp_path / "job.yaml",
        "--sigma",
        0.5,
        "--n",
        900,
        "--limit",
        1,
        "--save",
        tmp_path / "new.yaml",
    ]
    done = CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    made = Job.of(read_job(tmp_path / "new.yaml")).certification
    assert (made.noise, made.procedure, made.seed) == (rf.Gaussian(0.5), rf.Sequential(0.1, n=900), 3)
    assert made.data.limit == 1
    assert str(made.classifier) == "default"


@pytest.mark.parametrize("text", ["[1, 2", "- a\n- b", "", "!!python/object/apply:os.system [true]", "a: &x [*x]"])
def test_what_is_no_job_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "job.yaml").write_text(text)
    done = CliRunner().invoke(app, ["certify", str(tmp_path / "job.yaml"), "--sigma", "1"], catch_exceptions=False)
    assert done.exit_code == 2
    assert "Traceback" not in done.output


def test_every_node_can_be_built_in_python() -> None:
    for name in NODES:
        built = getattr(rf, name.replace("-", "_"))("a", "b", agree=2)
        assert built == Node(name, (Leaf("a"), Leaf("b")), {"agree": Leaf("2")})
    assert tree_of({"patches": {"models": [{"soft": ["a", "b"]}], "size": 32, "pad": None}}) == tree_of(
        "patches(soft(a, b), size=32, pad=none)"
    )


# Odd compositions

ODD = {
    "consensus of denoised members, sequential": (
        "consensus(denoised({d}:clean, default), denoised({d}:clean, default:1), soft(default, default:2), agree=2)",
        ["--radius", 0.1, "--n", 2000],
    ),
    "ACES with a max-margin certified side": (
        "aces(certify=max-margin(default, default:2), core=default:1, theta=0:1:0.5)",
        ["--n", 300],
    ),
    "patches of a consensus, staged": (
        "patches(consensus(default, default:1, default:2, agree=2), size=28, resize=32, count=4, noise=patch)",
        ["--procedure", "staged", "--radius", 0.1, "--stages", "200,1000"],
    ),
    "lanes of three votes, anytime, all mechanisms": (
        "lanes(default, default:1, default:2, votes=soft/hard/max-margin)",
        ["--procedure", "anytime", "--n", 400, "--mechanism", "all"],
    ),
    "after-smoothing": (
        "lanes(default, default:1, votes=none, singles=true)",
        ["--procedure", "after-smoothing", "--n", 300],
    ),
}


@pytest.mark.parametrize("name", list(ODD))
def test_odd_compositions_are_certified_verified_and_reported(name: str, tmp_path: Path) -> None:
    tree, options = ODD[name]
    (tmp_path / "denoisers.py").write_text(
        "from torch import nn\nclass Clean(nn.Module):\n    def forward(self, x):\n        return x.clamp(0, 1)\n"
        "clean = Clean\n"
    )
    run = tmp_path / "run"
    common = ["--sigma", 0.25, "--limit", 2, "--batch", 100, "--device", "cpu", "--out", run]
    for words in (
        ["certify", "--model", tree.format(d=tmp_path / "denoisers.py"), *options, *common],
        ["verify", run],
        ["metrics", run],
        ["report", run, "--out", tmp_path / "report.html"],
    ):
        done = CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False)
        assert done.exit_code == 0, done.output
    found = rf.RunFolder.open(run)
    assert len(found.read()) == 2 * len(found.config.classifier.lanes)
    assert rf.Certification.of(found.config).config() == found.config


# What was seen to go wrong


def layered(activation: nn.Module, **held: Any) -> nn.Module:
    torch.manual_seed(0)
    found = nn.Sequential(nn.Linear(3, 4), activation, nn.Linear(4, 2))
    for name, one in held.items():
        setattr(found, name, one)
    return found


@pytest.mark.parametrize(
    "other",
    [
        layered(nn.Tanh()),
        layered(nn.LeakyReLU(0.5)),
        layered(nn.ReLU(), shift=2),
        layered(nn.ReLU(), table=torch.ones(2)),
        layered(nn.ReLU(), squash=torch.tanh),
    ],
    ids=["another layer", "a layer of torch's with another number", "a number", "a tensor", "a function"],
)
def test_networks_of_a_program_with_the_same_weights_are_not_the_same(other: nn.Module, tmp_path: Path) -> None:
    one = value(layered(nn.ReLU()))
    assert one.same_classifier(value(layered(nn.ReLU()), seed=3)) == []
    (told,) = one.same_classifier(value(other))
    assert told.startswith("classifier.digest: ")
    assert "layers or attributes of the network" in told
    one.run(tmp_path / "run", FAST)
    with pytest.raises(StoreError, match=r"the model changed: .*layers or attributes"):
        value(other).run(tmp_path / "run", FAST)


def test_a_buffer_that_is_not_saved_counts_too() -> None:
    one, other = layered(nn.ReLU()), layered(nn.ReLU())
    one.register_buffer("table", torch.zeros(2), persistent=False)
    other.register_buffer("table", torch.ones(2), persistent=False)
    assert value(one).same_classifier(value(other)) != []


def test_votes_and_mean_scores_are_two_smoothed_classifiers() -> None:
    told = value().same_classifier(value(procedure=rf.Softmax(n=200)))
    assert told == ["readout: 'votes' and 'scores'"]
    assert value().same_classifier(value(procedure=rf.TwoSided(n=200))) == []


def test_alpha_is_not_split_over_fewer_lanes_than_there_are() -> None:
    lanes = value(BucketLanes(), split_alpha=True, lanes=("a", "b"), procedure=rf.Fixed(alpha=0.02, n=200))
    assert {(one.lane, one.alpha) for one in lanes.stream(FAST)} == {("a", 0.01), ("b", 0.01)}
    with pytest.raises(RingfenceError, match="one lane for each name, main; got 2 lanes"):
        list(value(BucketLanes(), split_alpha=True).stream(FAST))


@pytest.mark.parametrize(
    "tree", ["lanes(default, default:1, votes=soft/soft)", "aces(certify=default, core=default, theta=nan/nan)"]
)
def test_lanes_have_names_of_their_own(tree: str) -> None:
    with pytest.raises(ArgumentError, match=r"names of their own.*more than once"):
        value(tree, "default")
    with pytest.raises(ArgumentError, match="'a' more than once"):
        value(BucketLanes(), lanes=("a", "a"))


def test_inputs_that_are_changed_after_the_start_are_those_of_the_config(tmp_path: Path) -> None:
    points = POINTS.clone()
    started = value(data=points).start(tmp_path / "run", FAST)
    points.zero_()
    found = list(started.records())
    assert facts(found) == facts(value().stream(FAST))
    assert started.run.config.data.digest == value().config().data.digest


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"norm": "l1"}, "norm: is that of neyman-pearson, l2; got l1"),
        ({"schema_version": 1}, "schema_version: must be 2"),
    ],
)
def test_a_job_that_contradicts_itself_is_refused(said: dict[str, Any], told: str) -> None:
    plainly = {"noise": {"sigma": 0.5}, "norm": "l2", "schema_version": 2}
    assert Job.of(plainly).certification.mechanisms[0].norm == "l2"
    with pytest.raises(ArgumentError, match=told):
        Job.of(plainly | said)
    with pytest.raises(ArgumentError, match="compile: must be bool; got 'no'"):
        Job.of({**plainly, "execution": {"compile": "no"}})


@pytest.mark.parametrize("odd", ["false", 0, None, float("nan")])
def test_alpha_is_split_or_not(odd: Any) -> None:
    with pytest.raises(ArgumentError, match="split_alpha: must be True or False; got"):
        value(split_alpha=odd)


def test_what_is_no_noise_procedure_or_mechanism_is_told_together() -> None:
    with pytest.raises(rf.errors.RingfenceError) as told:
        list(rf.certify("default", "default", noise=0.25, procedure="fixed", mechanism=[7]))  # type: ignore[arg-type, list-item]
    for words in (
        "noise: must be a Noise; got 0.25",
        "procedure: must be a Procedure",
        "mechanism: must be a Mechanism",
    ):
        assert words in str(told.value)


def test_what_is_no_network_execution_or_logger_is_told() -> None:
    x = torch.rand(1, 1, 28, 28)
    with pytest.raises(rf.errors.ModelError, match=r"got a class, Linear\. Make a network of it: Linear\(\.\.\.\)"):
        list(rf.certify(torch.nn.Linear, x, sigma=0.5))  # type: ignore[arg-type]
    with pytest.raises(rf.errors.RingfenceError) as told:
        list(rf.certify("default", x, sigma=0.5, execution="cpu", loggers=["wandb"]))  # type: ignore[arg-type, list-item]
    for words in ("execution: must be an Execution; got 'cpu'", "loggers: each must be a Logger; got 'wandb'"):
        assert words in str(told.value)


def test_mechanisms_may_be_named_in_either_spelling() -> None:
    for asked in ("one-sided", ["one_sided", "renyi"], ("one-sided", rf.neyman_pearson)):
        found = rf.Certification("default", noise=rf.Gaussian(0.5), mechanism=asked).mechanisms  # type: ignore[arg-type]
        assert found[0].name == "one_sided"
    with pytest.raises(ArgumentError, match=r"got 'neyman'\. Did you mean neyman-pearson\?"):
        rf.Certification("default", noise=rf.Gaussian(0.5), mechanism="neyman")
    with pytest.raises(ArgumentError, match="must be a Mechanism; got 7"):
        rf.Certification("default", noise=rf.Gaussian(0.5), mechanism=7)  # type: ignore[arg-type]


def test_one_further_mechanism_is_named_as_several_are() -> None:
    for also in ("renyi", ("renyi",), renyi):
        [record] = rf.certify("default", rf.Data(limit=1), sigma=0.5, n=100, also=also)
        assert list(record.radii) == ["neyman_pearson", "renyi"]


def test_shares_of_alpha_are_asked_for_before_anything_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = property(lambda self: AlphaLedger.shared(self.alpha, ("first of many", self.alpha * 1e-298)))
    monkeypatch.setattr(rf.Fixed, "spent", spent)
    with pytest.raises(rf.errors.AlphaError, match=r"alpha: its share for the first of many must be .* got 9.99"):
        value("default", rf.Data("default", limit=1), procedure=rf.Fixed(n=100))
