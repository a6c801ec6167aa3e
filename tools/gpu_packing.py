"""What comes back from a sitting at a GPU: archives small enough to travel, with all that is needed to go on.

Unpacked into a work folder they restore it: ``for one in zoo-*.tgz rest-*.tgz runs-*.tgz; do tar xzf $one; done``.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path

LIMIT = 14 * 2**20
"""Bytes of an archive at most; only a single file that is larger goes beyond it."""

ENTRY = 1536
"""Bytes that a file's header and padding take in a tar at most."""


def pack_zoo(zoo: Path, out: Path, limit: int = LIMIT) -> list[Path]:
    """``zoo-N.tgz``: weights, settings and logs; ``rest-N.tgz``: checkpoints of members that are not finished."""
    kept, unfinished = [], []
    for file in _files(zoo):
        if not _is_member(file.parent) or file.name == "log.csv":
            kept.append(file)
        elif not _finished(file.parent):
            unfinished.append(file)
    return [*pack(kept, zoo.parent, out, "zoo", limit), *pack(unfinished, zoo.parent, out, "rest", limit)]


def pack_runs(runs: Path, out: Path, limit: int = LIMIT) -> list[Path]:
    """``runs-N.tgz``: run folders, finished or not, without their locks."""
    return pack([file for file in _files(runs) if file.name != "lock"], runs.parent, out, "runs", limit)


def pack(files: Iterable[Path], root: Path, out: Path, stem: str, limit: int = LIMIT) -> list[Path]:
    """The files, under their names below root, in as few archives ``stem-1.tgz``, ... as they fit in one by one."""
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob(f"{stem}-*.tgz"):
        old.unlink()
    groups: list[list[Path]] = []
    room: list[int] = []
    for file in sorted(files):
        size = file.stat().st_size + ENTRY
        place = next((i for i, left in enumerate(room) if left >= size), len(groups))
        if place == len(groups):
            groups.append([])
            room.append(limit)
        groups[place].append(file)
        room[place] -= size
    archives = [out / f"{stem}-{number}.tgz" for number in range(1, len(groups) + 1)]
    for archive, group in zip(archives, groups, strict=True):
        with tarfile.open(archive, "w:gz", compresslevel=6) as tar:
            for file in group:
                tar.add(file, arcname=file.relative_to(root).as_posix(), recursive=False)
        print(f"{archive.name}: {len(group)} files, {archive.stat().st_size / 2**20:.1f} MiB", flush=True)
    return archives


def keep(
    zoo: Path,
    runs: Path,
    zoo_place: Path,
    results_place: Path,
    members: Mapping[str, int] | None = None,
    pictures: bool = True,
) -> None:
    """Copy finished trainings to zoo_place and finished runs, verified, to results_place, in place of earlier ones.

    members: how many to keep of a training, by its name, where that is not all of them; hashes are kept of all.
    pictures: whether those of the inputs are kept, with one run.
    """
    from keep_runs import pack as keep_run

    from ringfence.models.zoo import SUMS

    for config in sorted(zoo.glob("*/config.json")):
        if not trained(config.parent):
            continue
        found = json.loads(config.read_text(encoding="utf-8"))
        place = zoo_place / config.parent.name
        if place.exists():
            shutil.rmtree(place)
        place.mkdir(parents=True)
        every = finals(config.parent)
        first = every[: (members or {}).get(config.parent.name, len(every))]
        for file in first:
            shutil.copy(file, place)
        if len(first) < len(every):
            lines = [f"{sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in every]
            (place / SUMS).write_text("".join(lines), encoding="utf-8")
        if found.get("init"):  # where those weights are kept, not where the training found them
            found["init"] = (Path(zoo_place.parent.name) / zoo_place.name / Path(found["init"]).name).as_posix()
        (place / "config.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    finished = sorted(file.parent for file in runs.glob("*/summary.json"))
    pictured: set[str] = set()
    if pictures:
        pictured = {file.parent.name for file in results_place.glob("*/summary.json") if _pictured(file.parent)}
        pictured = pictured or {folder.name for folder in finished[:1]}
    for folder in finished:
        keep_run(folder, results_place / folder.name, pictures=folder.name in pictured)
    print(f"{len(finished)} runs kept; now write the table, and zoo/README.md with tools/zoo_readme.py", flush=True)


def _pictured(run: Path) -> bool:
    """Whether a run folder has pictures of its inputs."""
    from ringfence.store import RunFolder

    return any(one.thumbnail is not None for one in RunFolder.open(run).inputs())


def finals(training: Path) -> list[Path]:
    """Where the members of a training end up."""
    members = int(json.loads((training / "config.json").read_text(encoding="utf-8"))["members"])
    return [training / f"final-{i}.safetensors" for i in range(members)]


def trained(training: Path) -> bool:
    """Whether every member of a training is there."""
    return (training / "config.json").exists() and all(file.exists() for file in finals(training))


def _files(folder: Path) -> list[Path]:
    """Every file below a folder; what a stopped process was still writing is no file yet."""
    found = sorted(folder.rglob("*")) if folder.exists() else []
    return [path for path in found if path.is_file() and not path.name.startswith(".writing-")]


def _is_member(folder: Path) -> bool:
    """Whether checkpoints and the log of a training lie here."""
    return folder.name == "joint" or folder.name.startswith("member-")


def _finished(folder: Path) -> bool:
    """Whether the weights of ``member-<i>``, or of all that are trained together in ``joint``, were exported."""
    if folder.name == "joint":
        return trained(folder.parent)
    return (folder.parent / f"final-{folder.name.removeprefix('member-')}.safetensors").exists()
