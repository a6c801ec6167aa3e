"""Into a run folder: resumed runs equal uninterrupted ones, plans are kept, damage is mended."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset
from toys import BucketLanes, Buckets, LittleMemory

import ringfence as rf
from ringfence.analysis.metrics import default_radii
from ringfence.data import Dataset, Input
from ringfence.driver import CHECKED_ON
from ringfence.engines.into_folder import describe, thumbnail
from ringfence.errors import ClassifierError, DataError
from ringfence.mechanisms import neyman_pearson, one_sided
from ringfence.models.compose import composed
from ringfence.procedures import Procedure
from ringfence.record import Record
from ringfence.same_network import OF_EACH
from ringfence.sampling import ForwardPlan
from ringfence.store import RecordWriter, StoreWarning
from ringfence.work import Work

COUNT = 12


def dataset() -> Dataset:
    x = torch.linspace(-1, 2, COUNT)[:, None].repeat(1, 3)
    ids = list(range(0, 20 * COUNT, 20))
    return Dataset(
        "line", ids, [1] * COUNT, list(range(COUNT)), lambda k: x[k], lambda k: f"point {k}", (3,), lambda: "digest", 4
    )


def into(
    path: Path,
    procedure: Procedure | None = None,
    classifier: torch.nn.Module | None = None,
    lanes: tuple[str, ...] = ("main",),
    data: Dataset | None = None,
    **execution: Any,
) -> rf.RunFolder:
    value = rf.Certification(
        classifier or Buckets(),
        data or dataset(),
        noise=rf.Gaussian(0.5),
        procedure=procedure or rf.Fixed(n=500),
        mechanism=(neyman_pearson, one_sided),
        lanes=lanes,
        seed=4,
    )
    return rf.certify_into(value, path, rf.Execution(device="cpu", **({"batch": 50} | execution)))


def test_programs_are_told_what_a_user_may_want_to_know(tmp_path: Path) -> None:
    told: list[str] = []
    data = rf.Data((torch.rand(6, 1, 4, 4), torch.zeros(6, dtype=torch.int64)), limit=5)
    value = rf.Certification(
        composed("patches", Buckets(), size=3, count=2, noise="patch"),
        data,
        noise=rf.Gaussian(0.5),
        procedure=rf.Fixed(n=50),
    )
    value.start(tmp_path / "run", rf.Execution("cpu", batch=50, check=False, on_remark=told.append))
    assert any("every l2 radius is divided by" in one for one in told), told
    assert any("so that `limit` takes the first" in one for one in told), told


def facts(run: rf.RunFolder) -> list[dict[str, Any]]:
    return run.records().drop_columns(["seconds"]).to_pylist()


def measured(run: rf.RunFolder) -> list[dict[str, Any]]:
    summary = run.summary()
    assert summary is not None
    return [lane | {"path": ""} for lane in summary["lanes"]]


class Stop(Exception):
    """Stands for a crash."""


def stopping(after: int) -> Dataset:
    """The data set, ending in a crash when so many inputs have been read."""
    whole, read = dataset(), iter(range(after))

    def one(position: int) -> torch.Tensor:
        if next(read, None) is None:
            raise Stop
        return whole.read(position)

    return replace(whole, read=one)


def failing(*positions: int) -> Dataset:
    """The data set, some of whose inputs cannot be read."""
    whole = dataset()

    def one(position: int) -> torch.Tensor:
        if position in positions:
            raise OSError("cannot be decoded")
        return whole.read(position)

    return replace(whole, read=one)


def test_an_input_that_cannot_be_read_is_recorded_told_and_tried_again(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True, action="always") as heard:
        run = into(tmp_path / "run", data=failing(3, 11))
    said = " ".join(str(one.message) for one in heard)
    assert f"{COUNT - 2} of {COUNT} inputs are there" in said
    assert "input 60 failed: cannot be decoded" in said
    assert run.failed == {60: "cannot be decoded", 220: "cannot be decoded"}
    assert len(run.done_ids()) == len(run.inputs()) == COUNT - 2
    assert {(one.input_id, one.what) for one in rf.verify(run)} == {(None, "inputs"), (60, "failed"), (220, "failed")}
    assert rf.verify(run, partial=True) == []
    again = into(tmp_path / "run")
    assert again.failed == {}
    assert facts(again) == facts(into(tmp_path / "whole"))
    assert rf.verify(again) == []


@pytest.mark.parametrize("at", ["write_inputs", "write_summary"])
def test_a_session_that_is_killed_leaves_no_end_of_an_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """Inputs that could be read after all had records, and nothing made the files anew that said how many there are."""

    def killed(*given: object) -> None:
        raise Stop

    with warnings.catch_warnings(action="ignore"):
        into(tmp_path / "run", data=failing(3, 11))
    with monkeypatch.context() as patch:
        patch.setattr(rf.RunFolder, at, killed)
        with pytest.raises(Stop):
            into(tmp_path / "run")
    left = rf.RunFolder.open(tmp_path / "run")
    assert (left.summary(), rf.verify(left, partial=True)) == (None, [])
    again = into(tmp_path / "run")
    assert len(again.inputs()) == COUNT
    assert (again.summary() or {})["lanes"][0]["count"] == COUNT
    assert rf.verify(again) == []


def test_data_of_which_nothing_can_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"inputs that can be read; got cannot be decoded"):
        into(tmp_path / "run", data=failing(*range(COUNT)))


def test_a_first_input_that_cannot_be_read_stops_nothing(tmp_path: Path) -> None:
    with warnings.catch_warnings(action="ignore"):
        run = into(tmp_path / "run", data=failing(0))
    assert list(run.failed) == [0]
    assert len(run.done_ids()) == COUNT - 1


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Procedure], rf.RunFolder]:
    """The whole run of a procedure, made once."""
    return cache(lambda procedure: into(tmp_path_factory.mktemp("whole") / "run", procedure))


@pytest.mark.parametrize("after", [0, 1, 5, 11])
@pytest.mark.parametrize("procedure", [rf.Fixed(n=500), rf.Sequential(0.2, n=3000)], ids=lambda one: one.name)
def test_an_interrupted_run_continues_to_the_same_records(
    tmp_path: Path, uninterrupted: Callable[[Procedure], rf.RunFolder], procedure: Procedure, after: int
) -> None:
    whole = uninterrupted(procedure)
    assert len(facts(whole)) == COUNT
    with pytest.raises(Stop):
        into(tmp_path / "broken", procedure, data=stopping(OF_EACH + after), check=False)  # which would read others
    broken = rf.RunFolder.open(tmp_path / "broken")
    with pytest.warns(StoreWarning, match=rf"the run is not whole, \d+ of {COUNT} inputs"):
        assert len(facts(broken)) <= after
    assert broken.summary() is None
    again = into(tmp_path / "broken", procedure, batch=7)  # the stored forward shape wins
    assert facts(again) == facts(whole)
    assert [plan["batch"] for plan in again.forward_plans()] == ([50] if after > CHECKED_ON else [7])
    assert measured(again) == measured(whole)
    assert rf.verify(again) == []


def test_a_finished_run_is_left_as_it_is(tmp_path: Path) -> None:
    run = into(tmp_path / "run")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*") if path.name != "lock"}
    again = into(tmp_path / "run")
    assert facts(again) == facts(run)
    after = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*") if path.name != "lock"}
    assert {path for path in after if path.is_file() and after[path] != before.get(path)} == set()


def test_lanes_reach_the_disk_together(tmp_path: Path) -> None:
    run = into(tmp_path / "run", classifier=BucketLanes(), lanes=("a", "b"))
    assert [(row["input_id"], row["lane"]) for row in facts(run)] == [
        (number, lane) for number in dataset().ids for lane in "ab"
    ]
    assert len(measured(run)) == 2
    assert rf.verify(run) == []


def test_out_of_memory_begins_a_new_segment(tmp_path: Path) -> None:
    class Shrinking(LittleMemory):
        """Plenty of memory for the first forwards, little afterwards."""

        calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            self.limit = 1000 if self.calls < 40 else 60
            return super().forward(x)

    run = into(tmp_path / "run", classifier=Shrinking(1000), plan=ForwardPlan(200))
    assert [plan["batch"] for plan in run.forward_plans()] == [200, 100, 50]
    whole = into(tmp_path / "whole")
    assert [row["stages"] for row in facts(run)] == [row["stages"] for row in facts(whole)]


def test_a_damaged_part_is_certified_again_and_set_aside(tmp_path: Path) -> None:
    run = into(tmp_path / "run")
    expected = facts(run)
    (part,) = (tmp_path / "run" / "parts").glob("part-*")
    content = bytearray(part.read_bytes())
    content[len(content) // 3] ^= 0xFF
    part.write_bytes(content)
    with pytest.warns(StoreWarning, match=f"{part.name} was changed"):  # its number tells how often was written
        again = into(tmp_path / "run")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert facts(again) == expected
        assert again.damaged == []
        assert rf.verify(rf.RunFolder.open(tmp_path / "run")) == []
    assert (tmp_path / "run" / "parts" / f"damaged-{part.name}").exists()


def test_what_stands_beside_the_records(tmp_path: Path) -> None:
    run = into(tmp_path / "run")
    assert [one.name for one in run.inputs()] == [f"point {k}" for k in range(COUNT)]
    assert {"python", "torch", "cpu", "forward_plan"} <= run.environments()[0].keys()
    assert run.forward_plans() == [ForwardPlan(50).settings()]
    assert default_radii(run)[0] == 0.0
    target = into(tmp_path / "target", rf.Sequential(0.2, n=3000, larger=(0.4,)))
    assert default_radii(target) == [0.0, 0.2, 0.4]


def test_thumbnails() -> None:
    grey = thumbnail(torch.full((1, 28, 28), 0.5))
    assert grey is not None
    assert (grey.shape, grey.dtype, int(grey[0, 0, 0])) == ((28, 28, 1), np.uint8, 128)
    wide = thumbnail(torch.rand(3, 50, 200))
    assert wide is not None
    assert wide.shape == (16, 64, 3)
    assert thumbnail(torch.rand(3)) is None
    assert thumbnail(torch.rand(7, 8, 8)) is None
    assert describe(Input(3, torch.rand(2), 1, "a")).thumbnail is None


def test_draws_are_known_beforehand_where_they_are_fixed() -> None:
    for procedure, draws in (
        (rf.Fixed(n0=100, n=1000), 3300),
        (rf.Multinomial(n=500), 1500),
        (rf.Sequential(radius=0.5), 0),
        (rf.Staged(radius=0.5), 0),
    ):
        assert rf.Execution().expecting(3, procedure).draws == draws
    assert rf.Execution(draws=7).expecting(3, rf.Fixed()).draws == 7, "whoever says it knows"


class Asked(rf.Engine):
    """Keeps what it is asked to do, and does nothing."""

    name = "asked"
    draws = -1

    def records(self, work: Work) -> Iterator[rf.Record]:
        self.draws = work.execution.draws
        return iter(())


def _points(kind: str) -> Any:
    x = torch.rand(6, 3)
    return {
        "tensor": x,
        "pair": (x, [0] * 6),
        "loader": DataLoader(TensorDataset(x, torch.zeros(6)), batch_size=4),
        "columns": {"x": x, "y": torch.zeros(6)},
        "iterator": iter(x),
    }[kind]


@pytest.mark.parametrize(
    ("kind", "inputs"), [("tensor", 6), ("pair", 6), ("loader", 6), ("columns", 0), ("iterator", 0)]
)
def test_a_program_s_inputs_are_counted_so_that_a_long_run_is_compiled(kind: str, inputs: int) -> None:
    """Without a folder too: the batch of a short run and whether compiling pays depend on it."""
    for data, count in ((_points(kind), inputs), (rf.Data(_points(kind), skip=2, limit=2), min(inputs, 2))):
        asked = Asked()
        how = rf.Execution("cpu", engine=asked)
        assert not list(rf.certify(Buckets(), data, sigma=0.5, procedure=rf.Fixed(n=900), execution=how, check=False))
        assert asked.draws == count * 1000


def test_a_plan_with_reasons_is_stored_and_continued_and_refused_if_it_no_longer_fits(tmp_path: Path) -> None:
    plan = ForwardPlan(50, channels_last=True, refused=("fold: not the network",))
    run = into(tmp_path / "run", plan=plan)
    assert run.forward_plans() == [plan.settings()]
    part = next((tmp_path / "run" / "parts").glob("part-*"))
    part.unlink()
    with pytest.warns(StoreWarning, match="is missing"):
        again = into(tmp_path / "run")
    assert again.forward_plans() == [plan.settings()]

    class Twofold(Buckets):
        """Another function at the shape of the plan than at those where the plain one is asked."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x).roll(int(len(x) > 100), 1)

    with pytest.raises(ClassifierError, match="form in the given plan"):
        into(tmp_path / "other", classifier=Twofold(), plan=ForwardPlan(200))


def test_what_another_process_ended_before_the_lock_was_free_is_not_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever looks what is left, and only then takes the lock, works on what was done in between."""
    enter, add = RecordWriter.__enter__, RecordWriter.add
    others, certified = [tmp_path / "run"], list[int]()

    def late(writer: RecordWriter) -> RecordWriter:
        if others:
            into(others.pop())
        return enter(writer)

    def counted(writer: RecordWriter, records: Sequence[Record]) -> None:
        certified.extend(record.input_id for record in records)
        add(writer, records)

    monkeypatch.setattr(RecordWriter, "__enter__", late)
    monkeypatch.setattr(RecordWriter, "add", counted)
    into(tmp_path / "run")
    assert sorted(certified) == dataset().ids


@pytest.mark.parametrize("how", ["cut", "gone"])
@pytest.mark.filterwarnings("ignore:.*inputs.parquet")
def test_inputs_of_a_finished_run_are_written_anew(tmp_path: Path, how: str) -> None:
    run = into(tmp_path / "run")
    file, summary = run.path / "inputs.parquet", (run.path / "summary.json").read_bytes()
    whole = file.read_bytes()
    file.write_bytes(whole[:-9]) if how == "cut" else file.unlink()
    assert rf.verify(rf.RunFolder.open(run.path)) != []
    again = into(run.path)
    assert file.read_bytes() == whole
    assert (run.path / "summary.json").read_bytes() == summary
    assert rf.verify(rf.RunFolder.open(again.path)) == []
