"""The section of ablations.yaml: each part of DRT's loss alone, the summed form, other weights of the first part."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paper_runs import Runs
from paper_sweeps import planned
from paper_tables import Row, percents, table
from paper_trainings import Training

if TYPE_CHECKING:
    from diversity_page import Line

FILE = Path(__file__).resolve().parent / "ablations.yaml"
SIGMA, NETWORK = 0.5, "wide LeNet"
RADII = tuple(0.25 * i for i in range(8))


def is_ablation(training: Training, sigma: float, numbers: Any) -> bool:
    """Whether it is DRT in a form or with weights that tables 4 to 6 do not have, and no control without DRT."""
    drt = training.objective
    if not training.kind.startswith("drt"):
        return False
    told = {(one["rho1"], one["rho2"]) for one in numbers if "rho1" in one and one["sigma"] == sigma}
    return form_of(training) != "pairwise" or (drt["rho1"], drt["rho2"]) not in {*told, (0.0, 0.0)}


def form_of(training: Training) -> str:
    """How the parts are added up; older settings do not say, and had the pairwise form."""
    return str(training.objective.get("form", "pairwise"))


def ablations(lines: Sequence[Line], runs: Runs, numbers: Any) -> list[str]:
    """The members they start from, and every DRT over them."""
    own = [one for one in lines if (one.sigma, one.training.architecture) == (SIGMA, NETWORK)]
    rows: list[Row] = []
    if any(is_ablation(one.training, one.sigma, numbers) for one in own):
        own = [one for one in own if one.training.kind in ("gaussian", "drt-gaussian") and one.run.size > 1]
        for one in sorted(own, key=lambda one: (one.rho or (-1.0, 0.0), form_of(one.training), one.name)):
            rho = [f"{value:g}" for value in one.rho] if one.rho else ["-", "-"]
            shape = form_of(one.training) if one.rho else "-"
            row = [one.name, *rho, shape, f"{one.acr:.3f}", *percents(one.metrics.certified_accuracy, RADII)]
            rows += [row] if row not in rows else []
    about = [
        f"Sigma .5, {NETWORK}, the MNIST protocol (`{FILE.name}`): DRT with gradient diversity alone (rho2 = 0),",
        "with the margin alone (rho1 = 0), with both in the pairwise and the summed form, and with other rho1. They",
        "are to show which part of the loss the gain comes from. The paper finds that both help, that gradient",
        "diversity matters more at large radii (table 12), and that a larger rho1 costs accuracy at small radii and",
        "gains it at large ones (figure 9). Its rows of table 12 are the best over sigma and settings at each radius,",
        "and figure 9 has no numbers: only the order compares, and no published row is set beside ours.",
    ]
    head = ["row", "rho1", "rho2", "form", "ACR", *(f"{radius:g}" for radius in RADII)]
    return planned("MNIST: ablations of DRT", about, FILE, runs, *([table(head, rows)] if rows else []))
