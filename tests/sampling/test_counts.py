"""Counting by a kernel of our own: asked for votes alone, and nothing is compiled for it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from ringfence.classifiers import Scored
from ringfence.sampling import device_counts
from ringfence.sampling.device_counts import DeviceCounts
from ringfence.sampling.readout import MemberVotes, Readout, Scores, Votes

CPU = torch.device("cpu")


def stand_in(asked: list[int]) -> SimpleNamespace:
    """A kernel's module, in torch."""

    def add_votes(cells: Tensor, scores: Tensor, slots: Tensor) -> None:
        asked.append(len(slots))
        places = (slots.unsqueeze(1), torch.arange(scores.shape[1]), Votes().cells(scores).squeeze(2))
        cells.index_put_(places, torch.ones(scores.shape[:2], dtype=torch.int64), accumulate=True)

    return SimpleNamespace(add_votes=add_votes)


@pytest.mark.parametrize(
    ("readouts", "by_kernel"),
    [((Votes(),), True), ((Votes(), Scores()), True), ((Scores(),), False), ((MemberVotes(),), False)],
)
def test_the_kernel_counts_votes_and_the_rest_is_counted_as_ever(
    monkeypatch: pytest.MonkeyPatch, readouts: tuple[Readout, ...], by_kernel: bool
) -> None:
    torch.manual_seed(0)
    answer = Scored(torch.randn(40, 3, 5), 1)
    answer.scores[3, 1, 2] = torch.inf
    slots, asked, compiled = torch.randint(0, 4, (40,)), list[int](), list[object]()
    monkeypatch.setattr(device_counts, "compiled", lambda run: compiled.append(run) or run)
    tallies = []
    for kernel in (None, stand_in(asked)):
        monkeypatch.setattr(device_counts, "checked_kernel", lambda name, device, kernel=kernel: kernel)
        compiled.clear()
        found = DeviceCounts(readouts, 5, answer, 4, CPU, fuse=True)
        found.add(answer, slots)
        found.send([0, 1, 2, 3], slots.bincount(minlength=4).tolist())
        tallies.append(found.landed(wait=True).tally.cells)
    for name, cells in tallies[0].items():
        assert np.array_equal(tallies[1][name], cells)
    assert bool(asked) == by_kernel
    assert bool(compiled) == any(not isinstance(one, Votes) for one in readouts)


def test_off_cuda_there_is_no_kernel_and_no_warning() -> None:
    assert device_counts.checked_kernel("ringfence.sampling.vote_kernel", CPU) is None
