"""Certify into a run folder, by any engine; running it again continues where it stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from ringfence.analysis.metrics import default_radii, metrics_by_lane
from ringfence.certification import Certification
from ringfence.data import Dataset, Input
from ringfence.data.dataset import UNREADABLE
from ringfence.driver import Progress
from ringfence.errors import DataError
from ringfence.loaded import Loaded
from ringfence.record import Record
from ringfence.sampling import ForwardPlan, check_memory, pick_device
from ringfence.store import InputInfo, RecordWriter, RunFolder
from ringfence.store.atomic import writing_errors
from ringfence.store.manifest import INPUTS
from ringfence.store.writer import FLUSH_RECORDS
from ringfence.work import Execution, Local, engine_named, ignore

THUMBNAIL = 64
"""Longest side of a stored picture, in pixels."""

STRIP = 4
"""Frames of a video that are shown."""


def start(certification: Certification, out: str | Path, execution: Execution | None = None) -> Started:
    """The run of a certification in a folder: a new one, or the one that is there, if it is of the same."""
    execution = execution or Execution()
    with writing_errors(Path(out)):  # a name may be longer than any disk has
        begun = any((Path(out) / "parts").glob("*"))
    if begun:  # a form of the noise that was left open stays as it was decided
        certification = certification.in_form(RunFolder.open(out).config.noise.lattice)
    loaded = certification.load(execution.device)
    if not len(loaded.dataset):
        raise DataError("data", "must have inputs", "none", "Look into the data, and at what was chosen of it.")
    if execution.batch is not None:
        check_memory(execution.batch, loaded.dataset.shape, pick_device(execution.device))
    if execution.check and not begun:  # a run that has records was checked
        loaded.check_units(execution.device)
    run = RunFolder.create_or_resume(out, loaded.config, execution.unlocked)
    for told in loaded.remarks:
        execution.on_remark(told)
    return Started(loaded, run, execution)


def certify_into(
    certification: Certification,
    out: str | Path,
    execution: Execution | None = None,
    on_progress: Callable[[Progress], None] = ignore,
) -> RunFolder:
    """Certify what the folder does not hold yet, then write its summary."""
    return start(certification, out, execution).finished(on_progress)


@final
@dataclass(frozen=True)
class Started:
    """A run folder and what is certified into it: its config was made from the very value whose parts are driven."""

    loaded: Loaded
    run: RunFolder
    execution: Execution

    @property
    def outlook(self) -> tuple[str, int, int, int | None]:
        """What is done, with how many inputs in all and so far, and the draws of each where their number is known."""
        test = self.loaded.certification.test
        doing = "certifying" if test.claims_radius else "predicting"
        draws = None if test.stops_early else test.most_draws
        return doing, len(self.loaded.dataset), len(self.run.done_ids()), draws

    def records(self, on_progress: Callable[[Progress], None] = ignore) -> Iterator[Record]:
        """Certify what is missing, then write the summary; records come as they are given to the folder.

        The forward shape of the first session is reused, so that an interrupted run and an uninterrupted one on
        the same machine have the same records, ``seconds`` apart.
        """
        run, dataset = self.run, self.loaded.dataset
        begin, ready, names = time.perf_counter(), list[float](), tuple(run.config.classifier.names)
        failed: dict[int, str] = {}

        def keep_plan(used: ForwardPlan) -> None:
            ready.append(time.perf_counter())
            known = run.forward_plans()
            if not known or known[-1] != used.settings():
                writer.flush()  # what was decided so far belongs to the plan before
                run.add_forward_plan(used.settings())

        with RecordWriter(run, records=FLUSH_RECORDS * len(names)) as writer:
            done = run.done_ids()  # behind the lock: another process may have gone on until now
            todo = [index for index, one in enumerate(dataset.ids) if one not in done]
            before = frozenset(run.failed)
            run.note_inputs(len(dataset), failed)
            of_input: list[Record] = []
            execution = replace(self._continued(len(todo), keep_plan, on_progress, failed), failed_before=before)
            work = self.loaded.work(self._readable(todo, failed), execution, run.config.digest)
            engine = engine_named(execution.engine)
            here = isinstance(engine, Local)  # else an input may kill a worker, and no driver
            asked = self.loaded.asked(execution.device, data=here)
            lost = run.answers_lost is not None  # and are made again by the network that says the same, by no other
            answered = asked.check(run) if done and not lost else None  # what is done is told as this network's, too
            if answered is None and (todo or lost):
                answered = asked.begin(run)
            work = replace(work, answered=answered)
            for record in engine.records(work):
                of_input.append(record)
                if len(of_input) == len(names):  # all lanes of an input come together
                    writer.add(of_input)
                    yield from of_input
                    of_input = []
            writer.flush()
            if failed and len(failed) == len(dataset):
                first = next(iter(failed.values()))
                raise DataError("data", "must have inputs that can be read", first, "Mend the data.")
            run.set_damaged_aside()
            run.merge_parts()
            fresh = bool(todo) or run.summary() is None
            if fresh or INPUTS in run.problems:
                whole = [index for index, one in enumerate(dataset.ids) if one not in failed]
                run.write_inputs([described(dataset, index) for index in whole])
            if fresh:
                now = time.perf_counter()
                summary = summarise(run, now - begin, (ready[0] if ready else now) - begin)
                classes = dataset.class_names and [str(one) for one in dataset.class_names]
                # For whoever has the folder without the data.
                run.write_summary({**summary, "shape": dataset.shape, "class_names": classes})

    def finished(self, on_progress: Callable[[Progress], None] = ignore) -> RunFolder:
        """The run, certified to its end."""
        for _ in self.records(on_progress):
            pass
        return self.run

    def _readable(self, todo: Sequence[int], failed: dict[int, str]) -> Iterator[Input]:
        """The inputs that can be read; why the others cannot is kept in the folder."""
        dataset = self.loaded.dataset
        for index in todo:
            try:
                item = dataset[index]
            except UNREADABLE as error:
                failed[dataset.ids[index]] = str(error)
                self.run.note_inputs(len(dataset), failed)
            else:
                yield item

    def _continued(
        self,
        todo: int,
        on_plan: Callable[[ForwardPlan], None],
        on_progress: Callable[[Progress], None],
        failed: dict[int, str],
    ) -> Execution:
        """The execution with the stored plan, if there is one, and the draws to expect."""

        def keep_reason(input_id: int, reason: str) -> None:
            failed[input_id] = reason
            self.run.note_inputs(len(self.loaded.dataset), failed)

        stored = self.run.forward_plans()
        return replace(
            self.execution.expecting(todo, self.loaded.certification.test),
            plan=ForwardPlan.stored(stored[-1]) if stored else self.execution.plan,
            on_plan=on_plan,
            on_progress=on_progress,
            on_failed=keep_reason,
        )


def summarise(run: RunFolder, seconds: float, start: float) -> dict[str, Any]:
    """What summary.json holds: one entry per lane, this session's wall time, and how much passed before sampling.

    start: choosing the forward plan, compiling, checking.
    """
    lanes = metrics_by_lane(run, default_radii(run), run.path.name)  # folders move
    return {"lanes": [lane.to_dict() for lane in lanes], "last_session_seconds": seconds, "last_start_seconds": start}


def described(dataset: Dataset, index: int) -> InputInfo:
    """One input of a data set; without a picture where it was certified and cannot be read any more."""
    try:
        return describe(dataset[index])
    except UNREADABLE:
        return InputInfo(dataset.ids[index], dataset.labels[index], dataset.name_of(dataset.positions[index]), None)


def describe(item: Input) -> InputInfo:
    """Id, label, name and a small picture of one input."""
    return InputInfo(item.id, item.label, item.name, thumbnail(item.x))


def thumbnail(x: Tensor) -> np.ndarray[Any, np.dtype[np.uint8]] | None:
    """(C, H, W) in [0,1] -> uint8 (height, width, channels), at most THUMBNAIL pixels a side; None if no picture.

    A video (T, C, H, W) becomes a strip of STRIP frames, each at most half as large.
    """
    if x.dim() == 4 and x.shape[1] in (1, 3):
        places = torch.linspace(0, len(x) - 1, min(STRIP, len(x))).round().long()
        return np.concatenate([_small(frame, THUMBNAIL // 2) for frame in x[places]], axis=1)
    return _small(x, THUMBNAIL) if x.dim() == 3 and x.shape[0] in (1, 3) else None


def _small(x: Tensor, limit: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    longest = max(x.shape[1:])
    if longest > limit:
        size = [max(1, round(side * limit / longest)) for side in x.shape[1:]]
        x = torch.nn.functional.interpolate(x[None], size=size, mode="area")[0]
    picture: np.ndarray[Any, np.dtype[np.uint8]] = (
        (x.clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    )
    return picture
