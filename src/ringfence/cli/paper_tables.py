"""The table of ``ringfence metrics`` as a paper, a page or a program takes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

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
    from ringfence.analysis.columns import csv_text

    at = {radius: f"at {written(radius)}" for radius in radii}
    rows = [
        {
            "run": one.path,
            "lane": one.lane or "",
            "sound": one.sound,
            "inputs": one.count,
            **{name: getattr(one, name) for name in ("acr", "abstention", "norm")},
            **{name: one.certified_accuracy.get(radius) for radius, name in at.items()},
        }
        for one in runs
    ]
    return csv_text(list(rows[0]), rows)


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
