"""Gate: whether a run shows, with a confidence over inputs and noise, that a certified accuracy is reached."""

from __future__ import annotations

import math
import warnings
from dataclasses import asdict, dataclass
from typing import Any, Self, final

import numpy as np

from ringfence.analysis.columns import columns_of
from ringfence.errors import ArgumentError, StoreError
from ringfence.procedures import Procedure
from ringfence.rounding import written_down
from ringfence.stats.binomial import clopper_pearson_lower
from ringfence.store import RunFolder, StoreWarning
from ringfence.store.claims import one_lane, procedure_in
from ringfence.types import ABSTAIN, IntArray
from ringfence.verification import verify

HARDLY = 0.05
"""Probability below which a chance is no explanation."""


COPIES = 0.01
"""Share of inputs that may be there twice without a word."""


@final
@dataclass(frozen=True)
class Demand:
    """A certified accuracy that must be reached at a radius: written ``0.60@0.5``."""

    accuracy: float
    radius: float

    def __post_init__(self) -> None:
        if not 0 < self.accuracy < 1:
            rule, remedy = "must be a share strictly between 0 and 1", "Write 0.60@0.5 for 60 % at radius 0.5."
            raise ArgumentError("certified", rule, self.accuracy, remedy)
        if not 0 <= self.radius < np.inf:
            raise ArgumentError("certified", "must have a radius of at least 0", self.radius, "Write e.g. 0.60@0.5.")

    @classmethod
    def of(cls, text: str) -> Self:
        """From its text."""
        accuracy, at, radius = text.partition("@")
        try:
            return cls(float(accuracy), float(radius if at else "none"))
        except ValueError:
            remedy = "Write e.g. 0.60@0.5."
            raise ArgumentError("certified", "must be ACCURACY@RADIUS, two numbers", repr(text), remedy) from None


@final
@dataclass(frozen=True)
class Verdict:
    """What a run shows of one demand.

    certified of inputs were right with at least the radius; lower: bound on the certified accuracy of the population
    that the inputs were drawn from, false with probability at most 1 - confidence; passed: lower >= accuracy;
    norm: of the radius, the one the run is shown in; lattice: the steps per unit of exact noise, whose claims are about
    inputs in whole steps; doubts: why the inputs may speak of another population than is meant.
    """

    accuracy: float
    radius: float
    confidence: float
    inputs: int
    certified: int
    share: float
    lower: float
    passed: bool
    norm: str = "l2"
    lattice: int | None = None
    doubts: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The entry that ``ringfence gate --json`` prints."""
        return asdict(self)


def lower_bound(certified: int, inputs: int, confidence: float, alpha: float) -> float:
    """Lower confidence bound on the share of the population that is right and truly robust.

    A claim is made with probability p <= t + alpha (1 - t), t being that share: an input that is not robust is claimed
    with probability at most alpha. So t >= (p - alpha) / (1 - alpha), and p is bounded from below, on independent
    inputs, by Clopper and Pearson (1934). Rounded down.
    """
    if not 0 < 1 - confidence < 1:
        remedy = "A usual choice is 0.95."
        raise ArgumentError("confidence", "must lie strictly between 0 and 1", confidence, remedy)
    claimed = float(clopper_pearson_lower(certified, inputs, 1 - confidence))
    return max((claimed - alpha) / (1 - alpha) * (1 - 1e-12), 0.0)


def gate(run: RunFolder, demand: Demand, confidence: float = 0.95, lane: str | None = None) -> Verdict:
    """Whether the run reaches the demand; a run that is not whole, not sound or not trusted is refused.

    lane: of a run with several, named beforehand: the best of them, chosen by these very inputs, would prove nothing.
    """
    _trusted(run)
    columns = columns_of(run)
    rows = columns.at(columns.lane == one_lane(sorted(set(columns.lane.tolist())), lane))
    if not rows.sound.all():
        rule, remedy = "must be proved", "Certify with the sound form."
        raise StoreError(run.path, rule, "results in a paper form, without a guarantee", remedy)
    if (rows.label < 0).any():
        rule, remedy = "must have a label for every input", "Certify labelled inputs."
        raise StoreError(run.path, rule, f"{int((rows.label < 0).sum())} without", remedy)
    alpha = _answering(run, demand.radius).alpha
    right = (rows.prediction == rows.label) & (rows.prediction != ABSTAIN) & (rows.radius >= demand.radius)
    inputs, certified = len(rows.radius), int(right.sum())
    lower = lower_bound(certified, inputs, confidence, alpha)
    share = certified / inputs
    passed = lower >= demand.accuracy
    counted = (confidence, inputs, certified, share, lower, passed)
    best = lower_bound(inputs, inputs, confidence, alpha)
    doubts = (
        _few_classes(rows.label, run.config.classifier.classes),
        _trained_on(run.config.data.split),
        _repeated(run),
        _too_few(inputs, best) if best < demand.accuracy else None,
    )
    told = tuple(one for one in doubts if one)
    lattice = run.config.noise.lattice if demand.radius else None
    return Verdict(demand.accuracy, demand.radius, *counted, norm=run.norm, lattice=lattice, doubts=told)


def _few_classes(labels: IntArray, classes: int) -> str | None:
    """Inputs drawn at random would hardly leave so many classes out: those of d of K classes have a probability of at
    most (K over d) (d / K)^n, were all classes equally frequent."""
    there, inputs = sorted(set(labels.tolist())), len(labels)
    chance = math.log(math.comb(classes, len(there))) + inputs * math.log(len(there) / classes)
    if chance >= math.log(HARDLY):
        return None
    named = f"class {there[0]} alone" if len(there) == 1 else f"{len(there)} of {classes} classes alone"
    remedy = "ringfence certify --skip takes inputs of all"
    return f"the {inputs} inputs are of {named}: the bound says nothing about the others ({remedy})"


def _trained_on(split: str) -> str | None:
    told = "the inputs are those of the split train: a network knows what it was trained on, and new inputs fare worse"
    return told if split == "train" else None


def _repeated(run: RunFolder) -> str | None:
    """A loader that goes round, or samples with replacement, makes few inputs look like many; one copy in a hundred
    may be in the data themselves. Inputs without a picture do not tell."""
    pictures = [one.thumbnail for one in run.inputs() if one.thumbnail is not None]
    copies = len(pictures) - len({(one.shape, one.tobytes()) for one in pictures})
    told = f"{copies} of the inputs are copies of others, which tell nothing new: the bound counts them as if they did"
    return told if copies > COPIES * len(pictures) else None


def _too_few(inputs: int, best: float) -> str:
    bound = written_down(best, 4)
    return f"{inputs} inputs cannot show it: were all of them certified, the bound would be {bound}; certify more"


def _answering(run: RunFolder, radius: float) -> Procedure:
    """The run's procedure; refused if it never tried this radius: not to have tried is not to have failed."""
    test = procedure_in(run.config)
    tried = run.factor * max(test.targets, default=np.inf) if test.claims_radius else 0.0
    if radius > tried:
        rule = f"the run only tried radii up to {tried:g}"
        remedy = f"Ask for a radius up to {tried:g}, or prove it: ringfence certify --radius {radius / run.factor:g}."
        raise ArgumentError("certified", rule, f"radius {radius:g}", remedy)
    return test


def _trusted(run: RunFolder) -> None:
    """Every file as it was written, every claim following from its counts, every input there."""
    if run.expected is None:  # a killed run would look whole, and easy inputs are decided first
        rule, remedy = "must know how many inputs it has", "Certify the data again into another folder."
        raise StoreError(run.path, rule, "a run that was not told it", remedy)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)  # it is refused, which says more
        found = verify(run)
    if found:
        told = found[0].told + (f", and {len(found) - 1} more" if len(found) > 1 else "")
        remedy = "Finish the run with the command that began it; ringfence verify tells all of what is wrong."
        raise StoreError(run.path, "must be whole and agree with its counts", told, remedy)
