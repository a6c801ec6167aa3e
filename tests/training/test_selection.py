"""The labels of ACES's selection network: counted as by hand, once, and kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import binom
from simulate import FALSE_ALARM
from torch import Tensor, nn
from toys import draws_of

from ringfence.errors import ArgumentError, StoreError
from ringfence.models import LoadedModel
from ringfence.noise import Gaussian
from ringfence.training import DeviceData
from ringfence.training.selection import COUNTS_FILE, SELECTION_STAGE, UNKNOWN, ClassVotes, RightAnswers

SIGMA, CPU = 0.2, torch.device("cpu")


class Bright(nn.Module):
    """Class 1 where the first pixel is above one half."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([torch.full((len(x),), 0.5), x[:, 0, 0, 0]], dim=1)


class Silent(nn.Module):
    """May not be asked."""

    def forward(self, x: Tensor) -> Tensor:
        raise AssertionError("nothing is left to count")


def images(count: int = 40) -> DeviceData:
    """First pixels from 0 to 1; labels 1, 0, 1, 0, ..."""
    x = torch.full((count, 1, 2, 2), 0.5)
    x[:, 0, 0, 0] = torch.linspace(0, 1, count)
    return DeviceData(x, 1 - torch.arange(count) % 2, 2)


def answers(folder: Path, net: nn.Module | None = None, data: DeviceData | None = None, **other: float) -> RightAnswers:
    classifier = LoadedModel(net or Bright(), 2, "bright", "bright")
    settings = {"sigma": SIGMA, "n": 250, "seed": 4, **other}
    return RightAnswers(classifier, data or images(), folder=folder, **settings)  # type: ignore[arg-type]


def test_counts_are_those_of_a_slow_loop_over_the_same_draws(tmp_path: Path) -> None:
    data, found = images(), answers(tmp_path)
    found.count(CPU)
    for at in range(len(data)):
        noise = draws_of(Gaussian(SIGMA), (1, 2, 2), 4, at, SELECTION_STAGE, 0, 250)
        right = sum(int(Bright()(data.x[at : at + 1] + one).argmax() == data.y[at]) for one in noise)
        assert found.hits[at] == right


def test_counts_have_the_probabilities_of_the_toy(tmp_path: Path) -> None:
    x = torch.full((4, 1, 2, 2), 0.5)
    x[:, 0, 0, 0] = torch.tensor([0.9, 0.55, 0.55, 0.1])
    found = answers(tmp_path, data=DeviceData(x, torch.tensor([1, 1, 0, 0]), 2), n=1000)
    found.count(CPU)
    for hits, p in zip(found.hits, (0.97725, 0.59871, 0.40129, 0.97725), strict=True):
        low, high = binom.ppf([FALSE_ALARM, 1 - FALSE_ALARM], 1000, p)
        assert low <= hits <= high
    assert found.labels(0.5).y.tolist() == [1, 1, 0, 1]
    assert found.labels(0.95).y.tolist() == [1, 0, 0, 1]


@pytest.mark.parametrize(("eta", "n", "enough"), [(0.5, 1000, 500), (0.95, 1000, 950), (0.07, 100, 7), (1.0, 250, 250)])
def test_a_share_of_exactly_eta_is_enough(tmp_path: Path, eta: float, n: int, enough: int) -> None:
    """0.07 * 100 is above 7 in floating point: shares must be compared, not counts."""
    found = answers(tmp_path, data=images(3), n=n)
    found.hits[:] = [enough, enough - 1, 0]
    labelled = found.labels(eta)
    assert labelled.y.tolist() == [1, 0, 0]
    assert labelled.num_classes == 2
    assert torch.equal(labelled.x, images(3).x)


def test_invalid_scores_are_no_right_answers(tmp_path: Path) -> None:
    class Broken(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            scores = Bright()(x)
            scores[x[:, 0, 0, 0] > 0.6] = float("nan")
            return scores

    found, whole = answers(tmp_path / "broken", Broken()), answers(tmp_path / "whole")
    found.count(CPU)
    whole.count(CPU)
    assert found.hits[-2] < 50 < 200 < whole.hits[-2]


def test_an_interrupted_count_goes_on_and_a_finished_one_is_not_repeated(tmp_path: Path) -> None:
    def stop(inputs: int, draws: int, seconds: float) -> None:
        if inputs == 11:
            raise KeyboardInterrupt

    whole, cut = answers(tmp_path / "whole"), answers(tmp_path / "cut")
    whole.count(CPU)
    with pytest.raises(KeyboardInterrupt):
        cut.count(CPU, stop)
    again = answers(tmp_path / "cut")
    assert again.done == 11
    told: list[int] = []
    again.count(CPU, lambda inputs, draws, seconds: told.append(draws))
    assert told == [250 * k for k in range(1, 30)]
    assert again.hits.tolist() == whole.hits.tolist()
    finished = answers(tmp_path / "cut", Silent())
    finished.count(CPU)
    assert finished.hits.tolist() == whole.hits.tolist()


def test_a_kill_loses_only_what_came_since_the_last_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringfence.training.selection.STORE_SECONDS", -1.0)
    seen: list[tuple[int, int]] = []
    answers(tmp_path).count(CPU, lambda inputs, draws, seconds: seen.append((inputs, answers(tmp_path).done)))
    assert seen == [(k, k - 1) for k in range(1, 41)]


def test_counts_of_something_else_are_not_used(tmp_path: Path) -> None:
    answers(tmp_path).count(CPU)
    assert answers(tmp_path).done == 40
    other = images()
    other.y[0] = 0
    for changed in (answers(tmp_path, sigma=0.3), answers(tmp_path, n=100), answers(tmp_path, seed=5)):
        assert changed.done == 0
    assert answers(tmp_path, data=other).done == 0
    assert answers(tmp_path, data=images(30)).done == 0


def test_what_cannot_be_labelled_is_refused(tmp_path: Path) -> None:
    found = answers(tmp_path)
    found.hits[:] = 250
    with pytest.raises(ArgumentError, match=r"--set eta: must part .* every input is worth certifying. Raise eta"):
        found.labels(0.5)
    found.hits[:] = 10
    with pytest.raises(ArgumentError, match=r"no input is worth certifying\. Lower eta"):
        found.labels(0.5)
    many = DeviceData(images(3).x, torch.tensor([0, 1, 2]), 3)
    with pytest.raises(
        ArgumentError, match="--classifier: must have the data's classes; got 2 classes and the label 2"
    ):
        answers(tmp_path, data=many).count(CPU)
    (tmp_path / COUNTS_FILE).write_bytes(b"not counts")
    with pytest.raises(StoreError, match="must be readable counts"):
        answers(tmp_path)


def test_the_counts_are_int64_and_one_per_input(tmp_path: Path) -> None:
    found = answers(tmp_path)
    assert found.hits.dtype == np.int64
    assert found.hits.tolist() == [UNKNOWN] * 40


def test_class_shares_are_the_soft_labels(tmp_path: Path) -> None:
    data = images()
    votes = ClassVotes(LoadedModel(Bright(), 2, "bright", "bright"), data, SIGMA, 250, tmp_path, 4)
    votes.count(CPU)
    right = answers(tmp_path)
    right.count(CPU)
    labelled = votes.labelled()
    assert labelled.soft is not None
    assert torch.allclose(labelled.soft.sum(1), torch.ones(len(data)))
    own = labelled.soft.gather(1, data.y.unsqueeze(1)).squeeze(1)
    assert torch.allclose(own, torch.from_numpy(right.hits).float() / 250)
    again = ClassVotes(LoadedModel(Silent(), 2, "bright", "bright"), data, SIGMA, 250, tmp_path, 4)
    again.count(CPU)  # kept
    assert np.array_equal(again.counts, votes.counts)
    wrong = ClassVotes(LoadedModel(Bright(), 2, "b", "b"), replace(data, num_classes=3), SIGMA, 250, tmp_path, 4)
    with pytest.raises(ArgumentError, match="2 classes where the data has 3"):
        wrong.count(CPU)
