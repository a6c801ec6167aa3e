"""What ``ringfence train`` was told, as a TrainJob."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringfence.training.job import TrainJob


def make_job(
    data: str,
    out: Path,
    recipe: str | None,
    objective: str | None,
    base: str | None,
    members: int | None,
    arch: str | None,
    *,
    settings: dict[str, Any],
    schedule: dict[str, Any],
    options: dict[str, Any],
    **others: Any,
) -> TrainJob:
    """The recipe's settings with what the user gave on top; values of None were not given."""
    from ringfence.errors import ArgumentError
    from ringfence.training.job import TrainJob
    from ringfence.training.recipes import find_recipe

    options = {key: value for key, value in options.items() if value is not None}
    schedule = {key: value for key, value in schedule.items() if value is not None}
    if recipe is None:
        return TrainJob(
            data=data,
            out=out,
            arch=arch or "lenet",
            objective=objective or "gaussian",
            base=base,
            members=1 if members is None else members,
            settings=settings,
            schedule=schedule,
            options=options,
            **others,
        )
    known = find_recipe(recipe)
    if known.needs_init and others.get("init") is None:
        rule = f"{recipe} fine-tunes trained members"
        raise ArgumentError("--init", rule, "none", "Train them first (its gaussian or smoothadv recipe), then --init.")
    return TrainJob(
        data=data,
        out=out,
        arch=arch or known.arch,
        objective=objective or known.objective,
        base=base or known.base,
        members=known.members if members is None else members,
        settings={**known.settings, **settings},
        schedule={**known.schedule, **schedule},
        options={"sigma": known.sigma, **known.options, **options},
        recipe=recipe,
        **others,
    )


def pairs(words: list[str]) -> dict[str, Any]:
    """Settings of the objective, each name=value."""
    from ringfence.errors import ArgumentError

    found: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise ArgumentError("--set", "must be name=value", repr(word), "Write e.g. --set rho1=0.5.")
        found[name.strip().replace("-", "_")] = value.strip()
    return found
