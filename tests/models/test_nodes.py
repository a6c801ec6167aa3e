"""Nodes: trees become the classifiers they describe, with their lanes, lifts and digests; mistakes are named."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import ringfence as rf
from ringfence.classifiers import Aces, KConsensus
from ringfence.errors import ModelError
from ringfence.models import as_tree, lanes_of, load_model
from ringfence.models.registry import NODES, numbers, settle, usage
from ringfence.record import Lane

X = torch.rand(3, 1, 28, 28, generator=torch.Generator().manual_seed(0))


def members() -> list[torch.nn.Module]:
    return [load_model(f"default:{k}").module for k in range(3)]


def test_settings_may_be_arrays_tensors_and_their_numbers() -> None:
    plain = str(rf.normalize("default", mean=(0.25, 0.5), std=(0.5, 0.5)))
    for kind in (np.array, torch.tensor, lambda values: tuple(np.array(values)), list):
        assert str(rf.normalize("default", mean=kind([0.25, 0.5]), std=kind([0.5, 0.5]))) == plain
    assert str(rf.consensus("default:0", "default:1", agree=np.int64(2))) == "consensus(default:0, default:1, agree=2)"
    assert str(rf.soft("default:0", prefixes=np.bool_(True))) == str(rf.soft("default:0", prefixes=True))


@pytest.mark.parametrize(
    ("text", "by_hand"),
    [
        ("soft(default:0, default:1)", lambda m: rf.SoftVote(m[:2])),
        ("softmax(default:0, default:1)", lambda m: rf.SoftmaxVote(m[:2])),
        ("hard(default:0, default:1, default:2)", lambda m: rf.HardVote(m)),
        ("max-margin(default:0, default:1)", lambda m: rf.MaxMargin(m[:2])),
        ("weighted(default:0, default:1, weights=3/1)", lambda m: rf.Weighted(m[:2], [3, 1])),
        ("consensus(default:0, default:1, default:2, agree=2)", lambda m: rf.KConsensus(m, 2)),
        ("softmax(default:0, hard(default:1, default:2))", lambda m: rf.SoftmaxVote([m[0], rf.HardVote(m[1:])])),
        ("normalize(default:0, mean=0.1, std=0.5)", lambda m: rf.Normalize(m[0], [0.1], [0.5])),
    ],
)
def test_a_tree_is_the_classifier_it_describes(text: str, by_hand: object) -> None:
    loaded = load_model(text)
    torch.testing.assert_close(loaded.module(X), by_hand(members())(X))  # type: ignore[operator]
    assert [lane.name for lane in loaded.lanes] == ["main"]
    assert loaded.num_classes == 10
    assert not any(part.training for part in loaded.module.modules())


def test_lanes_are_known_before_loading() -> None:
    text = "lanes(default:0, default:1, votes=soft/hard, consensus=1, singles=true)"
    assert lanes_of(as_tree(text)) == (
        Lane("member-1", member=1),
        Lane("member-2", member=2),
        Lane("soft-2", vote="soft", prefix=2),
        Lane("hard-2", vote="hard", prefix=2),
        Lane("consensus-1", agree=1),
    )
    assert load_model(text).module(X).shape == (3, 5, 10)
    assert lanes_of(as_tree("normalize(soft(default, default:1, prefixes=true), mean=0, std=1)")) == (
        Lane("soft-1", vote="soft", prefix=1),
        Lane("soft-2", vote="soft", prefix=2),
    )


def test_the_outermost_node_brings_the_lift() -> None:
    loaded = load_model("patches(consensus(default:0, default:1, agree=1), size=28, resize=32, count=4, noise=patch)")
    module, lift = loaded.placed((1, 28, 28))
    assert lift.norm_bound > 1
    assert module(lift(X[0])[None]).shape == (1, 10)
    inner = loaded.module.classifier  # type: ignore[union-attr]
    assert isinstance(inner, KConsensus)
    plain = load_model("soft(default:0, default:1)").placed((1, 28, 28))
    assert plain[1].norm_bound == 1


@pytest.mark.parametrize("noise", ["patch", "resized", "per-patch-input"])
def test_noise_elsewhere_is_refused_below_the_outermost_node(noise: str) -> None:
    text = f"soft(patches(default, size=28, resize=32, count=4, noise={noise}), default:1)"
    with pytest.raises(ModelError, match="only as the outermost node"):
        load_model(text)
    with pytest.raises(ModelError, match="only as the outermost node"):
        load_model("soft(patches(default, size=28, resize=32, count=4, sampling=random), default:1)")


def test_aces_of_an_ensemble() -> None:
    loaded = load_model("aces(certify=max-margin(default:0, default:1), core=default:2, theta=0.25:0.75:0.25)")
    assert isinstance(loaded.module, Aces)
    assert [lane.name for lane in loaded.lanes] == ["theta=0.25", "theta=0.50", "theta=0.75"]
    assert [lane.theta for lane in loaded.lanes] == [0.25, 0.5, 0.75]


def test_the_digest_tells_every_setting_and_order_apart() -> None:
    texts = [
        "soft(default:0, default:1)",
        "soft(default:1, default:0)",
        "hard(default:0, default:1)",
        "soft(default:0, default:1, default:2)",
        "consensus(default:0, default:1, agree=1)",
        "consensus(default:0, default:1, agree=2)",
        "weighted(default:0, default:1, weights=1/2)",
        "weighted(default:0, default:1, weights=2/1)",
        "patches(default, size=28, resize=32, count=4)",
        "patches(default, size=28, resize=32, count=4, reduce=max)",
        "default:0",
    ]
    digests = [load_model(text).digest for text in texts]
    assert len(set(digests)) == len(texts)
    assert load_model("soft( default ,default:1 )").digest == digests[0]  # names of one file are one file


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sotf(default)", r"Did you mean soft"),
        ("soft()", "takes at least 1 models?; got 0"),
        ("consensus(default)", "needs agree"),
        ("consensus(default, agree=two)", "must be a whole number"),
        ("consensus(default, agree=5)", "between 1 and"),
        ("soft(default, prefixes=maybe)", "must be true or false"),
        ("soft(default, colour=red)", "has the settings prefixes, singles"),
        ("weighted(default, default:1, weights=1/x)", "numbers divided by /"),
        ("weighted(default, default:1, weights=1)", "one weight per member"),
        ("soft(soft(default, default:1, prefixes=true), default:2)", "made of single classifiers"),
        ("aces(certify=default)", "needs core"),
        ("aces(certify=default, core=default, select=default)", "two outputs"),
        ("soft(default, prefixes=soft(default))", "is a setting, not a model"),
        ("normalize(default, mean=0.5, std=0)", "must be positive"),
        ("clips(default, frames=0)", "frame"),
        ("patches(default, size=28, noise=bogus)", "must be one of input, resized"),
        ("patches(default, size=28, form=best)", "must be one of sound, paper"),
        ("lanes(default, consensus=1.5)", "whole numbers"),
        ("lanes(default, consensus=nan)", "whole numbers"),
        ("normalize(normalize(default, mean=0, std=1), mean=0.5, std=0.5)", "brings its own normalisation"),
    ],
)
def test_mistakes_are_named(text: str, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        load_model(text)


def test_every_node_says_how_it_is_written_and_reads_its_own_usage() -> None:
    assert {"soft", "softmax", "hard", "max-margin", "weighted", "consensus", "lanes", "denoised"} <= NODES.keys()
    for kind in NODES.values():
        written = usage(kind).replace("MODEL, MODEL, ...", "a, b").replace("MODEL", "a")
        assert written.startswith(f"{kind.name}(")
        assert settle(as_tree(written.replace("=...", "=1"))).name == kind.name  # type: ignore[arg-type]


def test_numbers() -> None:
    assert numbers("1/2.5") == (1.0, 2.5)
    assert numbers("0:1:0.25") == (0.0, 0.25, 0.5, 0.75, 1.0)
    for wrong in ("", "1/", "0:1", "1:0:0.1", "0:1:0", "0:1:-1", "0:1:1e-9", "nan:1:1"):
        with pytest.raises(ValueError):
            numbers(wrong)


def test_noise_elsewhere_is_refused_where_only_the_input_can_have_it() -> None:
    assert load_model("patches(default, size=28, resize=32, count=4)").at_input is not None
    loaded = load_model("patches(default, size=28, resize=32, count=4, noise=patch)")
    with pytest.raises(ModelError, match="must have its noise at the input here"):
        loaded.at_input  # noqa: B018
