"""Named recipes: the papers' hyper-parameters, as settings that every option of the command line overrides.

MNIST (paper 001, appendix F.1): LeNet, 90 epochs, SGD momentum .9, lr .01 x .1 every 30, batch 256, two noise
copies; SmoothAdv with 10-step PGD, eps 1.0; DRT fine-tunes trained members for as many epochs at a small
learning rate (the paper tunes it; ours is .001) with the (rho1, rho2) of the tables 4 to 6 named here.
CIFAR-10 (papers 000, 001): 150 epochs, lr .1 x .1 every 50, batch 256, crop and flip.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

from ringfence.errors import ArgumentError


@final
@dataclass(frozen=True)
class Recipe:
    """Defaults of a training: objective, its settings, learning-rate schedule, options of the plan, architecture."""

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


_MNIST: dict[str, Any] = {
    "schedule": {"lr": 0.01, "kind": "step", "every": 30},
    "options": {"epochs": 90, "batch": 256},
    "arch": "lenet",
}
_MNIST_TUNE = {**_MNIST, "schedule": {"lr": 0.001, "kind": "step", "every": 30}}
_CIFAR: dict[str, Any] = {
    "schedule": {"lr": 0.1, "kind": "step", "every": 50},
    "options": {"epochs": 150, "batch": 256, "crop": 4, "flip": True},
    "arch": "resnet110",
}
_CIFAR_TUNE = {**_CIFAR, "schedule": {"lr": 0.005, "kind": "step", "every": 50}}

# One setting of the tables 4 to 6 per sigma and base: (rho1, rho2).
_MNIST_RHO = {
    (0.25, "gaussian"): (0.1, 0.5),
    (0.5, "gaussian"): (0.5, 2.0),
    (1.0, "gaussian"): (1.0, 5.0),
    (0.25, "smoothadv"): (0.1, 0.5),
    (0.5, "smoothadv"): (0.2, 5.0),
    (1.0, "smoothadv"): (0.2, 5.0),
}


def _recipes() -> dict[str, Recipe]:
    found: dict[str, Recipe] = {}
    for sigma in (0.25, 0.5, 1.0):
        end = f"{sigma:g}" if sigma != 1.0 else "1.0"
        found[f"paper001-mnist-gaussian-{end}"] = Recipe(
            "gaussian", sigma, members=3, source="paper 001, F.1 and tables 4-6", **_MNIST
        )
        found[f"paper001-mnist-smoothadv-{end}"] = Recipe(
            "smoothadv", sigma, {"eps": 1.0, "steps": 10}, members=3, source="paper 001, F.1 and tables 4-6", **_MNIST
        )
        for base in ("gaussian", "smoothadv"):
            rho1, rho2 = _MNIST_RHO[(sigma, base)]
            settings = {"rho1": rho1, "rho2": rho2} | ({"eps": 1.0, "steps": 10} if base == "smoothadv" else {})
            recipe = Recipe(
                "drt",
                sigma,
                settings=settings,
                base=base,
                members=3,
                needs_init=True,
                source="paper 001, F.1 and tables 4-6",
                **_MNIST_TUNE,
            )
            found[f"paper001-mnist-{end}" if base == "gaussian" else f"paper001-mnist-drt-smoothadv-{end}"] = recipe
        found[f"paper000-cifar10-gaussian-{end}"] = Recipe(
            "gaussian", sigma, {"copies": 1}, source="paper 000, appendix C", **_CIFAR
        )
        found[f"paper000-cifar10-consistency-{end}"] = Recipe(
            "consistency",
            sigma,
            {"weight": 20.0 if sigma == 0.25 else 10.0, "eta": 0.5},
            source="paper 000, appendix C; Jeong and Shin 2020",
            **_CIFAR,
        )
        found[f"paper001-cifar10-drt-{end}"] = Recipe(
            "drt",
            sigma,
            {"rho1": 0.5, "rho2": 2.0},
            base="gaussian",
            members=3,
            needs_init=True,
            source="paper 001, appendix F.2",
            **_CIFAR_TUNE,
        )
        found[f"macer-cifar10-{end}"] = Recipe(
            "macer",
            sigma,
            {"weight": 4.0 if sigma == 0.5 else 12.0, "gamma": 8.0, "beta": 16.0, "copies": 16},
            source="Zhai et al. 2020, table 5",
            **_CIFAR,
        )
    found["paper000-cifar10-smoothadv-1.0"] = Recipe(
        "smoothadv", 1.0, {"eps": 512 / 255, "steps": 10}, source="paper 000, appendix C", **_CIFAR
    )
    return found


RECIPES = _recipes()
"""Every recipe by name."""


def find_recipe(name: str) -> Recipe:
    """The recipe of this name."""
    if name not in RECIPES:
        raise ArgumentError("--recipe", "must be a known recipe", repr(name), f"Known: {', '.join(RECIPES)}.")
    return RECIPES[name]
