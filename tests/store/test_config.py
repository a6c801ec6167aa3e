from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from ringfence.store import RunConfig
from ringfence.store.config import changed_settings, flatten


def test_a_config_equals_itself_after_being_written(config: RunConfig) -> None:
    again = RunConfig.model_validate_json(config.model_dump_json())
    assert again == config
    assert again.digest == config.digest
    assert config.differences(again) == []


def changed(config: RunConfig, **settings: Any) -> RunConfig:
    """The config with other entries, named by dotted keys with __ for the dot."""
    content = config.model_dump()
    for key, value in settings.items():
        *path, last = key.split("__")
        place = content
        for step in path:
            place = place[step]
        place[last] = value
    return RunConfig.model_validate(content)


def test_the_digest_depends_on_every_setting_and_not_on_the_order_of_keys(config: RunConfig) -> None:
    changes = {
        "classifier__tree": "x", "classifier__digest": "x", "classifier__classes": 3, "classifier__mean": [0.5],
        "classifier__std": [0.5], "classifier__lanes": [{"name": "x"}], "data__source": "x", "data__digest": "x",
        "data__split": "train", "data__skip": 2, "data__limit": 5, "data__stop": 5, "data__size": 5, "data__count": 5,
        "noise__family": "x", "noise__sigma": 0.25, "noise__form": "exact", "noise__lattice": 4, "norm": "l1",
        "lift__name": "patch", "lift__norm_bound": 2.0, "procedure__name": "fixed", "procedure__radius": 0.25,
        "procedure__alpha": 0.01, "procedure__stages": [], "mechanisms": ["x"], "split_alpha": True,
        "precision": "bf16", "seed": 1, "migrated": {"from": 1, "weights": None}, "schema_version": 3,
    }  # fmt: skip
    assert {key.replace("__", ".") for key in changes} == {key for key, _ in flatten(config.model_dump())}
    exact: dict[str, Any] = {"noise__form": "exact", "noise__coordinates": 1}
    beside = {"noise__form": {**exact, "noise__lattice": 5}, "noise__lattice": exact}
    digests = {changed(config, **{**beside.get(key, {}), key: value}).digest for key, value in changes.items()}
    assert len(digests | {config.digest}) == len(changes) + 1
    content = config.model_dump()
    turned = {key: dict(reversed(one.items())) if isinstance(one, dict) else one for key, one in content.items()}
    assert RunConfig.model_validate(dict(reversed(turned.items()))).digest == config.digest


def test_differences_have_dotted_keys_and_both_values(config: RunConfig) -> None:
    procedure = {"name": "sequential", "radius": 0.25, "stages": [1000, 10000]}
    assert config.differences(changed(config, noise__sigma=0.25, procedure=procedure)) == [
        ("noise.sigma", 0.5, 0.25),
        ("procedure.radius", 0.5, 0.25),
        ("procedure.alpha", 0.001, "(absent)"),
    ]
    assert config.differences(changed(config, migrated={"from": 1})) == []


def test_of_another_procedure_what_both_have_is_told(config: RunConfig) -> None:
    other = changed(config, procedure={"name": "fixed", "radius": 0.25, "n": 100})
    told = changed_settings(other, config)
    assert told == [
        "procedure.name: 'fixed' now, 'sequential' in the run",
        "procedure.radius: 0.25 now, 0.5 in the run",
    ]


def test_settings_become_plain_values(config: RunConfig) -> None:
    settings = {"n": np.int64(3), "grid": np.array([0.5]), "budget": float("inf"), "inner": {"pair": (1, 2)}}
    made = changed(config, procedure={"name": "x", **settings})
    assert made.procedure.settings == {"n": 3, "grid": [0.5], "budget": "inf", "inner": {"pair": [1, 2]}}
    with pytest.raises(ValidationError, match="numbers, strings, lists and dictionaries"):
        changed(config, procedure={"name": "x", "n": object()})


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("sigmaa", 1, "sigmaa"),
        ("noise__sigma", "0.5", "noise.sigma"),
        ("noise__sigma", 0.0, "noise.sigma"),
        ("noise__sigma", float("nan"), "noise.sigma"),
        ("classifier__classes", 10.5, "classifier.classes"),
        ("classifier__lanes", [], "classifier.lanes"),
        ("classifier__lanes", [{"name": "a", "prefix": "3"}], "prefix"),
        ("classifier__lanes", [{"name": "a", "colour": "red"}], "colour"),
        ("data__skip", 0, "data.skip"),
        ("data__count", 10**20, "data.count"),
        ("procedure__n", 10**20, "20|21 digits"),
        ("seed", "0", "seed"),
        ("mechanisms", [], "mechanisms"),
        ("migrated", {"weights": "x"}, "from"),
    ],
)
def test_what_is_no_config_is_refused(config: RunConfig, key: str, value: Any, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        changed(config, **{key: value})


def test_a_config_does_not_change(config: RunConfig) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        config.seed = 1  # type: ignore[misc]


def test_one_smoothed_classifier_is_told_from_another(config: RunConfig) -> None:
    same = {"data__limit": 7, "procedure__name": "fixed", "mechanisms": ["x"], "seed": 3, "precision": "bf16"}
    assert config.same_classifier(changed(config, **same)) == []
    for key, value in {
        "classifier__tree": "x",
        "classifier__digest": "v2 weights:1",
        "classifier__mean": [0.5],
        "classifier__lanes": [{"name": "a"}],
        "noise__sigma": 0.25,
        "lift__norm_bound": 2.0,
        "norm": "l1",
    }.items():
        assert len(config.same_classifier(changed(config, **{key: value}))) == 1, key


def test_the_store_does_not_load_torch() -> None:
    code = (
        "import sys, ringfence.store as s; from ringfence.store.writer import describe_environment as d; "
        "assert d()['torch']; import ringfence.analysis; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
