"""Two processes that share a GPU, through the engine interface: the records of one process."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from process_crew import Processes

import ringfence as rf

DEVICE = os.environ.get("RINGFENCE_TEST_DEVICE", "cuda")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(DEVICE == "cuda" and not torch.cuda.is_available(), reason="no CUDA device is visible"),
]


@pytest.mark.parametrize("procedure", [rf.Fixed(n=1000), rf.Sequential(0.5, n=5000)], ids=lambda one: one.name)
def test_two_processes_on_one_device_give_the_records_of_one(procedure: rf.Procedure) -> None:
    data = rf.Data("default", limit=24)
    value = rf.Certification("default", data, noise=rf.Gaussian(0.5), procedure=procedure, seed=7)

    def told(engine: Any) -> dict[int, Any]:
        records = list(value.stream(rf.Execution(DEVICE, batch=500, engine=engine)))
        assert len(records) == 24
        cells = {one.input_id: [{k: v.tolist() for k, v in s.cells.items()} for s in one.stages] for one in records}
        return {one.input_id: (one.prediction, one.radius, cells[one.input_id]) for one in records}

    assert told(Processes(2)) == told("local")
