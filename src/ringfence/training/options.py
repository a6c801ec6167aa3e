"""A job as flat options: what a command line, a sweep file or a recipe says, and the command that repeats a training.

Every option is a field of the job, of its schedule or of an objective; nothing is listed here. Recipes (recipes.toml)
are the sources' hyper-parameters by name, as options that every option of a user overrides.
"""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, final

from ringfence.errors import ArgumentError, Collected, did_you_mean
from ringfence.settings import Setting, plain_settings, settings_of
from ringfence.training.job import Schedule, TrainingJob, member_names
from ringfence.training.objectives import OBJECTIVES, bases_of, build_objective, default_objective
from ringfence.training.run import check_members


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
        remedy = did_you_mean(name, RECIPES, f"Known: {', '.join(RECIPES)}.", most=3)
        raise ArgumentError("recipe", "must be a known recipe", repr(name), remedy)
    return RECIPES[name]


DEFAULT_ARCH = "lenet"


def named_options() -> dict[str, str]:
    """Options that choose an objective, with their help."""
    built = {name: ", ".join(bases_of(kind)) for name, kind in OBJECTIVES.items() if bases_of(kind)}
    upon = "; ".join(f"{name}: {bases}" for name, bases in built.items())
    return {
        "objective": f"What is minimised ({', '.join(OBJECTIVES)}; the first by default).",
        "base": f"What the objective is built upon ({upon}; the first by default).",
    }


def job_options() -> dict[str, Setting]:
    """Options of the job and of its schedule by name."""
    return {one.option: one for kind in (TrainingJob, Schedule) for one in settings_of(kind).values()}


def objective_options() -> dict[str, tuple[Setting, str]]:
    """Settings of all objectives by name, each with a help that says whose it is."""
    owners: dict[str, dict[str, list[str]]] = {}
    found: dict[str, Setting] = {}
    for objective, kind in OBJECTIVES.items():
        for name, one in settings_of(kind).items():
            if found.setdefault(name, one).kind is not one.kind:
                raise ArgumentError(name, "has one type in all objectives", objective, "Rename the setting.")
            owners.setdefault(name, {}).setdefault(one.help, []).append(objective)
    said = {
        name: " ".join(help if len(who) > 4 else f"{', '.join(who)}: {help}" for help, who in texts.items())
        for name, texts in owners.items()
    }
    return {name: (one, said[name]) for name, one in found.items()}


def described_job(given: Mapping[str, Any], settings: Mapping[str, Any]) -> TrainingJob:
    """The job that options describe: ``objective``, ``base``, ``arch``, ``members`` and every one of ``job_options``.

    None is not given. With a ``recipe`` what is not given is its. settings: those of the objective, perhaps as text.
    """
    given = {name: value for name, value in given.items() if value is not None}
    if recipe := given.get("recipe"):
        known = find_recipe(recipe)
        if known.needs_init and "init" not in given:
            before = {name: known.options[name] for name in ("arch", "sigma")} | {"objective": known.options["base"]}
            alike = (name for name, one in RECIPES.items() if before.items() <= one.options.items())
            by = next((f"`recipe` {name}" for name in alike), f"`objective` {before['objective']}")
            rule = f"{recipe} fine-tunes trained members"
            raise ArgumentError("init", rule, "none", f"Train them first, by {by}, and name their folder.")
        own = dict(known.options)
        if "," in given.get("arch", ""):
            own.pop("members")
        given, settings = {**own, **given}, {**known.settings, **settings}
    wrong = Collected()
    named = (given.pop("arch", DEFAULT_ARCH), given.pop("members", None))
    members = wrong.ask(lambda: member_names(*named)) or ()
    wrong.ask(lambda: check_members(members))
    chosen = (given.pop("objective", next(iter(OBJECTIVES))), settings, given.pop("base", None))
    objective = wrong.ask(lambda: build_objective(*chosen)) or default_objective()
    steps = {name: given.pop(one.option) for name, one in settings_of(Schedule).items() if one.option in given}
    schedule = wrong.ask(lambda: Schedule(**steps)) or Schedule()
    if unknown := sorted(set(given) - set(job_options()) - {"mean", "std"}):
        raise ArgumentError("options", "must be options of a training", ", ".join(unknown), "Correct the name.")
    with wrong:
        job = TrainingJob(objective=objective, schedule=schedule, members=members, **given)
    wrong.tell()
    return job


def training_command(job: TrainingJob, out: str = "CKPT") -> str:
    """``ringfence train ...`` with every setting written out: nothing depends on a default of today."""
    return shlex.join(["ringfence", "train", *_words(job), "--out", out])


def _words(job: TrainingJob) -> Iterator[str]:
    yield from ("--objective", job.objective.name)
    settings = dict(job.objective.settings())
    base = settings.pop("base", None)
    if base is not None:
        yield from ("--base", base["name"])
    yield from ("--arch", job.arch, "--members", str(len(job.members)))
    for name, values in (("mean", job.mean), ("std", job.std)):
        if values is not None:
            yield from (f"--{name}", ",".join(map(str, values)))
    known = {name: one for name, (one, _) in objective_options().items()}
    own = plain_settings(job)
    own.pop("recipe")  # all that it said is written out
    yield from _setting_words(own, settings_of(TrainingJob))
    yield from _setting_words(plain_settings(job.schedule), settings_of(Schedule))
    yield from _setting_words({**(base or {}), **settings}, known)


def _setting_words(values: Mapping[str, Any], known: Mapping[str, Setting]) -> Iterator[str]:
    for name, value in values.items():
        if name not in known or value is None:
            continue
        if known[name].kind is not bool:
            yield from (known[name].flag, str(value))
        elif value or known[name].default:
            yield known[name].flag if value else known[name].flag.replace("--", "--no-", 1)
