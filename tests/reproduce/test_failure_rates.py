"""The table of failure rates is what its program simulates: a part of it again."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from failure_rates import vote_rates

KEPT = Path(__file__).resolve().parents[2] / "results" / "simplex" / "failure_rates.json"


def test_kept_rates_are_simulated_again() -> None:
    kept = [one for one in json.loads(KEPT.read_text())["rates"] if (one["classes"], one["n"]) == (3, 100)]
    again = list(vote_rates(3, 100, kept[0]["runs"]))
    assert len(again) == 4
    for one, there in zip(again, kept, strict=True):
        assert (one.procedure, one.case, one.runs) == (there["procedure"], there["case"], there["runs"])
        apart = 5 * math.sqrt(2 * there["rate"] / there["runs"])  # another version of numpy may draw otherwise
        assert one.rate == pytest.approx(there["rate"], abs=apart)
