"""``ringfence plan``: what a certification will cost and can reach, before anything runs."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from ringfence.cli import options as o
from ringfence.cli.console import friendly, remark, results, whole_numbers


def plan_command(
    sigma: o.Sigma,
    procedure: Annotated[str | None, typer.Option(help="fixed, two-sided, staged, sequential or anytime.")] = None,
    radius: Annotated[float | None, typer.Option(help="The radius to prove.")] = None,
    n0: Annotated[int | None, typer.Option("--n0", "--N0", help="Draws that choose the class.")] = None,
    n: Annotated[int | None, typer.Option("--n", "--N", help="Draws that bound it.")] = None,
    alpha: o.Alpha = 0.001,
    beta: Annotated[float | None, typer.Option(help="Give-up error.")] = None,
    stages: Annotated[str | None, typer.Option(help="Draws per stage.")] = None,
    inputs: Annotated[int, typer.Option(help="How many inputs will be certified.")] = 500,
    model: Annotated[str | None, typer.Option(help="Measure this model's rate, to give the time too.")] = None,
    data: o.Data = "default",
    weights: o.Weights = None,
    device: o.Device = "auto",
    as_json: o.Json = False,
) -> None:
    """Draws, time and the largest reachable radius; warns if n and alpha cannot prove the radius at all."""
    with friendly():
        from ringfence.errors import ArgumentError
        from ringfence.noise import Gaussian
        from ringfence.procedures import procedure as build

        name = procedure or ("fixed" if radius is None else "sequential")
        parts = whole_numbers(stages, "--stages") if stages else None
        settings = {"radius": radius, "alpha": alpha, "beta": beta, "n0": n0, "n": n, "stages": parts}
        if name in ("fixed", "two-sided", "anytime"):
            settings.pop("radius")
        if inputs < 1:
            raise ArgumentError("--inputs", "must be at least 1", inputs, "Say how many inputs will be certified.")
        test = build(name, settings)
        answer: dict[str, Any] = {
            "procedure": test.name,
            "largest_radius": test.largest_radius(Gaussian(sigma).sigma),
            "radius": radius,
            "reachable": radius is None or radius <= test.largest_radius(sigma),
            **_draws(test, sigma, radius),
        }
        if model is not None:
            answer |= _time(model, data, weights, device, answer, inputs)
    if as_json:
        typer.echo(json.dumps(answer, indent=2))
    else:
        _print(answer, inputs)
    if not answer["reachable"]:
        remark(
            f"warning: even if all draws agree, {name} proves at most {answer['largest_radius']:.4g}; "
            f"the radius {radius:g} is out of reach. Raise n or sigma, or ask for less."
        )


def _draws(test: Any, sigma: float, radius: float | None) -> dict[str, Any]:
    """Most draws per input, and for the sequential test the expected ones at several true p_A."""
    from ringfence.mechanisms import one_sided
    from ringfence.procedures import Sequential, Staged

    if isinstance(test, Staged):
        return {"most_draws": test.n0 + sum(test.stages)}
    if isinstance(test, Sequential) and radius is not None and radius <= test.largest_radius(sigma):
        p0 = float(one_sided.probability_for(radius, sigma))
        design = test.design(p0)
        grid = sorted({0.5, 0.7, 0.9, 0.99, 0.999, p0})
        expected = {f"{p:.4g}": float(test.n0 + design.expected_draws(p)) for p in grid}
        return {"most_draws": test.n0 + int(design.looks[-1]), "p_needed": p0, "expected_draws_at_p": expected}
    return {"most_draws": getattr(test, "n0", 0) + test.n}


def _time(model: str, data: str, weights: Any, device: str, answer: dict[str, Any], inputs: int) -> dict[str, Any]:
    """Seconds at the measured rate."""
    import time

    import torch

    from ringfence.data import load_dataset
    from ringfence.models import load_model
    from ringfence.sampling import Forward, count_classes, fastest_plan, pick_device

    loaded, dataset, place = load_model(model, weights=weights), load_dataset(data, limit=1), pick_device(device)
    x = dataset[0].x
    classes = count_classes(loaded.at_input, x, place)
    plan = fastest_plan(loaded.at_input, tuple(x.shape), classes, place)
    forward, batch = Forward(loaded.at_input, plan, place, classes), torch.rand(plan.batch, *x.shape, device=place)
    begin, rounds = time.perf_counter(), 0
    while rounds < 3 or time.perf_counter() - begin < 1.0:
        float(forward(batch).scores.sum())
        rounds += 1
    rate = rounds * plan.batch / (time.perf_counter() - begin)
    most = answer["most_draws"] * inputs / rate
    return {"batch": plan.batch, "forwards_per_second": rate, "most_seconds": most}


def _print(answer: dict[str, Any], inputs: int) -> None:
    results.print(f"procedure          {answer['procedure']}")
    results.print(f"largest radius     {answer['largest_radius']:.4f}")
    results.print(f"draws per input    at most {answer['most_draws']:,}")
    for p, draws in answer.get("expected_draws_at_p", {}).items():
        mark = "  (needed)" if f"{answer['p_needed']:.4g}" == p else ""
        results.print(f"  if p_A = {p:<8}  {draws:,.0f} expected{mark}")
    if "most_seconds" in answer:
        rate = answer["forwards_per_second"]
        results.print(f"rate               {rate:,.0f} forwards/s at batch {answer['batch']}")
        results.print(f"time               at most {answer['most_seconds']:,.0f} s for {inputs} inputs")
