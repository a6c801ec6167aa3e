"""Every command that reads a run, over folders that hold anything at all: a result or an error, never a traceback."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from configs import part_paths
from pydantic import ValidationError
from simulated_runs import simulated_run, spread
from typer.testing import CliRunner

import ringfence as rf
from ringfence.cli import app
from ringfence.errors import RingfenceError
from ringfence.procedures import Fixed, Sequential
from ringfence.store import InputInfo, RecordWriter, RunConfig
from ringfence.store.folder import Answers
from ringfence.store.manifest import FILES, Entry, Manifest, digest_of
from ringfence.store.parts import part_bytes
from ringfence.store.schema import RECORD_SCHEMA, to_table

pytestmark = pytest.mark.filterwarnings("default")

COMMANDS: dict[str, list[object]] = {
    "metrics": ["metrics", "RUN"],
    "metrics --json": ["metrics", "RUN", "--json", "--radii", "0,0.1"],
    "best lane": ["metrics", "RUN", "--best-lane"],
    "compare": ["compare", "RUN", "RUN"],
    "envelope": ["compare", "RUN", "--envelope"],
    "export": ["export", "cohen", "RUN"],
    "verify": ["verify", "RUN"],
    "verify --json": ["verify", "RUN", "--partial", "--json"],
    "info": ["info", "RUN"],
    "frontier": ["aces", "frontier", "RUN"],
    "compose": ["aces", "compose", "--certification", "RUN", "--selection", "RUN", "--core", "RUN"],
    "simplex": ["simplex", "points", "RUN"],
}
QUICK = {name: COMMANDS[name] for name in ("metrics", "verify", "info")}
"""For folders that differ little from each other; the others of COMMANDS come through the same doors."""

REPORT: dict[str, list[object]] = {"report": ["report", "RUN", "--out", "PAGE"]}


def walk(run: Path, commands: dict[str, list[object]] | None = None) -> None:
    """Call every command; anything but a clean exit is raised."""
    runner = CliRunner()
    for name, words in (COMMANDS if commands is None else commands).items():
        named = {"RUN": run, "PAGE": run.parent / "page.html"}
        spoken = [str(named.get(str(word), word)) for word in words]
        try:
            result = runner.invoke(app, spoken, catch_exceptions=False)
        except Exception as error:
            raise AssertionError(f"{name}: {type(error).__name__}: {error}") from error
        assert result.exit_code in (0, 1, 2), (name, result.output)
        assert "Traceback" not in result.output


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of every file, without a network."""
    made = simulated_run(tmp_path / "run", Fixed(n=400), spread(6), range(6))
    made.add_environment({"ringfence": "test"})
    made.add_forward_plan({"batch": 20})
    made.write_inputs([InputInfo(one, 0, "name", np.zeros((2, 2, 3), np.uint8)) for one in range(6)])
    made.write_summary({"acr": 0.5})
    made.write_answers(Answers(inputs=[None], said=[["1 2"]]))
    with RecordWriter(made):
        made.note_inputs(6, {})
    return made.path


def forge(run: Path) -> None:
    """A manifest that fits whatever the folder now holds, as somebody who knows the format could write it."""
    files: dict[str, Entry] = {}
    for name in (*FILES, *(f"parts/{part.name}" for part in part_paths(run / "parts"))):
        if (run / name).is_file():
            try:
                rows = pq.read_metadata(run / name).num_rows if name.startswith("parts/") else None
            except (pa.ArrowException, OSError):
                rows = 6
            files[name] = Entry(blake2b=digest_of((run / name).read_bytes()), rows=rows)
    Manifest(config=digest(run) or "", inputs=6, files=files).save(run)


def digest(run: Path) -> str | None:
    try:
        return RunConfig.model_validate(json.loads((run / "config.json").read_text())).digest
    except (ValidationError, ValueError, RecursionError, AttributeError):
        return None


def rewrite(run: Path, change: Callable[[rf.Record], rf.Record]) -> None:
    """Every record changed, under a manifest and settings that fit."""
    records = rf.RunFolder.open(run).read()
    retable(run, to_table([replace(change(one), config_hash=digest(run) or "") for one in records]))


def retable(run: Path, table: pa.Table) -> None:
    (part,) = part_paths(run / "parts")
    part.write_bytes(part_bytes(table, 0, 0) if table.schema.equals(RECORD_SCHEMA) else parquet(table))
    forge(run)


def adopt(run: Path) -> None:
    """Records and a manifest that fit the settings that now stand in the folder, where those can be read at all."""
    forge(run)
    with suppress(RingfenceError):
        records = rf.RunFolder.open(run)
        table = pq.read_table(part_paths(run / "parts")[0])
        place = table.schema.get_field_index("config_hash")
        named = pa.array([records.digest] * len(table), pa.string())
        retable(run, table.set_column(place, table.schema.field(place), named))


def parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return bytes(sink.getvalue().to_pybytes())


JSON = ("config.json", "environment.json", "forward.json", "answers.json", "summary.json")
PLACES = ("manifest.json", *JSON, "inputs.parquet")


@pytest.mark.parametrize("place", [*PLACES, "parts/part-000000.parquet", "parts", "lock"])
@pytest.mark.parametrize(
    "harm",
    [
        "gone",
        "pipe",
        "cut",
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("folder", "link", "loop", "noise")),
    ],
)
def test_anything_in_the_place_of_a_file(run: Path, place: str, harm: str) -> None:
    path = run / place
    content = path.read_bytes() if path.is_file() else b""
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    if harm == "folder":
        path.mkdir()
    elif harm == "pipe":
        os.mkfifo(path)
    elif harm == "link":
        path.symlink_to("/dev/zero")
    elif harm == "loop":
        path.symlink_to(path)
    elif harm != "gone":
        random = np.random.default_rng(0).bytes(300)
        path.write_bytes({"cut": content[: len(content) // 2], "noise": random}[harm])
    walk(run, COMMANDS | REPORT if harm == "cut" else QUICK)


JSONS = [
    "null",
    "[]",
    "{}",
    '"x"',
    "5",
    "[1]",
    "[" * 50_000,
    "9" * 5000,
    "1e999",
    "NaN",
    '{"a": NaN}',
    '[{"a": []}, 3]',
]


@pytest.mark.parametrize("name", JSON)
def test_json_of_any_type_behind_a_manifest_that_fits(run: Path, name: str) -> None:
    whole = (run / name).read_bytes()
    for text in JSONS:
        (run / name).write_text(text)
        forge(run)
        walk(run, QUICK)
    (run / name).write_bytes(whole)


SETTINGS: dict[str, list[Any]] = {
    "noise.sigma": [1e308, 1e-308, 0.0, -1.0, "x", None, 10**400],
    "noise.family": ["", "unheard", "laplace", 5, None],
    "noise.form": ["", "unheard", "lattice", 5],
    "noise.lattice": [0, -1, 10**30, "x", 8],
    "noise": [{}, [], 5, None],
    "norm": ["", "l1", "linf", 5, None],
    "classifier.classes": [10**20, 0, -1, 2, 1.5, "ten"],
    "classifier.tree": ["", "soft(", "aces(certify=default, core=default:1, theta=0.5)", "unheard(default)", 5],
    "classifier.lanes": [
        [], [{"name": "other"}], [{"name": "main"}, {"name": "main"}], "x", [5], ["main"], [{"vote": "soft"}],
        [{"name": "main", "theta": "x"}], [{"name": "main", "member": 10**30}],
    ],
    "classifier.digest": ["v2 " * 1000, 5],
    "procedure.name": ["", "imported", "unheard", 5, "predict", "softmax", "aces", "after-smoothing", "sequential"],
    "procedure.n": [1e23, 10**23, -5, "many", True],
    "procedure.n0": [[1], 10**30, None],
    "procedure.alpha": ["x", 5, 1e-300, None],
    "procedure.radius": ["x", 0.1],
    "procedure.form": [7],
    "procedure": [{"name": "fixed"}, {}, [], 5, "fixed"],
    "mechanisms": [["unheard"], "x", [5], [], [""], ["renyi"]],
    "lift": [{"norm_bound": "x"}, {"norm_bound": 0}, {"norm_bound": -1}, {"norm_bound": "inf"}, [], {"norm_bound": []}],
    "lift.name": ["", "unheard", 5],
    "seed": [10**30, -1, "x", None],
    "data.count": [10**30, -1, True, "x"],
    "data.limit": [10**30, "x"],
    "data.skip": [0, "x"],
    "data.digest": ["v2 " * 1000, 5],
    "split_alpha": [True, 1, "yes"],
    "precision": ["", "fp8", 5],
    "schema_version": [0, 1, 3, 10**30, -1, "2", True, None],
    "migrated": [{"from": 1, "weights": "unheard"}, {"from": "x"}, [], 5],
    "extra": [{"split_alpha": True}, []],
}  # fmt: skip


@pytest.mark.parametrize("key", SETTINGS)
def test_mistyped_and_absurd_settings(run: Path, key: str) -> None:
    config = json.loads((run / "config.json").read_text())
    part, _, entry = key.partition(".")
    assert key == "extra" or part in config
    for value in SETTINGS[key]:
        changed = {**config[part], entry: value} if entry else value
        (run / "config.json").write_text(json.dumps({**config, part: changed}))
        adopt(run)
        walk(run, QUICK | {"compare": COMMANDS["compare"]})


@pytest.mark.parametrize("larger", ["x", 5, ["x"], [[]], {}, [0.01], None])
def test_absurd_radii_of_a_run_that_knew_them(tmp_path: Path, larger: object) -> None:
    run = simulated_run(tmp_path / "run", Sequential(radius=0.1, n=400), spread(3), range(3)).path
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, "procedure": {**config["procedure"], "larger": larger}}))
    adopt(run)
    walk(run, QUICK)


def test_a_run_of_a_known_radius_that_stopped_before_its_first_record(tmp_path: Path) -> None:
    run = simulated_run(tmp_path / "run", Sequential(radius=0.1, n=400), spread(3), range(3)).path
    for part in part_paths(run / "parts"):
        part.unlink()
    forge(run)
    assert not rf.RunFolder.open(run).read()
    walk(run)


def stages(record: rf.Record, **changes: Any) -> rf.Record:
    return replace(record, stages=tuple(replace(one, **changes) for one in record.stages))


HUGE = 2**63 - 1
RECORDS: dict[str, Callable[[rf.Record], rf.Record]] = {
    "nan": lambda r: replace(r, radius=float("nan"), p_a=float("nan"), seconds=float("nan"), alpha=float("nan")),
    "infinite": lambda r: replace(r, radius=float("inf"), p_a=float("inf"), seconds=float("inf"), alpha=-5.0),
    "target of nan": lambda r: replace(r, target=float("nan")),
    "infinite target": lambda r: replace(r, target=float("inf")),
    "huge": lambda r: replace(r, draws=HUGE, forwards=HUGE, seed=-HUGE, prediction=HUGE, label=HUGE),
    "negative": lambda r: replace(r, draws=-1, forwards=-1, prediction=-5, label=-7, seconds=-1.0),
    "ids": lambda r: replace(r, input_id=HUGE - r.input_id),
    "one id": lambda r: replace(r, input_id=0),
    "no stages": lambda r: replace(r, stages=()),
    "no draws": lambda r: stages(r, draws=0),
    "negative draws": lambda r: stages(r, draws=-100),
    "huge draws": lambda r: stages(r, draws=HUGE, start=HUGE, stage=2**31 - 1),
    "no cells": lambda r: stages(r, cells={}),
    "empty cells": lambda r: stages(r, cells={"votes": np.zeros(0, np.int64)}),
    "other cells": lambda r: stages(r, cells={"bits": np.array([1, 2])}),
    "scores": lambda r: stages(r, cells={"scores": np.array([1, 2])}),
    "members": lambda r: stages(r, cells={"member_votes": np.array([1, 2])}),
    "huge votes": lambda r: stages(r, cells={"votes": np.full(11, HUGE)}),
    "negative votes": lambda r: stages(r, cells={"votes": np.full(11, -HUGE)}),
    "wide votes": lambda r: stages(r, cells={"votes": np.ones(5000, np.int64)}),
    "lane": lambda r: replace(r, lane="theta=x"),
    "theta": lambda r: replace(r, lane="theta=0.5"),
    "odd lane": lambda r: replace(r, lane="\x1b[2J\n" * 50),
    "long lane": lambda r: replace(r, lane="x" * 10_000),
    "no radii": lambda r: replace(r, radii={}, spent={}),
    "odd radii": lambda r: replace(r, radii={"renyi": float("nan"), "": -1.0}),
    "facts": lambda r: replace(r, facts={"core": HUGE, "": -1}),
    "procedure": lambda r: replace(r, procedure="aces"),
    "no label": lambda r: replace(r, label=None),
}


@pytest.mark.parametrize("name", RECORDS)
def test_records_that_nobody_counted(run: Path, name: str) -> None:
    rewrite(run, RECORDS[name])
    walk(run)


@pytest.mark.parametrize(
    "name", ["nan", "infinite", "huge", "negative", "no stages", "no draws", "other cells", "lane"]
)
def test_a_page_about_records_that_nobody_counted(run: Path, name: str) -> None:
    rewrite(run, RECORDS[name])
    walk(run, REPORT)


def tables(whole: pa.Table) -> Iterator[pa.Table]:
    """Parts of other types than ours."""
    yield whole.slice(0, 0)
    yield whole.drop_columns(["radius"])
    yield pa.table({"x": [1, 2]})
    for column, values in {
        "input_id": [float("nan")] * len(whole),
        "radius": ["x"] * len(whole),
        "lane": [None] * len(whole),
        "label": [2.5] * len(whole),
        "stages": [None] * len(whole),
        "radii": [[("a", None)]] * len(whole),
        "sound": [None] * len(whole),
        "config_hash": [b"\xff"] * len(whole),
    }.items():
        place = whole.schema.get_field_index(column)
        array = pa.array(values, whole.schema.field(place).type) if values[0] is None else pa.array(values)
        yield whole.set_column(place, pa.field(column, array.type), array)


def test_parts_of_other_types(run: Path) -> None:
    (part,) = part_paths(run / "parts")
    whole = pq.read_table(part)
    for table in tables(whole):
        part.write_bytes(parquet(table))
        forge(run)
        walk(run, QUICK)


def test_inputs_of_other_types(run: Path) -> None:
    whole = pq.read_table(run / "inputs.parquet")
    changed = [
        whole.drop_columns(["name"]),
        whole.set_column(0, "id", pa.array([float("nan")] * len(whole))),
        whole.set_column(0, "id", pa.array([None] * len(whole), pa.int64())),
        whole.set_column(4, "shape", pa.array([[2**31 - 1, -1, 3]] * len(whole), pa.list_(pa.int32()))),
        whole.set_column(4, "shape", pa.array([[None, 1]] * len(whole), pa.list_(pa.int32()))),
    ]
    for table in changed:
        (run / "inputs.parquet").write_bytes(parquet(table))
        forge(run)
        walk(run, {"verify": COMMANDS["verify"]} | REPORT)
