"""What is in a run folder and does not belong there is named, and never counted."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from configs import altered

from ringfence.errors import StoreError
from ringfence.record import Record
from ringfence.store import InputInfo, RecordWriter, RunConfig, RunFolder, StoreWarning
from ringfence.store.atomic import write_output
from ringfence.store.folder import Answers
from ringfence.store.guarded import Guarded
from ringfence.store.manifest import FILES, Entry, Manifest, digest_of

FLIPS = 24
"""Bits flipped in every file."""


@pytest.fixture
def run(config: RunConfig, make_record: Callable[..., Record], tmp_path: Path) -> RunFolder:
    """A small run with every file that one can have: 3 of 3 inputs, 2 lanes, 2 parts."""
    found = RunFolder.create_or_resume(tmp_path / "run", config)
    found.add_forward_plan({"batch": 20})
    with RecordWriter(found, records=2, seconds=1e9) as writer:
        found.note_inputs(3, {})
        for one in range(3):
            writer.add([make_record(one, lane) for lane in config.classifier.names])
        writer.flush()
        found.write_inputs([InputInfo(one, None, "name", np.zeros((2, 2, 3), np.uint8)) for one in range(3)])
        found.write_summary({"acr": 0.5})
        found.write_answers(Answers(inputs=[None], said=[["1 2"]]))
    return RunFolder.open(found.path)


def told(path: Path) -> list[str]:
    """What a fresh reader hears about a folder; the refusal to open it counts."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            RunFolder.open(path).records(["radius"])
        except StoreError as error:
            return [str(error)]
    return [str(one.message) for one in caught]


def test_a_whole_run_is_read_in_silence(run: RunFolder) -> None:
    assert told(run.path) == []
    assert run.check() == {}
    assert run.done_ids() == {0, 1, 2}


@pytest.mark.parametrize(
    "name",
    ["manifest.json", "config.json", "environment.json", "forward.json", "answers.json",
     "inputs.parquet", "summary.json", "parts/part-000000.parquet", "parts/part-000002.parquet"],
)  # fmt: skip
def test_every_flipped_bit_is_noticed_by_every_reader(run: RunFolder, name: str) -> None:
    path = run.path / name
    whole = path.read_bytes()
    rng = np.random.default_rng(len(whole))
    places = {0, len(whole) - 1, *rng.integers(0, len(whole), FLIPS).tolist()}
    for place in sorted(places):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(flipped)
        assert any(Path(name).name in one for one in told(run.path)), (place, flipped[place])
    path.write_bytes(whole)
    assert told(run.path) == []


def test_the_list_above_names_every_file(run: RunFolder) -> None:
    there = {str(file.relative_to(run.path)) for file in run.path.rglob("*") if file.is_file()}
    parts = {f"parts/part-{number:06d}.parquet" for number in range(3)}
    assert there == {"lock", "manifest.json"} | {*FILES} | parts


def test_a_cut_or_lengthened_file_is_noticed(run: RunFolder) -> None:
    for name in ("manifest.json", "config.json", "inputs.parquet", "parts/part-000001.parquet"):
        path = run.path / name
        whole = path.read_bytes()
        for content in (b"", whole[:-1], whole + b"\n", whole + whole):
            path.write_bytes(content)
            assert told(run.path), (name, len(content))
        path.write_bytes(whole)


@pytest.mark.parametrize(
    ("harm", "said", "left"),
    [
        (lambda parts: (parts / "part-000001.parquet").unlink(), "part-000001.parquet is missing", {0, 2}),
        (
            lambda parts: shutil.copy(parts / "part-000001.parquet", parts / "part-000009.parquet"),
            "part-000009.parquet is parts/part-000001.parquet once more",
            {0, 1, 2},
        ),
        (
            lambda parts: (parts / "part-000007.parquet").write_bytes(b"PAR1"),
            "part-000007.parquet was not written by this run",
            {0, 1, 2},
        ),
        (
            lambda parts: shutil.copy(parts / "part-000001.parquet", parts / "part-000002.parquet"),
            "part-000002.parquet was changed after it was written",
            {0, 1},
        ),
        (lambda parts: (parts / "part-000005.parquet").symlink_to("nowhere"), "a link to nothing", {0, 1, 2}),
        (lambda parts: (parts / "part-000005.parquet").mkdir(), "not a file", {0, 1, 2}),
        (lambda parts: os.mkfifo(parts / "part-000005.parquet"), "not a file", {0, 1, 2}),
        (lambda parts: (parts / f"part-{'9' * 40}.parquet").write_bytes(b"x"), None, {0, 1, 2}),
    ],
)
def test_a_missing_doubled_foreign_or_replaced_part_is_named_and_not_counted(
    run: RunFolder, harm: Callable[[Path], object], said: str | None, left: set[int]
) -> None:
    harm(run.path / "parts")
    heard = told(run.path)
    assert any(said in one for one in heard) if said else not heard
    with warnings.catch_warnings(action="ignore"):
        again = RunFolder.open(run.path)
        assert again.done_ids() == left
        assert bool(again.check()) == bool(said)


def test_a_part_of_another_run_with_the_same_settings_is_not_counted(
    config: RunConfig, run: RunFolder, make_record: Callable[..., Record], tmp_path: Path
) -> None:
    other = RunFolder.create_or_resume(tmp_path / "other", config)
    part = other.append([make_record(9, lane) for lane in config.classifier.names])
    shutil.copy(part, run.path / "parts" / "part-000003.parquet")
    with pytest.warns(StoreWarning, match="was not written by this run"):
        assert run.done_ids() == {0, 1, 2}


def test_a_manifest_that_lists_what_is_no_file_of_a_run_is_refused(run: RunFolder) -> None:
    for name in ("../../secret", "/etc/passwd", "lock", "parts/part-000000.parquet/x", "parts/../config.json"):
        body = json.loads((run.path / "manifest.json").read_text())
        body.pop("hash")
        body["files"][name] = {"blake2b": "0" * 32}
        text = Manifest.model_construct(**body | {"files": {k: Entry(**v) for k, v in body["files"].items()}}).text()
        with pytest.raises(StoreError, match="is no file of a run"):
            _read(run.path, text)


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"null", b"{}", b"[" * 10**6, b'{"hash": 1}', b'{"inputs": ' + b"9" * 5000 + b"}", b"\xff\xfe"]
)
def test_a_manifest_that_is_none_is_an_error_with_its_name(run: RunFolder, text: bytes) -> None:
    with pytest.raises(StoreError, match=r"manifest\.json"):
        _read(run.path, text)


def _read(path: Path, text: bytes) -> None:
    (path / "manifest.json").write_bytes(text)
    RunFolder.open(path).records()


def test_a_run_without_its_manifest_is_refused(run: RunFolder, config: RunConfig) -> None:
    (run.path / "manifest.json").unlink()
    for use in (RunFolder.open, lambda path: RunFolder.create_or_resume(path, config)):
        with pytest.raises(StoreError, match=r"must hold its manifest\.json"):
            use(run.path)


def test_parts_are_made_exclusively(run: RunFolder, make_record: Callable[..., Record]) -> None:
    """Whatever stands under a name, listed or not, is left alone."""
    (run.path / "parts" / "part-000003.parquet").write_bytes(b"somebody's")
    with warnings.catch_warnings(action="ignore"):
        path = run.append([make_record(4, "a")])
    assert path.name == "part-000004.parquet"
    assert (run.path / "parts" / "part-000003.parquet").read_bytes() == b"somebody's"


def test_inputs_that_failed_are_told_by_every_reader(run: RunFolder) -> None:
    run.note_inputs(4, {7: "cannot be decoded"})
    heard = told(run.path)
    assert any("3 of 4 inputs" in one for one in heard)
    assert any("input 7 failed: cannot be decoded" in one for one in heard)
    assert RunFolder.open(run.path).failed == {7: "cannot be decoded"}


def test_the_manifest_counts_rows(run: RunFolder) -> None:
    files = Guarded(run.path)
    entry = files.manifest().files["parts/part-000001.parquet"]
    files.manifest().with_file("parts/part-000001.parquet", Entry(blake2b=entry.blake2b, rows=5)).save(run.path)
    assert any("it has 2 rows, not 5" in one for one in told(run.path))


def test_settings_other_than_the_manifests_are_named(run: RunFolder, config: RunConfig) -> None:
    other = altered(config, {"seed": 5})
    content = json.dumps(other.model_dump()).encode()
    (run.path / "config.json").write_bytes(content)
    files = Guarded(run.path)
    files.manifest().with_file("config.json", Entry(blake2b=digest_of(content))).save(run.path)
    heard = told(run.path)
    assert any("config.json holds other settings than the manifest names" in one for one in heard)
    assert any("2 rows are of other settings" in one for one in heard)
    with warnings.catch_warnings(action="ignore"):
        assert RunFolder.open(run.path).done_ids() == set()


def test_a_joined_part_never_counts_beside_what_it_joins(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed at any write of a merge, the folder holds every row once."""
    saves: list[Manifest] = []
    save = Manifest.save

    def kept(manifest: Manifest, folder: Path) -> None:
        save(manifest, folder)
        saves.append(manifest)

    monkeypatch.setattr(Manifest, "save", kept)
    run.merge_parts()
    assert [sum(one.parts.values()) for one in saves] == [6] * len(saves)
    assert len(saves) == 3
    assert [path.name for path in (run.path / "parts").iterdir()] == ["part-000003.parquet"]
    assert told(run.path) == []


def test_damaged_parts_set_aside_are_forgotten(run: RunFolder, make_record: Callable[..., Record]) -> None:
    (run.path / "parts" / "part-000001.parquet").write_bytes(b"")
    with pytest.warns(StoreWarning, match="was changed"):
        assert run.done_ids() == {0, 2}
    run.append([replace(make_record(1, lane)) for lane in "ab"])
    run.set_damaged_aside()
    assert told(run.path) == []
    assert (run.path / "parts" / "damaged-part-000001.parquet").exists()


def test_a_new_part_never_takes_the_name_of_one_that_was_not_counted(
    run: RunFolder, make_record: Callable[..., Record]
) -> None:
    """It would be set aside in its place."""
    stranger = run.path / "parts" / "part-000003.parquet"
    stranger.write_bytes(b"x")
    with pytest.warns(StoreWarning, match="not written by this run"):
        run.done_ids()
    stranger.unlink()
    assert run.append([make_record(4, lane) for lane in "ab"]).name == "part-000004.parquet"
    run.set_damaged_aside()
    assert run.done_ids() == {0, 1, 2, 4}


@pytest.mark.parametrize("name", ["config.json", "manifest.json", "summary.json", "inputs.parquet"])
def test_no_output_replaces_a_file_of_a_run(run: RunFolder, name: str) -> None:
    """``export --out RUN/config.json`` made a folder that no command takes."""
    with pytest.raises(StoreError, match="must be no file of a run"):
        write_output(run.path / name, b"1")
    assert told(run.path) == []
    write_output(run.path / "report.html", b"1")
    write_output(run.path / "report.html", b"2")
    assert (run.path / "report.html").read_bytes() == b"2"
