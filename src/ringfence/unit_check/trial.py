"""A trial: a few labelled inputs are shown to a classifier, as they are and under noise, to tell it from a guess."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import final

import torch
from torch import Tensor, nn

from ringfence.classifiers import Normalize, score
from ringfence.classifiers.base import networks_heard
from ringfence.data import Input
from ringfence.errors import ClassifierError, DataError, RingfenceError
from ringfence.lift import Lift
from ringfence.noise import Noise
from ringfence.unit_check.values import GO_ON, LOUDEST, NoiseWarning

Change = Callable[[Tensor], Tensor]
LOOKED_AT = 32
"""Inputs of a check: enough to tell a classifier from a guess, few beside the draws of a single certificate."""
KEY = 0x756E6974_63686563
"""Of the noise of the check, which is no draw of any run: those have keys from their seed, input and stage."""
USEFUL = 0.3
"""Share of the way from guessing to perfect below which nobody would certify a network."""
DOUBT = 0.05
MISSED = 8
"""Inputs of other classes that a useful network hardly gives one and the same answer: it gets 0.65 of them right."""
FAR = 100.0
"""Sigmas, or sizes of large inputs, away from them: there a logit leaves [0, 1], as a probability never does."""
SAME_ORDER, EACH = 0.9, 3
"""Share of inputs whose label has one answer, and inputs of a label, from which on classes are numbered otherwise."""
USUAL = {
    "ImageNet's": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "CIFAR-10's": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.201)),
    "that of [-1, 1]": ((0.5,), (0.5,)),
    "MNIST's": ((0.1307,), (0.3081,)),
    "that of pixels from 0 to 255": ((0.0,), (1 / 255,)),
}
"""Normalisations that published networks expect."""


@final
@dataclass(frozen=True)
class Checked:
    """What the check saw: labelled inputs, and the share of them classified rightly without and with noise."""

    inputs: int
    clean: float
    noisy: float


def _between(low: int, high: int, count: int, chance: float) -> float:
    """The probability that low to high of so many succeed; few of them, and loading SciPy would take longer."""
    each = (math.comb(count, k) * chance**k * (1 - chance) ** (count - k) for k in range(max(low, 0), high + 1))
    return math.fsum(each)


@final
@dataclass(frozen=True)
class Trial:
    """The labelled inputs of a check, and the classifier they are shown to."""

    classifier: nn.Module
    items: Sequence[Input]
    noise: Noise
    lift: Lift
    device: torch.device
    classes: int
    heard: list[list[Tensor]] = field(default_factory=list)
    """What each network has answered so far."""

    def judged(self, looks: Sequence[Tensor]) -> Checked:
        """Refuse guesses; warn of a network that is lost under noise. looks: scores without it, and with it."""
        if not any(bool(one.isfinite().flatten(1).all(1).any()) for one in looks):
            received = f"NaN or infinite scores for all {len(self.items)} inputs looked at"
            raise ClassifierError("classifier", "must return finite scores", received, "Check its weights and code.")
        answers = [_classes(one) for one in looks]
        count, (clean, noisy) = len(self.items), map(self._right, answers)
        if (self._guessing(clean, count) and self._guessing(noisy, count)) or self._one_answer(answers):
            self._refuse(clean, count, answers[0])
        found = Checked(count, clean / count, noisy / count)
        sigma = self.noise.law.scale
        if not self._guessing(clean, count) and clean - noisy >= 5 and noisy <= clean / 2 and sigma <= LOUDEST:
            warnings.warn(
                f"under noise of sigma {sigma:g} the network is right on {noisy} of {count} inputs, without it on"
                f" {clean}: few certificates will come. Train it with noise (ringfence train --objective gaussian"
                f" --sigma {sigma:g} --data DATA --out DIR), or put it behind a denoiser"
                " ('denoised(DENOISER, MODEL)').",
                NoiseWarning,
                stacklevel=4,
            )
        elif clean == noisy == 0 and count > 1:
            told = f"none of the {count} labelled inputs looked at is classified rightly, which is too few to tell why:"
            remedy = (
                f"with {LOOKED_AT} of all classes the check can (a normalisation, units, labels that count from 1)."
            )
            warnings.warn(f"{told} {remedy}", NoiseWarning, stacklevel=4)
        return found

    def _right(self, answers: Tensor, shift: int = 0) -> int:
        """How many answers (inputs, lanes) are the label (plus shift); of several lanes the best one's."""
        labels = torch.tensor([(one.label or 0) + shift for one in self.items])
        return int((answers == labels[:, None]).sum(0).max())

    @torch.inference_mode()
    def scores(self, change: Change = lambda x: x, noisy: bool = False) -> Tensor:
        """Scores (inputs, K) or (inputs, lanes, K) of inputs changed so."""
        x = torch.stack([change(self.lift.at(one.x, one.id).float()) for one in self.items])
        if noisy:
            drawn = torch.empty_like(x)
            self.noise.fill(drawn, KEY)
            x = x + drawn
        found = []
        for part in torch.split(x.to(self.device), 8):
            with networks_heard() as heard:
                found.append(score(self.classifier, part).scores.float().cpu())
            self.heard.extend([] for _ in heard[len(self.heard) :])
            for each, scores in zip(self.heard, heard, strict=False):  # of a K-consensus some may not be asked
                each.append(scores.float().cpu())
        return torch.cat(found)

    def far(self) -> Tensor:
        """Scores of inputs far away in all directions, of a few again and again: what they say there judges nobody."""
        rows = replace(self, items=[self.items[place % len(self.items)] for place in range(LOOKED_AT)])
        shape = rows.lift.at(self.items[0].x, self.items[0].id).shape
        drawn = torch.empty(LOOKED_AT, *shape, dtype=torch.float32)
        self.noise.fill(drawn, KEY)
        # A network that scales its features by itself hardly moves within sigmas that are small beside them.
        largest = max(float(one.x.detach().abs().max()) for one in self.items) if drawn.numel() else 0.0
        drawn[::2] *= max(1.0, largest / self.noise.law.scale)  # the others stay where kernels have not died away
        away = iter(FAR * drawn)
        return rows.scores(lambda x: x + next(away))

    def _one_answer(self, answers: Sequence[Tensor]) -> bool:
        """Whether all inputs get one class, with noise and without: of two classes half of that is right by itself."""
        same = all(bool((one == answers[0][0, 0]).all()) for one in answers)
        return same and len(self.items) - self._right(answers[0]) >= MISSED

    def _guessing(self, right: int, count: int) -> bool:
        """Whether so many right answers are as a guess gives, and a useful network hardly does."""
        chance = 1 / self.classes
        useful = chance + USEFUL * (1 - chance)
        return _between(right, count, count, chance) > DOUBT and _between(0, right, count, useful) < DOUBT

    def _refuse(self, right: int, count: int, answers: Tensor) -> None:
        rule = f"must be classified better than by guessing ({self.classes} classes)"
        found = [one for one in (self._explained(count), self._renumbered(answers[:, 0].tolist())) if one is not None]
        explains = max((some for _, some in found), default=0)
        likely = [told.format(f"{explains} of {count} would be right") for told, some in found if some == explains]
        remedy = " Or else: ".join(likely) or (
            "The network may expect normalised inputs (`mean`, `std`), other pixels (`size`, `range`), number its"
            f" classes differently, as folders in the order of their names do (labels here are {self._labels()}), or"
            " have learned too little."
        )
        raise DataError("data", rule, f"{right} of {count} inputs right without any noise", f"{remedy} {GO_ON}")

    def _renumbered(self, answers: Sequence[int]) -> tuple[str, int] | None:
        """That classes are numbered otherwise, and what that explains: nearly every label has an answer of its own."""
        seen = Counter((one.label or 0, answer) for one, answer in zip(self.items, answers, strict=True))
        usual = dict(pair for pair, _ in reversed(seen.most_common()))  # the answer that each label gets most often
        right = sum(seen[pair] for pair in usual.items())
        own = len(set(usual.values())) == len(usual) > 1
        if not own or right < SAME_ORDER * len(answers) or len(answers) < EACH * len(usual):
            return None
        shown = [f"{label} is its {answer}" for label, answer in sorted(usual.items()) if label != answer][:3]
        told = (
            f"The network numbers its classes otherwise (label {', '.join(shown)}, ...): {{}}. Name folders so that"
            " their order is its own (0-NAME, 1-NAME), or write a labels.csv with the columns file and label into the"
            " folder above them; in arrays, change y."
        )
        return told, right

    def _labels(self) -> str:
        labels = sorted({one.label for one in self.items if one.label is not None})
        return f"{labels[0]} to {labels[-1]}" if len(labels) > 1 else f"{labels[0]} alone"

    def _explained(self, count: int) -> tuple[str, int] | None:
        """The usual mistake under which the network would be right, where one explains it, and how often."""
        tried = {told: self._tried(change, shift) for told, change, shift in self._mistakes()}
        told, right = max(tried.items(), key=lambda one: one[1])
        # Ten explanations are tried: one of them must stand out from chance by more than that.
        if self._guessing(right, count) or _between(right, count, count, 1 / self.classes) > 1e-4:
            return None
        return f"{told}: {{}}.", right

    def _tried(self, change: Change, shift: int) -> int:
        try:
            return self._right(_classes(self.scores(change)), shift)
        except (RingfenceError, RuntimeError):
            return 0

    def _mistakes(self) -> Iterator[tuple[str, Change, int]]:
        """(what to do, how inputs would then look, how labels)."""
        # A second normalisation is refused, and another one instead is not what giving it on top would measure.
        normalised = any(isinstance(one, Normalize) for one in self.classifier.modules())
        for name, (mean, std) in USUAL.items():
            written = [",".join(f"{value:.6g}" for value in one) for one in (mean, std)]
            given = f"Give `mean` {written[0]} and `std` {written[1]}, {name} normalisation"
            if not normalised:
                yield f"{given} (in Python: rf.normalize(net, mean=..., std=...))", partial(_normalised, mean, std), 0
            own = f"Leave out `mean` and `std`: the network normalises by itself ({name})"
            yield own, partial(_as_before, mean, std), 0
        yield "Give it blue, green, red: the network expects its channels in that order", lambda x: x.flip(-3), 0
        yield "Labels seem to count from 1: subtract 1", lambda x: x, -1
        yield "Labels seem to count from 0 and the network's classes from 1: add 1", lambda x: x, 1


def _classes(scores: Tensor) -> Tensor:
    """The answers (inputs, lanes)."""
    return scores.nan_to_num(-math.inf).argmax(-1).reshape(len(scores), -1)


def _normalised(mean: Sequence[float], std: Sequence[float], x: Tensor) -> Tensor:
    return (x - torch.tensor(mean).view(-1, 1, 1)) / torch.tensor(std).view(-1, 1, 1)


def _as_before(mean: Sequence[float], std: Sequence[float], x: Tensor) -> Tensor:
    return x * torch.tensor(std).view(-1, 1, 1) + torch.tensor(mean).view(-1, 1, 1)
