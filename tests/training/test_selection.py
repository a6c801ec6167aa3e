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
from ringfence.sampling import ForwardPlan
from ringfence.sampling.plan import Precision
from ringfence.training import DeviceData, TrainingJob
from ringfence.training.answers import ANSWERS_FILE, LABELLING_STAGE, UNKNOWN, Answers
from ringfence.training.objectives import Catrs, Select
from ringfence.training.objectives.base import Questions
from ringfence.training.run import TrainingRun

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


def answers(
    folder: Path,
    net: nn.Module | None = None,
    data: DeviceData | None = None,
    sigma: float = SIGMA,
    n: int = 250,
    seed: int = 4,
    classes: int | None = 2,
    precision: Precision = "fp32",
) -> Answers:
    classifier = LoadedModel(net or Bright(), classes, "bright", "bright")
    return Answers(classifier, data or images(), Questions(sigma, n), folder, seed, precision=precision)


def hits(found: Answers, data: DeviceData | None = None) -> list[int]:
    """Right answers of each input."""
    return [int(votes[label]) for votes, label in zip(found.votes, (data or images()).y, strict=True)]


def test_a_training_beside_it_that_asks_the_same_counts_for_both(tmp_path: Path) -> None:
    first = answers(tmp_path / "first")
    first.count(CPU)
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / ANSWERS_FILE).write_bytes(b"nothing")
    second = answers(tmp_path / "second", Silent())
    second.count(CPU)
    assert second.votes.tolist() == first.votes.tolist()
    (tmp_path / "first" / ANSWERS_FILE).unlink()  # the second has them of its own
    assert answers(tmp_path / "second", Silent()).done == 40
    assert answers(tmp_path / "third", seed=5).done == 0  # which asks something else


def test_counts_are_those_of_a_slow_loop_over_the_same_draws(tmp_path: Path) -> None:
    data, found = images(), answers(tmp_path / "own")
    found.count(CPU)
    for at in range(len(data)):
        noise = draws_of(Gaussian(SIGMA), (1, 2, 2), 4, at, LABELLING_STAGE, 0, 250)
        right = sum(int(Bright()(data.x[at : at + 1] + one).argmax() == data.y[at]) for one in noise)
        assert hits(found)[at] == right


def test_counts_have_the_probabilities_of_the_toy(tmp_path: Path) -> None:
    x = torch.full((4, 1, 2, 2), 0.5)
    x[:, 0, 0, 0] = torch.tensor([0.9, 0.55, 0.55, 0.1])
    data = DeviceData(x, torch.tensor([1, 1, 0, 0]), 2)
    found = answers(tmp_path / "own", data=data, n=1000)
    found.count(CPU)
    for right, p in zip(hits(found, data), (0.97725, 0.59871, 0.40129, 0.97725), strict=True):
        low, high = binom.ppf([FALSE_ALARM, 1 - FALSE_ALARM], 1000, p)
        assert low <= right <= high
    assert Select(eta=0.5).labelled(data, found.votes).y.tolist() == [1, 1, 0, 1]
    assert Select(eta=0.95).labelled(data, found.votes).y.tolist() == [1, 0, 0, 1]


def right(data: DeviceData, counts: list[int]) -> np.ndarray:
    """Votes (N, K) with so many right answers."""
    votes = np.zeros((len(data), data.num_classes), np.int64)
    votes[np.arange(len(data)), data.y.numpy()] = counts
    return votes


@pytest.mark.parametrize(("eta", "n", "enough"), [(0.5, 1000, 500), (0.95, 1000, 950), (0.07, 100, 7), (1.0, 250, 250)])
def test_a_share_of_exactly_eta_is_enough(eta: float, n: int, enough: int) -> None:
    """0.07 * 100 is above 7 in floating point: shares must be compared, not counts."""
    labelled = Select(eta=eta, n=n).labelled(images(3), right(images(3), [enough, enough - 1, 0]))
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
    assert hits(found)[-2] < 50 < 200 < hits(whole)[-2]


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
    assert again.votes.tolist() == whole.votes.tolist()
    finished = answers(tmp_path / "cut", Silent())
    finished.count(CPU)
    assert finished.votes.tolist() == whole.votes.tolist()


def test_a_kill_loses_only_what_came_since_the_last_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringfence.training.answers.STORE_SECONDS", -1.0)
    seen: list[tuple[int, int]] = []
    answers(tmp_path / "own").count(
        CPU, lambda inputs, draws, seconds: seen.append((inputs, answers(tmp_path / "own").done))
    )
    assert seen == [(k, k - 1) for k in range(1, 41)]


def test_counts_of_something_else_are_not_used(tmp_path: Path) -> None:
    answers(tmp_path / "own").count(CPU)
    assert answers(tmp_path / "own").done == 40
    other = images()
    other.y[0] = 0
    for changed in (
        answers(tmp_path / "own", sigma=0.3),
        answers(tmp_path / "own", n=100),
        answers(tmp_path / "own", seed=5),
    ):
        assert changed.done == 0
    assert answers(tmp_path / "own", precision="bf16").done == 0
    assert answers(tmp_path / "own", data=other).done == 0
    assert answers(tmp_path / "own", data=images(30)).done == 0


@pytest.mark.parametrize(("precision", "compile"), [("fp32", False), ("bf16", True)])
def test_labels_are_counted_as_the_training_computes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: Precision, compile: bool
) -> None:
    """A selector of CIFAR-10 asks fifty million times: in half precision, as one kernel, or for ages."""
    asked = []

    def chosen(*given: object) -> ForwardPlan:
        asked.append(given[-2:])
        return ForwardPlan(100)

    monkeypatch.setattr("ringfence.training.answers.fastest_plan", chosen)
    job = TrainingJob(Select(n=20), members=("lenet",), data="default", classifier="default")
    run = TrainingRun(replace(job, precision=precision, compile=compile), tmp_path, "cpu")
    digits = DeviceData(torch.rand(3, 1, 28, 28), torch.tensor([0, 1, 2]), 10)
    found = run.answers(digits)
    assert found is not None
    found.count(CPU)
    assert asked == [(precision, compile)]
    assert (found.votes.sum(1) == 20).all()


def test_what_cannot_be_labelled_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"eta: must part .* every input is worth certifying. Raise eta"):
        Select(n=250).labelled(images(), right(images(), [250] * 40))
    with pytest.raises(ArgumentError, match=r"no input is worth certifying\. Lower eta"):
        Select(n=250).labelled(images(), right(images(), [10] * 40))
    many = DeviceData(images(3).x, torch.tensor([0, 1, 2]), 3)
    for classes in (2, None):  # None: only a forward pass can tell
        with pytest.raises(
            ArgumentError, match="classifier: must have the data's classes; got 2 classes and the label 2"
        ):
            answers(tmp_path / "own", data=many, classes=classes)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / ANSWERS_FILE).write_bytes(b"not counts")
    with pytest.raises(StoreError, match="must be readable counts"):
        answers(tmp_path / "own")


def test_the_counts_are_int64_and_one_row_per_input(tmp_path: Path) -> None:
    found = answers(tmp_path / "own")
    assert found.votes.dtype == np.int64
    assert found.votes.tolist() == [[UNKNOWN, UNKNOWN]] * 40


def test_class_shares_are_the_soft_labels(tmp_path: Path) -> None:
    data, objective = images(), Catrs(label_sigma=SIGMA, label_draws=250)
    asked = objective.questions(0.9)
    votes = Answers(LoadedModel(Bright(), 2, "bright", "bright"), data, asked, tmp_path / "own", 4)
    votes.count(CPU)
    labelled = objective.labelled(data, votes.votes)
    assert labelled.soft is not None
    assert torch.allclose(labelled.soft.sum(1), torch.ones(len(data)))
    own = labelled.soft.gather(1, data.y.unsqueeze(1)).squeeze(1)
    assert torch.allclose(own, torch.tensor(hits(votes)).float() / 250)
    again = Answers(LoadedModel(Silent(), 2, "bright", "bright"), data, asked, tmp_path / "own", 4)
    again.count(CPU)  # kept
    assert np.array_equal(again.votes, votes.votes)
    with pytest.raises(ArgumentError, match="2 classes where the data has 3"):
        Answers(LoadedModel(Bright(), 2, "b", "b"), replace(data, num_classes=3), asked, tmp_path / "own", 4)
