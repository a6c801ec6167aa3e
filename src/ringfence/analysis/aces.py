"""ACES evaluated: components joined afterwards, figures per threshold, the frontier (Horvath et al. 2022, ACES)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ringfence.analysis.metrics import checked_radii
from ringfence.digests import apart
from ringfence.errors import ArgumentError, StoreError
from ringfence.settings import usual_radii
from ringfence.store.logs import Component
from ringfence.types import ABSTAIN, FloatArray, IntArray


@dataclass(frozen=True)
class Answers:
    """What the ACES of one theta answered, arrays of shape (inputs,); -1 is abstention, label -1 unknown.

    natural: the answers of PREDICT, None where they are not known; bit: 1 certification network, 0 core, -1 neither is
    proved; bit_radius: within which the bit cannot change. target: the one radius that was tried, None: the largest.
    alpha: how often an answer may fail, None where a component does not say; sound: whether that is proved.
    """

    theta: float
    label: IntArray
    prediction: IntArray
    radius: FloatArray
    bit: IntArray
    bit_radius: FloatArray
    natural: IntArray | None = None
    target: float | None = None
    alpha: float | None = None
    sound: bool = False


@dataclass(frozen=True)
class ThetaMetrics:
    """Figures of one theta; shares of the labelled inputs, None where the run cannot tell.

    certified_selection_rate: radius r -> share of inputs that the certification network gets within r.
    """

    theta: float
    natural_accuracy: float | None
    acr: float | None
    abstention: float
    certified_accuracy: dict[float, float]
    certified_selection_rate: dict[float, float]
    alpha: float | None = None
    sound: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that ``ringfence aces compose --json`` prints for this theta."""
        return {
            "theta": self.theta,
            "alpha": self.alpha,
            "sound": self.sound,
            "natural_accuracy": self.natural_accuracy,
            "acr": self.acr,
            "abstention": self.abstention,
            "certified_accuracy": {str(radius): share for radius, share in self.certified_accuracy.items()},
            "certified_selection_rate": {str(radius): share for radius, share in self.certified_selection_rate.items()},
        }


def compose(certification: Component, selection: Mapping[float, Component], core: Component) -> list[Answers]:
    """Components evaluated apart, joined for every theta; no model and no draw is needed.

    Selected (bit 1) and a class is proved: that class, with the smaller radius. Bit 0: the core's class, radius 0.
    Otherwise, where the core agrees with a proved class: that class, radius 0. Otherwise abstention: a selector that
    abstained has selected nothing (the authors' code counts its -1 as selected). An answer fails if a component does:
    their alphas add up, that of a smoothed core among them.
    """
    for part in (core, *selection.values()):
        same_inputs(certification, part)
    label = certification.label if certification.label is not None else core.label
    if label is None:
        remedy = "Give a certification or core log with a label column."
        raise StoreError(certification.source, "labels are needed to count what is right", "none", remedy)
    if core.label is not None:
        differ = certification.idx[label != core.label]
        if len(differ):
            rule, received = f"must have the labels of {certification.source}", f"another label at index {differ[0]}"
            raise StoreError(core.source, rule, received, "Join logs of one data set.")
    for part in selection.values():
        if part.norm != certification.norm:  # the smaller of two radii would be one in neither
            rule, remedy = f"must have radii in {certification.norm}, as {certification.source}", "Certify both alike."
            raise StoreError(part.source, rule, part.norm, remedy)
    for part in (certification, *selection.values()):
        if part.radius is None:
            rule, remedy = "must have radii", "Give the results of CERTIFY, with a column radius."
            raise StoreError(part.source, rule, "none", remedy)
    return [_compose_theta(theta, label, certification, part, core) for theta, part in selection.items()]


def measure(answers: Answers, radii: Sequence[float]) -> ThetaMetrics:
    """Natural accuracy, ACR, abstention, certified accuracy and certified selection rate at each radius r (>= r)."""
    radii = checked_radii(radii, np.inf if answers.target is None else answers.target)
    known = answers.label != ABSTAIN
    if not known.any():
        raise StoreError("labels", "at least one input must have one", "none", "Use labelled data.")
    prediction, label = answers.prediction[known], answers.label[known]
    right = (prediction == label) & (prediction != ABSTAIN)
    natural = None if answers.natural is None else float((answers.natural[known] == label).mean())
    selected = answers.bit == 1
    return ThetaMetrics(
        answers.theta,
        natural,
        None if answers.target is not None else float((answers.radius[known] * right).mean()),
        float((answers.prediction == ABSTAIN).mean()),
        {float(r): float((right & (answers.radius[known] >= r)).mean()) for r in radii},
        {float(r): float((selected & (answers.bit_radius >= r)).mean()) for r in radii},
        answers.alpha,
        answers.sound,
    )


def _largest(answers: Sequence[Answers]) -> float:
    return max(float(one.radius.max(initial=0.0)) for one in answers)


def measured(answers: Sequence[Answers], radii: Sequence[float] | None = None) -> list[ThetaMetrics]:
    """Figures of every theta; None: the usual radii as far as a known-radius run can tell."""
    target = answers[0].target
    usual = usual_radii(_largest(answers) / 2) if target is None else sorted({0.0, target})
    return [measure(one, usual if radii is None else radii) for one in answers]


def best_theta(
    points: Sequence[ThetaMetrics], accuracy: float | None = None, acr: float | None = None
) -> ThetaMetrics | None:
    """The point with the largest ACR among those of at least this natural accuracy, or the other way round.

    It is one theta for all inputs: choosing it input by input from the same counts would not be sound.
    """
    usable = [(p.natural_accuracy, p.acr, p) for p in points if p.natural_accuracy is not None and p.acr is not None]
    if (accuracy is None) == (acr is None):
        raise ArgumentError("accuracy, acr", "name one of the two", (accuracy, acr), "Ask twice for both.")
    if accuracy is not None and not 0 <= accuracy <= 1:
        raise ArgumentError("accuracy", "must lie in [0, 1]", accuracy, "Write 0.95 for 95%.")
    if acr is not None and not 0 <= acr < np.inf:
        raise ArgumentError("acr", "must be finite and not negative", acr, "Give a mean l2 radius such as 0.4.")
    if accuracy is not None:
        enough = [(robust, natural, -p.theta, p) for natural, robust, p in usable if natural >= accuracy]
    else:
        assert acr is not None
        enough = [(natural, robust, -p.theta, p) for natural, robust, p in usable if robust >= acr]
    return max(enough, key=lambda entry: entry[:3])[3] if enough else None


def _compose_theta(
    theta: float, label: IntArray, certification: Component, selection: Component, core: Component
) -> Answers:
    assert certification.radius is not None
    assert selection.radius is not None
    certified = (selection.predict == 1) & (certification.predict != ABSTAIN)
    natural = None
    # The class of a core that was smoothed itself, which has radii or an alpha, is known up to that; any other says it.
    smoothed = core.alpha is not None or core.radius is not None
    parts = (certification, selection, core) if smoothed else (certification, selection)
    alphas = [part.alpha for part in parts]
    if selection.natural is not None and certification.natural is not None:
        natural = answer(
            selection.natural, certification.natural, core.predict if core.natural is None else core.natural
        )
    return Answers(
        theta,
        label,
        answer(selection.predict, certification.predict, core.predict),
        np.where(certified, np.minimum(certification.radius, selection.radius), 0.0),
        selection.predict,
        selection.radius,
        natural,
        certification.target,
        None if None in alphas else math.fsum(one for one in alphas if one is not None),
        all(part.sound for part in parts),
    )


def answer(bit: IntArray, chosen: IntArray, core: IntArray) -> IntArray:
    """ACES's answer (rows,) from bit, certified class (both -1: abstained) and the core's class."""
    agreed = (chosen != ABSTAIN) & (chosen == core)
    by_class = (chosen != ABSTAIN) & (bit == 1) | agreed & (bit != 0)
    return np.where(by_class, chosen, np.where(bit == 0, core, ABSTAIN))


def same_inputs(one: Component, other: Component) -> None:
    """Refuse other data, as far as that is known, and different index sets, naming the first input that is missing."""
    if one.data and other.data and (changed := apart(one.data, other.data)):
        rule, remedy = f"must be of the data of {one.source}", "Join components evaluated on the same inputs."
        raise StoreError(other.source, rule, f"other {changed}", remedy)
    for there, here in ((one, other), (other, one)):
        missing = np.setdiff1d(there.idx, here.idx)
        if len(missing):
            rule = f"must hold the inputs of {there.source}"
            received = f"{len(missing)} missing, the first is index {missing[0]}"
            raise StoreError(here.source, rule, received, "Join components evaluated on the same inputs.")
