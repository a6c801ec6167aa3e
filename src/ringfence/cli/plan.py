"""``ringfence plan``: what a certification will cost and can reach, before anything runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.bars import in_words
from ringfence.cli import options as o
from ringfence.cli.console import friendly, print_json, remark, say_facts
from ringfence.cli.derived import given_settings
from ringfence.cli.progress import show_waiting
from ringfence.errors import ArgumentError
from ringfence.rounding import rounded_down, written_down

if TYPE_CHECKING:
    from ringfence.mechanisms import Mechanism
    from ringfence.models import LoadedModel
    from ringfence.noise import Noise


def plan_command(
    ctx: typer.Context,
    sigma: o.Sigma[float],
    noise: o.NoiseName = None,
    inputs: Annotated[
        int | None, typer.Option(help="How many inputs will be certified (default 500, or all of --data).")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Measure this model's rate, to give the time too.")] = None,
    data: o.Data[str | None] = None,
    weights: o.Weights = None,
    device: o.Device[str | None] = None,
    as_json: o.Json = False,
) -> None:
    """Draws, time and the largest reachable radius; warns if n and alpha cannot prove the radius at all."""
    with friendly():
        from ringfence.mechanisms import mechanisms_named
        from ringfence.models import load_model, procedure_for
        from ringfence.models.grammar import as_tree
        from ringfence.noise import noise_with
        from ringfence.procedures import Given, declared, foreseen, usual_name
        from ringfence.procedures import procedure as build

        if inputs is not None and inputs < 1:
            raise ArgumentError("--inputs", "must be at least 1", inputs, "Say how many inputs will be certified.")
        only = {"--data": data, "--weights": weights, "--device": device}
        if model is None and (said := [one for one, value in only.items() if value is not None]):
            rule = f"{', '.join(said)} {'is' if len(said) == 1 else 'are'} of use with a model, whose rate is measured"
            raise ArgumentError("--model", rule, "none", f"Add --model, or leave {', '.join(said)} out.")
        settings, name, bound = given_settings(ctx), ctx.obj["procedure"], 1.0
        rate: dict[str, Any] = {}
        drawn, radius = noise_with(noise or "gaussian", sigma), settings["radius"]
        if radius is not None:  # most procedures do not take one, and would not look at it
            radius = next(one for one in declared("sequential") if one.name == "radius").check(radius)
        mechanism = mechanisms_named(ctx.obj["mechanism"], drawn.law.family)[0]
        if model is not None:
            name, implied = procedure_for(as_tree(model), name or usual_name(settings))
            settings |= implied
            with show_waiting("measuring the model"):
                loaded, place = load_model(model, weights=weights, sigma=sigma), device or "auto"
                bound, rate, there = _measured(loaded, data or "default", drawn, mechanism, place)
        test = build(name, settings, unless_known=("radius",))
        answer = foreseen(test, Given(2, drawn.law, mechanism, bound), radius) | rate
        if rate:
            inputs = inputs or there
            answer["most_seconds"] = answer["most_draws"] * inputs / rate["forwards_per_second"]
    if as_json:
        print_json(answer)
    else:
        _print(answer, inputs or 0)
    if not answer["reachable"]:
        draws = "--n" if any(one.name == "n" for one in declared(test.name)) else "the draws"
        remedy = f"Raise {draws} or --sigma, or ask for less." if test.claims_radius else "Choose another --procedure."
        most = f"even if all draws agree, {test.name} proves at most {rounded_down(answer['largest_radius'], 4):g}"
        remark(f"warning: {most}; the radius {radius:g} is out of reach. {remedy}")


def _measured(
    model: LoadedModel, data: str, noise: Noise, mechanism: Mechanism, device: str
) -> tuple[float, dict[str, Any], int]:
    """The bound of the model's lift, which divides radii, batch and rate of its fastest plan, and how many inputs."""
    from ringfence.data import load_dataset
    from ringfence.driver import norm_bound
    from ringfence.sampling import count_classes, forward_rate, pick_device

    inputs, place = load_dataset(data), pick_device(device)
    x = inputs[0].x
    module, lift = model.placed(tuple(x.shape))
    bound, x = norm_bound(lift, mechanism, noise), lift(x)
    plan, rate = forward_rate(module, tuple(x.shape), count_classes(module, x, place), place)
    return bound, {"batch": plan.batch, "forwards_per_second": rate}, len(inputs)


def _print(answer: dict[str, Any], inputs: int) -> None:
    told = {"procedure": answer["procedure"], "largest radius": written_down(answer["largest_radius"], 4)}
    told["draws per input"] = f"at most {answer['most_draws']:,}"
    for p, draws in answer.get("expected_draws_at_p", {}).items():
        mark = "  (needed)" if f"{answer['p_needed']:.4g}" == p else ""
        told[f"  if p_A = {p}"] = f"{draws:,.0f} expected{mark}"
    if "most_seconds" in answer:
        told["rate"] = f"{answer['forwards_per_second']:,.0f} forwards/s at batch {answer['batch']}"
        least = min(answer.get("expected_draws_at_p", {}).values(), default=0) * inputs / answer["forwards_per_second"]
        easy = f", {in_words(least)} if all are easy" if least else ""
        told["time"] = f"at most {in_words(answer['most_seconds'])} for {inputs} inputs{easy}"
    say_facts(told)
