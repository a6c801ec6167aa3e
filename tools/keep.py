"""Copies what sweeps finished from their work folders into the repository, and says what is left.

    python tools/keep.py [--unpack OUT] reproduce/FOLDER/FILE.yaml ... [--members NAME=3 ...] [--pictures]

--unpack takes in the archives that another machine packed (docs/sweep.md). Trainings that have all their members go to
zoo/, without checkpoints: weights of those that a job needs which no folder of results/ has yet, of the others hashes
alone; --members keeps the first so many of one. Finished runs are verified and go to results/, without pictures of the
inputs unless asked for. What was there under the same name is replaced; what is unfinished stays in runs/.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path

from keep_runs import pack as keep_run

from ringfence.cli.sweep_commands import SweepCommands
from ringfence.errors import one_line
from ringfence.models.zoo import SUMS
from ringfence.sweep import Sweep, SweepFolder, read_sweep, unpack

ROOT = Path(__file__).resolve().parents[1]


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
            name = summary.parent.name
            place = Path(str(results).format(task=name.partition("-")[0]))
            keep_run(summary.parent, place / name, pictures=pictures)
            kept.append(f"{place}/{name}")
    return kept


RESULTS = {"yang2020-norms": "norms", "cullen2022-simplex": "simplex", "patches": "smooth_reduce/{task}"}
RESULTS |= {"video": "smooth_reduce/video", "aces": "cifar10"}
"""Folders and files of reproduce/ whose runs are kept under another name than their zoo's; task: how a run's begins."""


def needed(sweeps: Iterable[Sweep], root: Path) -> set[Path]:
    """Trainings that a job needs which is not kept yet, as ``zoo/ZOO/NAME``."""
    kept = {file.parent.name for file in (root / "results").rglob("summary.json")}
    found = set[Path]()
    for sweep in sweeps:
        makes = {job.key: job.out for job in sweep.jobs}
        for job in sweep.jobs:
            there = (root / job.out / "config.json").exists() if job.command == "train" else job.name in kept
            if not there and not job.done:
                found |= {makes[key] for key in job.needs} | {Path("zoo") / one for one in job.given}
    return found


def keep_sweep(sweep: Sweep, wanted: set[Path], root: Path, members: Mapping[str, int], pictures: bool) -> list[str]:
    """What a sweep finished, into zoo/ and results/."""
    trainings = [job for job in sweep.jobs if job.command == "train"]
    hashes = {job.name: 0 for job in trainings if job.out not in wanted}
    zoo = root / trainings[0].out.parent if trainings else None
    return keep(sweep.work.path, zoo, root / "results" / results_of(sweep), {**hashes, **members}, pictures)


def results_of(sweep: Sweep) -> str:
    """The folder of results/ that its runs are kept in."""
    zoos = [job.out.parent.name for job in sweep.jobs if job.command == "train"]
    usual = RESULTS.get(sweep.file.resolve().parent.name, zoos[0] if zoos else sweep.file.stem)
    return RESULTS.get(sweep.file.stem, usual)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", help="sweep files, as `ringfence sweep` takes them")
    parser.add_argument("--unpack", type=Path, help="archives that another machine packed")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs", help="where the folders of sweeps are")
    parser.add_argument("--members", nargs="*", default=[], metavar="NAME=COUNT")
    parser.add_argument("--pictures", action="store_true")
    options = parser.parse_args()
    files = list(dict.fromkeys(Path(one if Path(one).exists() else one.rpartition(":")[0]) for one in options.files))
    every = [read(file, options.runs) for file in sorted({*files, *ROOT.glob("reproduce/*/*.yaml")}, key=str)]
    sweeps = [sweep for sweep in every if sweep.file in files]
    if options.unpack is not None:
        for stranger in unpack(options.unpack, [job for sweep in sweeps for job in sweep.jobs]):
            print(f"not taken in: what {options.unpack} holds of {stranger}; name its file, too")
    members = {name: int(count) for name, _, count in (one.rpartition("=") for one in options.members)}
    for sweep in sweeps:
        for one in keep_sweep(sweep, needed(every, ROOT), ROOT, members, options.pictures):
            print(f"kept: {one}")
        left = [job for job in sweep.jobs if not job.done and (sweep.work.path / job.out).exists()]
        for job in left:
            print(f"unfinished, in {sweep.work.path}: {job.key}: {one_line(sweep.work.last_words(job))}")
    print(f"zoo/ holds {sum(f.stat().st_size for f in (ROOT / 'zoo').rglob('*') if f.is_file()) / 2**20:.1f} MiB")
    print("what is left: python reproduce/pages.py left")


def read(file: Path, runs: Path) -> Sweep:
    """A sweep in its folder; networks that no zoo has are no problem here."""
    work = SweepFolder(runs / file.stem, file.stem)
    return read_sweep(file, SweepCommands(), False, [work.path / "zoo", ROOT / "zoo"], work, wanted=lambda _: False)


if __name__ == "__main__":
    main()
