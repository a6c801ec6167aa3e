"""Answers: the scores of a run's networks on a few noisy inputs; who continues the run must give the same ones.

A digest sees changes of code only as far as code can be followed. Whatever else changes a network (a nested setting, a
file, a library, another machine) changes its answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ringfence.classifiers import Classifier, facts
from ringfence.classifiers.base import networks_heard
from ringfence.errors import ClassifierError
from ringfence.noise import Noise
from ringfence.sampling.as_given import JUMPS
from ringfence.sampling.devices import without_autocast
from ringfence.sampling.forward import Forward
from ringfence.sampling.plan import ForwardPlan
from ringfence.sampling.preparing import on_device
from ringfence.sampling.supply import Supply

KEPT = 64
"""Scores of a network that are kept; of more classes the means and the largest of half as many groups of neighbours."""
GOLDEN = 0.618034
"""Classes weigh from 0.5 to 1.5 in these means, neighbours never the same: two that changed places are noticed."""
DIGITS = 8
"""Significant digits of a score that are kept: as many as float32 has."""
ROUNDED = 1e-3
"""Of a score's distance from the top score, and of the usual gap below that: more than other devices and numbers of
threads make of it. What all scores lie apart does not count: classes masked with -1e9 would hide the others."""
OF_ITS_SIZE = 1e-6
"""Of a score: an offset that all share is rounded too."""

Said = tuple[str, ...]
"""Of one input: a line of scores for each lane, and for each network that was asked."""


@final
@dataclass(frozen=True)
class Question:
    """A few inputs of a run: clean (n, *shape), and lifted and noisy (n, *lifted shape), on the host; and how many
    scores an answer has."""

    clean: Tensor
    noisy: Tensor
    classes: int

    @classmethod
    def about(
        cls, clean: Sequence[Tensor], lifted: Sequence[Tensor], noise: Noise, seed: int, classes: int
    ) -> Question:
        """Inputs, and the same lifted: each with noise that no certificate uses, the same on every device."""
        supply = Supply(noise, seed, tuple(lifted[0].shape), torch.device("cpu"), 1)
        return cls(torch.stack([*clean]).float().cpu(), supply.probe([*lifted], len(lifted)), classes)

    def of(self, places: Sequence[int]) -> Question:
        """Some of it."""
        return Question(self.clean[places], self.noisy[places], self.classes)

    @torch.inference_mode()
    def ask(self, classifier: nn.Module, device: torch.device) -> list[Said]:
        """What is said of each input, by itself, in float32, by the network as its owner has it; nothing of one that
        makes it raise."""
        placed = on_device(classifier, device)
        with suppress(ClassifierError):
            facts(placed, self.clean[:1])  # the first time more than the core is asked
        forward, found = Forward(placed, ForwardPlan(1), device, self.classes), list[Said]()
        for clean, noisy in zip(torch.split(self.clean, 1), torch.split(self.noisy, 1), strict=True):
            every = list[Tensor]()
            with suppress(ClassifierError):
                with networks_heard() as heard:
                    every.append(forward(noisy.to(device, copy=True)).scores)  # a network may write into its input
                every += heard if isinstance(placed, Classifier) else ()
                if isinstance(placed, Classifier) and placed.tells_facts:  # by networks that see no noise
                    with without_autocast(device), networks_heard() as heard:
                        every.append(placed.clean_scores(clean.clone()))
                    every += heard
            found.append(tuple(line for one in every for line in _lines(one)))
        return found


@final
@dataclass(frozen=True)
class Answered:
    """A question, and what was said when the run began."""

    question: Question
    said: Sequence[Said]

    def check(self, classifier: nn.Module, device: torch.device) -> None:
        """Refuse a classifier that says something else."""
        found, gaps = self.question.ask(classifier, device), _usual_gaps(self.said)
        off = sum(_apart(*pair, gaps) for pair in zip(found, self.said, strict=True))
        if off > min(JUMPS, len(found) // 2):  # a vote may jump where a member is within rounding of a tie
            rule = "must say of the same noisy inputs what it said when the run began"
            received = f"other scores for {off} of {len(found)}, by a network with the same weights"
            remedy = "Give it as it was, with its settings, files and libraries, or certify it anew into another `out`."
            raise ClassifierError("classifier", rule, received, remedy)


def _lines(scores: Tensor) -> list[str]:
    """Of (1, K) or (1, lanes, K), in the order of lanes."""
    rows = scores.detach().float().cpu().reshape(-1, scores.shape[-1])
    if rows.shape[1] > KEPT:
        weights = 0.5 + torch.arange(rows.shape[1]) * GOLDEN % 1.0
        means = torch.nn.functional.adaptive_avg_pool1d((weights * rows)[:, None], KEPT // 2)
        rows = torch.cat([means, torch.nn.functional.adaptive_max_pool1d(rows[:, None], KEPT // 2)], 2)[:, 0]
    return [" ".join(f"{value:.{DIGITS}g}" for value in row) for row in rows.tolist()]


def _numbers(line: str) -> NDArray[np.float64]:
    """Of a line; none at all where what was kept is something else."""
    try:
        return np.array(line.split(), np.float64)
    except ValueError:
        return np.empty(0)


def _usual_gaps(said: Sequence[Said]) -> list[float]:
    """For each line of an answer: between the top score and the next below it, in the middle one of all inputs."""
    found = dict[int, list[float]]()
    for lines in said:
        for place, line in enumerate(lines):
            scores = _numbers(line)
            top = scores.max(initial=-np.inf, where=np.isfinite(scores))
            below = [float(top - one) for one in scores if np.isfinite(one) and top - one > OF_ITS_SIZE * abs(top)]
            found.setdefault(place, []).extend([min(below)] if below else [])
    return [float(np.median(found[place] or [0.0])) for place in range(len(found))]


def _apart(found: Said, wanted: Said, gaps: Sequence[float]) -> bool:
    """Whether other networks were asked, or one said something else."""
    return len(found) != len(wanted) or any(_differ(*three) for three in zip(found, wanted, gaps, strict=False))


def _differ(found: str, wanted: str, gap: float) -> bool:
    ours, theirs = _numbers(found), _numbers(wanted)
    if ours.shape != theirs.shape:
        return True
    finite = np.isfinite(theirs)
    if not np.array_equal(ours[~finite], theirs[~finite], equal_nan=True):
        return True
    ours, theirs = ours[finite], theirs[finite]
    distance = np.maximum(theirs.max(initial=-np.inf) - theirs, gap)
    scale = distance if (distance > 0).any() else np.abs(theirs).max(initial=1.0)  # a selector says one number for all
    return not bool((np.abs(ours - theirs) <= ROUNDED * scale + OF_ITS_SIZE * np.abs(theirs)).all())
