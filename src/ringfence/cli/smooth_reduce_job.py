"""A Smooth-Reduce certification: how inputs become patches or clips, where the noise enters, and the run it makes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from ringfence.analysis.metrics import RunMetrics, default_radii, metrics_by_lane
from ringfence.classifiers.patches import Patches, Reduction, check_reduction
from ringfence.classifiers.video import Chunks
from ringfence.cli.job import Choices
from ringfence.data import Dataset, load_dataset
from ringfence.data.video import motion_dataset
from ringfence.driver import Progress
from ringfence.engines import certify_into
from ringfence.errors import ArgumentError
from ringfence.lift import Identity, Lift, noise_place
from ringfence.models import LoadedModel, load_model
from ringfence.operators import Crops, check_clips, clips
from ringfence.sampling import ForwardPlan, count_classes, pick_device
from ringfence.store import RunConfig, RunFolder

MOTION = "mnist-motion"


@dataclass(frozen=True)
class SubVideoChoice:
    """count sub-videos of so many frames, evenly spread or on a stride."""

    frames: int
    count: int | None = None
    stride: int | None = None

    def __post_init__(self) -> None:
        check_clips(self.frames, self.count, self.stride)

    def settings(self) -> dict[str, Any]:
        """Every field."""
        return {"frames": self.frames, "count": self.count, "stride": self.stride}


@dataclass(frozen=True)
class Reducing:
    """What is reduced how; without patches it is plain smoothing (of chunks, where videos have them)."""

    patches: Crops | SubVideoChoice | None = None
    chunk: int | None = None
    reduce: Reduction = "mean"
    mode: str = "input"
    form: str = "sound"
    strict: bool = False

    def __post_init__(self) -> None:
        check_reduction(self.reduce)
        if self.form == "paper" and self.strict:
            rule = "refuses the paper form, which leaves out the factor and so proves nothing"
            raise ArgumentError("--strict", rule, "--form paper", "Use the sound form, or do without --strict.")

    def compose(self, network: nn.Module, shape: tuple[int, ...]) -> tuple[nn.Module, Lift]:
        """The classifier behind the noise and the lift before it, for inputs of this shape."""
        inner = network if self.chunk is None else Chunks(network, self.chunk)
        if self.patches is None:
            if (self.reduce, self.mode, self.form) != ("mean", "input", "sound"):
                rule = "--mode, --reduce and --form speak of patches or clips"
                raise ArgumentError("--patches", rule, "none", "Add e.g. --patches 4 --resize 36, or --clips.")
            return inner, Identity()
        if isinstance(self.patches, SubVideoChoice):
            if len(shape) != 4:
                raise ArgumentError("--clips", "needs videos (T, C, H, W)", shape, "Use --patches for images.")
            cut = clips(shape[0], self.patches.frames, self.patches.count, self.patches.stride)
            place = noise_place(self.mode, cut, shape, self.form, self.strict)
        else:
            place = noise_place(self.mode, self.patches, shape, self.form, self.strict)
        return Patches(inner, place.rest, self.reduce), place.lift

    def settings(self) -> dict[str, Any]:
        """Every choice, for the run's config."""
        patches = None if self.patches is None else self.patches.settings()
        kind = "clips" if isinstance(self.patches, SubVideoChoice) else "crops"
        shared = {"chunk": self.chunk, "reduce": self.reduce, "mode": self.mode, "form": self.form}
        return {kind: patches, **shared}


@dataclass(frozen=True)
class Loaded:
    """The network and the inputs, shared by every run of a study."""

    model: LoadedModel
    dataset: Dataset


def load(choices: Choices, frames: int = 64, clip_count: int = 800) -> Loaded:
    """The base network and the data; unlike ``Choices.load`` the network need not fit the whole input."""
    mean, std = choices.normalization
    model = load_model(choices.model, weights=choices.weights, num_classes=choices.classes, mean=mean, std=std)
    head, _, place = choices.data.partition(":")
    if head == MOTION:
        dataset = motion_dataset(place, choices.split, frames, clip_count).every(choices.skip, choices.most)
    else:
        split: Any = choices.split
        dataset = load_dataset(choices.data, skip=choices.skip, limit=choices.most, split=split, size=choices.size)
    choices.check_batch(dataset.shape)
    return Loaded(model, dataset)


def certify(
    choices: Choices,
    reducing: Reducing,
    loaded: Loaded,
    out: Path,
    on_start: Callable[[RunFolder, Lift], None] = lambda run, lift: None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    plan: ForwardPlan | None = None,
) -> tuple[RunFolder, RunMetrics]:
    """One run into its folder (or the rest of it), and its metrics; a plan spares measuring the fastest one."""
    classifier, lift = reducing.compose(loaded.model.at_input, loaded.dataset.shape)
    lifted = lift(loaded.dataset[0].x)
    num_classes = count_classes(classifier, lifted, pick_device(choices.device))
    loaded.dataset.check_labels(num_classes)
    base = choices.config(loaded.model, loaded.dataset, num_classes).model_dump()
    extra = {**base["extra"], "smooth_reduce": reducing.settings()}
    run = RunFolder.create_or_resume(out, RunConfig.model_validate({**base, "lift": lift.settings(), "extra": extra}))
    on_start(run, lift)
    certify_into(
        run,
        classifier,
        loaded.dataset,
        noise=choices.noise,
        procedure=choices.test,
        mechanisms=choices.mechanisms,
        lift=lift,
        execution=replace(choices.execution, plan=plan),
        on_progress=on_progress,
    )
    return run, metrics_by_lane(run, default_radii(run), str(out))[0]
