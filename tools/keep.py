"""Copies what a sweep finished from its work folder into the repository.

    python tools/keep.py runs/cifar10 --zoo zoo/cifar10 --results results/cifar10 [--members NAME=3 ...] [--pictures]

Trainings that have all their members go to --zoo, without checkpoints; --members keeps only the first so many of one,
with the hashes of all. Finished runs are verified and go to --results, without pictures of the inputs unless asked for.
What was there under the same name is replaced.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from keep_runs import pack as keep_run

from ringfence.models.zoo import SUMS


def keep_training(training: Path, place: Path, members: int | None = None) -> bool:
    """Weights and settings of a finished training; whether it is one."""
    config = training / "config.json"
    found = json.loads(config.read_text(encoding="utf-8")) if config.exists() else {"members": 0}
    every = [training / f"final-{i}.safetensors" for i in range(int(found["members"]))]
    if not every or not all(file.exists() for file in every):
        return False
    if place.exists():
        shutil.rmtree(place)
    place.mkdir(parents=True)
    first = every[:members]
    for file in first:
        shutil.copy(file, place)
    if len(first) < len(every):
        lines = [f"{sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in every]
        (place / SUMS).write_text("".join(lines), encoding="utf-8")
    if found.get("init"):  # where those weights are kept, not where the training found them
        found["init"] = (Path(place.parents[1].name) / place.parent.name / Path(found["init"]).name).as_posix()
    (place / "config.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return True


def keep(work: Path, zoo: Path | None, results: Path | None, members: Mapping[str, int], pictures: bool) -> list[str]:
    """What was kept, by name."""
    kept = []
    for training in sorted((work / "zoo").glob("*/*")) if zoo is not None else ():
        if zoo is not None and keep_training(training, zoo / training.name, members.get(training.name)):
            kept.append(f"{zoo}/{training.name}")
    for summary in sorted((work / "runs").glob("*/summary.json")) if results is not None else ():
        if results is not None:
            keep_run(summary.parent, results / summary.parent.name, pictures=pictures)
            kept.append(f"{results}/{summary.parent.name}")
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path, help="the sweep's folder")
    parser.add_argument("--zoo", type=Path, help="where trainings go")
    parser.add_argument("--results", type=Path, help="where runs go")
    parser.add_argument("--members", nargs="*", default=[], metavar="NAME=COUNT")
    parser.add_argument("--pictures", action="store_true")
    options = parser.parse_args()
    members = {name: int(count) for name, _, count in (one.rpartition("=") for one in options.members)}
    for one in keep(options.work, options.zoo, options.results, members, options.pictures):
        print(f"kept: {one}")


if __name__ == "__main__":
    main()
