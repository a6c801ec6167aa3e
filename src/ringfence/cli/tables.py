"""Tables for people, readable on 80 columns, and how the answers of a run are shown."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, final

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from ringfence.cli.console import aside, is_quiet, remark, results
from ringfence.errors import one_line
from ringfence.rounding import written, written_down

if TYPE_CHECKING:
    from ringfence.analysis.aces import ThetaMetrics
    from ringfence.analysis.metrics import RunMetrics
    from ringfence.store import RunFolder


LEAST_WORDS = 12
"""Columns that words have at least, where numbers leave no room for more."""


@final
class _Whole(Table):
    """A table wider than a window that has no room for its columns: rich would cut them, or leave them out."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        beside = self.padding[1] + self.padding[3] + 1  # of every column; one is between two
        least = sum((column.min_width or 0) + beside for column in self.columns) - 1
        return super().__rich_console__(console, options.update(max_width=max(least, options.max_width)))


def table(
    headings: Iterable[str],
    rows: Iterable[Sequence[str | Text]],
    words: Collection[str] = (),
    title: str | None = None,
    caption: str | None = None,
    **look: Any,
) -> Table:
    """Cells under headings: columns of words to the left, broken where they are long; numbers to the right, whole, also
    where the window is too narrow for them: it then breaks the lines."""
    shape = {"box": box.SIMPLE_HEAD, "pad_edge": False, "show_edge": False, "padding": (0, 1, 0, 0), **look}
    made = _Whole(title=title, caption=caption, title_justify="left", caption_justify="left", **shape)
    cells = [[one_line(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
    for place, heading in enumerate(headings):
        of_words = heading in words
        side: Literal["left", "right"] = "left" if of_words else "right"
        whole = max(cell_len(str(cell)) for cell in (one_line(heading), *(row[place] for row in cells)))
        least = min(whole, LEAST_WORDS) if of_words else whole
        made.add_column(one_line(heading), justify=side, overflow="fold", no_wrap=not of_words, min_width=least)
    for row in cells:
        made.add_row(*row)
    return made


def percent(share: float | None, sign: str = "") -> str:
    """A share as percent with one digit; a dash where there is none."""
    return "-" if share is None else f"{100 * share:.1f}{sign}"


def number(value: float | None) -> str:
    """Three digits; a dash where there is none."""
    return "-" if value is None else f"{value:.3f}"


def milliseconds(seconds: float) -> str:
    """Seconds as milliseconds, with a digit behind the point below 100."""
    return f"{1000 * seconds:.1f}" if seconds < 0.1 else f"{1000 * seconds:.0f}"


CERTIFIED = "Certified accuracy (%) at radius"
UNSOUND = "(paper: no guarantee)"
"""The label of a run or lane with results in a `paper` form: it must not be folded away."""

SAVED: dict[str, Callable[[RunMetrics], float | None]] = {
    "KCR%": lambda run: 100 * run.consensus.kcr if run.consensus else None,
    "fwd": lambda run: run.consensus.forwards_per_draw if run.consensus else None,
    "TimeRF": lambda run: run.time_rf,
}
"""What K-consensus and a faster procedure save: columns shown only where some run has them; fwd is per draw."""


def sparkline(shares: Sequence[float | None]) -> str:
    """Shares as blocks of eight heights, a blank where there is none; as digits where there are no blocks."""
    blocks = "12345678" if results.options.ascii_only else "▁▂▃▄▅▆▇█"
    return "".join(" " if share is None else blocks[min(7, int(8 * share))] for share in shares)


def metrics_table(runs: Sequence[RunMetrics], width: int = 80, curve: bool = False) -> Table:
    """One line per run or lane: certified accuracy in percent per radius, then the summary figures.

    width: columns of the terminal. curve: also as a sparkline, where that fits beside all numbers. The label of
    unsound runs goes below the table where it would push out a number, and of too many radii every so many are shown.
    """
    radii = sorted({radius for run in runs for radius in run.certified_accuracy})
    fewer = ((False, True, step) for step in range(2, len(radii) + 1))
    for shape, below, step in ((curve, False, 1), (False, False, 1), (False, True, 1), *fewer):
        made, needed = _metrics_table(runs, radii[::step], shape, below)
        if needed <= width:
            break
    if step > 1:
        made.caption = f"{made.caption}; {len(radii[::step])} of {len(radii)} radii, --json has all"
    return made


def _metrics_table(runs: Sequence[RunMetrics], radii: Sequence[float], curve: bool, below: bool) -> tuple[Table, int]:
    """The table, and the columns of a terminal that it needs at least."""
    saved = {heading: of for heading, of in SAVED.items() if any(of(run) is not None for run in runs)}
    columns: dict[str, Callable[[RunMetrics], str]] = {
        **{written(radius): _certified_at(radius) for radius in radii},
        "curve": lambda run: sparkline([run.certified_accuracy.get(radius) for radius in radii]),
        "ACR": lambda run: number(run.acr),
        "abst%": lambda run: percent(run.abstention),
        "draws": lambda run: f"{run.draws / run.count:.0f}" if run.draws else "-",  # logs do not say
        "ms": lambda run: milliseconds(run.seconds / run.count),
        **{heading: _two_digits(of) for heading, of in saved.items()},
    }
    if not curve or len(radii) < 3:
        del columns["curve"]
    if not radii:
        del columns["ACR"]
    paths = {run.path for run in runs}
    lanes = len(paths) == 1 and any(run.lane for run in runs)
    norms, alphas = {_norm_of(run) for run in runs}, {run.alpha for run in runs}
    alike = "".join(norms) if len(norms) == 1 else ""  # of several each is told beside its run
    title = (CERTIFIED + alike if radii else "No labels, so no accuracy") + (
        f", {one_line(paths.pop())}" if lanes else ""
    )
    unsound = not all(run.sound for run in runs)
    label = " *" if below else f"\n{UNSOUND}"
    least = len(UNSOUND) if unsound and not below else LEAST_WORDS
    counts = sorted({run.count for run in runs})
    caption = f"* {UNSOUND}; " if unsound and below else ""
    caption += f"{' to '.join(map(str, counts[:1] + counts[1:][-1:]))} inputs; draws and ms per input"
    caption += "; KCR% of draws decided by the first K members, fwd forwards per draw" if "fwd" in saved else ""
    rows: list[list[str | Text]] = []
    for run in runs:
        name = one_line(run.lane or "" if lanes else run.name)
        name += (_norm_of(run) or f" in {run.norm}") if len(norms) > 1 else ""
        name += f", alpha {'not known' if run.alpha is None else f'{run.alpha:g}'}" if len(alphas) > 1 else ""
        rows.append(
            [Text.assemble(name, ("" if run.sound else label, "yellow")), *(of(run) for of in columns.values())]
        )
    first = "lane" if lanes else "run"
    made = table((first, *columns), rows, (first,), title, caption, padding=0)
    made.columns[0].min_width = least
    made.min_width = 0 if radii else len(caption)  # few columns are left
    if "curve" in columns:
        made.columns[1 + list(columns).index("curve")].style = "cyan"
    widths = (max(len(heading), *(len(of(run)) for run in runs)) for heading, of in columns.items())
    return made, least + sum(1 + width for width in widths)


def _norm_of(run: RunMetrics) -> str:
    """The norm of its radii, and where they come from another the one that was proved; nothing for l2."""
    proved = "" if run.norm == run.proved else f" (proved in {run.proved})"
    return "" if run.norm == run.proved == "l2" else f" in {run.norm}{proved}"


def _certified_at(radius: float) -> Callable[[RunMetrics], str]:
    return lambda run: percent(run.certified_accuracy.get(radius))


def _two_digits(of: Callable[[RunMetrics], float | None]) -> Callable[[RunMetrics], str]:
    return lambda run: "-" if (value := of(run)) is None else f"{value:.2f}"


def answers_table(rows: Sequence[Mapping[str, Any]], claims_radius: bool = True) -> Table:
    """One line per input: what was answered, and within which radius that cannot change, where one was asked for."""
    from ringfence.types import ABSTAIN

    lanes = len({row["lane"] for row in rows}) > 1
    proved = ["radius", "p_a"] if claims_radius else []
    headings = [*(["lane"] if lanes else []), "label", "prediction", *proved, "draws"]
    cells: list[list[str | Text]] = []
    for row in rows:
        told = {**row, "label": "-" if row["label"] is None else str(row["label"]), "draws": f"{row['draws']:,}"}
        told["prediction"] = "abstained" if row["prediction"] == ABSTAIN else str(row["prediction"])
        told |= {name: written_down(row[name], 3) for name in ("radius", "p_a")}
        style = "yellow" if row["correct"] is False else ""
        cells.append([Text(one_line(told[name]), style) for name in ("name", *headings)])
    return table(("input", *headings), cells, words=("input",), title="Answers")


def stages_table(runs: Sequence[RunMetrics]) -> Table:
    """Where staged runs stopped: percent of inputs abstained from (ASA) and certified (ASC) at each stage or look."""
    rows: list[tuple[str, ...]] = []
    for run in runs:
        if run.stages is None:
            continue
        found, last = run.stages, len(run.stages.shares)
        saved: tuple[str, ...] = (f"{found.sample_rf:.2f}", f"{found.sample_rf_paper:.2f}")
        name = run.name
        for share in found.shares:
            if share.asr > 0 or share.index == last:
                figures = (str(share.index), f"{share.draws:,}", f"{share.asa:.1f}", f"{share.asc:.1f}")
                rows.append((name, *figures, *saved))
                name, saved = "", ("", "")
    headings = ("run", "stage", "draws", "ASA", "ASC", "SampleRF", "published SampleRF")
    title = "Stopped at (ASA abstained, ASC certified, % of inputs)"
    caption = "SampleRF: fixed draws over all draws made; published: over those of the last stage reached"
    return table(headings, rows, ("run",), title, caption)


MOST_THETAS = 21
"""Thresholds shown on the terminal: of a hundred and one every fifth."""


def points_json(points: Sequence[ThetaMetrics]) -> dict[str, Any]:
    """Every theta under ``thetas``."""
    return {"thetas": [point.to_dict() for point in points]}


def print_points(points: Sequence[ThetaMetrics]) -> None:
    """One line per theta, at most MOST_THETAS of them, evenly spaced."""
    step = -(-(len(points) - 1) // (MOST_THETAS - 1)) if len(points) > MOST_THETAS else 1
    shown = [point for k, point in enumerate(points) if k % step == 0 or k == len(points) - 1]
    radii = [written(radius) for radius in points[0].certified_accuracy]
    for title in (CERTIFIED, "Certified selection rate (%) at radius"):
        rows: list[tuple[str, ...]] = []
        for point in shown:
            shares = point.certified_accuracy if title == CERTIFIED else point.certified_selection_rate
            figures = [percent(point.natural_accuracy), number(point.acr), percent(point.abstention)]
            rows.append((f"{point.theta:g}", *figures, *(percent(share) for share in shares.values())))
        if title != CERTIFIED:
            results.print()
        results.print(table(("theta", "natural%", "ACR", "abst%", *radii), rows, title=title))
    alphas = [point.alpha for point in points]  # components may differ from theta to theta: the line holds for all
    known = [alpha for alpha in alphas if alpha is not None]
    alpha = f"alpha {max(known):g}" if len(known) == len(alphas) else "alpha unknown: a component does not say"
    results.print(f"{alpha}; {'proved' if all(point.sound for point in points) else 'no proven guarantee'}")
    if len(shown) < len(points):
        remark(f"{len(shown)} of {len(points)} thresholds are shown; --json has them all")


MOST_ROWS = 20
"""Inputs times lanes of a run that is short enough to show every answer on the terminal."""


def show_answers(run: RunFolder, csv: Path | None, as_json: bool) -> None:
    """Every input: in the file that was asked for, and as a table where those are few."""
    from ringfence.analysis.columns import answers, export_csv
    from ringfence.store.claims import procedure_in

    if csv is not None:
        export_csv(run, csv)
        aside(f"answers: {csv}")
    rows = (run.expected or MOST_ROWS + 1) * len(run.config.classifier.lanes)
    if not (as_json or is_quiet()) and rows <= MOST_ROWS:
        results.print(answers_table(answers(run), procedure_in(run.config).claims_radius))
