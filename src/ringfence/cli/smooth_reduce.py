"""``ringfence smooth-reduce``: patch ensembles of one network, with the factor their noise mode costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.cli import options as o
from ringfence.cli.console import friendly, remark, results
from ringfence.cli.groups import InputOptions, RunningOptions, grouped

if TYPE_CHECKING:
    from ringfence.cli.job import Choices
    from ringfence.cli.smooth_reduce_job import Reducing
    from ringfence.lift import Lift

smooth_reduce_app = typer.Typer(help="One network on overlapping patches or clips: Smooth-Reduce, made sound.")

Data = Annotated[str, typer.Option(help="As for certify, or mnist-motion:PATH (clips of moving digits).")]
PatchCount = Annotated[int | None, typer.Option("--patches", help="Number of patches (4, 9, 16, ...).")]
PatchSize = Annotated[int | None, typer.Option(help="Side of a patch, as the network sees it (default: the image's).")]
Resize = Annotated[int | None, typer.Option(help="Bring the image to this side first, then cut the patches.")]
ResizeKind = Annotated[str, typer.Option(help="bilinear or bicubic: only linear maps have a certified norm.")]
Pad = Annotated[int, typer.Option(help="Or pad with so many zeros on every side first.")]
Crop = Annotated[int | None, typer.Option(help="Or cut patches of this side and upsample them to the patch size.")]
PatchStride = Annotated[int | None, typer.Option(help="All patches on this stride, instead of a number.")]
SamplingName = Annotated[
    str, typer.Option("--sampling", help="dense, or random with replacement, drawn once per input from the seed.")
]
Reduce = Annotated[str, typer.Option(help="mean of the logits, or max of the softmax scores.")]
Mode = Annotated[
    str,
    typer.Option("--mode", "--patch-mode", help="Where noise enters: input, resized, patch or per-patch-input."),
]
Form = Annotated[str, typer.Option(help="sound, or paper: the published radii, without the factor and without proof.")]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse whatever proves nothing (the paper form).")]
ClipCount = Annotated[int | None, typer.Option("--clips", help="Videos: number of overlapping sub-videos.")]
ClipFrames = Annotated[int | None, typer.Option(help="Videos: frames of a sub-video (t).")]
ClipStride = Annotated[int | None, typer.Option(help="Videos: frames between the sub-videos' starts.")]
Chunk = Annotated[int | None, typer.Option(help="Videos: average the logits of consecutive chunks of m frames.")]
Frames = Annotated[int, typer.Option(help="mnist-motion: frames of a video, 64 or 128.")]
N0 = Annotated[int, typer.Option("--n0", "--N0", help="Draws that choose the class.")]


@smooth_reduce_app.callback()
def _root() -> None:
    """One network on overlapping patches or clips: Smooth-Reduce, made sound."""


@smooth_reduce_app.command("certify")
@grouped
def certify_command(
    sigma: o.Sigma,
    out: o.Out,
    model: o.Model = "default",
    data: Data = "default",
    patches: PatchCount = None,
    patch_size: PatchSize = None,
    resize: Resize = None,
    resize_kind: ResizeKind = "bilinear",
    pad: Pad = 0,
    crop: Crop = None,
    patch_stride: PatchStride = None,
    sampling: SamplingName = "dense",
    reduce: Reduce = "mean",
    mode: Mode = "input",
    form: Form = "sound",
    strict: Strict = False,
    clip_count: ClipCount = None,
    clip_frames: ClipFrames = None,
    clip_stride: ClipStride = None,
    chunk: Chunk = None,
    frames: Frames = 64,
    radius: Annotated[float | None, typer.Option(help="Prove this radius by the sequential test.")] = None,
    n0: N0 = 100,
    n: Annotated[
        int, typer.Option("--n", "--N", help="Draws that bound it, each of as many forwards as patches.")
    ] = 10000,
    alpha: o.Alpha = 0.001,
    weights: o.Weights = None,
    inputs: InputOptions = InputOptions(),
    running: RunningOptions = RunningOptions(),
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Certify a patch or clip ensemble of one network; without --patches and --clips, the network itself."""
    with friendly("Run the same command again to continue."):
        from ringfence.cli.job import Choices
        from ringfence.cli.smooth_reduce_job import Loaded, Reducing, load

        settings = {"alpha": alpha, "n0": n0, "n": n, "radius": radius}
        choices = Choices(
            model,
            data,
            sigma,
            "fixed" if radius is None else "sequential",
            settings,
            weights=weights,
            **vars(inputs),
            **vars(running),
        )
        Reducing(None, chunk, reduce, mode, form, strict)  # type: ignore[arg-type]
        loaded: Loaded = load(choices, frames)
        side = min(loaded.dataset.shape[-2:])
        asked = {"count": patches, "size": patch_size, "resize": resize, "pad": pad or None, "crop": crop}
        asked["stride"] = patch_stride
        described = _describe(asked, side, resize_kind, sampling, running.seed, clip_count, clip_frames, clip_stride)
        reducing = Reducing(described, chunk, reduce, mode, form, strict)  # type: ignore[arg-type]
        _run_and_print(choices, reducing, loaded, out, as_json, quiet)


def _describe(
    asked: dict[str, Any],
    side: int,
    kind: str,
    sampling: str,
    seed: int,
    clip_count: int | None,
    clip_frames: int | None,
    clip_stride: int | None,
) -> Any:
    """Crops, sub-videos or nothing, from what was asked for."""
    from ringfence.cli.smooth_reduce_job import SubVideoChoice
    from ringfence.errors import ArgumentError
    from ringfence.operators import Crops

    wants_patches = any(value is not None for value in asked.values())
    if not wants_patches and (kind, sampling) != ("bilinear", "dense"):
        rule = "--resize-kind and --sampling speak of patches"
        raise ArgumentError("--patches", rule, "none", "Add e.g. --patches 4 --resize 36.")
    if clip_count is None and clip_frames is None and clip_stride is None:
        given = {"size": side, **{name: value for name, value in asked.items() if value is not None}}
        return Crops(kind=kind, sampling=sampling, seed=seed, **given) if wants_patches else None  # type: ignore[arg-type]
    if wants_patches:
        raise ArgumentError("--clips", "go without --patches, --resize, --pad and --crop", "both", "Choose one.")
    if clip_frames is None:
        raise ArgumentError("--clip-frames", "sub-videos need a length", "none", "Give e.g. --clip-frames 64.")
    return SubVideoChoice(clip_frames, clip_count, clip_stride)


def _run_and_print(choices: Choices, reducing: Reducing, loaded: Any, out: Path, as_json: bool, quiet: bool) -> None:
    from ringfence.cli.certify import guarantee, result_json
    from ringfence.cli.progress import show_progress
    from ringfence.cli.smooth_reduce_job import certify
    from ringfence.cli.tables import metrics_table

    factor: list[str] = []

    def announce(run: Any, lift: Lift) -> None:
        factor.append(in_words(lift))
        if not quiet:
            remark(factor[0])
            if done := len(run.done_ids()):
                remark(f"{out}: {done} of {len(loaded.dataset)} inputs are already there; going on with the rest")

    with show_progress(len(loaded.dataset), 0, quiet) as report:
        run, found = certify(choices, reducing, loaded, out, announce, report)
    if as_json:
        facts = {**result_json([found], str(out)), "lift": run.config.lift, "smooth_reduce": reducing.settings()}
        typer.echo(json.dumps(facts, indent=2, allow_nan=False))
        return
    results.print(metrics_table([found], results.width))
    if not quiet:
        remark(guarantee(choices, found.sound))
        remark(f"run folder: {out}")


def in_words(lift: Lift) -> str:
    """What the noise mode costs, in one line."""
    facts = lift.settings()
    if not lift.sound:
        left_out = facts["norm_left_out"]
        return f"paper form (UNSOUND): radii are not divided by {left_out:.6g}, so they prove nothing."
    mode = "input" if facts["name"] == "identity" else facts["name"]
    return f"noise mode {mode}: every radius is divided by {lift.norm_bound:.6g}."
