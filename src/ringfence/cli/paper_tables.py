"""The table of ``ringfence metrics`` as a paper, a page or a program takes it."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any, Final

from ringfence.cli.tables import number, percent
from ringfence.rounding import written

if TYPE_CHECKING:
    from ringfence.analysis.metrics import RunMetrics

FORMS: Final = ("csv", "markdown", "latex")
_BELOW: Final = {"linf": r"\infty"}
UNPROVED: Final = " (no proven guarantee)"
_LATEX: Final = {**{sign: f"\\{sign}" for sign in "&%$#_{}"}, "~": r"\~{}", "^": r"\^{}", "\\": r"\textbackslash{}"}


def as_text(runs: Sequence[RunMetrics], form: str) -> str:
    """A row per run or lane: certified accuracy at every radius, ACR, abstentions. What is not proved says so.

    csv holds full numbers, the others percent with one decimal, as the field prints them.
    """
    radii = sorted({radius for run in runs for radius in run.certified_accuracy})
    if form == "csv":
        return _csv(runs, radii)
    names, lanes = [one.path for one in runs], any(one.lane for one in runs)
    called = [f"{name}, {one.lane}" if lanes and one.lane else name for name, one in zip(names, runs, strict=True)]
    titles = [name if one.sound else name + UNPROVED for name, one in zip(called, runs, strict=True)]
    shares = [[one.certified_accuracy.get(radius) for radius in radii] for one in runs]
    rows = [[title, number(one.acr), *map(percent, at)] for title, one, at in zip(titles, runs, shares, strict=True)]
    headings = [written(radius) for radius in radii]
    norms = sorted({one.norm for one in runs})
    return _latex(rows, headings, norms) if form == "latex" else _markdown(rows, headings, norms)


def _csv(runs: Sequence[RunMetrics], radii: Sequence[float]) -> str:
    file = StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(
        ["run", "lane", "sound", "inputs", "acr", "abstention", "norm", *(f"at {written(one)}" for one in radii)]
    )
    for one in runs:
        name = (
            f"'{one.path}" if one.path[:1] in tuple("=+-@\t\r") else one.path
        )  # no spreadsheet takes it for a formula
        facts: list[Any] = [name, one.lane or "", int(one.sound), one.count, one.acr, one.abstention, one.norm]
        writer.writerow([*facts, *(one.certified_accuracy.get(radius) for radius in radii)])
    return file.getvalue()


def _markdown(rows: Sequence[Sequence[str]], headings: Sequence[str], norms: Sequence[str]) -> str:
    head = [f"run ({' and '.join(norms)} radii)", "ACR", *(f"% at {one}" for one in headings)]
    plain = [[cell.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;") for cell in row] for row in rows]
    lines = [head, ["---", *("---:" for _ in head[1:])], *plain]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _latex(rows: Sequence[Sequence[str]], headings: Sequence[str], norms: Sequence[str]) -> str:
    """As booktabs wants it: radii stand under one heading."""
    plain = [
        ["--" if cell == "-" else "".join(_LATEX.get(sign, sign) for sign in cell) for cell in row] for row in rows
    ]
    count, norm = len(headings), " and ".join(rf"$\ell_{_BELOW.get(one, one[1:])}$" for one in norms)
    lines = [
        rf"\begin{{tabular}}{{l{'r' * (count + 1)}}}",
        r"\toprule",
        rf" & ACR & \multicolumn{{{count}}}{{c}}{{Certified accuracy (\%) at {norm} radius}} \\",
        rf"\cmidrule(lr){{3-{count + 2}}}",
        rf" & & {' & '.join(headings)} \\",
        r"\midrule",
        *(rf"{' & '.join(row)} \\" for row in plain),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "".join(f"{line}\n" for line in lines)
