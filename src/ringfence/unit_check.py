"""The unit check: before a run, a few dozen inputs tell whether data and model speak of the same pixels and classes.

A certificate for a network that sees its inputs in other units is true and worthless, and nothing else would say so.
The draws of the check are its own: what is certified afterwards, and its noise, are the same with it and without.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from typing import final

import torch
from torch import Tensor, nn

from ringfence.classifiers import Normalize, score
from ringfence.classifiers.base import networks_heard
from ringfence.data import Dataset, Input
from ringfence.data.dataset import refuse_channels_last, refuse_labels
from ringfence.errors import ClassifierError, Collected, DataError, RingfenceError
from ringfence.lift import Lift
from ringfence.noise import Noise
from ringfence.sampling import count_classes, in_front, on_device

Change = Callable[[Tensor], Tensor]
LOOKED_AT = 32
"""Inputs of a check: enough to tell a classifier from a guess, few beside the draws of a single certificate."""
KEY = 0x756E6974_63686563
"""Of the noise of the check, which is no draw of any run: those have keys from their seed, input and stage."""
FEWEST = 64
"""Values of an input that can be a picture; units of points and features are whatever their owner says."""
USEFUL = 0.3
"""Share of the way from guessing to perfect below which nobody would certify a network."""
DOUBT = 0.05
MISSED = 8
"""Inputs of other classes that a useful network hardly gives one and the same answer: it gets 0.65 of them right."""
FAR = 100.0
"""Sigmas, or sizes of large inputs, away from them: there a logit leaves [0, 1], as a probability never does."""
FINEST = 1 / 16
"""Of sigma: the step of float32 at an input, above which its noise has too few values to be noise."""
SAME_ORDER, EACH = 0.9, 3
"""Share of inputs whose label has one answer, and inputs of a label, from which on classes are numbered otherwise."""
LOUDEST = 5.0
"""Sigmas above it are hardly in [0, 1] pixels: those of the literature end at 2, for uniform noise at 3.5."""
OVERSHOT = 0.2
"""How far resized pixels may leave [0, 1]; the usual normalisations go further."""
GO_ON = "Or go on all the same: `check=False`."

USUAL = {
    "ImageNet's": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "CIFAR-10's": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.201)),
    "that of [-1, 1]": ((0.5,), (0.5,)),
    "MNIST's": ((0.1307,), (0.3081,)),
    "that of pixels from 0 to 255": ((0.0,), (1 / 255,)),
}
"""Normalisations that published networks expect."""


class NoiseWarning(UserWarning):
    """A network that is lost, under the noise or on all that it was shown: certificates will be few, or wrong."""


@final
@dataclass(frozen=True)
class Checked:
    """What the check saw: labelled inputs, and the share of them classified rightly without and with noise."""

    inputs: int
    clean: float
    noisy: float


def is_picture(shape: Sequence[int]) -> bool:
    """Whether inputs of this shape have pixels, which have units."""
    return len(shape) in (3, 4) and math.prod(shape) >= FEWEST


def looked_at(dataset: Dataset) -> list[Input]:
    """Pictures from all over a data set, whose classes often come one after the other, of other inputs the first alone;
    unreadable ones left out."""
    places = sorted({round(float(one)) for one in torch.linspace(0, max(len(dataset) - 1, 0), LOOKED_AT)})
    found = []
    for place in places[: LOOKED_AT if is_picture(dataset.shape) else 1] if len(dataset) else ():
        try:
            found.append(dataset[place])
        except (RingfenceError, OSError, ValueError):
            continue  # the run tells of it
    return found


def peeked(inputs: Iterator[Input]) -> tuple[list[Input], Iterator[Input]]:
    """The first pictures of a stream, of other inputs the first alone, and the whole stream again."""
    first = list(islice(inputs, 1))
    if first and is_picture(first[0].x.shape):
        first += islice(inputs, LOOKED_AT - 1)
    return first, chain(first, inputs)


def check_units(
    classifier: nn.Module,
    items: Sequence[Input],
    noise: Noise,
    lift: Lift,
    device: torch.device,
    lanes: Sequence[str] = (),
    class_names: Sequence[str] | None = None,
) -> Checked | None:
    """Refuse inputs and labels that the classifier was hardly made for, and say what is probably meant.

    classifier: what stands behind lift and noise; class_names: those of the data, by their numbers. None where nothing
    could be measured: no labels, or no pictures.
    """
    _check_numbers(classifier, class_names or ())
    items = [one for one in items if one.x.shape == items[0].x.shape]
    if not items:
        return None
    pictures = is_picture(items[0].x.shape)
    wrong = Collected()
    if pictures:
        wrong.ask(lambda: refuse_channels_last("data", tuple(items[0].x.shape)))
        wrong.ask(lambda: _check_range([one.x for one in items]))
    wrong.tell()
    _check_resolution([one.x for one in items], noise.law.scale)
    if pictures:
        _warn_of_sigma(noise.law.scale)
    labelled = [one for one in items if one.label is not None]
    items = labelled or items
    classes = count_classes(classifier, lift.at(items[0].x, items[0].id), device, lanes)
    refuse_labels("data", ((one.id, one.label) for one in labelled), classes)
    judged = pictures and bool(labelled)
    if not judged and classes != 2:
        return None
    try:
        with in_front(device):
            trial = _Trial(on_device(classifier, device), items, noise, lift, device, classes)
            looks = [trial.scores(noisy=noisy) for noisy in (False, True)]
            if classes == 2:
                trial.far()
        for network in trial.heard:
            _refuse_probability(torch.cat(network))
        return trial.judged([_classes(one) for one in looks]) if judged else None
    except (RingfenceError, Warning):
        raise
    except Exception:  # what it cannot do with a batch, the run tells, with its reason
        return None


def _between(low: int, high: int, count: int, chance: float) -> float:
    """The probability that low to high of so many succeed; few of them, and loading SciPy would take longer."""
    each = (math.comb(count, k) * chance**k * (1 - chance) ** (count - k) for k in range(max(low, 0), high + 1))
    return math.fsum(each)


def _check_numbers(classifier: nn.Module, class_names: Sequence[str]) -> None:
    """Refuse classes that a network of transformers numbers otherwise, where it has all of their names.

    A few that are exchanged cost little accuracy, and every answer would be told by the name of another class.
    """
    ours = [str(name).casefold() for name in class_names]
    for part in classifier.modules():
        told = getattr(getattr(part, "config", None), "id2label", None)
        theirs = {str(name).casefold(): number for number, name in told.items()} if isinstance(told, dict) else {}
        other = [place for place, name in enumerate(ours) if theirs.get(name, place) != place]
        if other and theirs.keys() >= set(ours):
            rule = "must number its classes as the network does"
            received = f"{class_names[other[0]]!r} as {other[0]}, which is {theirs[ours[other[0]]]} in the network"
            remedy = f"Name folders so that their order is that of its id2label, or write labels.csv. {GO_ON}"
            raise DataError("data", rule, received, remedy)


def _check_range(inputs: Sequence[Tensor]) -> None:
    # Of tensors, not of numbers: Python's min passes over a NaN.
    low, high = (float(ends) for ends in torch.stack([x.detach().float().cpu() for x in inputs]).aminmax())
    found = f"values from {low:.4g} to {high:.4g}"
    if not (math.isfinite(low) and math.isfinite(high)):
        raise DataError("data", "inputs must be finite", found, "Remove the inputs with NaN or infinity.")
    if low >= 0 and high > 2:
        whole = all(bool((x == x.round()).all()) for x in inputs)
        likely = "pixels from 0 to 255" if whole or high > 64 else "pixels on another scale"
        top = 255 if high > 64 or whole else f"{high:.4g}"
        remedy = f"Give `range` 0..{top}, or divide by {top}; sigma and radii are then in [0, 1] units. {GO_ON}"
        raise DataError("data", f"must lie in [0, 1]; these look like {likely}", found, remedy)
    if -1.001 <= low <= -0.9 and 0.5 <= high <= 1.001:
        remedy = f"Give `range` -1..1 and, for a network that expects that, `mean` 0.5 and `std` 0.5. {GO_ON}"
        raise DataError("data", "must lie in [0, 1]; these look like pixels from -1 to 1", found, remedy)
    if low < -OVERSHOT or high > 1 + OVERSHOT:
        remedy = (
            "Take the normalisation out of the data and give it to the model, as `mean` and `std` (in Python: "
            f"rf.normalize(net, mean=..., std=...)), so that sigma and radii are in pixels. {GO_ON}"
        )
        raise DataError("data", "must lie in [0, 1]; these look normalised already", found, remedy)
    if 0 < high < 0.02:
        remedy = f"Bytes are divided by 255 by themselves: leave out `range`, or a second division. {GO_ON}"
        raise DataError("data", "must lie in [0, 1]; these look divided by 255 twice", found, remedy)


def _check_resolution(inputs: Sequence[Tensor], sigma: float) -> None:
    """Refuse numbers so large that float32, in which noise is added, rounds it away: all draws would be the input."""
    largest = max((float(x.detach().abs().max()) for x in inputs if x.numel()), default=0.0)
    if FINEST * sigma < largest * torch.finfo(torch.float32).eps < math.inf:
        rule = f"must be numbers beside which noise of sigma {sigma:g} is not rounded away in float32"
        remedy = f"Scale the features before (x - mean) / std, and give sigma in those units. {GO_ON}"
        raise DataError("data", rule, f"values up to {largest:.4g}", remedy)


def _warn_of_sigma(sigma: float) -> None:
    if sigma > LOUDEST:
        warnings.warn(
            f"sigma {sigma:g} is {sigma:g} times the way from black to white: sigma and radii are in [0, 1] pixels. If"
            f" it is for pixels from 0 to 255, give {sigma / 255:.3g}, and radii divided by 255 too.",
            NoiseWarning,
            stacklevel=3,
        )


@final
@dataclass(frozen=True)
class _Trial:
    """The labelled inputs of a check, and the classifier they are shown to."""

    classifier: nn.Module
    items: Sequence[Input]
    noise: Noise
    lift: Lift
    device: torch.device
    classes: int
    heard: list[list[Tensor]] = field(default_factory=list)
    """What each network has answered so far."""

    def judged(self, answers: Sequence[Tensor]) -> Checked:
        """Refuse guesses; warn of a network that is lost under noise. answers: without it, and with it."""
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
        drawn = torch.empty(LOOKED_AT, *rows.lift.at(self.items[0].x, self.items[0].id).shape)
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
        told, explains = max(found, key=lambda one: one[1], default=("", 0))
        remedy = told.format(f"{explains} of {count} would be right") or (
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


def _refuse_probability(scores: Tensor) -> None:
    """Refuse a single output that is never below 0 nor above 1, or always a whole number of at least 0: read as a
    logit, all of it would be class 1, or all classes but the first would be one.

    One and the same value everywhere says nothing: so do votes and trees with two outputs that know class 1 alone.
    """
    scores = scores[scores.isfinite().flatten(1).all(1)]
    told = set(scores[:, -1].tolist()) if scores.dim() == 2 else set()
    single = scores.shape[1:] == (2,) and not bool(scores[:, 0].any()) and len(told) > 1
    if single and bool(((scores[:, 1] >= 0) & (scores[:, 1] == scores[:, 1].round())).all()):
        rule = "a single output is a logit, above 0 for class 1; this looks like the number of a class"
        received = f"whole numbers up to {float(scores[:, 1].max()):.4g}"
        raise ClassifierError("classifier", rule, received, f"Return a score for each class, no argmax. {GO_ON}")
    if single and bool(((scores[:, 1] >= 0) & (scores[:, 1] <= 1)).all()):
        rule = "a single output is a logit, above 0 for class 1; this looks like a probability"
        received = f"values from {float(scores[:, 1].min()):.4g} to {float(scores[:, 1].max()):.4g}"
        remedy = f"Leave out the sigmoid, or return both: torch.stack([1 - p, p], 1). {GO_ON}"
        raise ClassifierError("classifier", rule, received, remedy)


def _normalised(mean: Sequence[float], std: Sequence[float], x: Tensor) -> Tensor:
    return (x - torch.tensor(mean).view(-1, 1, 1)) / torch.tensor(std).view(-1, 1, 1)


def _as_before(mean: Sequence[float], std: Sequence[float], x: Tensor) -> Tensor:
    return x * torch.tensor(std).view(-1, 1, 1) + torch.tensor(mean).view(-1, 1, 1)
