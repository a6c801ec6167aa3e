"""Named recipes: the sources' hyper-parameters (recipes.toml), as options that every option of a user overrides."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, final

from ringfence.errors import ArgumentError


@final
@dataclass(frozen=True)
class Recipe:
    """Options of a training and settings of its objective; needs_init: whether it starts from trained members."""

    options: Mapping[str, Any]
    settings: Mapping[str, Any]
    source: str
    needs_init: bool = False


def _read() -> Iterator[tuple[str, Recipe]]:
    tables = tomllib.loads(files(__package__).joinpath("recipes.toml").read_text(encoding="utf-8"))
    common = tables.pop("common")
    for name, table in tables.items():
        every = {**common["plain"], **common[table.pop("like")], **table}
        settings, source = every.pop("set", {}), every.pop("source")
        cut, needs_init = every.pop("cut_batch", False), every.pop("needs_init", False)
        for place, sigma in enumerate(every["sigma"]):
            options, own = _at(every, place), _at(settings, place)
            options["batch"] //= own["copies"] if cut else 1
            yield f"{name}-{'1.0' if sigma == 1 else f'{sigma:g}'}", Recipe(options, own, source, needs_init)


def _at(values: Mapping[str, Any], place: int) -> dict[str, Any]:
    """The values of one sigma."""
    return {name: value[place] if isinstance(value, list) else value for name, value in values.items()}


RECIPES: dict[str, Recipe] = dict(_read())
"""Every recipe by name."""


def find_recipe(name: str) -> Recipe:
    """The recipe of this name."""
    if name not in RECIPES:
        raise ArgumentError("recipe", "must be a known recipe", repr(name), f"Known: {', '.join(RECIPES)}.")
    return RECIPES[name]
