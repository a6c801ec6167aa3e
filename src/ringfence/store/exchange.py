"""Runs from elsewhere: Cohen-style logs to runs and back."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from ringfence.errors import ArgumentError
from ringfence.record import Lane, Record
from ringfence.rounding import rounded_down
from ringfence.stats.norms import InNorm
from ringfence.store.atomic import write_output
from ringfence.store.config import ClassifierConfig, DataConfig, NoiseConfig, ProcedureConfig, RunConfig
from ringfence.store.logs import COLUMNS, COMMENT, PROVED, CohenLog, read_cohen
from ringfence.store.run import RunFolder
from ringfence.store.writer import RecordWriter
from ringfence.types import ABSTAIN

IMPORTED = "imported:cohen"
"""The procedure of records that came from a log: there are no counts from which to verify them."""

_MECHANISM = "one_sided"

_MOST = 10**15
"""Draws of one input: nobody drew more."""

UNPROVED = ".unproved"
UNPROVED_LINE = f"{COMMENT} no proven guarantee: these radii are estimates, not certificates"


def import_cohen(
    path: str | Path, sigma: float, out: str | Path, alpha: float = 0.001, n0: int = 100, n: int = 100_000
) -> RunFolder:
    """A run whose records hold what the log says."""
    config, records = cohen_as_run(path, sigma, alpha, n0, n)
    run = RunFolder.create_or_resume(out, config)
    done = run.done_ids()
    with RecordWriter(run) as writer:
        run.note_inputs(len(records), {})
        writer.add([one for one in records if one.input_id not in done])
    return run


def cohen_as_run(
    path: str | Path, sigma: float, alpha: float = 0.001, n0: int = 100, n: int = 100_000
) -> tuple[RunConfig, list[Record]]:
    """What a log says as the settings and records of a run.

    The log's radii are kept as printed, so that published tables come out alike. They were rounded to nearest, up
    to half a unit of the last digit above what was proved, and a log cannot show whether its were: ``sound`` is False.
    p_a is the value that gives the printed radius, Phi(radius / sigma), and 0 for an abstention.
    """
    if not (math.isfinite(sigma) and sigma > 0):
        raise ArgumentError("sigma", "must be positive", sigma, "Give the noise level the log was made with.")
    if not 0 < alpha < 1:
        raise ArgumentError("alpha", "must lie between 0 and 1", alpha, "Give the failure probability of the log.")
    for name, draws, least in (("n0", n0, 0), ("n", n, 1)):
        if not least <= draws <= _MOST:
            remedy = "Give the draws that the log was made with."
            raise ArgumentError(name, f"must be {least} to {_MOST:g}", draws, remedy)
    log = read_cohen(path)
    config = RunConfig(
        classifier=ClassifierConfig(
            tree="imported", classes=int(max(0, log.label.max(), log.predict.max())) + 1, lanes=[Lane("")]
        ),
        data=DataConfig(source=log.path.name),
        noise=NoiseConfig(sigma=sigma),
        procedure=ProcedureConfig.model_validate(
            {
                "name": IMPORTED,
                "alpha": alpha,
                "n0": n0,
                "n": n,
                "source": "cohen log",
                "radii": "as printed; rounded to nearest by the log's writer",
                "notes": log.notes,
            }
        ),
        mechanisms=[_MECHANISM],
    )
    return config, _records(log, config, n0 + n)


def export_cohen(
    run: RunFolder,
    target: str | Path | TextIO,
    lane: str | None = None,
    digits: int = 6,
    coordinates: int | None = None,
) -> Path | None:
    """Write a lane of the run as a Cohen-style log; radii are rounded DOWN to the given significant digits.

    A log does not name the norm of its radii, and everybody reads them in l2: radii of another one are converted, by
    the coordinates of an input where the run does not know how many it has.
    The path that was written: of results without proof the target's name ends in ``.unproved``, and a line above the
    header says so.
    """
    run = run if run.norm == PROVED else run.in_norm(InNorm(PROVED, coordinates))
    table = run.records(["input_id", "lane", "label", "prediction", "radius", "seconds", "sound"])
    lanes = sorted(set(table["lane"].to_pylist()))
    if lane is None and len(lanes) > 1:
        raise ArgumentError("lane", "a log holds one lane", f"a run with {', '.join(lanes)}", "Name one of them.")
    if lane is not None and lane not in lanes:
        raise ArgumentError("lane", f"must be one of {', '.join(lanes)}", repr(lane), "Name one of them.")
    rows = [row for row in table.to_pylist() if lane in (None, row["lane"])]
    proved = all(row["sound"] for row in rows)
    lines = ["\t".join(COLUMNS)] if proved else [UNPROVED_LINE, "\t".join(COLUMNS)]
    for row in rows:
        label, radius = -1 if row["label"] is None else row["label"], rounded_down(row["radius"], digits)
        correct = int(row["prediction"] == label != ABSTAIN)
        cells = (row["input_id"], label, row["prediction"], repr(radius), correct, _clock(row["seconds"]))
        lines.append("\t".join(map(str, cells)))
    text = "\n".join(lines) + "\n"
    if not isinstance(target, str | Path):
        target.write(text)
        return None
    path = Path(target)
    if not proved and path.suffix != UNPROVED:
        path = path.with_name(path.name + UNPROVED)
    write_output(path, text.encode())
    return path


def _records(log: CohenLog, config: RunConfig, draws: int) -> list[Record]:
    alpha = config.procedure.settings["alpha"]
    told: dict[str, Any] = {
        "procedure": IMPORTED,
        "alpha": alpha,
        "spent": {"log": alpha},
        "config_hash": config.digest,
    }
    records = []
    for one in log.records:
        scaled = one.radius / config.noise.sigma / math.sqrt(2)
        p_a, p_b = (0.0, 1.0) if one.abstained else (0.5 * math.erfc(-scaled), 0.5 * math.erfc(scaled))
        radii = {_MECHANISM: one.radius}
        records.append(replace(one, p_a=p_a, p_b=p_b, draws=draws, forwards=draws, radii=radii, **told))
    return records


def _clock(seconds: float) -> str:
    """H:MM:SS.ffffff, the field's way of writing a duration."""
    micros = round(seconds * 1_000_000)
    minutes, micros = divmod(micros, 60_000_000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{micros // 1_000_000:02d}.{micros % 1_000_000:06d}"
