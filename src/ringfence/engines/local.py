"""Certify a data set into a run folder, in this process; running it again continues where it stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ringfence.analysis.metrics import default_radii, metrics_by_lane
from ringfence.data import Dataset, Input
from ringfence.driver import Execution, Progress, certify
from ringfence.errors import DataError, RingfenceError
from ringfence.lift import Lift
from ringfence.mechanisms import Mechanism
from ringfence.noise import Noise
from ringfence.procedures import Procedure
from ringfence.sampling import ForwardPlan
from ringfence.store import InputInfo, RecordWriter, RunFolder
from ringfence.store.writer import FLUSH_RECORDS

THUMBNAIL = 64
"""Longest side of a stored picture, in pixels."""

STRIP = 4
"""Frames of a video that are shown."""


def certify_into(
    run: RunFolder,
    classifier: nn.Module,
    dataset: Dataset,
    *,
    noise: Noise,
    procedure: Procedure,
    mechanisms: Sequence[Mechanism],
    lift: Lift | None = None,
    execution: Execution | None = None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> RunFolder:
    """Certify what the run does not hold yet, then write its summary. The first mechanism decides.

    The forward shape of the first session is reused, so that an interrupted run and an uninterrupted one on
    the same machine have the same records, ``seconds`` apart.
    """
    execution = execution or Execution()
    done = run.done_ids()
    todo = [index for index, one in enumerate(dataset.ids) if one not in done]
    stored = run.forward_plans()
    plan = ForwardPlan(**stored[-1]) if stored else execution.plan
    begin = time.perf_counter()
    ready: list[float] = []

    def keep_plan(used: ForwardPlan) -> None:
        ready.append(time.perf_counter())
        known = run.forward_plans()
        if not known or known[-1] != used.settings():
            writer.flush()  # what was decided so far belongs to the plan before
            run.add_forward_plan(used.settings())

    failed: dict[int, str] = {}

    def readable() -> Iterator[Input]:
        for index in todo:
            try:
                item = dataset[index]
            except (RingfenceError, OSError, ValueError) as error:
                failed[dataset.ids[index]] = str(error)
                run.note_inputs(len(dataset), failed)
            else:
                yield item

    with RecordWriter(run, records=FLUSH_RECORDS * len(run.config.lanes)) as writer:
        run.note_inputs(len(dataset), failed)
        inputs: list[Any] = []
        records = certify(
            classifier,
            readable(),
            noise=noise,
            procedure=procedure,
            mechanism=mechanisms[0],
            also=tuple(mechanisms[1:]),
            lift=lift,
            num_classes=run.config.num_classes,
            lanes=tuple(run.config.lanes),
            seed=run.config.seed,
            config_hash=run.config.digest,
            execution=replace(
                execution,
                plan=plan,
                draws=execution.draws or len(todo) * fixed_draws(procedure),
                on_plan=keep_plan,
                on_progress=on_progress,
            ),
        )
        for record in records:
            inputs.append(record)
            if len(inputs) == len(run.config.lanes):  # all lanes of an input come together
                writer.add(inputs)
                inputs = []
        writer.flush()
        if len(failed) == len(dataset):
            raise DataError("data", "must have inputs that can be read", next(iter(failed.values())), "Mend the data.")
        run.set_damaged_aside()
        run.merge_parts()
        if todo or run.summary() is None:
            whole = [index for index, one in enumerate(dataset.ids) if one not in failed]
            run.write_inputs([describe(dataset[index]) for index in whole])
            now = time.perf_counter()
            run.write_summary(summarise(run, now - begin, (ready[0] if ready else now) - begin))
    return run


def fixed_draws(procedure: Procedure) -> int:
    """Draws of an input where no radius is asked for, which take all of n or nearly; 0 where tests stop early."""
    return 0 if procedure.target is not None else procedure.most_draws


def summarise(run: RunFolder, seconds: float, start: float) -> dict[str, Any]:
    """What summary.json holds: one entry per lane, this session's wall time, and how much passed before sampling.

    start: choosing the forward plan, compiling, checking.
    """
    lanes = metrics_by_lane(run, default_radii(run), run.path.name)  # folders move
    return {"lanes": [lane.to_dict() for lane in lanes], "last_session_seconds": seconds, "last_start_seconds": start}


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
