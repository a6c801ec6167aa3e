"""Named recipes: the sources' hyper-parameters, as settings that every option of the command line overrides.

All of them: SGD with plain momentum .9 and weight decay 1e-4. CIFAR-10: 150 epochs, lr .1 x .1 every 50, batch 256,
crop and flip. MNIST: LeNet with 20, 50 and 500 units, 90 epochs, lr .01 x .1 every 30, batch 256.

Jeong and Shin's public code, from which most of these numbers come, cuts each batch of 256 into m parts for m noise
copies and takes a step on each: ``reference_batch`` is the size of a part. Recipes named after their papers take it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, final

from ringfence.errors import ArgumentError


@final
@dataclass(frozen=True)
class Recipe:
    """Defaults of a training: objective, its settings, learning-rate schedule, options of the job, architecture."""

    objective: str
    sigma: float
    settings: Mapping[str, Any] = field(default_factory=dict)
    arch: str = "lenet"
    schedule: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    base: str | None = None
    members: int = 1
    needs_init: bool = False
    source: str = ""

    def given(self) -> dict[str, Any]:
        """What it says beside the objective's settings, as options."""
        own = {"objective": self.objective, "base": self.base, "arch": self.arch, "members": self.members}
        found = {**own, "sigma": self.sigma, **self.schedule, **self.options}
        return {name: value for name, value in found.items() if value is not None}


def reference_batch(copies: int, batch: int = 256) -> int:
    """Inputs per step where a batch is cut into as many parts as there are noise copies."""
    return batch // copies


_PLAIN = {"nesterov": False, "momentum": 0.9, "weight_decay": 1e-4}
_MNIST: dict[str, Any] = {"epochs": 90, "batch": 256, **_PLAIN}
_MNIST_STEPS = {"lr": 0.01, "schedule": "step", "lr_every": 30}
_MNIST_TUNED = {**_MNIST_STEPS, "lr": 0.001}
_CIFAR: dict[str, Any] = {"epochs": 150, "batch": 256, "crop": 4, "flip": True, **_PLAIN}
_CIFAR_STEPS = {"lr": 0.1, "schedule": "step", "lr_every": 50}
_CIFAR_TUNED = {**_CIFAR_STEPS, "lr": 0.005}

SIGMAS = (0.25, 0.5, 1.0)

# (rho1, rho2) by sigma: of the settings that reproduce/ trains, the one with the largest sum of certified accuracies
# over the radii of its table (Yang et al. 2022, tables 4 to 6 and 8 to 10).
_MNIST_RHO = {
    "gaussian": {0.25: (0.2, 0.5), 0.5: (10.0, 2.5), 1.0: (1.0, 5.0)},
    "smoothadv": {0.25: (0.1, 0.5), 0.5: (0.1, 5.0), 1.0: (0.2, 5.0)},
}
_CIFAR_RHO = {0.25: (0.1, 0.5), 0.5: (5.0, 5.0), 1.0: (1.0, 5.0)}


def _named(sigma: float) -> str:
    """As it ends a recipe's name."""
    return "1.0" if sigma == 1.0 else f"{sigma:g}"


def _mnist() -> Iterator[tuple[str, Recipe]]:
    """Yang et al. 2022, appendix F.1: two noise copies, SmoothAdv with 10 steps of PGD, DRT tunes three members."""
    source = "Yang et al. 2022, appendix F.1, tables 4 to 6"
    shared: dict[str, Any] = {"arch": "lenet-wide", "options": _MNIST, "members": 3, "source": source}
    attack = {"eps": 1.0, "steps": 10}
    for sigma in SIGMAS:
        end = _named(sigma)
        yield f"yang2022-mnist-gaussian-{end}", Recipe("gaussian", sigma, schedule=_MNIST_STEPS, **shared)
        yield f"yang2022-mnist-smoothadv-{end}", Recipe("smoothadv", sigma, attack, schedule=_MNIST_STEPS, **shared)
        for base, rhos in _MNIST_RHO.items():
            rho1, rho2 = rhos[sigma]
            settings = {"rho1": rho1, "rho2": rho2} | (attack if base == "smoothadv" else {})
            tuned = {"base": base, "needs_init": True, "schedule": _MNIST_TUNED, **shared}
            yield f"yang2022-mnist-drt-{base}-{end}", Recipe("drt", sigma, settings, **tuned)


def _jeong_mnist() -> Iterator[tuple[str, Recipe]]:
    """Jeong and Shin's public code on MNIST; one network each."""
    source = "Jeong and Shin 2020, public code"
    for at, sigma in enumerate(SIGMAS):
        settings: dict[str, dict[str, Any]] = {
            "gaussian": {"copies": 1},
            "stability": {"weight": (2.0, 2.0, 1.0)[at], "copies": 1},
            "macer": {"weight": (16.0, 16.0, 6.0)[at], "copies": 16, "deferred": 30},
            "consistency": {"weight": (10.0, 5.0, 5.0)[at], "eta": 0.5, "copies": 2},
            "smoothadv": {"eps": 1.0, "steps": 10, "copies": 4},
        }
        for name, own in settings.items():
            cut = {"batch": reference_batch(own["copies"])} if name in ("consistency", "smoothadv") else {}
            options = {**_MNIST, **cut, **({"attack_warmup": 0} if name == "macer" else {})}
            recipe = Recipe(name, sigma, own, "lenet-wide", _MNIST_STEPS, options, source=source)
            yield f"jeong2020-mnist-{name}-{_named(sigma)}", recipe


def _cifar() -> Iterator[tuple[str, Recipe]]:
    """Horvath et al. 2022 (ensembles) and Yang et al. 2022."""
    shared: dict[str, Any] = {"arch": "resnet110", "options": _CIFAR}
    horvath = "Horvath et al. 2022, appendix C"
    for sigma in (0.12, *SIGMAS):
        yield (
            f"horvath2022-cifar10-gaussian-{_named(sigma)}",
            Recipe("gaussian", sigma, {"copies": 1}, schedule=_CIFAR_STEPS, source=horvath, **shared),
        )
    for sigma in SIGMAS:
        end = _named(sigma)
        settings = {"weight": 20.0 if sigma == 0.25 else 10.0, "eta": 0.5, "copies": 2}
        yield (
            f"horvath2022-cifar10-consistency-{end}",
            Recipe(
                "consistency",
                sigma,
                settings,
                "resnet110",
                _CIFAR_STEPS,
                {**_CIFAR, "batch": reference_batch(2)},
                source=f"{horvath}; Jeong and Shin 2020",
            ),
        )
        rho1, rho2 = _CIFAR_RHO[sigma]
        tuned: dict[str, Any] = {"base": "gaussian", "members": 3, "needs_init": True, "schedule": _CIFAR_TUNED}
        source = "Yang et al. 2022, appendix F.2"
        yield (
            f"yang2022-cifar10-drt-{end}",
            Recipe("drt", sigma, {"rho1": rho1, "rho2": rho2}, source=source, **tuned, **shared),
        )
    attack = {"eps": 512 / 255, "steps": 10, "copies": 2}
    yield (
        "horvath2022-cifar10-smoothadv-1.0",
        Recipe("smoothadv", 1.0, attack, schedule=_CIFAR_STEPS, source=horvath, **shared),
    )


def _macer() -> Iterator[tuple[str, Recipe]]:
    """As published, and as Jeong et al. ran it again."""
    published = {**_CIFAR, "epochs": 440, "batch": 64, "weight_decay": 5e-4, "attack_warmup": 0}
    again = {**_CIFAR, "batch": 64, "attack_warmup": 0}
    for sigma, weight, weight_again in zip(SIGMAS, (12.0, 4.0, 12.0), (12.0, 6.0, 12.0), strict=True):
        shared = {"gamma": 8.0, "beta": 16.0, "copies": 16, "deferred": 50 if sigma == 1.0 else 0}
        own = {"weight": weight, **shared}
        steps = {"lr": 0.01, "schedule": "step", "lr_every": 200}
        source = "Zhai et al. 2020, table 5 and section 4"
        name = f"zhai2020-cifar10-macer-{_named(sigma)}"
        yield name, Recipe("macer", sigma, own, "resnet110", steps, published, source=source)
        own = {"weight": weight_again, **shared}
        name, source = f"jeong2023-cifar10-macer-{_named(sigma)}", "Jeong et al. 2023, public code"
        yield name, Recipe("macer", sigma, own, "resnet110", _CIFAR_STEPS, again, source=source)


def _jeong_cifar() -> Iterator[tuple[str, Recipe]]:
    """Jeong et al. 2021 and 2023, Sun et al. 2025: with the settings of their public code."""
    for at, sigma in enumerate(SIGMAS):
        eps, copies = ((1.0, 4), (1.0, 8), (2.0, 2))[at]
        settings: dict[str, tuple[dict[str, Any], str]] = {
            "jeong2023-cifar10-smoothadv": (
                {"eps": eps, "steps": 10, "copies": copies},
                "Jeong et al. 2023, public code",
            ),
            "jeong2023-cifar10-stability": (
                {"weight": (2.0, 2.0, 1.0)[at], "copies": 1},
                "Jeong et al. 2023, public code",
            ),
            "jeong2021-cifar10-smoothmix": (
                {"eta": 5.0, "steps": 4, "step": (0.5, 1.0, 2.0)[at], "mix_steps": int(sigma >= 0.5), "copies": 2},
                "Jeong et al. 2021, public code",
            ),
            "jeong2023-cifar10-catrs": (
                {"weight": (0.5, 1.0, 2.0)[at], "eps": 1.0, "steps": 4, "copies": 4},
                "Jeong et al. 2023, public code",
            ),
            "sun2025-cifar10-reweight": (
                {
                    "begin": (60, 70, 60)[at],
                    "least": (0.5, 0.4, 0.4)[at],
                    "steps": (3, 6, 4)[at],
                    "step": (0.25, 0.25, 0.5)[at],
                    "copies": 4,
                },
                "Sun et al. 2025, public code",
            ),
        }
        for name, (own, source) in settings.items():
            options = {**_CIFAR, "batch": reference_batch(own["copies"])}
            objective = name.rpartition("-")[2]
            recipe = Recipe(objective, sigma, own, "resnet110", _CIFAR_STEPS, options, source=source)
            yield f"{name}-{_named(sigma)}", recipe


RECIPES: dict[str, Recipe] = dict((*_mnist(), *_jeong_mnist(), *_cifar(), *_macer(), *_jeong_cifar()))
"""Every recipe by name."""


def find_recipe(name: str) -> Recipe:
    """The recipe of this name."""
    if name not in RECIPES:
        raise ArgumentError("recipe", "must be a known recipe", repr(name), f"Known: {', '.join(RECIPES)}.")
    return RECIPES[name]
