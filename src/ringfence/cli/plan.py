"""``ringfence plan``: what a certification will cost and can reach, before anything runs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ringfence.cli import options as o
from ringfence.cli.console import friendly, print_json, remark, say_facts
from ringfence.cli.derived import given_settings
from ringfence.errors import ArgumentError


def plan_command(
    ctx: typer.Context,
    sigma: o.Sigma[float],
    noise: o.NoiseName = None,
    inputs: Annotated[int, typer.Option(help="How many inputs will be certified.")] = 500,
    model: Annotated[str | None, typer.Option(help="Measure this model's rate, to give the time too.")] = None,
    data: o.Data[str] = "default",
    weights: o.Weights = None,
    device: o.Device[str] = "auto",
    as_json: o.Json = False,
) -> None:
    """Draws, time and the largest reachable radius; warns if n and alpha cannot prove the radius at all."""
    with friendly():
        from ringfence.mechanisms import mechanisms_named
        from ringfence.noise import noise_with
        from ringfence.procedures import Given, foreseen
        from ringfence.procedures import procedure as build

        if inputs < 1:
            raise ArgumentError("--inputs", "must be at least 1", inputs, "Say how many inputs will be certified.")
        settings = given_settings(ctx)
        law = noise_with(noise or "gaussian", sigma).law
        radius, given = settings["radius"], Given(2, law, mechanisms_named(ctx.obj["mechanism"], law.family)[0])
        test = build(ctx.obj["procedure"], settings, unless_known=("radius",))
        answer = foreseen(test, given, radius)
        if model is not None:
            answer |= _time(model, data, weights, device, sigma, answer["most_draws"] * inputs)
    if as_json:
        print_json(answer)
    else:
        _print(answer, inputs)
    if not answer["reachable"]:
        remark(
            f"warning: even if all draws agree, {test.name} proves at most {answer['largest_radius']:.4g}; "
            f"the radius {radius:g} is out of reach. Raise --n or --sigma, or ask for less."
        )


def _time(model: str, data: str, weights: Any, device: str, sigma: float, draws: int) -> dict[str, Any]:
    """Seconds of so many draws at the measured rate."""
    from ringfence.data import load_dataset
    from ringfence.models import load_model
    from ringfence.sampling import count_classes, forward_rate, pick_device

    loaded = load_model(model, weights=weights, sigma=sigma)
    x, place = load_dataset(data, limit=1)[0].x, pick_device(device)
    plan, rate = forward_rate(loaded.at_input, tuple(x.shape), count_classes(loaded.at_input, x, place), place)
    return {"batch": plan.batch, "forwards_per_second": rate, "most_seconds": draws / rate}


def _print(answer: dict[str, Any], inputs: int) -> None:
    told = {"procedure": answer["procedure"], "largest radius": f"{answer['largest_radius']:.4f}"}
    told["draws per input"] = f"at most {answer['most_draws']:,}"
    for p, draws in answer.get("expected_draws_at_p", {}).items():
        mark = "  (needed)" if f"{answer['p_needed']:.4g}" == p else ""
        told[f"  if p_A = {p}"] = f"{draws:,.0f} expected{mark}"
    if "most_seconds" in answer:
        told["rate"] = f"{answer['forwards_per_second']:,.0f} forwards/s at batch {answer['batch']}"
        told["time"] = f"at most {answer['most_seconds']:,.0f} s for {inputs} inputs"
    say_facts(told)
