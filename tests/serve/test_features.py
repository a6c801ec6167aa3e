"""A certification of features, which are in units of their own, is served as well as one of pictures."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import ringfence as rf
from ringfence.serve.app import create_app
from ringfence.serve.certificates import certificate_wrong
from ringfence.serve.schemas import Answer
from ringfence.serve.served import Served

testclient = pytest.importorskip("fastapi.testclient")

ROWS = torch.tensor([[-3.0, 40.0, 1.0], [2.0, -55.0, 1.0]])


def side() -> nn.Module:
    """(B, 3) -> (B, 2): class 1 where the first value is positive."""
    net = nn.Linear(3, 2, bias=False)
    net.weight.data = torch.tensor([[-1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    return net


@pytest.fixture(scope="module")
def served(serve: Callable[..., Served]) -> Served:
    return serve(rf.Certification(side(), rf.Data(ROWS), noise=rf.Gaussian(0.5), procedure=rf.Fixed(n=1000)))


@pytest.fixture(scope="module")
def asker(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with testclient.TestClient(
        create_app([served], jobs=tmp_path_factory.mktemp("jobs")), base_url="http://127.0.0.1"
    ) as client:
        yield client


def in_json(key: str, value: Any) -> dict[str, Any]:
    return {"content": json.dumps({key: value}), "headers": {"Content-Type": "application/json"}}


def test_features_outside_0_to_1_are_answered(asker: Any) -> None:
    for x, label in zip(ROWS, (0, 1), strict=True):
        told = asker.post("/v1/certify?radius=1", **in_json("input", x.tolist()))
        assert told.status_code == 200, told.text
        answer = Answer.model_validate(told.json())
        assert (answer.prediction, answer.wrong(x)) == (label, [])
        assert 1 <= answer.radius <= float(x[0].abs())
    file = io.BytesIO()
    np.save(file, ROWS.numpy())
    job = asker.post("/v1/jobs?radius=1", content=file.getvalue(), headers={"Content-Type": "application/x-npy"})
    assert job.status_code == 202, job.text


@pytest.mark.parametrize(("path", "key", "nested"), [("certify", "input", 1), ("jobs", "inputs", 2)])
def test_features_that_noise_does_not_move_are_refused(asker: Any, path: str, key: str, nested: int) -> None:
    """In float32 1e9 + 0.5 is 1e9: every draw would be the input, and the radius as large as draws can prove."""
    row: Any = [-3.0, 1e9, 1.0]
    told = asker.post(f"/v1/{path}", **in_json(key, row if nested == 1 else [row]))
    assert told.status_code == 422
    assert "not rounded away in float32" in told.json()["error"]["rule"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300])
def test_features_must_be_finite(asker: Any, value: float) -> None:
    told = asker.post("/v1/certify", **in_json("input", [0.0, value, 1.0]))
    assert told.status_code == 422
    assert told.json()["error"]["rule"] == "must hold finite numbers"


def test_a_refusal_that_was_saved_is_told_from_a_certificate(asker: Any, tmp_path: Path) -> None:
    refused = asker.post("/v1/certify", **in_json("input", [0.0, 1.0])).json()
    (wrong,) = certificate_wrong(refused, None, None)
    assert "a server answered to a request that it refused: 'must have the shape (3)'" in wrong
    assert refused["error"]["remedy"] == "Send the 3 features in one list."
    assert certificate_wrong({"classifier": {}}, None, None) == [
        "certificate: this is another file; of a run name its folder"
    ]
