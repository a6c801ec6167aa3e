"""The papers behind the numbers of a report, and how to tell which run, training or attack rests on which."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from ringfence.report.lanes import Lane
from ringfence.store.attack import AttackResult


@final
@dataclass(frozen=True)
class Source:
    """A paper, what it is used for, and what rests on it: lanes, trainings by their objective, attacks, studies."""

    text: str
    used_for: str
    applies: Callable[[Lane], bool] = lambda lane: False
    objectives: tuple[str, ...] = ()
    attacks: Callable[[AttackResult], bool] = lambda attack: False
    variance: bool = False


def _procedure(*names: str) -> Callable[[Lane], bool]:
    return lambda lane: lane.config is not None and lane.config.procedure.name in names


def _with_setting(name: str, setting: str, *values: str) -> Callable[[Lane], bool]:
    """Runs of the procedure with one of these values of a setting."""

    def applies(lane: Lane) -> bool:
        return _procedure(name)(lane) and getattr(lane.test, setting, None) in values

    return applies


def _mechanism(name: str) -> Callable[[Lane], bool]:
    return lambda lane: lane.config is not None and name in lane.config.mechanisms


def _vote(name: str) -> Callable[[Lane], bool]:
    """Lanes that decide by this vote: by their name where a run has several, else by the run's only vote."""

    def applies(lane: Lane) -> bool:
        chosen = lane.config.ensemble if lane.config else {}
        alone = lane.lane == "main" and not chosen.get("consensus") and chosen.get("votes") == [name]
        return alone or bool(lane.config and lane.config.classifier.lane(lane.lane).vote == name)

    return applies


def _ensemble(lane: Lane) -> bool:
    return bool(lane.config is not None and lane.config.ensemble)


def _reduced(lane: Lane) -> bool:
    """Runs on patches or sub-videos, wherever their noise enters."""
    reducing = lane.config.reduced if lane.config else {}
    return bool(reducing.get("crops") or reducing.get("clips"))


def _predicted(lane: Lane) -> bool:
    return lane.natural is not None


def _divided(lane: Lane) -> bool:
    """Several claims share one alpha: stages, looks that pay for themselves, lanes to choose from."""
    split = lane.config is not None and lane.config.split_alpha
    return split or _procedure("staged", "anytime")(lane)


SOURCES = (
    Source(
        "Cohen, Rosenfeld and Kolter. Certified Adversarial Robustness via Randomized Smoothing. ICML 2019.",
        "randomized smoothing, CERTIFY and PREDICT, the radius of theorem 1, certified accuracy, training under noise",
        lambda lane: True,
        objectives=("gaussian",),
    ),
    Source(
        "Clopper and Pearson. The Use of Confidence or Fiducial Limits Illustrated in the Case of the Binomial. "
        "Biometrika 26(4), 1934.",
        "bounds on class probabilities; bands of the accuracy curve",
        lambda lane: True,
    ),
    Source(
        "Hung and Fithian. Rank Verification for Exponential Families. Annals of Statistics 47(2), 2019.",
        "the rank test of PREDICT and of multinomial certification; natural accuracy",
        lambda lane: _predicted(lane) or _with_setting("multinomial", "form", "two-sided")(lane),
    ),
    Source(
        "Horváth, Müller, Fischer and Vechev. Boosting Randomized Smoothing with Variance Reduced Classifiers. "
        "ICLR 2022.",
        "ensembles, their variance model, K-consensus, staged sampling (ASA, ASC, SampleRF)",
        lambda lane: _ensemble(lane) or _procedure("staged", "sequential")(lane),
        variance=True,
    ),
    Source(
        "Yang, Li, Xu, Kailkhura, Xie and Li. On the Certified Robustness for Ensemble Models and Beyond. ICLR 2022.",
        "the max-margin vote; ensembles after smoothing (theorem 5); diversity-regularized training (DRT)",
        lambda lane: _vote("max-margin")(lane) or _procedure("after-smoothing")(lane),
        objectives=("drt",),
    ),
    Source(
        "Liu, Feng, Wang and Dong. Enhancing Certified Robustness of Smoothed Classifiers via Weighted Model "
        "Ensembling. arXiv:2005.09363, 2020.",
        "votes with learned weights (SWEEN)",
        _vote("weighted"),
    ),
    Source(
        "Horváth, Müller, Fischer and Vechev. Robust and Accurate - Compositional Architectures for Randomized "
        "Smoothing. SRML workshop at ICLR 2022.",
        "ACES: selection by threshold theta, the frontier, the training of selectors",
        lambda lane: lane.lane.startswith("theta="),
        objectives=("select",),
    ),
    Source(
        "Joshi, Pham, Cho, Boytsov, Condessa, Kolter and Hegde. Smooth-Reduce: Leveraging Patches for Improved "
        "Certified Robustness. arXiv:2205.06154, 2022.",
        "patches and sub-videos reduced by mean or max; the factor that its radii leave out is divided by here, "
        "except in paper mode",
        _reduced,
    ),
    Source(
        "Cullen, Montague, Liu, Erfani and Rubinstein. It's Simplex! Disaggregating Measures to Improve Certified "
        "Robustness. IEEE S&P 2024.",
        "class and bounds from the same draws, softmax scores, comparing mechanisms on the simplex",
        lambda lane: _procedure("multinomial", "softmax")(lane) or len(lane.records[0].radii) > 1,
    ),
    Source(
        "Li, Chen, Wang and Carin. Certified Adversarial Robustness with Additive Noise. NeurIPS 2019.",
        "the renyi mechanism; stability training",
        _mechanism("renyi"),
        objectives=("stability",),
    ),
    Source(
        "Lecuyer, Atlidakis, Geambasu, Hsu and Jana. Certified Robustness to Adversarial Examples with Differential "
        "Privacy. IEEE S&P 2019.",
        "the pixeldp mechanism",
        _mechanism("pixeldp"),
    ),
    Source(
        "Balle and Wang. Improving the Gaussian Mechanism for Differential Privacy: Analytical Calibration and Optimal "
        "Denoising. ICML 2018.",
        "the analytic_dp mechanism",
        _mechanism("analytic_dp"),
    ),
    Source(
        "Lan and DeMets. Discrete Sequential Boundaries for Clinical Trials. Biometrika 70(3), 1983.",
        "alpha spent over the looks of a group-sequential test",
        _procedure("sequential", "aces-sequential"),
    ),
    Source(
        "Dunn. Multiple Comparisons Among Means. Journal of the American Statistical Association 56(293), 1961.",
        "alpha divided over stages, looks or lanes",
        _divided,
    ),
    Source(
        "Waudby-Smith and Ramdas. Estimating Means of Bounded Random Variables by Betting. Journal of the Royal "
        "Statistical Society B 86(1), 2024.",
        "bounds on mean softmax scores",
        _with_setting("softmax", "bound", "betting"),
    ),
    Source(
        "Maurer and Pontil. Empirical Bernstein Bounds and Sample Variance Penalization. COLT 2009.",
        "bounds on mean softmax scores",
        _with_setting("softmax", "bound", "bernstein"),
    ),
    Source(
        "Hoeffding. Probability Inequalities for Sums of Bounded Random Variables. Journal of the American Statistical "
        "Association 58(301), 1963.",
        "bounds on mean softmax scores",
        _with_setting("softmax", "bound", "hoeffding"),
    ),
    Source(
        "Salman, Li, Razenshteyn, Zhang, Zhang, Bubeck and Yang. Provably Robust Deep Learning via Adversarially "
        "Trained Smoothed Classifiers. NeurIPS 2019.",
        "attacks on the smoothed classifier through noise that is held fixed, and training on them (SmoothAdv)",
        objectives=("smoothadv",),
        attacks=lambda attack: True,
    ),
    Source(
        "Rony, Hafemann, Oliveira, Ben Ayed, Sabourin and Granger. Decoupling Direction and Norm for Efficient "
        "Gradient-Based L2 Adversarial Attacks and Defenses. CVPR 2019.",
        "the ddn attack",
        attacks=lambda attack: attack.attack == "ddn",
    ),
    Source(
        "Jeong and Shin. Consistency Regularization for Certified Robustness of Smoothed Classifiers. NeurIPS 2020.",
        "consistency training",
        objectives=("consistency",),
    ),
    Source(
        "Zhai, Dan, He, Zhang, Gong, Ravikumar, Hsieh and Wang. MACER: Attack-free and Scalable Robust Training via "
        "Maximizing Certified Radius. ICLR 2020.",
        "training for a large certified radius",
        objectives=("macer",),
    ),
    Source(
        "Jeong, Park, Kim, Lee, Kim and Shin. SmoothMix: Training Confidence-calibrated Smoothed Classifiers for "
        "Certified Robustness. NeurIPS 2021.",
        "training on mixtures with adversarial inputs",
        objectives=("smoothmix",),
    ),
    Source(
        "Pang, Xu, Du, Chen and Zhu. Improving Adversarial Robustness via Promoting Ensemble Diversity. ICML 2019.",
        "ADP, training members to differ in their wrong classes",
        objectives=("adp",),
    ),
    Source(
        "Kariyappa and Qureshi. Improving Adversarial Robustness of Ensembles with Diversity Training. "
        "arXiv:1901.09981, 2019.",
        "GAL, training members to differ in their gradients",
        objectives=("gal",),
    ),
    Source(
        "Salman, Sun, Yang, Kapoor and Kolter. Denoised Smoothing: A Provable Defense for Pretrained Classifiers. "
        "NeurIPS 2020.",
        "training of denoisers",
        objectives=("denoise-mse", "denoise-stability"),
    ),
)
