"""The papers behind the numbers of a report, each with the runs and settings that used it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

from ringfence.report.lanes import Lane


@final
@dataclass(frozen=True)
class Source:
    """A paper, what it is used for, and which lanes use it."""

    text: str
    used_for: str
    applies: Callable[[Lane], bool]


def _procedure(*names: str) -> Callable[[Lane], bool]:
    return lambda lane: lane.config is not None and lane.config.procedure in names


def _mechanism(name: str) -> Callable[[Lane], bool]:
    return lambda lane: lane.config is not None and name in (lane.config.mechanism, *lane.config.mechanisms)


SOURCES = (
    Source(
        "Cohen, Rosenfeld and Kolter. Certified Adversarial Robustness via Randomized Smoothing. ICML 2019.",
        "randomized smoothing, CERTIFY and PREDICT, the radius of theorem 1, certified accuracy",
        lambda lane: True,
    ),
    Source(
        "Clopper and Pearson. The Use of Confidence or Fiducial Limits Illustrated in the Case of the Binomial. 1934.",
        "bounds on class probabilities; bands of the accuracy curve",
        lambda lane: True,
    ),
    Source(
        "Horváth, Müller, Fischer and Vechev. Boosting Randomized Smoothing with Variance Reduced Classifiers. "
        "ICLR 2022.",
        "ensembles, K-consensus, staged sampling (ASA, ASC, SampleRF)",
        lambda lane: (
            _procedure("staged", "sequential")(lane)
            or bool(lane.config is not None and lane.config.extra.get("ensemble"))
        ),
    ),
    Source(
        "Horváth, Müller, Fischer and Vechev. Robust and Accurate: Compositional Architectures for Randomized "
        "Smoothing (ACES). 2022.",
        "selection by threshold theta, the frontier",
        lambda lane: lane.lane.startswith("theta="),
    ),
    Source(
        "Cullen, Montague, Liu, Erfani and Rubinstein. It's Simplex! Disaggregating Measures to Improve Certified "
        "Robustness. 2023.",
        "class and bounds from the same draws, softmax scores, comparing mechanisms on the simplex",
        lambda lane: _procedure("multinomial", "softmax")(lane) or len(lane.records[0].radii) > 1,
    ),
    Source(
        "Li, Chen, Wang and Carin. Certified Adversarial Robustness with Additive Noise. NeurIPS 2019.",
        "the renyi mechanism",
        _mechanism("renyi"),
    ),
    Source(
        "Lecuyer, Atlidakis, Geambasu, Hsu and Jana. Certified Robustness to Adversarial Examples with Differential "
        "Privacy. IEEE S&P 2019.",
        "the pixeldp mechanism",
        _mechanism("pixeldp"),
    ),
    Source(
        "Balle and Wang. Improving the Gaussian Mechanism for Differential Privacy. ICML 2018.",
        "the analytic_dp mechanism",
        _mechanism("analytic_dp"),
    ),
    Source(
        "Waudby-Smith and Ramdas. Estimating Means of Bounded Random Variables by Betting. JRSS B 2024.",
        "bounds on mean softmax scores",
        _procedure("softmax"),
    ),
)


def references(lanes: Sequence[Lane]) -> list[dict[str, str]]:
    """The sources these lanes rest on: text, use, and who used it with which settings."""
    found = []
    for source in SOURCES:
        using = [lane for lane in lanes if source.applies(lane)]
        if using:
            runs = dict.fromkeys(f"{lane.run} ({_settings(lane)})" for lane in using)
            found.append({"text": source.text, "used_for": source.used_for, "runs": "; ".join(runs)})
    return found


def _settings(lane: Lane) -> str:
    if lane.config is None:
        return "log"
    return f"{lane.config.procedure}, sigma {lane.config.sigma:g}, alpha {lane.records[0].alpha:g}"
