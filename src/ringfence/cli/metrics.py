"""``ringfence metrics`` and ``ringfence gate``: what runs reached, and a run as a condition of a release."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli import options as o
from ringfence.cli.console import friendly, named_paths, print_json, remark, results, say, written_numbers
from ringfence.cli.derived import grouped
from ringfence.cli.paper_tables import FORMS, as_text
from ringfence.cli.tables import metrics_table, stages_table
from ringfence.errors import ArgumentError, check_word
from ringfence.rounding import written, written_down


@grouped
def metrics_command(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Run folders or Cohen-style logs, each as PATH or NAME=PATH."),
    ],
    radii: o.Radii = None,
    format: Annotated[str, typer.Option(help="auto, run or cohen.")] = "auto",
    sigma: Annotated[
        float | None, typer.Option(help="Sigma of the logs; only checked, their radii are absolute.")
    ] = None,
    reference: Annotated[
        Path | None, typer.Option(help="A run whose time per input is divided by each run's: TimeRF.")
    ] = None,
    best_lane: Annotated[
        bool, typer.Option("--best-lane", help="The best lane of every input; needs runs with --split-alpha.")
    ] = False,
    within: o.NormOptions = o.NormOptions(),
    form: Annotated[
        str | None, typer.Option("--table", help="Print the table as csv, markdown or latex (booktabs), for a paper.")
    ] = None,
    as_json: o.Json = False,
) -> None:
    """Certified accuracy, average certified radius and abstention of runs and logs."""
    with friendly():
        from ringfence.analysis.metrics import best_lane_metrics, load_metrics, load_together
        from ringfence.store import RunFolder

        check_word("--format", format, ("auto", "run", "cohen"), "Use auto.")
        if sigma is not None:
            from ringfence.noise import Gaussian  # torch comes with it, which nothing else here needs

            Gaussian(sigma)
        if form is not None and (form not in FORMS or as_json):
            rule = f"must be {' or '.join(FORMS)}, without --json"
            raise ArgumentError("--table", rule, f"{form}{' and --json' if as_json else ''}", "Use latex for a paper.")
        paths, names = named_paths(paths)
        asked = written_numbers(radii, "--radii")
        if best_lane:
            found = [best_lane_metrics(RunFolder.open(path).in_norm(within.shown), asked) for path in paths]
        else:
            found = load_together(paths, asked, format, within.shown)  # type: ignore[arg-type]
        if reference is not None:
            base = load_metrics(reference, None)
            if len(base) > 1:
                rule = "must have one lane: lanes share one pass, so their times cannot be told apart"
                raise ArgumentError("--reference", rule, f"{len(base)} lanes", "Certify the full ensemble alone.")
            found = [one.against(base[0]) for one in found]
        found = [replace(one, path=names.get(one.path, one.path)) for one in found]
        if form is not None:
            results.print(as_text(found, form), soft_wrap=True, markup=False, highlight=False, end="")
        elif as_json:
            print_json({"runs": [one.to_dict() for one in found]})
        else:
            results.print(metrics_table(found, results.width, curve=True))
            if any(one.stages for one in found):
                results.print(stages_table(found))


def gate_command(
    run: Annotated[Path, typer.Argument(help="A finished run folder.")],
    certified: Annotated[
        list[str], typer.Option("--certified", help="ACCURACY@RADIUS, e.g. 0.60@0.5; may stand more than once.")
    ],
    confidence: Annotated[float, typer.Option(help="Of each lower bound, over inputs and noise.")] = 0.95,
    lane: Annotated[str | None, typer.Option(help="Which lane, for runs with several.")] = None,
    as_json: o.Json = False,
) -> None:
    """Exit with 1 unless the run shows the certified accuracy; a run that cannot be trusted exits with 2.

    The bound is exact (binomial) for inputs drawn independently, and already counts that each certificate may fail.
    """
    with friendly():
        from ringfence.cli.verify import seal_of
        from ringfence.errors import StoreError
        from ringfence.gate import Demand, gate
        from ringfence.store import RunFolder

        demands, folder = [Demand.of(one) for one in certified], RunFolder.open(run)
        if broken := seal_of(run)[1]:
            remedy = "Seal it again, if the change was meant; ringfence verify tells all of what is wrong."
            raise StoreError(run, "must be as it was sealed", broken[0], remedy)
        verdicts = [gate(folder, one, confidence, lane) for one in demands]
        passed = all(one.passed for one in verdicts)  # to need all of them makes no error likelier
        if as_json:
            print_json({"run": str(run), "passed": passed, "demands": [one.to_dict() for one in verdicts]})
        else:
            for one in verdicts:
                word, sign = ("passed", ">=") if one.passed else ("failed", "<")
                lower = written_down(one.lower, 4)
                bound = f"lower bound {lower} {sign} {one.accuracy:g} at {one.norm} radius {written(one.radius)}"
                bound += "" if one.lattice is None else f" among inputs in whole steps of 1/{one.lattice}"
                counted = f"{one.certified} of {one.inputs} inputs certified"
                say(f"{word}: {bound} ({counted}; confidence {one.confidence:g})")
        for doubt in dict.fromkeys(doubt for one in verdicts for doubt in one.doubts):
            remark(f"warning: {doubt}.")
    if not passed:
        raise typer.Exit(1)
