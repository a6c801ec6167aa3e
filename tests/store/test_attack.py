"""attack.json: written whole, read back equal, refused clearly where it is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringfence.errors import StoreError
from ringfence.laws import simulate
from ringfence.procedures import Fixed
from ringfence.store.attack import ATTACK_VERSION, AttackResult, Broken, is_attack, read_attack, write_attack
from ringfence.types import ABSTAIN

BROKEN = Broken(
    input_id=7, certified_class=1, radius=0.5, distance=0.4999, attacked_class=2, votes=60_000, draws=100_000
)


def result(**changes: Any) -> AttackResult:
    settings = {"attack": "pgd", "steps": 20, "copies": 32, "box": False, "n": 1000, "recheck": 100_000, "seed": 1}
    about = {"run": "demo", "config_hash": "0123", "lane": "main", "sigma": 0.5, "alpha": 0.001}
    found = {"inputs": 10, "attacked": 9, "radii": (0.25, 0.5), "certified": (0.8, None), "empirical": (0.9, 0.7)}
    return AttackResult(**{**settings, **about, **found, **changes})


def test_it_reads_back_what_was_written(tmp_path: Path) -> None:
    found = result(broken=(BROKEN,))
    write_attack(found, {7: np.ones((1, 2, 2), np.float32)}, tmp_path / "new" / "evidence")
    assert read_attack(tmp_path / "new" / "evidence" / "attack.json") == found
    with np.load(tmp_path / "new" / "evidence" / "broken.npz") as arrays:
        assert arrays["index"].tolist() == [7]
        assert arrays["x"].shape == (1, 1, 2, 2)
    assert found.chance == pytest.approx(0.01)


def test_chance_counts_the_inputs_that_were_tried_not_the_certificates_that_came_of_it() -> None:
    """None of 20,000 inputs is robust: a share alpha of them is certified nevertheless, and all of that is false."""
    test = Fixed(0.05, n0=10, n=300)
    prediction, radius = simulate(test, np.array([0.5, 0.5]), 20_000, seed=1)
    certified = int(((prediction != ABSTAIN) & (radius > 0)).sum())
    found = result(alpha=test.alpha, inputs=20_000, attacked=certified)
    assert 400 < certified <= found.chance


def test_points_of_an_earlier_attack_do_not_stay(tmp_path: Path) -> None:
    write_attack(result(broken=(BROKEN,)), {7: np.ones(4)}, tmp_path)
    write_attack(result(), {}, tmp_path)
    assert not (tmp_path / "broken.npz").exists()
    assert read_attack(tmp_path / "attack.json").broken == ()


def test_it_says_what_it_is() -> None:
    assert is_attack(result().to_dict())
    assert not is_attack({"zeta_p": 1})
    assert not is_attack(["ringfence-attack"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": ATTACK_VERSION + 1}, "Update ringfence"),
        ({"version": "one"}, "Update ringfence"),
        ({"format": "something"}, "must be what ringfence attack wrote"),
        ({"radii": None}, "must be whole; got radii"),
        ({"empirical": [0.5]}, "of one length"),
        ({"empirical": [0.5, 1.5]}, "between 0 and 1"),
        ({"broken": [{"input_id": 1}]}, "must be whole; got broken.0"),
        ({"attacked": 0, "broken": [BROKEN.model_dump()]}, "no more certificates can break"),
    ],
)
def test_other_files_are_refused_by_name(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = tmp_path / "attack.json"
    path.write_text(json.dumps({**result().to_dict(), **change}))
    with pytest.raises(StoreError, match=message) as error:
        read_attack(path)
    assert str(path) in str(error.value)


def test_half_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "attack.json"
    path.write_text(json.dumps(result().to_dict())[:-20])
    with pytest.raises(StoreError, match="must hold JSON"):
        read_attack(path)
