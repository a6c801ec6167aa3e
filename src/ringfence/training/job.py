"""TrainingJob: everything that determines trained weights, as one value that is checked, stored and compared.

Learning rates and warm-ups are pure functions of the step: nothing to store, nothing to restore.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Literal, final

from ringfence.errors import ArgumentError, RingfenceError
from ringfence.noise import Noise, noise_with
from ringfence.settings import check_settings, plain_settings, setting
from ringfence.training.objectives import Objective, default_objective, stored_objective

_OF_NETWORKS = ("data", "init", "classifier", "classes", "holdout", "limit", "keep", "recipe")
"""Settings that a config keeps beside its ``plan``, as do architecture, members, mean and std."""


@final
@dataclass(frozen=True)
class Schedule:
    """Learning rate at step t of a training.

    step: lr * factor^(epoch // every), the papers' (MNIST: every 30 of 90 epochs, CIFAR-10: 50 of 150);
    every None: a third of the epochs. one-cycle: from lr/25 up to lr over the first fifth, then a cosine
    down to lr/10^4 (Smith 2018).
    """

    lr: float = setting(0.01, "Learning rate (one-cycle: its peak).", above=0, remedy="MNIST: 0.01; CIFAR-10: 0.1.")
    kind: Literal["step", "one-cycle", "constant"] = setting("step", "Course of the learning rate.", option="schedule")
    every: int | None = setting(None, "Epochs between two steps down (default: a third).", low=1, option="lr_every")
    factor: float = setting(0.1, "What each step down multiplies by.", above=0, high=1, option="lr_factor")

    def __post_init__(self) -> None:
        check_settings(self)

    def at(self, step: int, steps_per_epoch: int, epochs: int) -> float:
        """The learning rate of a step, 0 .. epochs * steps_per_epoch - 1."""
        if self.kind == "constant":
            return self.lr
        if self.kind == "step":
            every = self.every or max(1, -(-epochs // 3))
            return self.lr * self.factor ** (step // (steps_per_epoch * every))
        total = max(1, epochs * steps_per_epoch - 1)
        rise = 0.2 * total
        if step < rise:
            return _cosine(self.lr / 25, self.lr, step / rise)
        return _cosine(self.lr, self.lr / 1e4, (step - rise) / (total - rise))


def _cosine(start: float, end: float, share: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * share)) / 2


def warmth(epoch: int, warmup: int) -> float:
    """Share in (0, 1] of a warm-up over so many epochs: (epoch + 1) / warmup, then 1."""
    return min(1.0, (epoch + 1) / warmup) if warmup > 0 else 1.0


@final
@dataclass(frozen=True)
class TrainingJob:
    """What is trained, on what, and how. All randomness of epoch e comes from (seed, e) alone.

    members: the architecture of each, which may differ; data: a data set's name. Both are empty where networks and
    tensors are given to ``train``. mean, std: normalisation that a network gets in front.
    """

    objective: Objective = field(default_factory=default_objective)
    sigma: float = setting(0.5, "Noise level, in [0,1] pixel units.", low=0)
    noise: str = setting("gaussian", "Family of the noise: gaussian, uniform, laplace, or one of a plugin.")
    epochs: int = setting(90, "Passes over the data.", low=1)
    batch: int = setting(256, "Inputs per step, over all devices.", low=1)
    schedule: Schedule = field(default_factory=Schedule)
    momentum: float = setting(0.9, "Momentum of SGD.", low=0, below=1)
    nesterov: bool = setting(True, "Nesterov's momentum or the plain one.")
    weight_decay: float = setting(1e-4, "Weight decay.", low=0)
    noise_warmup: int = setting(0, "Epochs over which sigma grows.", low=0)
    attack_warmup: int = setting(10, "Epochs over which attacks, and terms that follow them, grow.", low=0)
    accumulate: int = setting(1, "Micro-batches per step.", low=1)
    precision: Literal["fp32", "bf16"] = setting("fp32", "Precision of the forward and backward passes.")
    ema: float | None = setting(None, "Decay of averaged weights, e.g. 0.999; none without it.", above=0, below=1)
    clip: float | None = setting(None, "Largest gradient norm.", above=0)
    crop: int = setting(0, "Random crops after so many pixels of padding.", low=0)
    flip: bool = setting(False, "Random mirror images.")
    seed: int = setting(0, "Seed of member 0; member i has seed + i.")
    compile: bool = setting(False, "Compile the network with torch.compile.")
    graph: bool = setting(False, "Replay each step as a CUDA graph.")
    fused: bool = setting(False, "CIFAR ResNets on CUDA in bf16: gradients of attacks by a kernel.")
    members: tuple[str, ...] = ()
    data: str = setting("", "Training data: mnist:PATH, cifar10:PATH, ... or an .npz with x_train, y_train.")
    init: str | None = setting(None, "Weights to start from: the folder of a training, or a model or tree.")
    classifier: str | None = setting(None, "The fixed classifier that some objectives need: any model.")
    classes: int | None = setting(None, "Number of classes, where the data does not tell.", low=2)
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    holdout: int = setting(0, "Training inputs held out to measure noisy accuracy.", low=0)
    limit: int | None = setting(None, "Use only the first so many inputs.", low=1)
    keep: Literal["last", "best"] = setting(
        "last", "Which epoch is exported: the last, or the best on held-out inputs."
    )
    recipe: str | None = setting(None, "A source's settings by name, e.g. yang2022-mnist-gaussian-0.5.")

    def __post_init__(self) -> None:
        check_settings(self)
        objective, count = self.objective, len(self.members)
        if objective.noises and self.unit_noise.name not in objective.noises:
            rule = f"{objective.name} maximises a radius under {', '.join(objective.noises)} noise"
            raise ArgumentError("noise", rule, self.noise, "Choose another objective.")
        if self.batch % self.accumulate:
            rule = f"must divide the batch, {self.batch}"
            raise ArgumentError("accumulate", rule, self.accumulate, "Choose a divisor.")
        if self.fused and self.precision != "bf16":
            raise ArgumentError(
                "fused", "rounds to bf16", f"precision {self.precision}", "Train in bf16, or leave it out."
            )
        if self.holdout and not objective.judged:
            rule = f"{objective.name} trains no classifier whose accuracy could be measured"
            raise ArgumentError("holdout", rule, self.holdout, "Leave it out.")
        if self.keep == "best" and not self.holdout:
            raise ArgumentError("keep", "best needs inputs to judge by", "holdout 0", "Hold out 3000 inputs.")
        if (self.mean is None) != (self.std is None):
            raise ArgumentError("mean, std", "must be given together", "only one", "Give both.")
        if self.members and objective.classifier_for and self.classifier is None:
            rule = f"{objective.name} needs the classifier {objective.classifier_for}"
            raise ArgumentError("classifier", rule, "none", "Give its model spec.")
        if count == 1 and objective.grouping != "alone":
            how = "together" if objective.grouping == "together" else "one by one"
            raise ArgumentError("members", f"{objective.name} trains at least two members {how}", count, "Use 3.")

    @property
    def unit_noise(self) -> Noise:
        """The noise that is added, at scale 1."""
        return noise_with(self.noise, 1.0)

    @property
    def arch(self) -> str:
        """The members' architectures in one word: ``lenet`` if they are all that, else ``a,a,b``."""
        return self.members[0] if len(set(self.members)) == 1 else ",".join(self.members)

    @property
    def trainings(self) -> range:
        """One training per member, numbered like it; members trained together are the training 0."""
        return range(1 if self.objective.grouping == "together" else len(self.members))

    def micro_batch(self, devices: int) -> int:
        """Inputs of one forward on each of so many devices."""
        return self.batch // (devices * self.accumulate)

    def generator_seed(self, *parts: int | str) -> int:
        """A 63-bit seed that depends on the job's seed and these parts alone."""
        text = "|".join(map(str, (self.seed, *parts)))
        return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") >> 1

    def config(self) -> dict[str, Any]:
        """All of it as plain values, for config.json."""
        own = plain_settings(self)
        networks = {name: own.pop(name) for name in _OF_NETWORKS}
        plan = {"objective": self.objective.settings(), "schedule": plain_settings(self.schedule), **own}
        arch = {"arch": self.arch, "members": len(self.members)} if self.members else {"arch": None, "members": 0}
        mean, std = (None if value is None else list(value) for value in (self.mean, self.std))
        return {**arch, "mean": mean, "std": std, **networks, "plan": plan}

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> TrainingJob:
        """The inverse of ``config``; what an older config does not hold has the value it had then, the default."""
        try:
            networks = {key: value for key, value in config.items() if key not in ("arch", "members", "plan")}
            plan = dict(config["plan"])
            objective, schedule = stored_objective(plan.pop("objective")), Schedule(**plan.pop("schedule"))
            for name in ("mean", "std"):
                networks[name] = None if networks.get(name) is None else tuple(networks[name])
            members = member_names(config["arch"], int(config["members"])) if config["members"] else ()
            return cls(objective=objective, schedule=schedule, members=members, **plan, **networks)
        except (KeyError, TypeError, ValueError, AttributeError, RingfenceError) as error:
            rule, remedy = "must be the settings of a training", "Settings that this version does not know?"
            raise ArgumentError("config", rule, error, remedy) from error


def member_names(arch: str, members: int | None = None) -> tuple[str, ...]:
    """The architecture of each member: one name for all of them, or as many names with commas between."""
    names = [one.strip() for one in arch.split(",")]
    count = len(names) if members is None else members
    if count < 1:
        raise ArgumentError("members", "must be at least 1", members, "Most sources use 3.")
    if len(names) not in (1, count):
        rule = f"must name one architecture, or one for each of {count} members"
        raise ArgumentError("arch", rule, f"{len(names)} names", "Repeat names: a,a,b.")
    return tuple(names * count if len(names) == 1 else names)
