"""Which procedures certify an Aces classifier: those that read its selector; all others say so."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import ringfence as rf
from ringfence.errors import ArgumentError
from ringfence.procedures import PROCEDURES, Procedure, procedure
from ringfence.sampling import ForwardPlan

ACES = rf.Aces(nn.Identity(), rf.EntropySelector((0.0, 0.5, 1.0)), nn.Identity())


def made(name: str) -> Procedure:
    settings: dict[str, object] = {"radius": 0.1} if name in ("staged", "sequential", "aces-sequential") else {}
    settings |= {"stages": (50, 100)} if name == "staged" else {"n": 200}
    return procedure(name, settings)


def certified(test: Procedure) -> list[rf.Record]:
    inputs, execution = torch.tensor([[3.0, 0.0]]), rf.Execution(device="cpu", plan=ForwardPlan(50))
    return list(rf.certify(ACES, inputs, noise=rf.Gaussian(0.5), procedure=test, execution=execution))


@pytest.mark.parametrize("name", [name for name in PROCEDURES if not name.startswith("aces")])
def test_other_procedures_are_refused_by_name(name: str) -> None:
    rule = rf"procedure: an Aces classifier is certified by aces, .*; got {name}\. Use AcesSequential .* AcesCertify"
    with pytest.raises(ArgumentError, match=rule):
        certified(made(name))


@pytest.mark.parametrize("name", [name for name in PROCEDURES if name.startswith("aces")])
def test_its_own_procedures_are_not(name: str) -> None:
    assert len(certified(made(name))) == 3
