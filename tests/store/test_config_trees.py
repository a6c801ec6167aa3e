"""A config says what its classifier is made of, as its tree tells."""

from __future__ import annotations

from typing import Any

import pytest
from configs import small_config

from ringfence.store import RunConfig


def config(model: str) -> RunConfig:
    return small_config(model=model)


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("default", {}),
        ("normalize(default, mean=0, std=1)", {}),
        ("soft(a, b)", {"members": ["a", "b"], "votes": ["soft"], "consensus": []}),
        ("consensus(a, b, c, agree=2)", {"members": ["a", "b", "c"], "votes": ["soft"], "consensus": [2]}),
        (
            "lanes(a, b, votes=soft/hard, consensus=1/2)",
            {"members": ["a", "b"], "votes": ["soft", "hard"], "consensus": [1, 2]},
        ),
        ("lanes(a, b, votes=none, singles=true)", {"members": ["a", "b"], "votes": [], "consensus": []}),
        ("aces(certify=a, core=b)", {"select": "entropy", "certify": "a", "core": "b"}),
        ("a model (of mine).pt", {}),
        ("lifted(a, by=blur)", {}),
    ],
)
def test_the_tree_tells_what_votes(model: str, told: dict[str, Any]) -> None:
    assert config(model).ensemble == told


def test_a_consensus_is_known_by_its_tree() -> None:
    assert config("consensus(a, b, c, agree=2)").consensus("main") == (3, 2)
    assert config("soft(a, b, c)").consensus("main") is None


def test_the_tree_tells_what_is_reduced() -> None:
    assert config("patches(a, size=32, count=4, noise=patch)").root == "patches"
    assert config("clips(chunks(a, frames=4), frames=8, count=3)").root == "clips"
    assert not config("a").root
