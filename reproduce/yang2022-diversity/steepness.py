"""What DRT's terms weigh where its fine-tuning begins, and how the paper's formula and public code differ."""

from __future__ import annotations

import json
from pathlib import Path

from paper_tables import Row, section, table

FILE = Path(__file__).resolve().parent / "gradients.json"
SOURCES = (
    "The authors' own code for DRT was not found: their public repository (AI-secure, Transferability-Reduced",
    "Smooth Ensemble) holds their empirical work on ensembles alone. A public derivative (danielz02/hydra, January",
    "2022) has DRT, and differs from the paper's formula in what follows; it has no settings for MNIST.",
)
DIFFERENCES = (
    "- Gradient diversity: the paper prints the length of a sum of two gradients, added up over pairs; the",
    "  derivative has its square, and the mean over valid pairs (`reduction=mean`, `squared`).",
    "- Margins: added up over pairs in the paper, so each member's counts 2 (N - 1) times a row; in the derivative",
    "  their mean over all rows that a member has right. For three members the same rho2 weighs twelve times as",
    "  much in the paper's formula where all are right.",
    "- SmoothAdv: the paper's terms are at the noisy inputs, the derivative's at those of each member's own attack",
    "  (`regularise_at=attacked`), which has its full radius from the first epoch on. Ours grew over 10 epochs in",
    "  the trainings with LeNet-5, a third of them, and all of their largest rate; recipes for DRT have no such",
    "  warm-up now.",
    "- Batches: the derivative cuts each batch into as many parts as there are noise copies and takes a step on each.",
    "- Inputs: the authors' repository standardises MNIST's pixels by mean .5 and deviation .5 and mirrors images;",
    "  ours are neither. Theirs is the wide LeNet here.",
    "- Alike: cross-entropies of the members added up, margins of the softmax over the runner-up, two noise copies,",
    "  all members in training mode, SGD with momentum .9 and weight decay .0001, no clipping, no warm-up of the",
    "  terms.",
)


def steepness(file: Path = FILE) -> list[str]:
    """A row for each base and way: the terms at rho = 1, and how long and how much of one mind their gradients are."""
    if not file.exists():
        return []
    told = json.loads(file.read_text(encoding="utf-8"))
    rows: list[Row] = []
    for one in told["found"]:
        terms = one["terms"]
        rows.append([one["training"], one["way"]])
        for name in ("cross_entropy", "diversity", "margin"):
            rows[-1] += [f"{terms[name]['size']:.2f}", f"{terms[name]['length']:.2f}", f"{terms[name]['cosine']:.2f}"]
    about = (
        *SOURCES,
        f"Measured by `drt_gradients.py` on {told['batches']} batches of {told['images']} training images with two",
        "noise copies, before the first step, at rho = 1: each term, the length of its gradient in the weights of all",
        "members, and the mean cosine between the gradients of two batches. Multiply by rho to compare. Where the",
        "cosine is near 0 a step is mostly chance, and only small ones add up to a direction.",
    )
    head = ["members", "way", "cross-entropy", "its gradient", "cosine"]
    head += ["diversity", "its gradient", "cosine", "margin", "its gradient", "cosine"]
    return section("MNIST: DRT in the paper and in public code", about, list(DIFFERENCES), table(head, rows))
