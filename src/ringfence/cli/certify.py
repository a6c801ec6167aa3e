"""``ringfence certify`` and ``ringfence predict``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.cli import options as o
from ringfence.cli.console import friendly, numbers, remark, results, whole_numbers
from ringfence.cli.groups import InputOptions, RunningOptions, grouped

if TYPE_CHECKING:
    from ringfence.analysis.aces_runs import AcesRun
    from ringfence.cli.ensemble import EnsembleChoice
    from ringfence.cli.job import Choices
    from ringfence.store import RunFolder


@dataclass(frozen=True)
class EnsembleOptions:
    """Which members vote how."""

    members: o.MemberSpecs = None
    vote: o.VoteNames = "soft"
    member_weights: o.MemberWeights = None
    weights_on: o.WeightsOn = "logits"
    consensus: o.Consensus = None
    prefixes: o.Prefixes = False
    singles: o.Singles = False


@grouped
def certify_command(
    sigma: o.Sigma,
    out: o.Out,
    model: o.ModelUnlessMembers = None,
    data: o.Data = "default",
    procedure: Annotated[
        str | None,
        typer.Option(
            help="fixed, two-sided, multinomial, softmax, staged, sequential or anytime; sequential with a radius."
        ),
    ] = None,
    radius: Annotated[float | None, typer.Option(help="The radius to prove, for staged and sequential.")] = None,
    n0: Annotated[int | None, typer.Option("--n0", "--N0", help="Draws that choose the class (default 100).")] = None,
    n: Annotated[
        int | None, typer.Option("--n", "--N", help="Draws that bound it (default 100000; sequential 110000).")
    ] = None,
    alpha: o.Alpha = 0.001,
    beta: Annotated[float | None, typer.Option(help="Give-up error (default: sequential .001, staged .0001).")] = None,
    stages: Annotated[str | None, typer.Option(help="Draws per stage (default 1000,10000,125000).")] = None,
    look: Annotated[
        int | None, typer.Option(help="Draws between the first looks of sequential and anytime (default 100).")
    ] = None,
    larger: Annotated[
        str | None,
        typer.Option(help="Further radii above --radius that sequential goes on to prove, on the same draws."),
    ] = None,
    tolerance: Annotated[
        float | None, typer.Option(help="Anytime: stop once the radius is known this well, e.g. 0.02.")
    ] = None,
    seconds: Annotated[float | None, typer.Option(help="Anytime: stop after this time per input.")] = None,
    form: Annotated[
        str | None, typer.Option(help="multinomial: two-sided, one-sided or paper; softmax: sound or paper.")
    ] = None,
    bound: Annotated[str | None, typer.Option(help="softmax: betting, bernstein or hoeffding.")] = None,
    mechanism: o.MechanismName = "neyman-pearson",
    weights: o.Weights = None,
    inputs: InputOptions = InputOptions(),
    running: RunningOptions = RunningOptions(),
    ensemble: EnsembleOptions = EnsembleOptions(),
    split_alpha: o.SplitAlpha = False,
    unlocked: o.Unlocked = False,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Certify a data set: every prediction with the radius within which it cannot change."""
    with friendly("Run the same command again to continue."):
        from ringfence.cli.job import Choices

        name = procedure or ("fixed" if radius is None else "sequential")
        settings = {
            "radius": radius,
            "alpha": alpha,
            "beta": beta,
            "n0": n0,
            "n": n,
            "look": look,
            "tolerance": tolerance,
            "seconds": seconds,
            "form": form,
            "bound": bound,
            "stages": whole_numbers(stages, "--stages") if stages else None,
            "larger": larger_radii(larger, radius),
        }
        refuse_beside_members(ensemble, model, weights)
        choices = Choices(
            model or "default",
            data,
            sigma,
            name,
            settings,
            mechanism,
            weights,
            **vars(inputs),
            **vars(running),
            ensemble=choose_ensemble(ensemble, after=name == "after-smoothing"),
            split_alpha=split_alpha,
        )
        run_and_print(choices, out, as_json, quiet, unlocked)


@grouped
def predict_command(
    sigma: o.Sigma,
    out: o.Out,
    model: o.Model = "default",
    data: o.Data = "default",
    n: Annotated[int | None, typer.Option("--n", "--N", help="Draws per input (default 1000).")] = None,
    alpha: o.Alpha = 0.001,
    weights: o.Weights = None,
    inputs: InputOptions = InputOptions(),
    running: RunningOptions = RunningOptions(),
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Predict with the smoothed classifier, without radii: wrong with probability at most alpha per input."""
    with friendly("Run the same command again to continue."):
        from ringfence.cli.job import Choices

        choices = Choices(
            model,
            data,
            sigma,
            "predict",
            {"alpha": alpha, "n": n},
            "neyman-pearson",
            weights,
            **vars(inputs),
            **vars(running),
        )
        run_and_print(choices, out, as_json, quiet)


def larger_radii(text: str | None, radius: float | None) -> tuple[float, ...] | None:
    """The radii of --larger, which are above --radius and ascend."""
    from ringfence.errors import ArgumentError

    if not text:
        return None
    if radius is None:
        raise ArgumentError("--larger", "needs --radius, the radius proved first", text, "Add e.g. --radius 0.25.")
    found = tuple(numbers(text, "--larger"))
    if any(one <= radius for one in found):
        rule = f"must be above the radius {radius:g}"
        raise ArgumentError("--larger", rule, text, f"Write e.g. --larger {2 * radius or 0.25:g}.")
    return found


def refuse_beside_members(given: EnsembleOptions, model: str | None, weights: Path | None) -> None:
    """The members are the models, so that another one named beside them would go unused."""
    from ringfence.errors import ArgumentError

    for option, value in (("--model", model), ("--weights", weights)):
        if value is not None and given.members is not None:
            rule = f"does not go with {option}: the members are the models"
            remedy = f"Leave out {option}, or write one tree: --model 'soft(A, B)'."
            raise ArgumentError("--members", rule, f"{option} {value}", remedy)


def choose_ensemble(given: EnsembleOptions, after: bool = False) -> EnsembleChoice | None:
    """What --members and its companions say; None without them. after: the members are smoothed first, then vote."""
    from ringfence.cli.ensemble import EnsembleChoice
    from ringfence.errors import ArgumentError
    from ringfence.models.grammar import split_models

    if given.members is None:
        if given != EnsembleOptions():
            rule = "--vote, --member-weights, --weights-on, --consensus, --prefixes and --singles need members"
            raise ArgumentError("--members", rule, "none", "Write --members a,b,c.")
        return None
    return EnsembleChoice(
        members=tuple(split_models(given.members)),
        votes=tuple(part.strip() for part in given.vote.split(",") if part.strip()),
        consensus=whole_numbers(given.consensus, "--consensus") if given.consensus else (),
        weights=tuple(numbers(given.member_weights, "--member-weights")) if given.member_weights else (),
        weights_on=given.weights_on,
        prefixes=given.prefixes,
        singles=given.singles,
        after_smoothing=after,
    )


def certify_folder(choices: Choices, out: Path, quiet: bool, unlocked: bool = False) -> RunFolder:
    """Load, and certify into the folder with progress."""
    from ringfence.cli.progress import show_progress
    from ringfence.engines import certify_into
    from ringfence.store import RunFolder

    model, dataset, num_classes = choices.load()
    run = RunFolder.create_or_resume(out, choices.config(model, dataset, num_classes), unlocked)
    done = len(run.done_ids())
    if done and not quiet:
        remark(f"{out}: {done} of {len(dataset)} inputs are already there; going on with the rest")
    module, lift = model.placed(dataset.shape)
    with show_progress(len(dataset), done, quiet) as report:
        certify_into(
            run,
            module,
            dataset,
            noise=choices.noise,
            procedure=choices.test,
            mechanisms=choices.mechanisms,
            lift=lift,
            execution=choices.execution,
            on_progress=report,
        )
    return run


def run_and_print(choices: Choices, out: Path, as_json: bool, quiet: bool, unlocked: bool = False) -> None:
    """Certify into the folder, print the result."""
    from ringfence.analysis.aces_runs import AcesRun, is_aces
    from ringfence.analysis.metrics import metrics_by_lane
    from ringfence.cli.tables import metrics_table
    from ringfence.engines.local import default_radii

    run = certify_folder(choices, out, quiet, unlocked)
    if is_aces(run):
        print_aces(choices, AcesRun.read(run), as_json, quiet)
        return
    lanes = metrics_by_lane(run, default_radii(run), str(out))
    if as_json:
        typer.echo(json.dumps(result_json(lanes, str(out)), indent=2, allow_nan=False))
        return
    results.print(metrics_table(lanes, results.width))
    if not quiet:
        remark(guarantee(choices, lanes[0].sound))
        remark(f"run folder: {out}")


def print_aces(choices: Choices, run: AcesRun, as_json: bool, quiet: bool) -> None:
    """Figures of every threshold, and what may be done with them."""
    from ringfence.cli.aces_tables import points_json, points_of, print_points

    points, out = points_of(run.answers(), None), run.run.path
    if as_json:
        typer.echo(points_json(points))
        return
    print_points(points)
    if not quiet:
        remark(guarantee(choices, choices.test.sound).replace("each input", "each input and theta"))
        if len(points) > 1 and not choices.split_alpha:
            remark("choose ONE theta for all inputs: picking it input by input from these counts would not be sound.")
        remark(f"run folder: {out}" + ("" if points[0].acr is None else f"; see ringfence aces frontier {out}"))


def result_json(lanes: list[Any], out: str) -> dict[str, Any]:
    """The keys of a ``metrics --json`` run, with what the run cost; one entry per lane under ``runs``."""
    entries = [
        {
            **lane.to_dict(),
            "draws": lane.draws,
            "forwards": lane.forwards,
            "seconds": lane.seconds,
            "sound": lane.sound,
            "run": out,
        }
        for lane in lanes
    ]
    return {**entries[0], "runs": entries}


def guarantee(choices: Choices, sound: bool) -> str:
    """What the numbers mean, in one sentence."""
    from ringfence.procedures import AcesPredict, Predict

    test = choices.test
    if not sound:
        return "paper mode: these results reproduce a published procedure and carry no proven guarantee."
    if isinstance(test, AcesPredict):
        claim = "each answer is that of the network which the smoothed selector chooses"
    elif isinstance(test, Predict):
        claim = "each answer is the smoothed classifier's most probable class"
    else:
        claim = "no perturbation of l2 norm below its radius changes the smoothed classifier's answer"
    return f"guarantee: for each input, with probability at least {1 - test.alpha:g} over the noise, {claim}."
