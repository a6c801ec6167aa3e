"""Laws of sampling: tallies merge in any order, and no result depends on how draws were packed into batches."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import BucketLanes, Buckets

import ringfence as rf
from ringfence.data import Input
from ringfence.procedures import Procedure
from ringfence.sampling import ForwardPlan
from ringfence.types import Tally

PROCEDURES: list[Procedure] = [
    rf.Fixed(n=730),
    rf.TwoSided(n=350),
    rf.Predict(n=333),
    rf.Staged(0.1, stages=(150, 900)),
    rf.Sequential(0.1, n=3000, larger=(0.3,)),
    rf.Anytime(n=1234, tolerance=0.3),
]
EVERY = pytest.mark.parametrize("procedure", PROCEDURES, ids=lambda one: one.name)


def inputs(*numbers: int) -> list[Input]:
    """Input k lies at (k - 3) / 4 on the line that Buckets cuts."""
    return [Input(k, torch.tensor([(k - 3) / 4, 0.5, 0.5]), None, "") for k in numbers]


def facts(record: rf.Record) -> tuple[object, ...]:
    """Everything about a record that may not depend on the machine's speed."""
    stages = [(s.stage, s.start, s.draws, s.cells["votes"].tolist()) for s in record.stages]
    claim = (record.prediction, record.radius, record.p_a, record.p_b, tuple(record.radii.items()))
    return record.input_id, record.lane, claim, record.draws, stages


def certified(
    procedure: Procedure, items: list[Input], batch: int, classifier: torch.nn.Module | None = None
) -> set[str]:
    execution = rf.Execution(device="cpu", plan=ForwardPlan(batch))
    found = rf.certify(
        classifier or Buckets(), items, noise=rf.Gaussian(0.5), procedure=procedure, seed=11, execution=execution
    )
    return {repr(facts(record)) for record in found}


@EVERY
@given(batch=st.integers(1, 700), order=st.permutations(range(9)), count=st.integers(1, 9))
@settings(max_examples=15, deadline=None)
def test_results_do_not_depend_on_batch_order_or_company(
    procedure: Procedure, batch: int, order: list[int], count: int
) -> None:
    reference = _reference(procedure)
    found = certified(procedure, inputs(*order[:count]), batch)
    assert len(found) == count
    assert found <= reference


_REFERENCES: dict[Procedure, set[str]] = {}


def _reference(procedure: Procedure) -> set[str]:
    """All nine inputs, each alone, in batches of 100."""
    if procedure not in _REFERENCES:
        _REFERENCES[procedure] = set().union(*(certified(procedure, inputs(k), 100) for k in range(9)))
    return _REFERENCES[procedure]


@EVERY
def test_lanes_do_not_depend_on_batches_either(procedure: Procedure) -> None:
    small, large = (certified(procedure, inputs(*range(9)), batch, BucketLanes()) for batch in (13, 500))
    assert small == large
    assert len(small) == 18


@pytest.fixture(scope="module")
def digits() -> list[Input]:
    return list(rf.load_dataset("default", limit=12))


@pytest.mark.parametrize("batch", [32, 100])
def test_a_network_at_one_plan_gives_each_input_the_same_counts_in_any_company(digits: list[Input], batch: int) -> None:
    network = rf.load_model("default").module
    everyone = certified(rf.Sequential(0.5, n=20_000), digits, batch, network)
    assert len(everyone) == len(digits)
    assert certified(rf.Sequential(0.5, n=20_000), digits[::-1], batch, network) == everyone
    assert certified(rf.Sequential(0.5, n=20_000), digits[3:7], batch, network) < everyone


counts = st.integers(0, 10**12)


@st.composite
def tallies(draw: st.DrawFn) -> list[Tally]:
    rows, width, parts = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 5))
    table = st.lists(counts, min_size=rows * width, max_size=rows * width)
    return [
        Tally(
            {
                "votes": np.array(draw(table), np.int64).reshape(rows, width),
                "bits": np.array(draw(table), np.int64).reshape(rows, width),
            },
            np.array(draw(st.lists(counts, min_size=rows, max_size=rows)), np.int64),
        )
        for _ in range(parts)
    ]


@given(tallies(), st.randoms(use_true_random=False))
def test_tallies_merge_in_any_order_and_grouping(parts: list[Tally], random: object) -> None:
    def merged(pieces: list[Tally]) -> Tally:
        total = pieces[0]
        for piece in pieces[1:]:
            total = total + piece
        return total

    expected = merged(parts)
    shuffled = list(parts)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    grouped = shuffled[:2] if len(shuffled) < 3 else [shuffled[0], merged(shuffled[1:])]
    for other in (merged(shuffled), merged(grouped)):
        assert (other.draws == expected.draws).all()
        assert all((other.cells[name] == expected.cells[name]).all() for name in ("votes", "bits"))
        assert other.draws.dtype == np.int64
    assert len(expected[:1]) == 1
    assert (expected[[0]].votes == expected.votes[[0]]).all()  # type: ignore[index]


def test_tallies_of_different_things_do_not_add() -> None:
    one = Tally({"votes": np.zeros((1, 3), np.int64)}, np.zeros(1, np.int64))
    other = Tally({"bits": np.zeros((1, 3), np.int64)}, np.zeros(1, np.int64))
    with pytest.raises(ValueError, match="different cells"):
        one + other
