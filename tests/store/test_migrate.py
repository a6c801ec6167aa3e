"""A folder of schema 1 is read as it is, and becomes one of schema 2 once, whatever kills the migration."""

from __future__ import annotations

import json
import os
import re
import shutil
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result
from typer.testing import CliRunner

from ringfence.analysis.metrics import metrics_by_lane
from ringfence.cli import app
from ringfence.errors import StoreError
from ringfence.store import RunFolder, StoreWarning
from ringfence.store.exchange import migrate
from ringfence.verification import verify

OLD = Path(__file__).parents[1] / "fixtures" / "schema1" / "sequential-0.5"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return Path(shutil.copytree(OLD, tmp_path / "run"))


def rows(run: RunFolder) -> pa.Table:
    """Everything that a migration must leave alone."""
    return run.records().drop_columns(["config_hash"])


def test_counts_claims_and_numbers_stay(old: Path) -> None:
    before = RunFolder.open(old)
    config = (old / "config.json").read_bytes()
    numbers, expected = metrics_by_lane(before, None, "x"), rows(before)
    assert verify(before) == []
    run = migrate(old)
    assert rows(run).equals(expected)
    assert metrics_by_lane(run, None, "x") == numbers
    assert verify(run) == []
    assert (old / "config.v1.json").read_bytes() == config
    assert json.loads((old / "config.json").read_text())["schema_version"] == 2
    assert "state-v1" in (old / "config.json").read_text()
    assert run.expected == before.expected == 500
    assert run.inputs() == before.inputs()
    files = {str(file.relative_to(old)): file.read_bytes() for file in old.rglob("*") if file.is_file()}
    migrate(old)  # once is enough
    again = {str(file.relative_to(old)): file.read_bytes() for file in old.rglob("*") if file.is_file()}
    assert {name for name in files if files[name] != again.get(name)} <= {"lock"}
    assert files.keys() == again.keys()


def test_a_run_of_schema_1_goes_on_only_after_it(old: Path) -> None:
    run = RunFolder.open(old)
    with pytest.raises(StoreError, match=r"schema 2 to be continued.*ringfence migrate"):
        RunFolder.create_or_resume(old, run.config)
    migrated = migrate(old)
    assert RunFolder.create_or_resume(old, migrated.config).done_ids() == migrated.done_ids()


class Killed(BaseException):
    """The process ends here."""


def test_killed_at_any_write_it_can_be_read_and_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = rows(RunFolder.open(OLD))
    at = 0
    while True:
        folder, calls = Path(shutil.copytree(OLD, tmp_path / str(at))), 0
        with monkeypatch.context() as patch:

            def dying(real: Any, last: int = at) -> Any:
                def call(*arguments: Any, **options: Any) -> Any:
                    nonlocal calls
                    calls += 1
                    if calls > last:
                        raise Killed
                    return real(*arguments, **options)

                return call

            for name in ("replace", "link", "unlink", "rename"):
                patch.setattr(os, name, dying(getattr(os, name)))
            try:
                migrate(folder)
            except Killed:
                ended = False
            else:
                ended = True
        with warnings.catch_warnings(action="ignore", category=StoreWarning):
            assert rows(RunFolder.open(folder)).equals(expected), at
        assert rows(migrate(folder)).equals(expected), at
        assert RunFolder.open(folder).check() == {}
        if ended:
            break
        at += 1
    assert at > 5


def test_the_command(old: Path) -> None:
    def call(*words: object) -> Result:
        return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)

    assert "schema 1: no manifest guards its files" in call("verify", old).stdout
    assert "schema 2, 500 records\n" in call("migrate", old).stderr
    assert "schema 2, 500 records; it was up to date already" in call("migrate", old).stderr.replace("\n", " ")
    assert "500 of 500 inputs, every claim follows" in call("verify", old).stdout


def test_a_damaged_part_of_schema_1_is_set_aside(old: Path) -> None:
    (part,) = (old / "parts").iterdir()
    part.write_bytes(part.read_bytes()[:-9])
    with pytest.warns(StoreWarning, match="is damaged"):
        run = migrate(old)
    assert run.done_ids() == set()
    assert (old / "parts" / f"damaged-{part.name}").exists()


def test_a_flipped_bit_in_the_counts_of_schema_1_is_noticed(old: Path) -> None:
    """No manifest guards them; the checksums of the Parquet pages do."""
    (part,) = (old / "parts").iterdir()
    content = bytearray(part.read_bytes())
    group = pq.ParquetFile(part).metadata.row_group(0)
    columns = [group.column(place) for place in range(group.num_columns)]
    counts = next(one for one in columns if one.path_in_schema.endswith("value.list.element"))
    content[counts.data_page_offset + counts.total_compressed_size // 2] ^= 4
    part.write_bytes(content)
    with pytest.warns(StoreWarning, match="is damaged"):
        assert RunFolder.open(old).done_ids() == set()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"noise_scale": 2.0}, "noise_scale: no setting of schema 1"),
        ({"procedure_settings": {"name": "fixed", "alpha": 0.5}}, "procedure_settings.name"),
        ({"lift": {"name": "patch"}}, "lift.norm_bound: Field required"),
        ({"lanes": "main"}, "lanes: Input should be a valid list"),
        ({"mechanisms": "renyi"}, "mechanisms: Input should be a valid list"),
        ({"lanes": ["theta=1e999"]}, "the theta of a lane is a number; got inf"),
    ],
)
def test_settings_that_schema_1_never_had_are_refused_not_guessed(
    tmp_path: Path, changes: dict[str, object], told: str
) -> None:
    shutil.copytree(OLD, tmp_path / "run")
    file = tmp_path / "run" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    with pytest.raises(StoreError, match=re.escape(told)):
        RunFolder.open(tmp_path / "run")


def test_a_folder_with_a_manifest_does_not_become_one_of_schema_1_again(old: Path) -> None:
    migrate(old)
    edited = json.loads((old / "config.v1.json").read_text()) | {"sigma": 5.0}
    (old / "config.json").write_text(json.dumps(edited))
    with pytest.raises(StoreError, match="settings of schema 1 that its manifest does not know"):
        RunFolder.open(old)


def test_a_part_that_did_not_count_does_not_count_afterwards(old: Path) -> None:
    part = next((old / "parts").glob("part-*.parquet"))
    table = pq.read_table(part)
    place = table.schema.get_field_index("config_hash")
    hashes = table["config_hash"].to_pylist()
    mixed = table.set_column(place, table.schema.field(place), pa.array([*hashes[:-1], "0" * 16]))
    pq.write_table(mixed, part)
    with warnings.catch_warnings(action="ignore"):
        before = RunFolder.open(old).done_ids()
        after = migrate(old).done_ids()
    assert before == after
