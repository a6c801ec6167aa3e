"""What goes over the wire, typed: answers hold every field of a record, and settings as run folders write them."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field
from torch import Tensor

from ringfence.contradictions import contradicted
from ringfence.record import Record, StageTally
from ringfence.serve.asked import Asked
from ringfence.serve.claim import Claim, Wire
from ringfence.serve.limits import Question
from ringfence.serve.model import Model
from ringfence.serve.served import input_hash
from ringfence.store.config import Count, NoiseConfig, ProcedureConfig
from ringfence.types import ABSTAIN

Hex = Annotated[str, Field(pattern=r"^[0-9a-f]+$")]
SHARED = ("radius", "norm", "alpha", "p_a", "p_b", "sound", "draws", "forwards", "seconds", "lift_norm")
"""Fields that an answer and its record have alike."""


class Counts(Wire):
    """What one request for draws brought: per class how many noisy copies were put into it, the last cell invalid."""

    stage: Count
    start: Count
    draws: Count
    cells: dict[str, list[Count]]


class Answer(Wire):
    """The class and the radius within which it cannot change, wrong with probability at most alpha; and the evidence.

    prediction: null where nothing is claimed; noise_key: which draws the input got, in hexadecimal;
    stopped: at what asked for (decided), at the most draws, or when the time was over.
    """

    model: str
    prediction: int | None
    class_name: str | None = None
    radius: float
    norm: str
    alpha: float
    p_a: float
    p_b: float
    stopped: Literal["decided", "draws", "deadline"]
    asked: Question
    sound: bool
    draws: int
    forwards: int
    seconds: float
    lift_norm: float
    radii: dict[str, float]
    spent: dict[str, float]
    stages: list[Counts]
    input_sha256: Hex
    config_hash: Hex
    noise_key: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    claim: Claim

    @classmethod
    def of(cls, served: Model, asked: Asked, record: Record) -> Answer:
        """What is answered to a request."""
        names, top = served.class_names, None if record.abstained else record.prediction
        last = record.draws >= asked.test.most_draws
        stages = [
            Counts(
                stage=one.stage,
                start=one.start,
                draws=one.draws,
                cells={name: cells.tolist() for name, cells in one.cells.items()},
            )
            for one in record.stages
        ]
        return cls(
            model=served.name,
            prediction=top,
            class_name=None if names is None or top is None else str(names[top]),
            stopped="deadline" if asked.timing.late else "draws" if last else "decided",
            asked=asked.question,
            radii=dict(record.radii),
            spent=dict(record.spent),
            stages=stages,
            input_sha256=input_hash(asked.x),
            config_hash=served.config_hash,
            noise_key=f"{record.input_id & (2**64 - 1):016x}",
            claim=served.claim(asked.test),
            **{name: getattr(record, name) for name in SHARED},
        )

    def record(self) -> Record:
        """The record that it was made of."""
        key = int(self.noise_key, 16)
        return Record(
            input_id=key - 2**64 if key >= 2**63 else key,
            lane="main",
            label=None,
            prediction=ABSTAIN if self.prediction is None else self.prediction,
            procedure=self.claim.procedure.name,
            seed=self.claim.seed,
            radii=self.radii,
            spent=self.spent,
            stages=tuple(
                StageTally(one.stage, one.start, one.draws, {k: np.array(v, np.int64) for k, v in one.cells.items()})
                for one in self.stages
            ),
            config_hash=self.config_hash,
            **{name: getattr(self, name) for name in SHARED},
        )

    def wrong(self, x: Tensor | None = None) -> list[str]:
        """Everything that does not follow from the counts, or is not about this input; empty when all agrees."""
        found = [
            f"{one.what} is given as {one.stored}, it should be {one.recomputed}"
            for one in contradicted(self.claim.config(), [self.record()], "claim")
        ]
        if not self.sound:
            found.append("sound is false: nothing is proved about it")
        if self.asked.alpha != self.alpha:
            found.append(f"alpha is {self.alpha}, asked was {self.asked.alpha}")
        radii = list(self.claim.procedure.settings.get("radii") or [])
        if radii != ([] if self.asked.radius is None else [self.asked.radius]):
            found.append(f"it was decided for the radii {radii}, asked was {self.asked.radius}")
        if x is not None and input_hash(x) != self.input_sha256:
            found.append(f"input_sha256 is {self.input_sha256}, the input has {input_hash(x)}")
        return found


class ModelInfo(Wire):
    """What answers: its hash, the shape of its inputs, its noise, and the limits of requests."""

    name: str
    config_hash: Hex
    shape: list[int]
    classes: int
    class_names: list[str] | None
    noise: NoiseConfig
    norm: str
    procedure: ProcedureConfig
    least_alpha: float
    most_alpha: float
    usual_alpha: float
    most_seconds: float
    usual_seconds: float
    largest_radius: float
    key_id: str | None = None

    @classmethod
    def of(cls, served: Model, key_id: str | None) -> ModelInfo:
        """Of a model under service."""
        limits = served.limits
        test = served.test(Question(limits.alpha))
        return cls(
            name=served.name,
            config_hash=served.config_hash,
            shape=list(served.shape),
            classes=served.config.classifier.classes,
            class_names=None if served.class_names is None else list(served.class_names),
            noise=served.config.noise,
            norm=served.config.norm,
            procedure=served.claim(test).procedure,
            least_alpha=limits.least_alpha,
            most_alpha=limits.most_alpha,
            usual_alpha=limits.alpha,
            most_seconds=limits.seconds,
            usual_seconds=limits.usual_seconds,
            largest_radius=served.largest_radius(limits.alpha),
            key_id=key_id,
        )


class Models(Wire):
    """All models of a server, the first of which answers where none is named."""

    models: list[ModelInfo]


class Problem(Wire):
    """Why a request was refused: what was wrong, the rule, what came instead, what to do."""

    argument: str
    rule: str
    received: str
    remedy: str


class Refused(Wire):
    """The body of every error."""

    error: Problem


class JobState(Wire):
    """A batch: how many of its inputs are answered, and those answers in order, null where there is none yet.

    failed: place of an input -> why there is no answer. stopped: why nobody works on it until the server is started
    anew.
    """

    id: str
    model: str
    asked: Question
    state: Literal["waiting", "done"]
    inputs: int
    answered: int
    created: str
    answers: list[Answer | None] = Field(default=[])
    failed: dict[int, str] = Field(default={})
    stopped: str | None = None
