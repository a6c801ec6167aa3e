"""Stored: the certification that a job file or a run folder holds, ready to be served where the data are not."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch

from ringfence.certification import Certification
from ringfence.data import Dataset
from ringfence.driver import CHECKED_ON
from ringfence.engines.into_folder import THUMBNAIL
from ringfence.errors import StoreError
from ringfence.job_file import Job, merged, read_job
from ringfence.models.source import refuse_foreign_code
from ringfence.same_network import grey
from ringfence.store import RunFolder, StoreWarning
from ringfence.store.manifest import CONFIG


def certification_at(path: str | Path, trust: bool = False, device: str | None = None) -> Certification:
    """What a job file describes, or what a run folder was made of; trust: run the code that such a folder names;
    device: instead of a job file's own, which decides what precision it means by none.

    A folder's model must be the one that was certified; its data are not needed, and not looked at.
    """
    path = Path(path)
    if not path.exists():
        raise StoreError(path, "must be a run folder or a job file", "nothing there", "Check the path.")
    if not path.is_dir():
        job = Job.of(merged(read_job(path), {"execution": {"device": device}}))
        if job.execution.check:  # nobody has certified with it yet
            job.certification.load(job.execution.device).check_units(job.execution.device)
        return job.certification
    run = RunFolder.open(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)  # it is refused where it matters here
        changed = run.check().get(CONFIG)
    if changed is not None:
        rule = "must be what was certified, which is what is served"
        raise StoreError(path / CONFIG, rule, f"a file that {changed}", "Restore it from a copy, or certify again.")
    if not trust:
        refuse_foreign_code(run.config.classifier.tree, path, "Look at that code; then set `trust`.")
    value, kept = Certification.of(run.config), kept_inputs(run)
    value = value if kept is None else value.standing_on(kept)
    value.load().asked(data=False).check(run)  # refused if the model is not that of the folder
    return value


def kept_inputs(run: RunFolder) -> Dataset | None:
    """The pictures that a folder keeps, as inputs to check the model on; grey ones where they are smaller than inputs.

    None for folders from before they kept the shape of their inputs, where the pictures do not tell it either.
    """
    pictures = [one.thumbnail for one in run.inputs()[:CHECKED_ON] if one.thumbnail is not None]
    shown = [torch.from_numpy(one.copy()).permute(2, 0, 1) / 255 for one in pictures]
    data, shape = run.config.data, run.shape
    if shape is None and shown and max(shown[0].shape[1:]) < THUMBNAIL:
        shape = tuple(shown[0].shape)
    if shape is None:
        return None
    samples = [x for x in shown if tuple(x.shape) == shape] or [grey(shape, run.config.noise.lattice)]
    count = len(samples) if data.count is None else data.count
    return Dataset(
        name=data.source,
        ids=list(range(count)),
        labels=[None] * count,
        positions=[place % len(samples) for place in range(count)],
        read=samples.__getitem__,
        name_of=lambda place: "",
        shape=shape,
        identify=lambda: data.digest or "",
        class_names=run.class_names,
    )
