"""Options shared by several commands, each described once; Cohen's flag names are accepted as aliases.

Those of a type T are ``Skip[int]`` where they have a value, and ``Skip[int | None]`` where a job file may say it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeVar

import typer

from ringfence.cli.help import completing

T = TypeVar("T")

MODEL_HELP = (
    "default, zoo:NAME, timm:NAME, torchvision:NAME (also NAME@weights), hf:FOLDER, onnx:FILE, pkg.module:factory, "
    "file.py:factory, program.pt2, TorchScript, checkpoint.pth.tar, an architecture (also arch@FILE), or a tree of "
    "these: 'soft(A, B)', 'denoised(DENOISER, A)', 'denoised(diffusion:FOLDER, A)'."
)
ModelUnlessMembers = Annotated[
    str | None, typer.Option("--model", help=f"{MODEL_HELP} Without it and --members: default.")
]
Weights = Annotated[Path | None, typer.Option(help="Weights for the model: .safetensors, or a .pt of plain tensors.")]
Data = Annotated[
    T,
    typer.Option(help="default, file.npz, an image folder, hf-data:FOLDER, mnist:PATH, cifar10:PATH or imagenet:PATH."),
]
Sigma = Annotated[T, typer.Option(help="Standard deviation of the noise, in [0,1] pixel units.")]
NoiseForm = Annotated[
    str | None,
    typer.Option(
        "--noise-form",
        autocompletion=completing("exact", "float"),
        help="exact: whole steps of a lattice, which rounding cannot break (default for 8-bit inputs), or float.",
    ),
]
Lattice = Annotated[
    int | None, typer.Option("--lattice", help="Steps per unit of exact noise and of its inputs (default 255).")
]
Alpha = Annotated[float, typer.Option(help="Allowed failure probability per input.")]
NoiseName = Annotated[
    str | None,
    typer.Option(
        "--noise",
        autocompletion=completing("gaussian", "uniform", "laplace"),
        help="gaussian (default; radii in l2), uniform or laplace (in l1), or one of a plugin.",
    ),
]
EngineName = Annotated[
    str | None,
    typer.Option(
        "--engine",
        autocompletion=completing("local", "ray"),
        help="Where the work is done: local (default), ray, or one of a plugin.",
    ),
]
Address = Annotated[str | None, typer.Option("--address", help="Of a running Ray cluster; auto: this machine's.")]
Workers = Annotated[
    int | None, typer.Option("--workers", help="Ray: workers (default one per GPU, or per core without GPUs).")
]
GpusPerWorker = Annotated[float | None, typer.Option("--gpus-per-worker", help="Ray: a worker's share (default 1).")]
Gpus = Annotated[int | None, typer.Option("--gpus", help="Use so many GPUs of this machine, by a Ray of its own.")]
Patience = Annotated[
    float | None, typer.Option("--patience", help="Ray: seconds after which a worker that does nothing is replaced.")
]
Skip = Annotated[T, typer.Option(help="Every so many-th input, from index 0.", show_default="1")]
Limit = Annotated[int | None, typer.Option(help="At most so many inputs, after skipping.")]
Max = Annotated[
    int | None, typer.Option("--max", help="Cohen's flag: stop at this index of the data set, before skipping.")
]
Split = Annotated[
    T,
    typer.Option(
        autocompletion=completing("test", "train", "val"),
        help="test, train or val, for data sets that have several.",
        show_default="test",
    ),
]
Size = Annotated[int | None, typer.Option(help="Resize and centre-crop images to this many pixels.")]
Range = Annotated[
    str | None, typer.Option("--range", help="Values of the data that mean 0 and 1, such as 0..255 or -1..1.")
]
NoCheck = Annotated[
    bool, typer.Option("--no-check", help="Do not look first whether data and model have the same units and classes.")
]
Mean = Annotated[
    str | None, typer.Option(help="Channel means the model expects to be subtracted, e.g. 0.49,0.48,0.45.")
]
Std = Annotated[str | None, typer.Option(help="Channel deviations the model expects to be divided by.")]
Classes = Annotated[int | None, typer.Option("--classes", help="Number of classes, where the model cannot tell.")]
Device = Annotated[
    T,
    typer.Option(
        autocompletion=completing("auto", "cpu", "cuda"), help="auto, cpu, cuda or cuda:N.", show_default="auto"
    ),
]
Batch = Annotated[str | None, typer.Option(help="Rows per forward, or auto (default) to measure the fastest.")]
PrecisionName = Annotated[
    str | None,
    typer.Option(
        "--precision",
        autocompletion=completing("auto", "fp32", "tf32", "bf16"),
        help="fp32, tf32, bf16 or auto (default: tf32 on CUDA, else fp32): what it runs in, part of the claim.",
    ),
]
Compile = Annotated[
    bool | None,
    typer.Option(
        "--compile/--no-compile", help="Use torch.compile (default: on CUDA, if the run is long enough to pay for it)."
    ),
]
Fast = Annotated[bool, typer.Option("--fast", help="On CUDA: bf16, compiled, fused where there is a kernel.")]
Autotune = Annotated[
    bool | None,
    typer.Option("--autotune/--no-autotune", help="With --compile: also try kernels (default: if the run is long)."),
]
Seed = Annotated[T, typer.Option(help="Seed of the noise.", show_default="0")]
Csv = Annotated[Path | None, typer.Option("--csv", help="Also write a table with one row per input.")]
Log = Annotated[
    list[str] | None,
    typer.Option(
        "--log",
        autocompletion=completing("logging", "wandb", "mlflow"),
        help="Also tell logging, wandb or mlflow; may stand more than once.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress and no remarks.")]
Radii = Annotated[
    str | None,
    typer.Option(help="Radii to report, separated by commas (default 0,0.25,0.5,0.75,1.0, as far as a run can tell)."),
]
Norm = Annotated[
    str | None,
    typer.Option(
        autocompletion=completing("l1", "l2", "linf"),
        help="Show radii in l1, l2 or linf, converted from the norm that was proved (default: that one).",
    ),
]
Coordinates = Annotated[
    int | None, typer.Option(help="Numbers of an input, for --norm where a run does not say how many (e.g. 3072).")
]
Out = Annotated[T, typer.Option(help="The run folder; the same command again continues it.")]
Unlocked = Annotated[
    bool, typer.Option("--unlocked", help="Write on a disk that knows no locks; keep to one process there.")
]
LaneName = Annotated[str | None, typer.Option("--lane", help="Which lane, for runs with several.")]
MemberSpecs = Annotated[
    str | None,
    typer.Option("--members", help="Model specs separated by commas (also arch@weights.safetensors): an ensemble."),
]
VotesUnlessFile = Annotated[
    str | None,
    typer.Option(
        "--vote",
        autocompletion=completing("soft", "softmax", "hard", "max-margin", "weighted"),
        help="soft (default), softmax, hard, max-margin, weighted; several by commas: one pass.",
    ),
]
VoteNames = Annotated[
    str,
    typer.Option(
        "--vote",
        autocompletion=completing("soft", "softmax", "hard", "max-margin", "weighted"),
        help="soft, softmax, hard, max-margin or weighted.",
    ),
]
MemberWeights = Annotated[str | None, typer.Option(help="Weights of the members, for --vote weighted.")]
WeightsOn = Annotated[
    str | None,
    typer.Option(
        "--weights-on",
        autocompletion=completing("logits", "softmax"),
        help="logits (default) or softmax: what the member weights multiply.",
    ),
]
First = Annotated[int, typer.Option(help="Position of the first input taken.")]
Consensus = Annotated[
    str | None, typer.Option(help="K-consensus: skip the other members where the first K agree; several as lanes.")
]
Prefixes = Annotated[bool, typer.Option("--prefixes", help="Also every prefix 1..k of the members, same pass.")]
Singles = Annotated[bool, typer.Option("--singles", help="Also every single member, from the same pass.")]
SplitAlpha = Annotated[
    bool, typer.Option("--split-alpha", help="Divide alpha over the lanes, so that one may be chosen per input later.")
]
