"""Loaded: a certification whose models and inputs are there and fit each other, and the config that both have."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, final

from torch import nn

from ringfence.classifiers import facts
from ringfence.data import ChannelsWarning, Dataset, Input
from ringfence.data.choice import Data
from ringfence.data.dataset import refuse_channels_last
from ringfence.driver import norm_bound
from ringfence.errors import ArgumentError, ClassifierError, Collected, ModelError
from ringfence.lift import Identity, Lift
from ringfence.models import LoadedModel, load_model
from ringfence.models.architecture import preprocessing_in_words
from ringfence.models.grammar import live_places
from ringfence.noise import NOISES
from ringfence.procedures import Given
from ringfence.same_network import Asked
from ringfence.sampling import count_classes, pick_device
from ringfence.store import RunConfig
from ringfence.store.config import changed_settings, plain
from ringfence.unit_check import check_units, looked_at
from ringfence.work import Execution, Origin, Work

if TYPE_CHECKING:
    from ringfence.certification import Certification

FEW_OF_A_CLASS = 4
"""Inputs of one class that chance hardly leaves alone."""
REPEATED = (
    "grey inputs are repeated in three channels, because the model takes no others, and certified as such pictures: "
    "there a change of the grey one of norm r has the norm sqrt(3) r (in l1 3 r). "
    "rf.Data(..., channels=3) says that it is meant"
)


@final
@dataclass(frozen=True)
class Loaded:
    """A certification with its models and inputs: module is the classifier behind the noise, lift the map before it.

    data: which inputs, in the form that the model takes.
    """

    certification: Certification
    model: LoadedModel
    module: nn.Module
    lift: Lift
    data: Data
    dataset: Dataset
    classes: int

    def as_expected(self) -> Loaded:
        """Itself; refused where the certification comes from a stored config that was made of something else."""
        expected = self.certification.expected
        if expected and (changed := changed_settings(self.config, self.config.with_entries(expected))):
            rule, remedy = "must be what the config was made of", "Give the same networks, data and lift."
            raise ModelError("classifier, data, lift", rule, "; ".join(changed), remedy)
        return self

    def check_units(self, device: str = "auto") -> None:
        """Refuse data and classifier that are hardly made for each other, seen on a few inputs."""
        parts = (looked_at(self.dataset), self.certification.noise, self.lift)
        names = (self.certification.lane_names, self.dataset.class_names)
        check_units(self.module, *parts, pick_device(device), *names)

    @property
    def remarks(self) -> list[str]:
        """What a user may want to know before anything is certified: of the lift, and of what becomes of the inputs."""
        told = (
            self._lift_in_words,
            self._framing_in_words,
            preprocessing_in_words(self.module, self.dataset.shape),
            self._one_class_in_words,
            self._fewer_classes_in_words,
            self._too_few_draws_in_words,
        )
        return [one for one in told if one]

    @property
    def _lift_in_words(self) -> str | None:
        """What noise elsewhere than at the input costs."""
        norm = self.certification.mechanisms[0].norm
        facts = self.lift.settings_in(norm)
        if not self.lift.sound:
            left = facts.get("norm_left_out")
            by = "their norm" if left is None else f"{left:.6g}"
            return f"paper form (UNSOUND): radii are not divided by {by}, so they prove nothing."
        if facts["name"] == Identity.name:
            return None
        return f"noise mode {facts['name']}: every {norm} radius is divided by {facts['norm_bound']:.6g}."

    @property
    def _framing_in_words(self) -> str | None:
        """That pictures are resized as the model's configuration says."""
        if self.data.size == self.certification.data.size:
            return None
        told = "the pictures have other sizes: they are resized and cropped to"
        what = "What is certified, and what radii are measured in, are the pictures so made"
        return f"{told} {self.data.size} pixels, as the model's configuration says; `size` says otherwise. {what}."

    @property
    def _one_class_in_words(self) -> str | None:
        """That a limit left one class alone, as it does in folders."""
        few = len(self.dataset) < FEW_OF_A_CLASS or self.data.limit is None
        labels = set() if few else set(self.dataset.labels)
        if len(labels) != 1 or None in labels:
            return None
        told = f"all {len(self.dataset)} inputs are of class {labels.pop()}: folders come class by class"
        return f"{told}, so that `limit` takes the first. `skip` 20 takes every 20th input of all classes."

    @property
    def _fewer_classes_in_words(self) -> str | None:
        """That the network has more classes than the data names: folders of some of its classes are numbered from 0."""
        names = self.dataset.class_names or ()
        if not 0 < len(names) < self.classes:
            return None
        told = f"the data has {len(names)} classes, the network {self.classes}"
        return f"{told}: {names[0]} is taken for its class 0, {names[-1]} for its class {len(names) - 1}."

    @property
    def _too_few_draws_in_words(self) -> str | None:
        """That every input will be abstained from."""
        value = self.certification
        mechanism, law = value.mechanisms[0], value.noise.law.over(math.prod(self.dataset.shape))
        if value.test.can_answer(Given(self.classes, law, mechanism)):
            return None
        told = f"no outcome of {value.test.most_draws} draws of an input proves anything"
        return f"{told}: every one will be abstained from. Give more."

    def work(self, inputs: Iterable[Input], execution: Execution, config_hash: str = "") -> Work:
        """What an engine is given for some of the inputs."""
        parts = (self.lift, self.classes, self.certification.lane_names, execution, config_hash, self.origin)
        return self.certification.work(self.module, inputs, *parts)

    def asked(self, device: str = "auto", data: bool = True) -> Asked:
        """Its network, to be asked what a run's said; data: also about inputs of the run, not grey ones alone."""
        return Asked(self.work((), Execution(device)), tuple(self.dataset.shape), self.dataset if data else None)

    @property
    def origin(self) -> Origin | None:
        """How a worker elsewhere loads the same classifier; None for networks of the program, which are sent."""
        value = self.certification
        if live_places(value.classifier):
            return None
        return Origin(value.classifier, value.beside_tree, self.dataset.shape, self.model.digest)

    @property
    def config(self) -> RunConfig:
        """The typed config; made here alone, from the value and what was loaded for it."""
        value, data = self.certification, self.data
        drawing = NOISES.get(value.noise.law.family)
        if drawing is not type(value.noise):
            rule = f"a run folder knows a noise by its family, and {value.noise.law.family} is drawn by {drawing}"
            remedy = "Register it under a family of its own, or write no folder."
            raise ArgumentError("noise", rule, repr(value.noise), remedy)
        exact = {} if value.noise.law.lattice is None else {"coordinates": math.prod(self.dataset.shape)}
        content = {
            "classifier": {
                "tree": self.model.spec,
                "digest": self.model.digest,
                "classes": self.classes,
                "mean": value.mean,
                "std": value.std,
                "lanes": [lane.settings() for lane in value.lanes],
            },
            "data": {"source": data.name, "digest": self.dataset.digest, **data.choice, "count": len(self.dataset)},
            "noise": value.noise.settings() | exact,
            "norm": value.mechanisms[0].norm,
            "lift": self.lift.settings_in(value.mechanisms[0].norm),
            "procedure": {"name": value.test.name, **value.test.settings()},
            "mechanisms": [one.name for one in value.mechanisms],
            "split_alpha": value.split_alpha,
            "precision": value.precision,
            "seed": value.seed,
        }
        return RunConfig.model_validate(plain(content))


def loaded(value: Certification, device: str) -> Loaded:
    """Models and inputs of a certification; grey pictures are repeated for a model that wants colours."""
    wrong = Collected()
    model: LoadedModel | None = None
    with wrong:
        model = load_model(value.classifier, **value.beside_tree)
    dataset = wrong.ask(lambda: value.data.load(None if model is None else model.num_classes))
    wrong.tell()
    assert model is not None
    assert dataset is not None
    data = value.data if value.expected else value.data.framed(dataset, model.side)  # a config says what was done
    if data is not value.data:
        dataset = data.load(model.num_classes)
    try:
        return _fit(value, model, data, dataset, device)
    except ClassifierError as error:
        refuse_channels_last(dataset.name, dataset.shape)
        if data.channels is not None or len(dataset.shape) != 3 or dataset.shape[0] != 1:
            raise
        coloured = replace(data, channels=3)
        try:
            found = _fit(value, model, coloured, coloured.load(model.num_classes), device)
        except ClassifierError:
            raise error from None
        warnings.warn(REPEATED, ChannelsWarning, stacklevel=3)
        return found


def _fit(value: Certification, model: LoadedModel, data: Data, dataset: Dataset, device: str) -> Loaded:
    """The model behind the noise and the inputs in the form it takes."""
    module, lift = model.placed(dataset.shape)
    lift = value.lift or lift
    value, dataset = value.formed(dataset, lift)
    norm_bound(lift, value.mechanisms[0], value.noise)  # refuses what has no proof
    known = value.classes or model.num_classes
    if not len(dataset):
        return Loaded(value, model, module, lift, data, dataset, known or 2).as_expected()
    first = dataset.first_readable
    found = count_classes(module, lift(first), pick_device(device), value.lane_names)
    facts(module, first[None])  # a core network must fit too, before a run folder is begun
    if known is not None and known != found:
        raise ArgumentError("classes", f"the model returns {found} scores", known, f"Use {found}.")
    dataset.check_labels(found)
    return Loaded(value, model, module, lift, data, dataset, found).as_expected()
