"""The unit check: before a run, a few dozen inputs tell whether data and model speak of the same pixels and classes.

A certificate for a network that sees its inputs in other units is true and worthless, and nothing else would say so.
The draws of the check are its own: what is certified afterwards, and its noise, are the same with it and without.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice

import torch
from torch import nn

from ringfence.data import Dataset, Input
from ringfence.data.dataset import UNREADABLE, refuse_channels_last, refuse_labels
from ringfence.errors import Collected, RingfenceError
from ringfence.lift import Lift
from ringfence.noise import Noise
from ringfence.sampling import count_classes, in_front, on_device
from ringfence.unit_check.classes import check_numbers, refuse_probability
from ringfence.unit_check.trial import LOOKED_AT, Checked, Trial
from ringfence.unit_check.values import (
    NoiseWarning,
    check_range,
    check_resolution,
    is_picture,
    warn_of_scales,
    warn_of_sigma,
)

__all__ = ["LOOKED_AT", "NoiseWarning", "check_units", "looked_at", "peeked"]


def looked_at(dataset: Dataset) -> list[Input]:
    """Inputs from all over a data set, whose classes often come one after the other; unreadable ones left out."""
    places = sorted({round(float(one)) for one in torch.linspace(0, max(len(dataset) - 1, 0), LOOKED_AT)})
    found = []
    for place in places if len(dataset) else ():
        try:
            found.append(dataset[place])
        except UNREADABLE:
            continue  # the run tells of it
    return found


def peeked(inputs: Iterator[Input]) -> tuple[list[Input], Iterator[Input]]:
    """The first inputs of a stream, and the whole stream again."""
    first = list(islice(inputs, LOOKED_AT))
    return first, chain(first, inputs)


def check_units(
    classifier: nn.Module,
    items: Sequence[Input],
    noise: Noise,
    lift: Lift,
    device: torch.device,
    lanes: Sequence[str] = (),
    class_names: Sequence[str] | None = None,
) -> Checked | None:
    """Refuse inputs and labels that the classifier was hardly made for, and say what is probably meant.

    classifier: what stands behind lift and noise; class_names: those of the data, by their numbers. None where nothing
    could be measured: no labels, or no pictures.
    """
    check_numbers(classifier, class_names or ())
    items = [one for one in items if one.x.shape == items[0].x.shape]
    if not items:
        return None
    pictures = is_picture(items[0].x.shape)
    wrong = Collected()
    if pictures:
        wrong.ask(lambda: refuse_channels_last("data", tuple(items[0].x.shape)))
        wrong.ask(lambda: check_range([one.x for one in items]))
    wrong.tell()
    check_resolution([one.x for one in items], noise.law.scale)
    if pictures:
        warn_of_sigma(noise.law.scale)
    else:
        warn_of_scales([one.x for one in items], noise.law.scale)
        items = items[:1]  # a single output is looked at far from it, too
    labelled = [one for one in items if one.label is not None]
    items = labelled or items
    classes = count_classes(classifier, lift.at(items[0].x, items[0].id), device, lanes)
    refuse_labels("data", ((one.id, one.label) for one in labelled), classes)
    judged = pictures and bool(labelled)
    if not judged and classes != 2:
        return None
    try:
        with in_front(device):
            trial = Trial(on_device(classifier, device), items, noise, lift, device, classes)
            looks = [trial.scores(noisy=noisy) for noisy in (False, True)]
            if classes == 2:
                trial.far()
        for network in trial.heard:
            refuse_probability(torch.cat(network))
        return trial.judged(looks) if judged else None
    except (RingfenceError, Warning):
        raise
    except Exception:  # what it cannot do with a batch, the run tells, with its reason
        return None
