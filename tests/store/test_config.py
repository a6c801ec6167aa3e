from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from pydantic import ValidationError

from ringfence.store import RunConfig


def test_a_config_equals_itself_after_being_written(config: RunConfig) -> None:
    again = RunConfig.model_validate_json(config.model_dump_json())
    assert again == config
    assert again.digest == config.digest
    assert config.differences(again) == []


def test_the_digest_depends_on_every_setting_and_not_on_the_order_of_keys(config: RunConfig) -> None:
    changes = {
        "model": "x", "weights_hash": "x", "data": "x", "data_hash": "x", "num_classes": 3, "skip": 2, "limit": 5,
        "sigma": 0.25, "noise": "x", "lift": {"mode": "patch"}, "procedure": "fixed", "procedure_settings": {"n": 1},
        "mechanism": "x", "mechanisms": ["x"], "lanes": ["x"], "precision": "bf16", "compile": True, "seed": 1,
        "mean": [0.5], "std": [0.5], "extra": {"x": 1}, "schema_version": 0,
    }  # fmt: skip
    assert changes.keys() == RunConfig.model_fields.keys()
    digests = {config.model_copy(update={key: value}).digest for key, value in changes.items()}
    assert len(digests | {config.digest}) == len(changes) + 1
    turned = dict(reversed(config.procedure_settings.items()))
    assert config.model_copy(update={"procedure_settings": turned}).digest == config.digest


def test_differences_have_dotted_keys_and_both_values(config: RunConfig) -> None:
    other = config.model_copy(update={"sigma": 0.25, "procedure_settings": {"radius": 0.25, "stages": [1000, 10000]}})
    assert config.differences(other) == [
        ("sigma", 0.5, 0.25),
        ("procedure_settings.radius", 0.5, 0.25),
        ("procedure_settings.alpha", 0.001, "(absent)"),
    ]


def test_settings_become_plain_values(config: RunConfig) -> None:
    settings = {"n": np.int64(3), "grid": np.array([0.5]), "budget": float("inf"), "inner": {"pair": (1, 2)}}
    made = RunConfig.model_validate(config.model_dump() | {"extra": settings})
    assert made.extra == {"n": 3, "grid": [0.5], "budget": "inf", "inner": {"pair": [1, 2]}}
    with pytest.raises(ValidationError, match="numbers, strings, lists and dictionaries"):
        RunConfig.model_validate(config.model_dump() | {"extra": {"x": object()}})


def test_unknown_settings_and_changes_are_refused(config: RunConfig) -> None:
    with pytest.raises(ValidationError, match="sigmaa"):
        RunConfig.model_validate(config.model_dump() | {"sigmaa": 1})
    with pytest.raises(ValidationError, match="frozen"):
        config.sigma = 1.0  # type: ignore[misc]


def test_the_store_does_not_load_torch() -> None:
    code = (
        "import sys, ringfence.store as s; from ringfence.store.environment import describe_environment as d; "
        "assert d()['torch']; import ringfence.analysis; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
