"""What outputs and names of a network tell about its classes: that one is none, or that they are numbered otherwise."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from ringfence.errors import ClassifierError, DataError
from ringfence.unit_check.values import GO_ON


def check_numbers(classifier: nn.Module, class_names: Sequence[str]) -> None:
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


def refuse_probability(scores: Tensor) -> None:
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
