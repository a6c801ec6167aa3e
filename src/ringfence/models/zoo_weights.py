"""Weights known by their hash: found in any file, folder or archive, and kept under it in a folder of the user's.

So the zoo's weights need live neither in the repository nor in the package, which keep their names and hashes alone.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import IO

from ringfence.caches import cache_folder
from ringfence.errors import ModelError

CACHE = "RINGFENCE_WEIGHTS"
"""Environment variable that names the folder of kept weights."""
_DAMAGED = (OSError, EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile, NotImplementedError, RuntimeError)
"""What reading somebody's archive may raise."""


def weights_folder() -> Path:
    """Where added weights are kept."""
    return cache_folder(CACHE, "weights")


def kept_weights(digest: str) -> Path | None:
    """The file with this SHA-256 where one was added."""
    path = weights_folder() / f"{digest}.safetensors"
    return path if path.is_file() else None


def check_kept(path: Path, digest: str) -> None:
    """Refuse a file that has become another one."""
    if (found := digest_of(path)) != digest:
        remedy = f"Remove it, and add it again: ringfence zoo add FILE ({digest})."
        rule = "must be what its name or SHA256SUMS says"
        raise ModelError(path, rule, f"other bytes, of sha256 {found}", remedy)


def digest_of(path: Path) -> str:
    """The hash by which a file is known."""
    with path.open("rb") as file:
        return _digest(file)


def add_weights(places: Sequence[Path], wanted: Container[str]) -> list[str]:
    """Keep every file with a wanted hash, in files, folders and archives; nothing is unpacked or run. Their hashes."""
    seen: list[str] = []
    for place in places:
        if not place.exists():
            raise ModelError(place, "must be a file, a folder or an archive", "nothing of that name", "Check it.")
        for file in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if file.is_file():  # a pipe would wait for its writer
                seen += _kept_of(file, wanted)
    found = list(dict.fromkeys(digest for digest in seen if digest in wanted))
    if not found:
        rule, remedy = "must hold weights of the zoo", "ringfence zoo list --json tells the hashes that are absent."
        received = f"{len(seen)} files, none with a hash of the zoo's"
        raise ModelError(", ".join(map(str, places)), rule, received, remedy)
    return found


def _kept_of(file: Path, wanted: Container[str]) -> list[str]:
    """Hashes of the file, or of those in it if it is an archive; the wanted ones are kept."""
    found = []
    try:
        for opened in _opened(file):
            digest = _digest(opened)
            found.append(digest)
            if digest in wanted:
                opened.seek(0)
                _keep(opened, digest)
    except _DAMAGED as error:
        raise ModelError(file, "must be a file or archive that can be read", error, "Copy it anew.") from error
    return found


def _opened(file: Path) -> Iterator[IO[bytes]]:
    """The file, or those in an archive, one after the other."""
    if tarfile.is_tarfile(file):
        with tarfile.open(file) as tar:
            yield from (part for one in tar if one.isfile() and (part := tar.extractfile(one)))
    elif zipfile.is_zipfile(file) and file.suffix == ".zip":  # a checkpoint of torch is a zip, too
        with zipfile.ZipFile(file) as archive:
            yield from (archive.open(one) for one in archive.infolist() if not one.is_dir())
    else:
        with file.open("rb") as plain:
            yield plain


def _digest(file: IO[bytes]) -> str:
    return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


def _keep(file: IO[bytes], digest: str) -> None:
    folder = weights_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as copy:
            while part := file.read(2**20):
                copy.write(part)
        os.replace(copy.name, folder / f"{digest}.safetensors")
    except OSError as error:
        remedy = f"Set {CACHE} to a folder that can be written."
        raise ModelError(folder, "must take a copy of the weights", error, remedy) from error
