"""Answers: what the networks of a run say of a few noisy inputs; whoever goes on with it must say the same.

Digests follow code as far as code can be followed. Whatever else changes a network (a setting within settings, a file,
a library, another machine) changes what it says.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor, nn

from ringfence.classifiers import Classifier
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
"""Scores of a network that are kept; of more classes the means of so many groups of neighbours."""
DIGITS = 8
"""Of a score: as many as float32 has."""
ROUNDED = 1e-3
"""Of what a network's scores lie apart: more than other devices and numbers of threads make of it."""
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
        forward, found = Forward(placed, ForwardPlan(1), device, self.classes), list[Said]()
        for clean, noisy in zip(torch.split(self.clean, 1), torch.split(self.noisy, 1), strict=True):
            every = list[Tensor]()
            with suppress(ClassifierError), networks_heard() as heard:
                every += [forward(noisy.to(device)).scores, *(heard if isinstance(placed, Classifier) else ())]
                if isinstance(placed, Classifier) and placed.tells_facts:  # by networks that see no noise
                    with without_autocast(device):
                        every.append(placed.clean_scores(clean))
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
        found = self.question.ask(classifier, device)
        off = sum(_apart(*pair) for pair in zip(found, self.said, strict=True))
        if off > min(JUMPS, len(found) // 2):  # a vote may jump where a member is within rounding of a tie
            rule = "must say of the same noisy inputs what it said when the run began"
            received = f"other scores for {off} of {len(found)}, by a network with the same weights"
            remedy = "Give it as it was, with its settings, files and libraries, or certify it anew into another `out`."
            raise ClassifierError("classifier", rule, received, remedy)


def _lines(scores: Tensor) -> list[str]:
    """Of (1, K) or (1, lanes, K), in the order of lanes."""
    rows = scores.detach().float().cpu().reshape(-1, scores.shape[-1])
    if rows.shape[1] > KEPT:
        rows = torch.nn.functional.adaptive_avg_pool1d(rows[:, None], KEPT)[:, 0]
    return [" ".join(f"{value:.{DIGITS}g}" for value in row) for row in rows.tolist()]


def _apart(found: Said, wanted: Said) -> bool:
    """Whether other networks were asked, or one said something else."""
    return len(found) != len(wanted) or any(_differ(*pair) for pair in zip(found, wanted, strict=True))


def _differ(found: str, wanted: str) -> bool:
    try:
        ours, theirs = (np.array(line.split(), np.float64) for line in (found, wanted))
    except ValueError:  # what was kept is no numbers
        return True
    if ours.shape != theirs.shape or not np.array_equal(np.isfinite(ours), np.isfinite(theirs)):
        return True
    ours, theirs = ours[np.isfinite(ours)], theirs[np.isfinite(theirs)]
    spread = float(theirs.max(initial=-np.inf) - theirs.min(initial=np.inf))
    spread = spread if spread > 0 else float(np.abs(theirs).max(initial=1.0))  # a selector says one number for all
    return bool((np.abs(ours - theirs) > ROUNDED * spread + OF_ITS_SIZE * np.abs(theirs)).any())
