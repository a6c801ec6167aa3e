"""Whether a network is the one a run began with: asked the same noisy inputs, it gives the answers stored then.

Checked before a run is continued, shared among workers, served or attacked. Half of the inputs are the run's, half are
grey: those can be asked about where the data are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import TYPE_CHECKING, final

import torch
from torch import Tensor

from ringfence.data import Dataset, Input
from ringfence.data.dataset import UNREADABLE
from ringfence.sampling import Answered, Question, pick_device
from ringfence.store import RunFolder
from ringfence.store.folder import Answers

if TYPE_CHECKING:
    from ringfence.work import Work

OF_EACH = 4
"""Inputs of the run, of fewer some again, and grey ones: each with noise of its own."""
TRIED = 64
"""Inputs that are read, at most, to find so many that can be."""


def grey(shape: tuple[int, ...], lattice: int | None) -> Tensor:
    """An input where the data are not; a point of the lattice, on which exact noise needs it to lie."""
    steps = lattice or 2
    return torch.full(shape, steps // 2 / steps, dtype=torch.float32)


@final
@dataclass(frozen=True)
class Asked:
    """The network of a work, to be compared with a run's. shape: of the run's inputs. dataset: those inputs; None where
    they are not here, or where reading one might kill this process, so that a worker has to ask about them."""

    work: Work
    shape: tuple[int, ...]
    dataset: Dataset | None = None

    def begin(self, run: RunFolder | None = None) -> Answered:
        """Ask the network, and store its answers in the folder if there is one."""
        first = self._first_readable()
        question = self._question([*first, *[self._grey] * OF_EACH])
        said = question.ask(self.work.classifier, pick_device(self.work.execution.device))
        if run is not None:
            ids = [*(one.id for one in first), *[None] * OF_EACH]
            run.write_answers(Answers(inputs=ids, said=[list(lines) for lines in said]))
        return Answered(question, said)

    def check(self, run: RunFolder) -> Answered | None:
        """Refuse a network whose answers are not those stored in the run's folder, as far as inputs can be read today.

        None for folders of earlier versions, which hold no answers.
        """
        known = run.answers()
        if known is None:
            return None
        read = {one: self._read(one) for one in dict.fromkeys(known.inputs)}
        places = [place for place, one in enumerate(known.inputs) if read[one] is not None]
        items = [read[one] or self._grey for one in known.inputs]  # others keep their noise
        answered = Answered(self._question(items).of(places), [tuple(known.said[place]) for place in places])
        answered.check(self.work.classifier, pick_device(self.work.execution.device))
        return answered

    def _question(self, items: Sequence[Input]) -> Question:
        work, lifted = self.work, [self.work.lift.at(one.x, one.id) for one in items]
        assert work.num_classes is not None  # whoever asks has counted them
        return Question.about([one.x for one in items], lifted, work.noise, work.seed, work.num_classes)

    def _first_readable(self) -> list[Input]:
        """The first inputs that can be read, again and again until there are enough."""
        ids = [] if self.dataset is None else self.dataset.ids[:TRIED]
        return list(islice(cycle(list(islice(filter(None, map(self._read, ids)), OF_EACH))), OF_EACH))

    @property
    def _grey(self) -> Input:
        return Input(-1, grey(self.shape, self.work.noise.law.lattice), None, "grey")

    def _read(self, input_id: int | None) -> Input | None:
        """An input, the grey one without an id; None where it cannot be read, or has another shape than the others."""
        if input_id is None:
            return self._grey
        try:
            item = None if self.dataset is None else self.dataset[self.dataset.ids.index(input_id)]
        except UNREADABLE:
            return None
        return None if item is None or tuple(item.x.shape) != self.shape else item
