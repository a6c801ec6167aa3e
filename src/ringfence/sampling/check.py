"""Check: only a fixed function of single rows is certified, and only in a form that computes that function.

A certificate is about the module that was given, called as it is. Every other way of computing it is a claim, tested
here on noisy copies of inputs of the run, from a stream of draws that no certificate uses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor, nn

from ringfence.classifiers import Scored
from ringfence.classifiers.base import beside_its_score, check_unchanged, inputs_watched
from ringfence.errors import ClassifierError, RingfenceError, first_line
from ringfence.sampling.agreement import Tolerance, tolerance
from ringfence.sampling.forward import Forward
from ringfence.sampling.plan import ForwardPlan, out_of_memory, plainer

PLAIN_ROWS, FEW_ROWS = 64, 16
"""Rows a forward when the plain network is asked: it may be slow, and needs to be asked often. Few are enough in
float32, where no row may be off: of the run's own batches every row is asked in other company, too."""
COMPARED = (32, 128)
"""Rows that are compared, at least and at most."""
PIECE = 16
"""Of them stand together, so that all inputs of the check are among them."""
ALONE = 3
"""Rows that are asked by themselves too."""
SINGLE = "rows by themselves have other scores than in a batch"
TWICE = "it answers differently when asked twice (dropout, internal randomness or state kept between calls)"
COUPLED = "a row's scores depend on the other rows of its batch (batch statistics)"

Draw = Callable[[int], Tensor]
"""So many noisy copies (rows, *shape), float32, of inputs of the run."""


@final
@dataclass(frozen=True)
class Checked:
    """A forward that passed, its answer to a batch of noisy copies (``sample``), and how far answers may vary.

    steady (B,): the valid rows whose scores stayed the same in any company; in half precision a vote may jump. It and
    the tolerance are on the host, where all comparing is done: each operation of a device waits for its other work.
    """

    forward: Forward
    sample: Tensor
    answer: Scored
    tolerance: Tolerance
    steady: Tensor

    @property
    def jumped(self) -> bool:
        """Whether a valid row had other scores in other company."""
        return bool((torch.isfinite(self.answer.scores).all(-1).any(1).cpu() & ~self.steady).any())

    def first(self, rows: int) -> tuple[Tensor, Tensor]:
        """So many of the steady rows at most, and their scores: where rows differ in work those that took most of it.

        Of a K-consensus the others do not show what the members say that were asked about these alone.
        """
        found, work = self.steady.nonzero().flatten(), self.answer.work
        if isinstance(work, Tensor):
            found = found[work.cpu().view(len(work), -1).sum(1)[found].argsort(descending=True, stable=True)]
        return self.sample[found[:rows]], self.answer.scores[found[:rows]]


@dataclass(frozen=True)
class _Plain:
    """What the plain network answered: its scores of rows of the sample in the run's precision, the tolerance."""

    scores: Tensor
    tolerance: Tolerance


@torch.inference_mode()
def checked_forward(
    classifier: nn.Module, plan: ForwardPlan, device: torch.device, num_classes: int, draw: Draw, keep: bool = False
) -> Checked:
    """The forward of the plan, or of the next plainer one that computes the classifier; the plan it has says why.

    keep: the plan is one that certificates were made with. Another form would not be theirs: refused if it fails.
    """
    rows = plan.batch * max(1, -(-COMPARED[0] // plan.batch))
    sample = draw(rows)
    plain = _ask_plain(classifier, plan, device, num_classes, _spread(sample))
    refused = plan.refused
    left_out = iter(plainer(plan))
    while True:
        found = _try(classifier, plan, device, num_classes, sample, plain)
        if isinstance(found, Checked):
            return found
        name, following = next(left_out, (None, None))
        if keep or following is None or name is None:
            raise _not_the_classifier(found, keep)
        refused = (*refused, f"{name}: {found}")
        plan = replace(following, refused=refused)


def _spread(rows: Tensor) -> Tensor:
    """Those that are compared: of a large batch pieces from everywhere, for a kernel may err at some places alone."""
    if len(rows) <= COMPARED[1]:
        return rows
    begins = torch.linspace(0, len(rows) - PIECE, COMPARED[1] // PIECE).long()
    return torch.cat([rows[begin : begin + PIECE] for begin in begins.tolist()])


def _ask_plain(
    classifier: nn.Module, plan: ForwardPlan, device: torch.device, num_classes: int, rows: Tensor
) -> _Plain:
    """Refuse what is no fixed function of a row, before anything is traced; then what its scores are.

    In float32, whatever the run's precision: there coupling cannot hide behind rounding.
    """
    if beside := beside_its_score(classifier):
        rule = "classifiers of Ringfence's own take no hooks and no other forward than their score"
        raise ClassifierError("classifier", rule, beside, "Change the networks inside, or write a score.")
    exact = Forward(classifier, ForwardPlan(plan.batch), device, num_classes)
    few, rest = torch.tensor_split(rows, (min(plan.batch, FEW_ROWS if plan.precision == "fp32" else PLAIN_ROWS),))
    before = few.clone()
    with inputs_watched():
        first = _scores(exact, few)
    check_unchanged(few, before)
    _check_finite(first, "Check the weights and the normalisation (`mean` and `std`).")
    within = tolerance(first)
    problem, _ = _not_fixed(exact, few, first, within.alone)
    if problem:
        raise not_of_one_row(problem)
    if _other_alone(exact, few, first, within):
        raise _not_the_classifier(SINGLE, keep=False)
    parts = [few, *(part for part in torch.split(rest, plan.batch) if len(part))]
    scores = torch.cat([_scores(exact, part) for part in parts])
    if bool(within.alone.off(scores[: len(few)], first).any()):  # it may have changed since
        raise not_of_one_row(TWICE)
    if plan.precision == "fp32":
        return _Plain(scores, tolerance(scores))
    rounded = in_slices(Forward(classifier, plan.plain, device, num_classes), rows, len(few))
    _check_finite(rounded, f"They are finite in fp32, and in {plan.precision} they are not: use fp32.")
    return _Plain(rounded, tolerance(scores, rounded))


def _check_finite(scores: Tensor, remedy: str) -> None:
    if not bool(torch.isfinite(scores).all(-1).any()):
        received = "NaN or infinite scores on every probe input"
        raise ClassifierError("classifier", "must return finite scores", received, remedy)


def _other_alone(forward: Forward, rows: Tensor, scores: Tensor, within: Tolerance) -> bool:
    """Whether most of a few rows have other scores by themselves than in a batch; one may be a vote near a tie."""
    alone = in_slices(forward, rows[:ALONE], 1)
    return bool(within.off(alone, scores[:ALONE]).float().mean() > 0.5)


def in_slices(forward: Forward, rows: Tensor, size: int) -> Tensor:
    """Scores of rows, of which so many are asked at once, on the host."""
    return torch.cat([_scores(forward, part) for part in torch.split(rows, size)])


def _scores(forward: Forward, rows: Tensor) -> Tensor:
    """On the host."""
    return forward(rows).scores.cpu()


def _try(
    classifier: nn.Module, plan: ForwardPlan, device: torch.device, num_classes: int, sample: Tensor, plain: _Plain
) -> Checked | str:
    """The forward of this plan where it computes the plain network's scores, row by row, else what is wrong."""
    try:
        forward = Forward(classifier, plan, device, num_classes)
        batches = torch.split(sample, plan.batch)
        answer = forward(batches[0])
        scores = answer.scores.cpu()
        found = _spread(torch.cat([scores, *(_scores(forward, one) for one in batches[1:])]))
        asked, ways = (forward, batches[0], scores, plain.tolerance.alone), WAYS[:4]
        coupled, steady = _not_fixed(*asked, MOVED if plan.precision == "fp32" else ways)
        problem = _differs(found, plain) or (coupled and (_not_fixed(*asked, ways)[0] or coupled))
    except Exception as error:  # tracing, compiling and vectorising may fail in any way; the plain network did not
        is_plain = plan.plain == replace(plan, refused=())
        if out_of_memory(error) or (isinstance(error, RingfenceError) and is_plain):
            raise
        error = error.__cause__ if isinstance(error.__cause__, Exception) else error
        problem = first_line(error)
    return problem or Checked(forward, batches[0], answer, plain.tolerance.alone, steady)


def _differs(found: Tensor, plain: _Plain) -> str | None:
    """What is wrong with a form's scores of the rows that the plain network was asked."""
    if found.shape != plain.scores.shape:
        return f"scores of shape {tuple(found.shape)} where the plain network's are {tuple(plain.scores.shape)}"
    off = plain.tolerance.off(found, plain.scores)
    count, rows = int(off.sum()), len(off)
    if count <= plain.tolerance.excused * rows:
        return None
    classes = int((found.argmax(-1) != plain.scores.argmax(-1)).any(1)[off].sum())
    return f"scores of {count} in {rows} rows are not the plain network's, and of {classes} the class"


def _company(rows: Tensor, keep: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """The rows, those outside keep (B,) replaced by others; and for each its place among the rows, -1 if replaced."""
    wide = keep.view(-1, *[1] * (rows.dim() - 1))
    return torch.where(wide, rows, others), torch.where(keep, _places(rows), -1)


def _places(rows: Tensor) -> Tensor:
    return torch.arange(len(rows), device=rows.device)


def _first_half(rows: Tensor) -> Tensor:
    return _places(rows) < (len(rows) + 1) // 2


def _shuffled(rows: Tensor) -> tuple[Tensor, Tensor]:
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0)).to(rows.device)
    return rows[order], order


def _loud_and_empty(rows: Tensor) -> Tensor:
    """Other neighbours, two and two: rows in reverse order, three times as large plus 1, and rows of zeros."""
    return _company(rows.flip(0) * 3 + 1, _places(rows) % 4 < 2, torch.zeros_like(rows))[0]


def _rolled(rows: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
    far = len(rows) // 2 | 1  # an odd number, so that places of even rows become those of odd ones
    return rows.roll(far, 0), place.roll(far)


Ways = tuple[tuple[str, Callable[[Tensor], tuple[Tensor, Tensor]]], ...]
WAYS: Ways = (
    # What it means if scores change; rows -> another batch, and which of the rows stands where.
    (TWICE, lambda x: (x, _places(x))),
    (COUPLED, lambda x: (x.flip(0), _places(x).flip(0))),
    (COUPLED, lambda x: _company(x, _first_half(x), x.flip(0) * 3 + 1)),
    (COUPLED, lambda x: _company(x, ~_first_half(x), torch.zeros_like(x))),
    (COUPLED, lambda x: (x.roll(1, 0), _places(x).roll(1))),
    (COUPLED, lambda x: _company(x, _places(x) % 2 == 0, x[:1].expand_as(x))),
    (COUPLED, _shuffled),
)
MOVED: Ways = (
    # Every row once more, far from its place, its neighbours replaced: all at once where rounding excuses no row.
    (COUPLED, lambda x: _rolled(*_company(x, _places(x) % 2 == 0, _loud_and_empty(x)))),
    (COUPLED, lambda x: _rolled(*_company(x, _places(x) % 2 == 1, _loud_and_empty(x)))),
)


def _not_fixed(
    forward: Forward,
    rows: Tensor,
    scores: Tensor,
    within: Tolerance,
    ways: Ways = WAYS,
) -> tuple[str | None, Tensor]:
    """Why the forward is no fixed function of a row: asked again, in another order, in other company; its scores so far
    are on the host.

    And the rows (B,), valid in some lane, whose scores stayed the same throughout.
    """
    steady = torch.isfinite(scores).all(-1).any(1)
    for cause, way in ways:
        batch, place = way(rows)
        there = _scores(forward, batch)
        place = place.cpu()
        mine = place[place >= 0]
        off = within.off(there[place >= 0], scores[mine])
        steady[mine[off]] = False
        if int(off.sum()) > within.excused * len(off):
            return cause, steady
    return None, steady


def not_of_one_row(problem: str) -> ClassifierError:
    """The refusal of a classifier that is no fixed function of a row."""
    return ClassifierError(
        "classifier",
        "must treat every row alone, as a fixed function",
        problem,
        "Put it in eval mode with running statistics, and remove active dropout.",
    )


def _not_the_classifier(problem: str, keep: bool) -> ClassifierError:
    if problem in (TWICE, COUPLED):
        return not_of_one_row(problem)
    rule = "must give one row the same scores in every batch"
    remedy = "Check for what depends on the size of a batch, and for state kept between calls."
    if keep:
        rule = "the form in the given plan, with which earlier records were made, must compute the plain network"
        remedy = "Choose another `out`, or leave the plan out: another form is then chosen, and its records kept apart."
    return ClassifierError("classifier", rule, problem, remedy)
