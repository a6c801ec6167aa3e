"""Prepares a sitting on a GPU that is lent for a while, on a machine without network, and takes in what came back.

    python tools/lent_gpu.py prepare --data DIR     # here, before: carry/, and a tree that can travel
    bash tools/lent_call.sh OUT MINUTES [WORD]      # there, as prepare prints it for each call
    python tools/lent_gpu.py take OUT [OUT ...]     # here, afterwards: the folder that each call left, in their order

A call takes the steps of reproduce/stretches.yaml whose data are there, in that order, and goes on with what the one
before it left. The first compiles beside them what the second measures before its steps, with nothing else on the
device (benchmarks/gpu_sitting.py); beside those of the third the tests of GPUs run. Each step packs into a folder of
its own. A step's program (`then`) writes what was found into the sweep file: there in every call, whose tree comes
from here, and here at the end.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "reproduce"), str(ROOT / "reproduce" / "left")]

import keep  # noqa: E402
import paper_sweeps  # noqa: E402
from stretch_plan import Step, steps  # noqa: E402

from ringfence.errors import RingfenceError  # noqa: E402
from ringfence.sweep import Job, Limits, Packing, Sweep, unpack  # noqa: E402
from ringfence.sweep.carry import data_files  # noqa: E402

LIBRARIES = (
    "typer,rich,markdown-it-py,mdurl,shellingham,annotated-doc,pyyaml,pydantic,annotated-types,typing-inspection"
)
COMPILED = ("pydantic-core",)
"""Libraries that are compiled for one version of Python."""
MEASURED = "objectives"
TESTED = "tests engine kernels"
WORDS, LONG = ("ready", "measure", "test"), 5
"""Of the commands of the first calls that take so many minutes; shorter ones bring data."""
RESULTS = ("gpu.json", "gpu_limits.json", "gpu_training.json")
"""What a measurement leaves that has a table."""
HOME = ("zoo", "results", "reproduce/unfinished")
"""Folders that stay here: what is needed of them is carried."""
TESTS = ("tests", "docs", "results/benchmarks")
"""Folders that only measurements need."""
UNFINISHED = ROOT / "reproduce" / "unfinished"


def program(*words: str, codes: Sequence[int] = (0,)) -> str:
    """Run a program in the repository; what it printed."""
    done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode not in codes:
        raise SystemExit(f"{' '.join(words[:4])} ... ended with code {done.returncode}.\n{done.stdout}")
    return done.stdout


def reached(planned: Sequence[Step], minutes: float) -> list[Step]:
    """Those that are left and may begin within so many minutes, and wait for nobody."""
    found, at = list[Step](), 0.0
    for step in [one for one in planned if one.left]:
        if at < minutes and not any(one.by_hand and one.sweep == step.sweep for one in found):
            found.append(step)
            at += sum(step.left)
    return found


def wheels(python: str, folder: Path) -> Iterator[Path]:
    """Those of compiled libraries for another Python, of the versions that are installed here."""
    for name in COMPILED:
        kind = f"{name.replace('-', '_')}-{version(name)}-cp{python.replace('.', '')}-*.whl"
        if not any(folder.glob(kind)):
            words = ["--no-deps", "--python-version", python, "--only-binary=:all:", "-d", str(folder)]
            program(sys.executable, "-m", "pip", "download", "-q", *words, f"{name}=={version(name)}")
        yield next(folder.glob(kind))


def travelling(home: Sequence[str]) -> float:
    """MiB of the files that travel: tracked or unknown to git, in no folder that stays here."""
    names = program("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    kept = [name for name in names if not any(name.startswith(f"{one}/") for one in home)]
    kept += [name for name in names if name.startswith("results/benchmarks/") and TESTS[2] not in home]
    return sum((ROOT / name).stat().st_size for name in {*kept} if name and (ROOT / name).is_file()) / 2**20


def from_history(job: Job) -> bool:
    """Whether weights that left zoo/ were found in git, by their hashes, for a job that nobody needs to do again."""
    found = {job.out / name: held for name, held in keep.lost_weights(ROOT / job.out, ROOT) if held is not None}
    if not job.checked.makes or not all(one in found or (ROOT / one).exists() for one in job.checked.makes):
        return False
    shutil.copytree(ROOT / job.out, job.work.path / job.out, dirs_exist_ok=True)
    for file, held in found.items():
        (job.work.path / file).write_bytes(held)
    job.work.end(job, 0.0)
    job.work.keep(job)
    return True


def part_of(jobs: Sequence[Job], data: Path, carry: Path) -> int:
    """The last of the folders to carry in which these jobs find their data."""
    found = [1]
    for file in data_files([job for job in jobs if not job.done], data):
        name = file.relative_to(data).as_posix()
        found += [int(one.relative_to(carry).parts[0]) for one in carry.glob(f"*/data/{name}*")]
    return max(found)


def read(planned: Sequence[Step]) -> dict[str, Sweep]:
    """The sweep files of steps; what the repository keeps is done."""
    found = {one: keep.read(ROOT / "reproduce" / one, ROOT / "runs") for one in {step.sweep: 0 for step in planned}}
    for sweep in found.values():
        sweep.work.prepare(sweep.file.parent, None, (), ())
        sweep.work.adopt(sweep.jobs, [ROOT / "results"], [ROOT / "zoo"])
    return found


def lines(planned: Sequence[Step], data: Path, carry: Path) -> Iterator[str]:
    """A line of the script for each step; its mark is another where its jobs or their file are."""
    sweeps = read(planned)
    for number, step in enumerate(planned, 1):
        sweep = sweeps[step.sweep]
        mark = sha256(step.jobs.encode() + sweep.file.read_bytes()).hexdigest()[:12]
        phases = "train all" if step.apart else "all"
        part = part_of(sweep.chosen(step.names), data, carry)
        yield f'    go {number} {mark} {part} {step.together} "{phases}" "{step.jobs}" "{then(step, sweep)}"'


def then(step: Step, sweep: Sweep) -> str:
    """The words of a step's own program."""
    runs = sweep.work.path.relative_to(ROOT) / "runs"
    return f"{(Path('reproduce') / step.sweep).parent / step.then} {runs}" if step.then else ""


def prepare(options: argparse.Namespace) -> None:
    """Everything for the next sitting, and what to say in each call."""
    whole()
    (ROOT / "carry" / "1" / "steps.sh").unlink(missing_ok=True)
    calls = [int(one) for one in options.calls.split(",")]
    planned = reached(steps(paper_sweeps.entries), 2 * sum(calls))  # some wait for data, others may be fast
    carry, data = ROOT / "carry", options.data.resolve()
    home = HOME if options.measure else (*HOME, *TESTS)
    for sweep in read(planned).values():
        needed = {key for job in sweep.jobs if not job.done for key in job.needs}
        for job in [one for one in sweep.jobs if one.key in needed and not one.done and from_history(one)]:
            print(f"from git: {job.out}")
    room = options.tree_mib - travelling(home) - 1
    words = ["--data", str(data), "--kept", "results", "--carry", str(carry), "--carry-mib", f"{room:.1f}"]
    words += ["--unpack", str(UNFINISHED)] if any(UNFINISHED.glob("*.tgz")) else []
    libraries = ",".join([options.libraries, *map(str, wheels(options.python, carry / "wheels"))])
    planned = gathered(planned, [*words, "--libraries", libraries])
    limits = (
        f"SPARE={options.spare} FILES={options.files} MIB={options.file_mib - 2:g} TOTAL={int(options.total_mib) - 4}"
    )
    text = [
        limits,
        f'MEASURED="{options.measure}" TESTED="{TESTED}"',
        "steps() {",
        *lines(planned, data, carry),
        "}",
        "",
    ]
    (carry / "1" / "steps.sh").write_text("\n".join(text), encoding="utf-8")
    patterns = [f"!/{one}/*" if one == "results" else f"!/{one}" for one in home]
    patterns += ["/results/benchmarks"] if options.measure else []
    program("git", "sparse-checkout", "set", "--no-cone", "/*", *patterns)
    parts = sorted(int(one.name) for one in carry.iterdir() if one.name.isdecimal())
    print(f"The tree that travels: {travelling(()):.1f} MiB, and beside it each of carry/1 to {parts[-1]} fits.")
    calls += [calls[-1]] * (parts[-1] - len(calls))
    told = said(calls) if options.measure else {}
    for number, minutes in enumerate(calls, 1):
        carried = f"with carry/{number}" if number in parts else "on the same machine"
        command = f'bash tools/lent_call.sh "$OUT" {minutes} {told.get(number, "")}'.rstrip()
        print(f"call {number} ({minutes} minutes), {carried}: {command}")


def said(calls: Sequence[int]) -> dict[int, str]:
    """Call -> what the first ones that do more than bring data do besides their steps."""
    return dict(zip([number for number, minutes in enumerate(calls, 1) if minutes >= LONG], WORDS, strict=False))


def gathered(planned: Sequence[Step], words: Sequence[str]) -> Sequence[Step]:
    """The first of these steps, as many as find room: what all jobs need goes with the first call."""
    command = [sys.executable, "-m", "ringfence", "sweep"]
    for count in range(len(planned), 0, -1):
        asked = [*command, *(step.jobs for step in planned[:count]), *words]
        done = subprocess.run(asked, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        if done.returncode == 0 or "--carry-mib" not in done.stderr:
            print(done.stderr, end="")
            break
        print(f"no room for {planned[count - 1].jobs}")
    if not planned or done.returncode:
        raise SystemExit("Nothing is left, or finds room.")
    return planned[:count]


def whole() -> None:
    """All files of the repository."""
    program("git", "sparse-checkout", "disable")


def packings(out: Path) -> list[Path]:
    """Folders of what came back of a call: of its steps, in their order, and of the one that was killed."""
    return [*sorted((one for one in out.iterdir() if one.name.isdecimal()), key=lambda one: int(one.name)), out]


def take(options: argparse.Namespace) -> None:
    """Runs, networks and measurements of a sitting into the repository, and its pages anew."""
    whole()
    planned = steps(paper_sweeps.entries)
    sweeps = read(planned)
    every = [job for sweep in sweeps.values() for job in sweep.jobs]
    for place in [UNFINISHED, *(one for out in options.out for one in packings(out))]:
        try:
            told = unpack(place, every) if any(place.glob("*.tgz")) else []
        except RingfenceError as error:  # of one that is broken the others must not suffer
            told = [str(error)]
        print(*(f"not taken in from {place}: {one}\n" for one in told), sep="", end="")
    for step in [one for one in planned if one.then]:
        jobs = sweeps[step.sweep].chosen(step.names)
        if all(job.done for job in jobs) and not all(job.work.adopted(job) for job in jobs):
            print(program(sys.executable, *then(step, sweeps[step.sweep]).split()), end="")
    print(program(sys.executable, "tools/keep.py", *(f"reproduce/{one}" for one in sweeps)), end="")
    pack_unfinished(list(read(planned).values()), options.unfinished_mib)
    for file in sorted(one for out in options.out for one in out.glob("*.xml")):
        told = re.findall(r'(?:tests|failures|errors|skipped)="[0-9]+"', file.read_text(encoding="utf-8"))
        print(f"{file}: {' '.join(told[:4])}")
    if measured := [out / name for out in options.out for name in RESULTS if (out / name).exists()]:
        for file in measured:
            shutil.copy(file, ROOT / "results" / "benchmarks")
        print(program(sys.executable, "benchmarks/tables.py"), end="")
    print(program(sys.executable, "reproduce/pages.py"), end="")


def pack_unfinished(sweeps: Sequence[Sweep], mib: float) -> None:
    """What was begun and is nowhere else, to be committed: runs/ may be gone before the next sitting."""
    every = [job for sweep in sweeps for job in sweep.jobs]
    begun = [job for job in every if not job.done and (job.work.path / job.out).exists()]
    for key in Packing(begun, every, UNFINISHED, Limits(mib, 1), pictures=False).pack().left_out:
        print(f"too large for {UNFINISHED.relative_to(ROOT)}, and only in runs/: {key}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    first = verbs.add_parser("prepare")
    first.set_defaults(run=prepare)
    first.add_argument("--data", type=Path, required=True, help="folder of MNIST and CIFAR-10")
    first.add_argument("--calls", default="10,10,7", help="minutes that each command may take")
    first.add_argument("--spare", type=int, default=60, help="seconds of a call for stopping and packing")
    first.add_argument("--tree-mib", type=float, default=64, help="of all that travels with a call")
    first.add_argument("--files", type=int, default=8, help="that come back from a call")
    first.add_argument("--file-mib", type=float, default=16, help="of one that comes back")
    first.add_argument("--total-mib", type=float, default=64, help="of all that come back")
    first.add_argument("--python", default="3.12", help="version there")
    first.add_argument("--libraries", default=LIBRARIES, help="that are missing there, without compiled ones")
    first.add_argument("--measure", default=MEASURED, help='steps of benchmarks/gpu_sitting.py; "" for none')
    last = verbs.add_parser("take")
    last.set_defaults(run=take)
    last.add_argument("out", nargs="+", type=Path, help="a folder for each call, in their order")
    last.add_argument("--unfinished-mib", type=float, default=8, help="of what is begun, to be committed")
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
