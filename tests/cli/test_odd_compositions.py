"""Parts that nobody thought of together: each combination is certified, verified, saved, measured and reported.

Five DRT members trained, certified and reported by one sweep are in test_sweep_cli.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from foreign_models import saved_onnx, small_network
from thread_crew import Threads

from ringfence.store import RunFolder
from ringfence.verification import verify
from ringfence.work import ENGINES

Call = Callable[..., Result]
pytestmark = pytest.mark.slow
SMALL = ("--limit", "3", "--n0", "20", "--batch", "50", "--no-check")
GAUSSIAN = ("--sigma", "0.3")
BLUR = '''"""A denoiser without weights."""
from torch import nn

def blur():
    return nn.AvgPool2d(3, 1, 1, count_include_pad=False)
'''


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that trees name: blur.py:blur, coloured.npz and onnx graphs of three classes for it."""
    monkeypatch.chdir(tmp_path)
    Path("blur.py").write_text(BLUR)
    random = np.random.default_rng(0)
    np.savez("coloured.npz", x=random.integers(0, 256, (4, 3, 16, 16), np.uint8), y=np.arange(4) % 3)
    for seed in range(3):
        saved_onnx(Path(f"{seed}.onnx"), small_network(seed=seed))


def walked(call: Call, *words: str, names: str = "run") -> RunFolder:
    """The run of a command, after every command that reads runs had it, and a job file made the same one."""
    call("certify", *SMALL, *words, "--out", names)
    run = RunFolder.open(names)
    assert len(run.read()) == 3 * len(run.config.classifier.lanes)
    assert verify(run) == []
    call("verify", names)
    call("metrics", names)
    call("info", names)
    call("export", "csv", names, "--out", f"{names}.csv")
    call("report", names, "--out", f"{names}.html")
    call("certify", *SMALL, *words, "--save", f"{names}.yaml")
    call("certify", f"{names}.yaml", "--out", f"{names}-again")
    again = RunFolder.open(f"{names}-again")
    assert again.config.digest == run.config.digest
    assert [(one.prediction, one.radius, one.draws) for one in again.read()] == [
        (one.prediction, one.radius, one.draws) for one in run.read()
    ]
    return run


def test_a_consensus_of_denoised_members_in_sequence(call: Call) -> None:
    members = ", ".join(f"denoised(blur.py:blur, default:{one})" for one in range(3))
    run = walked(call, *GAUSSIAN, "--model", f"consensus({members}, agree=2)", "--radius", "0.1", "--n", "400")
    assert run.config.procedure.name == "sequential"
    assert max(one.radius for one in run.read()) == 0.1
    assert min(one.forwards / one.draws for one in run.read()) < 6  # some draws skipped the third member


def test_aces_that_certifies_by_a_max_margin_vote(call: Call) -> None:
    tree = "aces(certify=max-margin(default, default:1), core=default:2, select=entropy, theta=0/0.5/1)"
    run = walked(call, *GAUSSIAN, "--model", tree, "--n", "200")
    assert run.config.procedure.name == "aces"
    assert len(run.config.classifier.lanes) == 3
    call("aces", "frontier", "run", "--out", "frontier")


def test_patches_of_a_consensus_in_stages(call: Call) -> None:
    tree = "patches(consensus(default, default:1, default:2, agree=2), resize=30, size=28, count=4, reduce=mean)"
    words = ("--procedure", "staged", "--radius", "0.05", "--stages", "50,200")
    run = walked(call, *GAUSSIAN, "--model", tree, *words)
    assert max(one.radius for one in run.read()) == 0.05


def test_three_votes_at_any_time_by_all_mechanisms(call: Call) -> None:
    tree = "lanes(default, default:1, default:2, votes=soft/hard/max-margin)"
    words = ("--procedure", "anytime", "--n", "400", "--mechanism", "all", "--split-alpha")
    run = walked(call, *GAUSSIAN, "--model", tree, *words)
    assert len(run.config.classifier.lanes) == 3
    assert all(len(one.radii) == len(run.config.mechanisms) > 1 for one in run.read())
    call("metrics", "run", "--best-lane")
    call("compare", "run", "--lane", run.config.classifier.names[0])


def test_after_smoothing_beside_before_smoothing(call: Call) -> None:
    members = (*GAUSSIAN, "--members", "default,default:1", "--n", "200")
    walked(call, *members, "--procedure", "after-smoothing", names="after")
    walked(call, *members, names="before")
    told = json.loads(call("compare", "after", "before", "--json").stdout)["comparisons"]
    assert [one["inputs"] for one in told] == [3]
    assert told[0]["differing"]
    call("report", "after", "before", "--out", "both.html")


def test_a_consensus_under_exact_uniform_noise(call: Call) -> None:
    words = ("--noise", "uniform", "--noise-form", "exact", "--sigma", "0.2", "--radius", "0.05", "--n", "300")
    run = walked(call, "--model", "consensus(default, default:1, default:2, agree=2)", *words)
    assert (run.config.noise.lattice, run.config.norm) == (255, "l1")
    few = ("--steps", "1", "--copies", "2", "--n", "50", "--recheck", "50", "--radii", "0.05")
    assert json.loads(call("attack", "run", *few, "--json").stdout)["attack"] == "pgd-l1"


def test_graphs_of_onnx_in_a_consensus_with_patches(call: Call) -> None:
    graphs = ", ".join(f"onnx:{one}.onnx" for one in range(3))
    tree = f"patches(consensus({graphs}, agree=2), resize=18, size=16, count=2, reduce=max)"
    run = walked(call, *GAUSSIAN, "--data", "coloured.npz", "--model", tree, "--procedure", "two-sided", "--n", "200")
    assert run.config.classifier.classes == 3


def test_lanes_of_prefixes_by_workers_elsewhere(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES, "threads", Threads(2))
    words = ("--members", "default,default:1,default:2", "--vote", "soft,weighted", "--member-weights", "3,2,1")
    run = walked(call, *GAUSSIAN, *words, "--prefixes", "--n", "100", "--engine", "threads")
    here = walked(call, *GAUSSIAN, *words, "--prefixes", "--n", "100", names="here")
    assert run.config.digest == here.config.digest
    assert [one.radius for one in run.read()] == [one.radius for one in here.read()]


def test_aces_of_denoised_members_under_laplace_noise_by_workers(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES, "threads", Threads(2))
    tree = "aces(certify=consensus(denoised(blur.py:blur, default), default:1, agree=1), core=default:2, theta=0.5)"
    words = ("--noise", "laplace", "--sigma", "0.2", "--radius", "0.05", "--n", "300", "--engine", "threads")
    run = walked(call, "--model", tree, *words)
    assert (run.config.procedure.name, run.config.norm) == ("aces-sequential", "l1")


def test_mean_scores_of_a_resized_weighted_vote(call: Call) -> None:
    resized = "resized(normalize(default:1, mean=0.1, std=0.9), size=28)"
    tree = f"weighted(default, {resized}, weights=2/1, on=softmax)"
    run = walked(call, *GAUSSIAN, "--model", tree, "--procedure", "softmax", "--n", "300", "--bound", "bernstein")
    assert run.config.procedure.name == "softmax"


def test_classifiers_of_different_kinds_in_one_pass(call: Call) -> None:
    inner = "soft(default, default:1), consensus(default, default:1, default:2, agree=1), hard(default, default:1)"
    run = walked(call, *GAUSSIAN, "--model", f"lanes({inner}, votes=none, singles=true)", "--n", "100")
    assert len(run.config.classifier.lanes) == 3
