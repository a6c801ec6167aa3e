"""Copies what sweeps finished from their work folders into the repository, and says what is left.

    python tools/keep.py [--unpack OUT] reproduce/FOLDER/FILE.yaml ... [--members NAME=3 ...] [--pictures]
    python tools/keep.py --drop
    python tools/keep.py --archive
    python tools/keep.py --restore

--unpack takes in the archives that another machine packed (docs/sweep.md). What a job of the files made goes to the
repository once, in the place of what was there under its name: never a copy that jobs were given, nor a second time.
Trainings go to zoo/, without checkpoints: weights of those that a job needs which no folder of results/ has yet, of the
others hashes alone, and what was measured on inputs that were held out; --members keeps the first so many of one. Runs
are verified and go to results/, without pictures of the inputs unless asked for. What is unfinished stays in runs/.

--drop takes weights out of zoo/ that nothing needs any more: no job that is left of any sweep file in reproduce/, no
example, test, page or program. Hashes, settings and so the command stay; zoo/README.md is written anew.
--archive also takes weights out that only such jobs need, where a commit holds them: ten ResNet-110 would not fit into
a small checkout. --restore brings back from the repository's history what those jobs need, as the hashes say.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path

import zoo_readme
from keep_runs import pack as keep_run

from ringfence.cli.sweep_commands import SweepCommands
from ringfence.errors import one_line
from ringfence.models.zoo import SUMS, read_sums
from ringfence.sweep import Job, Sweep, SweepFolder, read_sweep, unpack

ROOT = Path(__file__).resolve().parents[1]


Wanted = Callable[[Path], bool]
"""Whether somebody needs the weights of a training, zoo/ZOO/NAME."""


def keep(sweep: Sweep, wanted: Wanted, root: Path, members: Mapping[str, int], pictures: bool) -> Iterator[Path]:
    """What its jobs made and nobody kept yet, into zoo/ and results/; each place once it is there."""
    for job in [one for one in sweep.jobs if one.done and not sweep.work.adopted(one)]:
        source, place = sweep.work.path / job.out, place_of(job, sweep, root)
        if job.command == "train":
            keep_training(source, place, members.get(job.name, None if wanted(job.out) else 0))
        elif (source / "summary.json").exists():
            keep_run(source, place, pictures=pictures)
        else:
            continue
        sweep.work.keep(job)
        yield place


def keep_training(training: Path, place: Path, members: int | None) -> None:
    """Weights and settings of a finished training; of the first so many members, the hashes of all."""
    settings = json.loads((training / "config.json").read_text(encoding="utf-8"))
    every = [training / f"final-{i}.safetensors" for i in range(int(settings["members"]))]
    if place.exists():
        shutil.rmtree(place)
    place.mkdir(parents=True)
    for file in every:
        shutil.copy(file, place)
    if settings.get("init"):  # where those weights are kept, not where the training found them
        settings["init"] = (Path(place.parents[1].name) / place.parent.name / Path(settings["init"]).name).as_posix()
    (place / "config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    if settings.get("holdout"):  # what a choice rests on
        for log in sorted(training.glob("*/log.csv")):
            shutil.copy(log, place / f"{log.parent.name}.csv")
    if members is not None and members < len(every):
        keep_hashes(place, [place / file.name for file in every[members:]])


def keep_hashes(training: Path, without: Iterable[Path]) -> None:
    """Take these weights out of a training; the hashes of all its members stay."""
    found = {file.name: sha256(file.read_bytes()).hexdigest() for file in training.glob("final-*.safetensors")}
    known = {**found, **read_sums(training)}
    lines = [f"{known[name]}  {name}\n" for name in sorted(known, key=lambda name: (len(name), name))]
    (training / SUMS).write_text("".join(lines), encoding="utf-8")
    for file in without:
        file.unlink()


def restore(training: Path, root: Path) -> Iterator[tuple[str, bool]]:
    """Bring back weights of a training whose hashes alone are kept; each name, and whether the history has it."""
    for name, held in lost_weights(training, root):
        if held is not None:
            (training / name).write_bytes(held)
        yield name, held is not None


def lost_weights(training: Path, root: Path) -> Iterator[tuple[str, bytes | None]]:
    """Weights of a training whose hashes alone are kept, as the history has them; None where it has not."""
    for name, digest in read_sums(training).items():
        if not (training / name).exists():
            yield name, from_history((training / name).relative_to(root), digest, root)


def archive(training: Path, root: Path) -> bool:
    """Take weights of a training out that commits hold, all or none; whether it did."""
    weights = sorted(training.glob("final-*.safetensors"))

    def is_held(file: Path) -> bool:
        return from_history(file.relative_to(root), sha256(file.read_bytes()).hexdigest(), root) is not None

    if not weights or not all(map(is_held, weights)):
        return False
    keep_hashes(training, weights)
    return True


def from_history(path: Path, digest: str, root: Path) -> bytes | None:
    """What a file held that once had this hash; None where no commit at hand has it."""

    def git(*words: str) -> bytes:
        return subprocess.run(["git", "-C", str(root), *words], capture_output=True, check=False).stdout

    for commit in git("log", "--format=%H", "--", path.as_posix()).decode().split():
        held = git("show", f"{commit}:{path.as_posix()}")  # empty where the commit took it out
        if sha256(held).hexdigest() == digest:
            return held
    return None


RESULTS = {"yang2020-norms": "norms", "cullen2022-simplex": "simplex", "patches": "smooth_reduce/{task}"}
RESULTS |= {"video": "smooth_reduce/video", "aces": "cifar10"}
"""Folders and files of reproduce/ whose runs are kept under another name than their zoo's; task: how a run's begins."""


def wanted_in(sweeps: Iterable[Sweep], root: Path) -> Wanted:
    """What a job needs that is left, or a text of the repository names; all of them are read once, here."""
    left, is_named = needed(sweeps, root), named(root)
    return lambda training: training in left or is_named(training)


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


def place_of(job: Job, sweep: Sweep, root: Path) -> Path:
    """Where what a job makes is kept."""
    if job.command == "train":
        return root / job.out
    return root / "results" / results_of(sweep).format(task=job.name.partition("-")[0]) / job.name


def results_of(sweep: Sweep) -> str:
    """The folder of results/ that its runs are kept in."""
    zoos = [job.out.parent.name for job in sweep.jobs if job.command == "train"]
    usual = RESULTS.get(sweep.file.resolve().parent.name, zoos[0] if zoos else sweep.file.stem)
    return RESULTS.get(sweep.file.stem, usual)


TEXTS = (
    "README.md",
    *(f"{one}/**/*" for one in ("examples", "tests", "docs", "benchmarks", "tools", "src")),
    "reproduce/*/*.py",
)
"""Files whose networks must be there, beside those of the sweep files; of kinds that people write."""
KINDS = (".py", ".md", ".yaml", ".toml", ".ipynb")


def named(root: Path) -> Wanted:
    """Whether a text names the weights of a training."""
    files = {file for pattern in TEXTS for file in root.glob(pattern) if file.suffix in KINDS}
    texts = "\n".join(re.sub(r'["\'] / f?["\']', "/", file.read_text(encoding="utf-8")) for file in sorted(files))

    def is_named(training: Path) -> bool:
        name = re.escape(training.relative_to("zoo").as_posix())
        return re.search(rf"zoo(?:[:/]| path ){name}(?![\w-]|\.\d)", texts) is not None

    return is_named


def needless(wanted: Wanted, root: Path) -> list[Path]:
    """Trainings with weights in zoo/ that nobody wants."""
    there = sorted({file.parent for file in root.glob("zoo/*/*/final-*.safetensors")})
    return [one for one in there if (one / "config.json").exists() and not wanted(one.relative_to(root))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", help="sweep files, as `ringfence sweep` takes them")
    parser.add_argument("--unpack", type=Path, help="archives that another machine packed")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs", help="where the folders of sweeps are")
    parser.add_argument("--members", nargs="*", default=[], metavar="NAME=COUNT")
    parser.add_argument("--pictures", action="store_true")
    parser.add_argument("--drop", action="store_true", help="take weights out of zoo/ that nothing needs")
    parser.add_argument("--archive", action="store_true", help="and what only jobs that are left need, if committed")
    parser.add_argument("--restore", action="store_true", help="bring weights back that a job needs which is left")
    options = parser.parse_args()
    files = list(dict.fromkeys(Path(one if Path(one).exists() else one.rpartition(":")[0]) for one in options.files))
    every = [read(file, options.runs) for file in sorted({*files, *ROOT.glob("reproduce/*/*.yaml")}, key=str)]
    sweeps = [sweep for sweep in every if sweep.file in files]
    if options.unpack is not None:
        for told in unpack(options.unpack, [job for sweep in sweeps for job in sweep.jobs]):
            print(f"not taken in from {options.unpack}: {told}")
    members = {name: int(count) for name, _, count in (one.rpartition("=") for one in options.members)}
    wanted = wanted_in(every, ROOT)  # which keeping does not change
    for sweep in sweeps:
        for place in keep(sweep, wanted, ROOT, members, options.pictures):
            print(f"kept: {place.relative_to(ROOT)}")
        left = [job for job in sweep.jobs if not job.done and (sweep.work.path / job.out).exists()]
        for job in left:
            print(f"unfinished, in {sweep.work.path}: {job.key}: {one_line(sweep.work.last_words(job))}")
    if options.restore:
        for training in sorted(needed(every, ROOT)):
            for name, there in restore(ROOT / training, ROOT):
                print(f"{'restored' if there else 'not in the history here'}: {training / name}")
    if options.archive:
        is_named = named(ROOT)
        for training in sorted(one for one in needed(every, ROOT) if not is_named(one)):
            if archive(ROOT / training, ROOT):
                print(f"archived: {training}")
    tell_zoo(wanted, options.drop)


def tell_zoo(wanted: Wanted, drop: bool) -> None:
    """Take out what nothing needs, or say what that is; bring the zoo's list up to date."""
    for training in needless(wanted, ROOT):
        weights = sorted(training.glob("final-*.safetensors"))
        size = sum(file.stat().st_size for file in weights) / 2**20
        if drop:
            keep_hashes(training, weights)
        print(f"{'dropped' if drop else 'nothing needs'}: {training.relative_to(ROOT)} ({size:.1f} MiB)")
    zoo_readme.main()
    print(f"zoo/ holds {sum(f.stat().st_size for f in (ROOT / 'zoo').rglob('*') if f.is_file()) / 2**20:.1f} MiB")
    print("what is left: python reproduce/pages.py left")


def read(file: Path, runs: Path) -> Sweep:
    """A sweep in its folder; networks that no zoo has are no problem here."""
    work = SweepFolder(runs / file.stem, file.stem)
    return read_sweep(file, SweepCommands(), False, [work.path / "zoo", ROOT / "zoo"], work, wanted=lambda _: False)


if __name__ == "__main__":
    main()
