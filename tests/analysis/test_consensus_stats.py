"""KCR from forwards, and which lane of a run is a K-consensus."""

from __future__ import annotations

import pytest
from configs import small_config

from ringfence.analysis.stages import consensus_stats
from ringfence.errors import ArgumentError
from ringfence.store import RunConfig


def test_kcr_is_the_share_of_draws_decided_by_the_first() -> None:
    """Of 1000 draws 900 were decided by 2 of 10 members."""
    stats = consensus_stats(members=10, agree=2, forwards=900 * 2 + 100 * 10, draws=1000)
    assert stats is not None
    assert stats.kcr == pytest.approx(0.9)
    assert stats.forwards_per_draw == pytest.approx(2.8)
    assert stats.forwards_rf == pytest.approx(10 / 2.8)
    assert stats.to_dict()["kcr"] == pytest.approx(90)


def test_edges() -> None:
    for agree, forwards, kcr in ((3, 300, 1.0), (2, 200, 1.0), (2, 300, 0.0)):
        stats = consensus_stats(3, agree, forwards, 100)
        assert stats is not None
        assert stats.kcr == kcr
    assert consensus_stats(3, 2, 700, 100) is None, "members that run several networks each"
    with pytest.raises(ArgumentError, match="1 <= K <= k"):
        consensus_stats(3, 4, 300, 100)


def test_lanes_are_known_by_their_run() -> None:
    def config(tree: str) -> RunConfig:
        return small_config(model=tree, lanes=["main", "consensus-1", "soft-3"])

    assert config("consensus(a, b, c, agree=2)").consensus("main") == (3, 2)
    assert config("lanes(a, b, c, consensus=1/2)").consensus("consensus-1") == (3, 1)
    assert config("lanes(a, b, c, consensus=1/2)").consensus("soft-3") is None
    assert config("soft(a, b, c)").consensus("main") is None
    assert config("consensus(default, denoised(dncnn@d.pt, default), default:1, agree=2)").consensus("main") is None, (
        "two forwards in one member"
    )
