"""A sweep file (reproduce/*.yaml) as commands of the ``ringfence`` program; tools/sweep.py runs them.

zoo: cifar10                          trained members lie in zoo/cifar10/NAME
words: {images: "--data cifar10:data"}  said once, written {images} in jobs
gpu: {train: ..., certify: ...}         words that every job gets on a GPU
tiny: {train: ..., certify: ...}        words that every job gets instead, to see that it runs
train:
- name: gaussian-{sigma}                each: values of the braces; all combinations of a mapping, one after the
  each: {sigma: ["0.25", "0.5"]}        other of a list of mappings
  words: "--recipe ... {images}"
  members: 1                            how many networks it ends with
  needs: [other-training]               trainings that must be finished before
  minutes: 9                            expected device time
  tiny: "--batch 2"                     further words of this job where tiny
certify:
- name: gaussian-{sigma}-fixed
  words: "certify --model zoo:cifar10/gaussian-{sigma}:0 ..."
  needs: [gaussian-{sigma}]
  published: {source: "...", ...}       what the page compares it with; not read here
"""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from cifar_commands import RUNS, Command

JOB = {"name", "each", "words", "members", "needs", "minutes", "published", "tiny", "about"}
SWEEP = {"about", "zoo", "words", "gpu", "tiny", "train", "certify"}


def read_sweep(file: Path, tiny: bool = False) -> dict[str, list[Command]]:
    """The commands of each phase, ``train`` and ``certify``, in the order of the file."""
    sweep = yaml.safe_load(file.read_text(encoding="utf-8"))
    if unknown := set(sweep) - SWEEP:
        raise SystemExit(f"{file}: a sweep has {', '.join(sorted(SWEEP))}, not {', '.join(sorted(unknown))}.")
    return {phase: list(commands(file, sweep, phase, tiny)) for phase in ("train", "certify")}


def commands(file: Path, sweep: Mapping[str, Any], phase: str, tiny: bool) -> Iterator[Command]:
    """One for each job and each value of its braces."""
    zoo = Path("zoo") / sweep["zoo"]
    how = (sweep.get("tiny" if tiny else "gpu") or {}).get(phase, "")
    members = dict(trainings(sweep))
    for job in sweep.get(phase) or ():
        if unknown := set(job) - JOB:
            raise SystemExit(f"{file}, {job['name']}: a job has {', '.join(sorted(JOB))}, not {sorted(unknown)}.")
        for values in combinations(job.get("each")):
            known = {**sweep.get("words", {}), **values}
            name = filled(job["name"], known)
            words = shlex.split(filled(filled(job["words"], known), known))
            words += shlex.split(how) + (shlex.split(job.get("tiny", "")) if tiny else [])
            wanted = [filled(one, known) for one in job.get("needs", ())]
            needs = tuple(place for one in wanted for place in finals(zoo / one, members.get(one, 1)))
            if phase == "train":
                done = finals(zoo / name, members[name])
                yield Command(name, ("train", *words, "--out", str(zoo / name)), done, needs)
            else:
                yield Command(name, (*words, "--out", str(RUNS / name)), (RUNS / name / "summary.json",), needs)


def trainings(sweep: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Every training's name and how many networks it ends with."""
    for job in sweep.get("train") or ():
        for values in combinations(job.get("each")):
            yield filled(job["name"], values), int(job.get("members", 1))


def finals(training: Path, members: int) -> tuple[Path, ...]:
    """Where the members of a training end up."""
    return tuple(training / f"final-{i}.safetensors" for i in range(members))


def combinations(each: Any) -> Iterator[dict[str, str]]:
    """Every assignment of values: of one mapping all combinations, of a list of mappings those of each."""
    for one in each if isinstance(each, list) else [each or {}]:
        names = list(one)
        lists = [value if isinstance(value, list) else [value] for value in one.values()]
        for values in itertools.product(*lists):
            yield dict(zip(names, map(str, values), strict=True))


def filled(text: str, values: Mapping[str, str]) -> str:
    """The text with every {name} replaced; names without a value are an error."""
    try:
        return text.format_map(values)
    except KeyError as error:
        raise SystemExit(f"{text!r}: nothing says what {{{error.args[0]}}} is.") from None
