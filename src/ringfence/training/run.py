"""TrainingRun: a job in a folder of its own, on a device; its data, labels and members, and what it leaves behind."""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn

from ringfence.classifiers.architectures import (
    ARCHITECTURES,
    DENOISERS,
    NORMALIZATION,
    build_architecture,
)
from ringfence.classifiers.normalize import Normalize
from ringfence.data import load_dataset
from ringfence.errors import ArgumentError, ClassifierError, ModelError, StoreError, did_you_mean
from ringfence.models import load_model, read_weights
from ringfence.models.architecture import Normalization, chosen_normalization, refuse_second
from ringfence.models.denoised_spec import load_denoiser
from ringfence.models.factory import build_from_factory
from ringfence.models.grammar import Leaf, Node, as_tree, split_models
from ringfence.models.registry import NODES
from ringfence.models.source import Kind, source_of
from ringfence.models.weights import fit_weights
from ringfence.sampling import count_classes, pick_device
from ringfence.store.atomic import drop_unfinished, read_json, write_json, writing_errors
from ringfence.store.config import flatten
from ringfence.training.answers import Answers
from ringfence.training.checkpoints import POINTER, Checkpoints, export, restore_modules
from ringfence.training.data import DeviceData, load_device_data
from ringfence.training.job import TrainingJob
from ringfence.unit_check.values import is_picture, warn_of_sigma


@final
@dataclass(frozen=True)
class TrainingRun:
    """What is trained, where to, and on what: small enough to send to another process.

    The job alone determines the weights. devices: processes that share each batch.
    """

    job: TrainingJob
    out: Path
    device: str = "auto"
    devices: int = 1
    tensorboard: bool = False

    def __post_init__(self) -> None:
        if not self.job.members or not self.job.data:
            rule, remedy = "must name its data and its members", "Or train networks of your own with train()."
            raise ArgumentError("job", rule, "none", remedy)

    @property
    def files(self) -> list[Path]:
        """Where the trained members end up."""
        return [self.out / f"final-{member}.safetensors" for member in range(len(self.job.members))]

    @property
    def finished(self) -> bool:
        """Whether every member is trained."""
        return all(file.exists() for file in self.files)

    def members_of(self, training: int) -> list[int]:
        """The members that a training ends with."""
        together = self.job.objective.grouping == "together"
        return list(range(len(self.job.members))) if together else [training]

    def done(self, training: int) -> bool:
        """Whether a training is finished."""
        return all(self.files[member].exists() for member in self.members_of(training))

    def ready(self, training: int) -> bool:
        """Whether it can begin: members trained in turn wait for those before them."""
        return self.job.objective.grouping != "in turn" or all(file.exists() for file in self.files[:training])

    def folder(self, training: int) -> Path:
        """Where its checkpoints lie."""
        together = self.job.objective.grouping == "together"
        return self.out / ("joint" if together else f"member-{training}")

    def keep_settings(self) -> None:
        """Store the job, or refuse to go on with another one once an epoch is done; called by who holds the lock."""
        self._store_or_compare()
        for folder in (self.out, *map(self.folder, self.job.trainings)):  # checkpoints are large
            drop_unfinished(folder)

    def _store_or_compare(self) -> None:
        path, now = self.out / "config.json", json.loads(json.dumps(self.job.config()))
        begun = any(self.out.glob(f"*/{POINTER}")) or any(self.out.glob("final-*.safetensors"))
        try:  # whatever has begun: settings of something else, a run above all, are never replaced
            before = TrainingJob.of(read_json(path)).config() if os.path.lexists(path) else None
        except ArgumentError as error:
            raise StoreError(path, error.rule, error.received, "Train into another folder.") from error
        if before is None or not begun:
            with writing_errors(self.out):
                self.out.mkdir(parents=True, exist_ok=True)
            write_json(path, now)
            return
        old, new = dict(flatten(json.loads(json.dumps(before)))), dict(flatten(now))
        changed = sorted(key for key in {**old, **new} if old.get(key) != new.get(key))
        if changed:
            listed = "; ".join(f"{key} {new.get(key)!r} now, {old.get(key)!r} before" for key in changed)
            remedy = "Choose another folder, or repeat the old settings to continue."
            raise StoreError(self.out, "a training is continued with its own settings", listed, remedy)

    def load_data(self) -> DeviceData:
        """The training split of its data."""
        found = load_dataset(self.job.data, split="train", limit=self.job.limit)
        if is_picture(found.shape):
            warn_of_sigma(self.job.sigma)
        return load_device_data(found, self.job.classes)

    def answers(self, data: DeviceData) -> Answers | None:
        """What its labels are made from, as far as it is counted, the same for all members; None: no such labels."""
        asked = self.job.objective.questions(self.job.sigma)
        if asked is None:
            return None
        job, classifier = self.job, load_model(self.job.classifier or "")
        return Answers(classifier, data, asked, self.out, job.seed, job.noise, job.precision, job.compile)

    def labelled_data(self) -> DeviceData:
        """Its data with the labels that its objective wants; answers that are not known yet are counted."""
        data = self.load_data()
        answers = self.answers(data)
        if answers is None:
            return data
        answers.count(pick_device(self.device))
        return self.job.objective.labelled(data, answers.votes)

    @property
    def sharing(self) -> tuple[Any, ...]:
        """What determines data, labels and device: runs with the same can be trained together."""
        job, asked = self.job, self.job.objective.questions(self.job.sigma)
        labels = () if asked is None else (asked, job.objective, job.seed, job.noise)
        return (job.data, job.limit, job.holdout, job.classes, job.classifier, self.device, self.devices, *labels)

    @property
    def process(self) -> str | None:
        """The same for runs that may be trained in one process; None: this one is trained alone.

        Of strangers' networks nobody knows whether they draw random numbers, and labels are counted by one process.
        """
        strange, labelled = any(":" in arch for arch in self.job.members), self.job.objective.questions(self.job.sigma)
        alone = strange or labelled is not None or self.devices > 1
        return None if alone else repr((*self.sharing, self.tensorboard))

    def classifier(self) -> nn.Module | None:
        """The fixed classifier on the device, where there is one."""
        return load_model(self.job.classifier).at_input.to(pick_device(self.device)) if self.job.classifier else None

    def fresh(self, training: int, data: DeviceData) -> list[nn.Module]:
        """The members of a training as they begin; refused if one cannot take the data's inputs."""
        members = {member: build_member(self.job, member, data) for member in self.members_of(training)}
        for member, module in members.items():
            check_takes(self.job.members[member], module, data.x[0])
        return list(members.values())

    def alone(self, training: int, data: DeviceData, classifier: nn.Module | None) -> TrainingJob:
        """The job of one training: its own seed, its objective with the networks that it needs on the device."""
        device, job = pick_device(self.device), self.job
        before = range(training) if job.objective.grouping == "in turn" else range(0)
        trained = replace(job, init=str(self.out))
        earlier = [build_member(trained, i, data).to(device).eval().requires_grad_(False) for i in before]
        return replace(job, objective=job.objective.with_networks(classifier, earlier), seed=job.seed + training)

    def export(self, training: int, trained: list[nn.Module]) -> None:
        """Leave the members of a finished training as files."""
        job = self.job
        if job.keep == "best" and (best := Checkpoints(self.folder(training)).load_best()) is not None:
            with torch.no_grad():
                restore_modules(trained, best)
        words = ",".join(f"{key}={value}" for key, value in job.objective.settings().items())
        family = {} if job.noise == "gaussian" else {"noise": job.noise}
        about = family | {"sigma": f"{job.sigma:g}", "objective": re.sub(r"[{}' ]", "", words)}
        for member, module in zip(self.members_of(training), trained, strict=True):
            export(self.files[member], module, {"arch": job.members[member], **about})


def check_members(members: Sequence[str]) -> None:
    """Refuse architectures that nobody knows."""
    for arch in members:
        if arch not in (*ARCHITECTURES, *DENOISERS) and ":" not in arch:
            rule = f"must be one of {', '.join((*ARCHITECTURES, *DENOISERS))}, or file.py:factory"
            remedy = did_you_mean(arch, (*ARCHITECTURES, *DENOISERS), "Name one of them, or a factory of yours.")
            raise ModelError("arch", rule, repr(arch), remedy)


def check_takes(arch: str, module: nn.Module, x: Tensor) -> None:
    """Refuse a network whose layers are for inputs of another shape; a copy is asked, and no random number drawn."""
    if arch in DENOISERS:
        return
    asked = copy.deepcopy(module).eval()
    try:
        with torch.random.fork_rng(devices=[]), torch.inference_mode():
            count_classes(asked, x.cpu(), torch.device("cpu"))
            shape = getattr(asked(x.cpu()[None]), "shape", None)
    except ClassifierError as error:
        rule, remedy = (
            f"must take inputs of the data's shape, {tuple(x.shape)}",
            "Choose another architecture, or other data.",
        )
        raise ModelError("arch", rule, f"{arch}: {error.received}", remedy) from error
    if shape in ((1,), (1, 1)):  # a certification reads it as a logit; cross-entropy knows one class alone
        rule, remedy = "must return a score for each class to be trained", "Return two: 0 and the logit of class 1."
        raise ModelError("arch", rule, f"{arch}: one score", remedy)


def build_member(job: TrainingJob, member: int, data: DeviceData) -> nn.Module:
    """A fresh member for the data's classes and channels, from its own seed, or the one that ``job.init`` holds."""
    torch.manual_seed(job.seed + member)
    arch, classes = job.members[member], data.num_classes
    if arch in ARCHITECTURES:
        module = build_architecture(arch, classes)
    elif arch in DENOISERS:
        module = DENOISERS[arch](data.x.shape[1])
    else:
        check_members([arch])
        module = build_from_factory(arch, classes)
    given: Normalization | None = None if job.mean is None or job.std is None else (job.mean, job.std)
    refuse_second(given, module, arch)
    normalization = given or NORMALIZATION.get(arch)
    if job.init is not None:
        state, source = start_of(job, job.init, member, classes)
        fitted = fit_weights(module, state, source)
        normalization = chosen_normalization(given, fitted.stored, source) or normalization
    return module if normalization is None else Normalize(module, *normalization)


def start_of(job: TrainingJob, init: str, member: int, classes: int) -> tuple[Mapping[str, Tensor], str]:
    """The weights that a member starts from and what they are called: those of a training's folder, or of a model.

    One model is for all members; several, divided by commas or under one vote, are for a member each.
    """
    if Path(init).is_dir():
        path, held = Path(init) / f"final-{member}.safetensors", len(list(Path(init).glob("final-*.safetensors")))
        in_turn = job.objective.grouping == "in turn"  # whose folder begins before all are there
        if held < (member + 1 if in_turn else len(job.members)):
            rule = f"must hold weights for each of {len(job.members)} members"
            one = f"{job.members[0]}@{Path(init) / 'final-0.safetensors'}"
            remedy = f"Name one for all: {one}." if held else "Train it to its end."
            raise ArgumentError("init", rule, f"{held} in {init}", remedy)
        return read_weights(path).state, str(path)
    models, count, denoiser = split_models(init), len(job.members), job.members[member] in DENOISERS
    whole = as_tree(init) if len(models) == 1 else None
    if isinstance(whole, Node) and whole.name in NODES and NODES[whole.name].most is None:
        models = [str(one) for one in whole.models]
    rule = f"must be the folder of a training, or a model, or one for each of {count} members"
    if len(models) not in (1, count):
        raise ArgumentError("init", rule, f"{len(models)} models", f"Give {count}, divided by commas.")
    spec = models[member % len(models)]
    if isinstance(as_tree(spec), Leaf) and source_of(spec, denoiser).kind is Kind.UNKNOWN:
        raise ArgumentError("init", rule, f"'{spec}'", "Check its name.")
    found = load_denoiser(spec).module if denoiser else load_model(spec, num_classes=classes).at_input
    return found.state_dict(), spec
