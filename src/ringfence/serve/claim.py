"""What an answer claims: all that its radius follows from beside the counts."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from ringfence.procedures import Procedure
from ringfence.store import RunConfig
from ringfence.store.config import (
    ClassifierConfig,
    DataConfig,
    LiftConfig,
    Mechanisms,
    NoiseConfig,
    Positive,
    ProcedureConfig,
    Seed,
    plain,
)


class Wire(BaseModel):
    """Unknown entries are refused, and so are numbers that JSON has not."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Claim(Wire):
    """All that the radius follows from beside the counts: noise, lift, mechanisms, procedure, seed."""

    classes: Positive
    noise: NoiseConfig
    norm: str
    lift: LiftConfig
    mechanisms: Mechanisms
    procedure: ProcedureConfig
    precision: str
    seed: Seed

    @classmethod
    def of(cls, config: RunConfig, test: Procedure) -> Claim:
        """Of a config, with the procedure that answers requests."""
        shared = {name: getattr(config, name) for name in ("noise", "norm", "lift", "mechanisms", "precision", "seed")}
        told = ProcedureConfig(**plain({"name": test.name, **test.settings()}))
        return cls(classes=config.classifier.classes, procedure=told, **shared)

    def config(self) -> RunConfig:
        """As verification reads it: which classifier it was, and whose input, are no part of the arithmetic."""
        told = self.model_dump(exclude={"classes"})
        classifier, data = ClassifierConfig(tree="served", classes=self.classes), DataConfig(source="request")
        return RunConfig.model_validate({"classifier": classifier, "data": data, **told})
