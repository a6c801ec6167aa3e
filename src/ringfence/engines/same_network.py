"""The same network: a run is continued, and shared with other machines, by one that says what the run's first said."""

from __future__ import annotations

from itertools import cycle, islice

from ringfence.data import Dataset, Input
from ringfence.errors import RingfenceError
from ringfence.loaded import Loaded
from ringfence.sampling import Answered, Question, pick_device
from ringfence.store import RunFolder
from ringfence.store.folder import Answers

ROWS = 8
"""Noisy inputs that are asked about, of fewer inputs some again."""
TRIED = 64
"""Inputs that are read, at most, to find so many that can be."""


def same_network(loaded: Loaded, run: RunFolder, device: str, continued: bool) -> Answered | None:
    """What the run's networks said of a few of its inputs when it began, asked now and kept in the folder where it
    begins; where it goes on, a network that says something else is refused. None where those inputs cannot be read.

    Runs of earlier versions hold no answers: whoever goes on with one is believed, and kept to from then on.
    """
    known = run.answers() if continued else None
    items = _again(loaded.dataset, known.inputs) if known else _first_readable(loaded.dataset)
    places = [place for place, item in enumerate(items) if item is not None]
    there = [item for item in items if item is not None]
    if not there:
        return None
    every = [item or there[0] for item in items]  # each keeps its noise, whichever others cannot be read today
    lifted = [loaded.lift.at(item.x, item.id) for item in every]
    noise, seed = loaded.certification.noise, loaded.certification.seed
    question = Question.about([item.x for item in every], lifted, noise, seed).of(places)
    how = (loaded.module, pick_device(device), loaded.classes)
    if known:
        answered = Answered(question, [tuple(known.said[place]) for place in places])
        answered.check(*how)
        return answered
    said = question.ask(*how)
    run.write_answers(Answers(inputs=[item.id for item in there], said=[list(lines) for lines in said]))
    return Answered(question, said)


def _first_readable(dataset: Dataset) -> list[Input | None]:
    """The first inputs that can be read, again and again until there are ROWS."""
    readable = (item for item in (_read(dataset, one) for one in dataset.ids[:TRIED]) if item is not None)
    return list(islice(cycle(list(islice(readable, ROWS))), ROWS))


def _again(dataset: Dataset, ids: list[int]) -> list[Input | None]:
    """The inputs of these ids, each read once."""
    read = {one: _read(dataset, one) for one in dict.fromkeys(ids)}
    return [read[one] for one in ids]


def _read(dataset: Dataset, input_id: int) -> Input | None:
    """An input; None where it cannot be read, or has another shape than the others."""
    try:
        item = dataset[dataset.ids.index(input_id)]
    except (RingfenceError, OSError, ValueError):
        return None
    return item if tuple(item.x.shape) == tuple(dataset.shape) else None
