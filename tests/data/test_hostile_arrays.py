"""Files of arrays that would hang or exhaust whoever reads them: refused with a message."""

from __future__ import annotations

import gzip
import io
import os
import zipfile
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from ringfence.data import load_dataset
from ringfence.data.originals import read_idx
from ringfence.errors import DataError


@pytest.mark.skipif(os.name != "posix", reason="pipes in folders are POSIX's")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.npz")
    writer = (tmp_path / "pipe.npz").open  # lets a reader that waits go on, so that the test fails and does not hang
    Thread(target=lambda: writer("wb").close(), daemon=True).start()
    with pytest.raises(DataError, match="must be a file"):
        load_dataset(str(tmp_path / "pipe.npz"))


def test_a_folder_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(DataError, match="must be a file"):
        load_dataset(str(tmp_path / "folder.npz"))


def test_a_header_may_claim_any_size(tmp_path: Path) -> None:
    header = io.BytesIO()
    shape = (10**12, 1, 28, 28)
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(tmp_path / "claims.npz", "w") as archive:
        archive.writestr("x.npy", header.getvalue() + bytes(100))
    with pytest.raises(DataError, match="fit into the memory"):
        load_dataset(str(tmp_path / "claims.npz"))


def test_damaged_compression_is_named(tmp_path: Path) -> None:
    whole = bytearray(gzip.compress(os.urandom(1000)))
    whole[10] = 0xFF  # a block type that does not exist
    (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(bytes(whole))
    with pytest.raises(DataError, match="readable idx file"):
        read_idx(tmp_path / "t10k-images-idx3-ubyte.gz")
