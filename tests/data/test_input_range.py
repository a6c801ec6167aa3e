"""Inputs outside [0, 1] are spoken of once, whoever brings them."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ringfence as rf
from ringfence.data import Input
from ringfence.data.arrays import dataset_from_arrays
from ringfence.data.dataset import InputRangeWarning, warn_of_inputs


def test_tensors_of_a_program_are_warned_about() -> None:
    items = [Input(0, torch.zeros(1, 2, 2), None, "0"), Input(1, torch.full((1, 2, 2), 255.0), None, "1")]
    with pytest.warns(InputRangeWarning, match=r"inputs: inputs range over \[0, 255\], not \[0, 1\]"):
        warn_of_inputs(items)


def test_nothing_is_said_about_pixels_and_nothing_twice() -> None:
    with pytest.warns(InputRangeWarning):
        dataset = dataset_from_arrays("mine", np.full((2, 2, 2), 7, np.float32))
    with warnings.catch_warnings(action="error"):
        warn_of_inputs(list(dataset))
        warn_of_inputs([Input(0, torch.rand(1, 2, 2), None, "0")])
        warn_of_inputs([])


class Sign(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        total = x.flatten(1).sum(1)
        return torch.stack([-total, total], 1)


FAST = rf.Execution(device="cpu", batch=50)


def test_whoever_certifies_his_own_tensors_is_warned() -> None:
    with pytest.warns(InputRangeWarning, match=r"inputs range over \[-3, 3\]"):
        list(rf.certify(Sign(), [torch.tensor([[-3.0, 3.0]])], noise=rf.Gaussian(1.0), procedure=rf.Fixed(n=50)))
    with pytest.warns(InputRangeWarning, match=r"inputs range over \[255, 255\]"):
        rf.Smoothed(Sign(), 1.0, execution=FAST).certify(torch.full((1, 1, 2), 255.0), n=50)


def test_features_have_units_of_their_own_in_programs_as_in_files() -> None:
    """Standardised ones are outside [0, 1] by their nature."""
    rows = np.array([[-3.0, 3.0]], np.float32)
    with warnings.catch_warnings(action="error"):
        dataset_from_arrays("mine", rows)
        for data in (rows, [torch.tensor(rows[0])]):
            list(rf.certify(Sign(), data, noise=rf.Gaussian(1.0), procedure=rf.Fixed(n=50), execution=FAST))


def test_inputs_of_a_dataset_and_pixels_are_certified_in_silence() -> None:
    with pytest.warns(InputRangeWarning):
        dataset = dataset_from_arrays("mine", np.full((2, 2, 2), 7, np.float32))
    with warnings.catch_warnings(action="error"):
        for inputs in (dataset, [torch.rand(1, 2, 2)]):
            list(rf.certify(Sign(), inputs, noise=rf.Gaussian(1.0), procedure=rf.Fixed(n=50), execution=FAST))
