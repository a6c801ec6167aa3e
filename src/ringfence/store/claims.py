"""What a config says of its claims, as live values: procedure, mechanisms, the law of the noise, one of its lanes."""

from __future__ import annotations

from collections.abc import Sequence

from ringfence.errors import ArgumentError, RingfenceError
from ringfence.mechanisms import Mechanism, mechanism
from ringfence.procedures import Given, Procedure, procedure
from ringfence.stats import NoiseLaw
from ringfence.store.config import RunConfig


def procedure_in(config: RunConfig) -> Procedure:
    """The procedure with the run's settings."""
    return procedure(config.procedure.name, config.procedure.settings)


def procedure_of(config: RunConfig) -> Procedure | None:
    """The same; None for an imported log, whose procedure is not known."""
    try:
        return procedure_in(config)
    except RingfenceError:
        return None


def mechanisms_in(config: RunConfig) -> Sequence[Mechanism]:
    """The one that decides, then those that are recorded beside it."""
    return [mechanism(name) for name in config.mechanisms]


def given_in(config: RunConfig) -> Given:
    """What was fixed before sampling; names in the config that nobody knows are refused."""
    noise = config.noise
    law = NoiseLaw(noise.family, noise.sigma, noise.form, noise.lattice)
    law = law if noise.coordinates is None else law.over(noise.coordinates)
    return Given(config.classifier.classes, law, mechanisms_in(config)[0], config.lift.norm_bound)


def given_of(config: RunConfig) -> Given | None:
    """The same; None where the config names a mechanism or a noise that is not known here."""
    try:
        return given_in(config)
    except RingfenceError:
        return None


def one_lane(lanes: Sequence[str], asked: str | None) -> str:
    """The lane that was asked for; where there are several, one must be."""
    if asked is None and len(lanes) == 1:
        return lanes[0]
    if asked is None or asked not in lanes:
        received = "none" if asked is None else repr(asked)
        raise ArgumentError("lane", f"must be one of {', '.join(lanes)}", received, "Name one of them.")
    return asked
