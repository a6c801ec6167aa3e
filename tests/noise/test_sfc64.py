"""Seeds of many keys at once are NumPy's own, one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ringfence.noise.sfc64 import FEW, seeds, streams

KEYS = st.lists(st.integers(0, (1 << 64) - 1), min_size=1, max_size=2 * FEW)


@given(KEYS)
def test_seeds_are_those_of_numpy(keys: list[int]) -> None:
    wanted = [np.random.SeedSequence(key).generate_state(3, np.uint64) for key in keys]
    assert np.array_equal(seeds(keys), wanted)


@given(KEYS)
def test_streams_are_those_of_numpy(keys: list[int]) -> None:
    for key, stream in zip(keys, streams(keys), strict=True):
        assert np.array_equal(stream.random_raw(5), np.random.SFC64(key).random_raw(5))
