"""A pipe where a log is expected would wait for its writer for ever: it is refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from ringfence.errors import StoreError
from ringfence.store.logs import read_cohen, read_component


@pytest.mark.skipif(os.name != "posix", reason="pipes in folders are POSIX's")
@pytest.mark.parametrize("reader", [read_cohen, read_component])
def test_a_pipe_is_no_log(reader: Callable[[Path], object], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    writer = (tmp_path / "log").open  # lets a reader that waits go on, so that the test fails and does not hang
    Thread(target=lambda: writer("wb").close(), daemon=True).start()
    with pytest.raises(StoreError, match="not a file"):
        reader(tmp_path / "log")
