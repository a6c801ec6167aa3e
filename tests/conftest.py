"""Shared by all tests."""

from __future__ import annotations

import gc
import os
import shutil
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ringfence.sampling import Forward
    from ringfence.store import RunFolder

# Before torch is loaded: the suite runs one worker per core, and threads of several workers only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Before a Ray is started: it kills workers that take a minute to begin, and others where a machine has little memory,
# and has all of them give way to everything else, so that on a busy machine they hardly get on.
os.environ.setdefault("RAY_worker_register_timeout_seconds", "600")
os.environ.setdefault("RAY_memory_monitor_refresh_ms", "0")
os.environ.setdefault("RAY_worker_niceness", "0")

# Before the consoles are made, which read it once: what a test sees must not depend on the order of the tests.
os.environ["COLUMNS"] = "200"

with suppress(ImportError):  # which a machine that only has a GPU may do without
    from hypothesis import HealthCheck, settings

    # A busy machine takes longer than 0.2 s for anything, and than a second for the first few examples.
    settings.register_profile("any pace", settings(deadline=None, suppress_health_check=[HealthCheck.too_slow]))
    settings.load_profile("any pace")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Libraries and tests stay to the end: garbage is neither looked for while they come, nor among them later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data beside the checkout; tests that use it skip where it is missing."""
    if not SHARED.is_dir():
        pytest.skip("no shared/ folder beside this checkout")
    return SHARED


@pytest.fixture(scope="session")
def fake_run() -> Callable[..., RunFolder]:
    """Make a run folder without a network."""
    from fake_runs import fake_run

    return fake_run


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless browser: RINGFENCE_CHROMIUM, or the chromium on the path."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright, of the dev extra")
    path = os.environ.get("RINGFENCE_CHROMIUM") or shutil.which("chromium")
    if not path:
        pytest.skip("no browser: install chromium, or name one in RINGFENCE_CHROMIUM")
    off = ("gpu", "quic", "background-networking", "component-update", "sync")
    flags = ["--headless", "--no-sandbox", "--no-first-run", *(f"--disable-{one}" for one in off)]
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=path, args=flags)  # with a fresh profile of its own
        yield running
        running.close()


@pytest.fixture(autouse=True)
def _the_same_draws_whatever_ran_before() -> None:
    """Tests that draw without a seed of their own draw the same in any order, alone or among others."""
    import numpy as np
    import torch

    np.random.seed(0)  # noqa: NPY002, what libraries draw from
    torch.manual_seed(0)


def _registered() -> tuple[int, ...]:
    """What options of commands are made from, as far as it is imported."""
    from ringfence.extending import KINDS

    rooms = [(sys.modules[home.room], home.name) for home in KINDS.values() if home.room in sys.modules]
    return tuple(id(part) for room, name in rooms for part in getattr(room, name).values())


@pytest.fixture(scope="session", autouse=True)
def _commands_are_built_once() -> Iterator[None]:
    """Nine tenths of a call of the command line in this process went into what is the same for every call."""
    patch = pytest.MonkeyPatch()
    with suppress(ImportError):  # a machine that only has a GPU may do without typer
        from typer import testing

        from ringfence import extending

        build = testing._get_command
        built = cache(lambda app, registered: build(app))
        patch.setattr(testing, "_get_command", lambda app: built(app, _registered()))
        patch.setattr(extending, "entry_points", cache(extending.entry_points))
    yield
    patch.undo()


@pytest.fixture(scope="session", autouse=True)
def _nothing_waits_for_the_disk() -> Iterator[None]:
    """Only power loss would notice whether files that are about to be deleted reached the disk."""

    def fsync(descriptor: int) -> None:
        os.fstat(descriptor)  # one that is closed is still refused

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        yield


@pytest.fixture(scope="session", autouse=True)
def _plans_are_tried_once() -> Iterator[dict[str, Any]]:
    """On a CPU one plan is tried, once: measuring which is fastest took as long as what most tests do with it."""
    import torch

    from ringfence.sampling import probe

    usual = {name: getattr(probe, name) for name in ("CPU_BATCHES", "_seconds")}

    def tried(forward: Forward, shape: tuple[int, ...]) -> float:
        if forward.device.type != "cpu":
            return float(usual["_seconds"](forward, shape))
        forward(torch.randn(forward.plan.batch, *shape))
        return 1e-3  # so fast that nothing is compiled

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probe, "CPU_BATCHES", (100,))
        patch.setattr(probe, "_seconds", tried)
        yield usual


@pytest.fixture
def measured(_plans_are_tried_once: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans are measured, as everywhere outside of tests."""
    from ringfence.sampling import probe

    for name, part in _plans_are_tried_once.items():
        monkeypatch.setattr(probe, name, part)


@pytest.fixture
def registries(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test registers, or loads as a plugin, is forgotten after it."""
    from importlib import import_module

    from typer.main import get_command

    from ringfence.extending import KINDS, PLUGINS
    from ringfence.stats import FAMILIES

    monkeypatch.setenv(PLUGINS, "")
    monkeypatch.setattr("typer.testing._get_command", get_command)  # what --plugin registers comes too late to be seen
    kept = [getattr(import_module(home.room), home.name) for home in KINDS.values()]
    before = [(registry, dict(registry)) for registry in (FAMILIES, *kept)]
    yield
    for registry, known in before:
        registry.clear()
        registry.update(known)
