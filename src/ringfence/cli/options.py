"""Options shared by several commands, each described once, and groups of them, a dataclass that a command takes as one
argument; Cohen's flag names are accepted as aliases.

Those of a type T are ``Skip[int]`` where they have a value, and ``Skip[int | None]`` where a job file may say it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from ringfence.cli.help import SEVERAL, completing
from ringfence.errors import ArgumentError
from ringfence.settings import usual_radii

if TYPE_CHECKING:
    from ringfence.stats.norms import InNorm

T = TypeVar("T")
_USUAL = ",".join(f"{one:g}" for one in usual_radii(0.25))


def choice(flag: str, words: str, help: str, usual: bool | str = True, metavar: str | None = None) -> Any:
    """An option that a shell completes to these words; usual: what it is where it is left out, if that is shown."""
    completed = completing(*words.split())
    return typer.Option(flag, autocompletion=completed, help=help, show_default=usual, metavar=metavar)


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
    choice(
        "--noise-form",
        "exact float",
        "exact: whole steps of a lattice, which rounding cannot break (default for 8-bit inputs), or float.",
    ),
]
Lattice = Annotated[
    int | None, typer.Option("--lattice", help="Steps per unit of exact noise and of its inputs (default 255).")
]
Alpha = Annotated[float, typer.Option(help="Allowed failure probability per input.")]
NoiseName = Annotated[
    str | None,
    choice(
        "--noise",
        "gaussian uniform laplace",
        "gaussian (default; radii in l2), uniform or laplace (in l1), or one of a plugin.",
    ),
]
EngineName = Annotated[
    str | None,
    choice("--engine", "local ray", "Where the work is done: local (default), ray, or one of a plugin."),
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
    choice("--split", "test train val", "test, train or val, for data sets that have several.", usual="test"),
]
Size = Annotated[int | None, typer.Option(help="Resize and centre-crop images to this many pixels.")]
Range = Annotated[
    str | None, typer.Option("--range", help="Values of the data that mean 0 and 1, such as 0..255 or -1..1.")
]
NoCheck = Annotated[
    bool, typer.Option("--no-check", help="Do not look first whether data and model have the same units and classes.")
]
Mean = Annotated[
    str | None,
    typer.Option(help="Channel means the model expects to be subtracted, e.g. 0.49,0.48,0.45.", metavar=f"X{SEVERAL}"),
]
Std = Annotated[
    str | None, typer.Option(help="Channel deviations the model expects to be divided by.", metavar=f"X{SEVERAL}")
]
Classes = Annotated[int | None, typer.Option("--classes", help="Number of classes, where the model cannot tell.")]
Device = Annotated[
    T,
    choice("--device", "auto cpu cuda", "auto, cpu, cuda or cuda:N.", usual="auto"),
]
Batch = Annotated[
    str | None, typer.Option(help="Rows per forward, or auto (default): the usual ones, the fastest of long runs.")
]
PrecisionName = Annotated[
    str | None,
    choice(
        "--precision",
        "auto fp32 tf32 bf16",
        "fp32, tf32, bf16 or auto (default: tf32 on CUDA, else fp32): what it runs in, part of the claim.",
    ),
]
Compile = Annotated[
    bool | None,
    typer.Option(
        "--compile/--no-compile",
        help="Use torch.compile (default: if the run is long enough to pay for it; on a CPU, if it is faster then).",
    ),
]
Fast = Annotated[
    bool,
    typer.Option("--fast", help="bf16, if the device multiplies in it; on CUDA also compiled, fused if possible."),
]
Autotune = Annotated[
    bool | None,
    typer.Option("--autotune/--no-autotune", help="With --compile: also try kernels (default: if the run is long)."),
]
Seed = Annotated[T, typer.Option(help="Seed of the noise.", show_default="0")]
Csv = Annotated[Path | None, typer.Option("--csv", help="Also write a table with one row per input.")]
Log = Annotated[
    list[str] | None,
    choice("--log", "logging wandb mlflow", "Also tell logging, wandb or mlflow; may stand more than once."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress and no remarks.")]
"""Whoever has something to tell asks for it: ``console.is_quiet``."""
Radii = Annotated[
    str | None,
    typer.Option(
        help=f"Radii to report, separated by commas (default by sigma: {_USUAL} for 0.25 to 1).",
        metavar=f"X{SEVERAL}",
    ),
]
Norm = Annotated[
    str | None,
    choice(
        "--norm",
        "l1 l2 linf",
        "Show radii in l1, l2 or linf, converted from the norm that was proved (default: that one).",
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
    typer.Option(
        "--members",
        help="Model specs separated by commas (also arch@weights.safetensors): an ensemble.",
        metavar=f"TEXT{SEVERAL}",
    ),
]
VotesUnlessFile = Annotated[
    str | None,
    choice(
        "--vote",
        "soft softmax hard max-margin weighted",
        "soft (default), softmax, hard, max-margin, weighted; several by commas: one pass.",
        metavar=f"TEXT{SEVERAL}",
    ),
]
VoteNames = Annotated[
    str,
    choice("--vote", "soft softmax hard max-margin weighted", "soft, softmax, hard, max-margin or weighted."),
]
MemberWeights = Annotated[
    str | None, typer.Option(help="Weights of the members, for --vote weighted.", metavar=f"X{SEVERAL}")
]
WeightsOn = Annotated[
    str | None,
    choice("--weights-on", "logits softmax", "logits (default) or softmax: what the member weights multiply."),
]
First = Annotated[int, typer.Option(help="Position of the first input taken.")]
Consensus = Annotated[
    str | None,
    typer.Option(
        help="K-consensus: skip the other members where the first K agree; several as lanes.", metavar=f"N{SEVERAL}"
    ),
]
Prefixes = Annotated[bool, typer.Option("--prefixes", help="Also every prefix 1..k of the members, same pass.")]
Singles = Annotated[bool, typer.Option("--singles", help="Also every single member, from the same pass.")]
SplitAlpha = Annotated[
    bool, typer.Option("--split-alpha", help="Divide alpha over the lanes, so that one may be chosen per input later.")
]


@dataclass(frozen=True)
class NormOptions:
    """The norm in which radii are shown."""

    norm: Norm = None
    coordinates: Coordinates = None

    @property
    def shown(self) -> InNorm | None:
        """The norm that was asked for; None: the one that was proved."""
        from ringfence.stats.norms import InNorm

        if self.norm is None and self.coordinates is not None:
            raise ArgumentError("coordinates", "goes with `norm`", self.coordinates, "Leave it out, or add `norm`.")

        return None if self.norm is None else InNorm(self.norm, self.coordinates)


@dataclass(frozen=True)
class InputOptions:
    """Which inputs are taken, and how the model wants them."""

    skip: Skip[int | None] = None
    limit: Limit = None
    stop_index: Max = None
    split: Split[str | None] = None
    size: Size = None
    range: Range = None
    mean: Mean = None
    std: Std = None
    classes: Classes = None


@dataclass(frozen=True)
class NoiseOptions:
    """The noise and the form in which it is drawn."""

    sigma: Sigma[float | None] = None
    noise: NoiseName = None
    noise_form: NoiseForm = None
    lattice: Lattice = None

    def settings(self) -> dict[str, Any]:
        """What was said of the noise, in the words of a job file."""
        return {"family": self.noise, "sigma": self.sigma, "form": self.noise_form, "lattice": self.lattice}


@dataclass(frozen=True)
class EngineOptions:
    """Where the work is done."""

    engine: EngineName = None
    address: Address = None
    workers: Workers = None
    gpus_per_worker: GpusPerWorker = None
    gpus: Gpus = None
    patience: Patience = None

    def engine_settings(self) -> dict[str, Any]:
        """The engine and its settings, in the words of a job file."""
        named = {one.name: getattr(self, one.name) for one in fields(EngineOptions)}
        return {"name": named.pop("engine"), **named}

    def on_ray(self) -> Any:
        """The engine of commands that know this machine and Ray; None for this machine."""
        from ringfence.engines.ray import Ray
        from ringfence.work import engine_named

        told = {name: value for name, value in self.engine_settings().items() if value is not None}
        engine = engine_named(told or "local")
        if engine.name not in ("local", Ray.name):
            raise ArgumentError("engine", "must be local or ray here", engine.name, "Use one of these.")
        return engine if isinstance(engine, Ray) else None


@dataclass(frozen=True)
class RunningOptions(EngineOptions):
    """How the network runs, and from which seed; what is left out is decided by the certification."""

    batch: Batch = None
    device: Device[str | None] = None
    precision: PrecisionName = None
    compile: Compile = None
    fast: Fast = False
    autotune: Autotune = None
    seed: Seed[int | None] = None
    no_check: NoCheck = False
