"""As given: the network about to be certified still answers as the one that the user gave, before we touched it.

check.py compares the forms of a network with each other. One that changed before the first form was made, while it was
measured or when its numbers became float32, would agree with itself; so this compares with the network as given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from ringfence.classifiers import Aces, Classifier, score
from ringfence.errors import ClassifierError
from ringfence.sampling.agreement import tolerance
from ringfence.sampling.check import ALONE, PLAIN_ROWS, TWICE, Draw, in_slices, not_of_one_row
from ringfence.sampling.devices import without_autocast
from ringfence.sampling.forward import Forward, left_early, single
from ringfence.sampling.plan import ForwardPlan, out_of_memory
from ringfence.sampling.preparing import copied

JUMPS = 1
"""Rows of a plain forward in which rounding may make a vote jump."""


@torch.inference_mode()
def remembered_answers(
    classifier: nn.Module, samples: Sequence[Tensor], device: torch.device, num_classes: int
) -> Callable[[], None]:
    """What it says of some inputs now, each by itself, as all take them; called later, refuses a classifier that says
    something else by then, or whose copy does: of which of the two would a certificate speak?"""
    rows = torch.stack([*samples[:ALONE]]).to(device, torch.float32)
    itself = Forward(_Itself(classifier), ForwardPlan(1), device, num_classes)
    before = in_slices(itself, rows, 1)

    def differs(forward: Forward) -> bool:
        return bool(tolerance(before).alone.off(in_slices(forward, rows, 1), before).any())

    def check() -> None:
        if differs(itself):
            raise not_of_one_row(TWICE)
        # Of classifiers of ours a copy runs, even where nothing else is done to them.
        if isinstance(classifier, Classifier) and differs(Forward(classifier, ForwardPlan(1), device, num_classes)):
            rule, received = "must be the same function once it is copied", "a copy of it with other scores"
            remedy = "Keep what a network reads in its attributes: copy.deepcopy does not see what others know of it."
            raise ClassifierError("classifier", rule, received, remedy)

    return check


class _Itself(nn.Module):
    """A classifier that nobody sees inside, so that it is neither copied nor changed."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.training, self._hidden = False, (classifier,)

    def forward(self, x: Tensor) -> Tensor:
        return score(self._hidden[0], x).scores


@torch.inference_mode()
def check_rounding(given: nn.Module, rounded: nn.Module, draw: Draw) -> None:
    """Refuse a network with values of float64 that is another function in float32, in which it is certified.

    given: as its owner has it; rounded: the same in float32, on the run's device.
    """
    if not any(value.dtype == torch.float64 for value in (*given.parameters(), *given.buffers())):
        return
    rows = draw(PLAIN_ROWS)
    pairs = [(given, rounded)]
    if isinstance(given, Aces) and isinstance(rounded, Aces):
        pairs.append((given.core, rounded.core))  # which no noise reaches, and no other check
    for one, other in pairs:
        wanted = _scores_as_given(copied(one).to(rows.device), rows)
        if wanted is None:
            continue
        found = Forward(_Itself(other), ForwardPlan(len(rows)), rows.device, wanted.shape[-1])(rows).scores.cpu()
        off = int(tolerance(wanted).off(found, wanted).sum())
        if off > JUMPS:
            rule = "must be the same function in float32, in which it is certified, as in float64"
            remedy = "Leave out what float32 cannot hold (a large part that all scores share, small differences)."
            raise ClassifierError("classifier", rule, f"other scores for {off} of {len(rows)} noisy inputs", remedy)


def _scores_as_given(module: nn.Module, rows: Tensor) -> Tensor | None:
    """What a module says as it is, of float32 or of float64, whichever it takes, or else in float64 as a whole; None
    where it does not run at all."""
    wide = rows.double()
    for prepared, batch in ((nn.Module.eval, rows), (nn.Module.eval, wide), (nn.Module.double, wide)):
        try:
            with without_autocast(rows.device):
                return _by_lanes(score(prepared(module), batch).scores)
        except (SystemExit, GeneratorExit) as error:
            raise left_early(error) from error
        except Exception as error:  # whatever it raises where it is given another type than it takes
            if out_of_memory(error):
                raise
    return None


def _by_lanes(scores: Tensor) -> Tensor:
    """(B, lanes, K) on the host; rows whose class float32 does not tell are invalid."""
    return single(scores if scores.dim() == 3 else scores.unsqueeze(1)).cpu()
