"""``hf:FOLDER``: image classifiers of transformers, with the preprocessing that their folder says.

A name instead of a folder is looked up in the cache of downloads, never fetched; no code of a folder is run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn

from ringfence.errors import ModelError, first_line
from ringfence.models.architecture import Built, Normalization, Preprocessing
from ringfence.models.extras import needed
from ringfence.models.library import Library

_RESAMPLING = {0: "nearest", 2: "bilinear", 3: "bicubic"}
"""Numbers of image libraries; the others are nearest to bicubic."""

_STEPS = {"do_resize", "do_center_crop", "do_rescale", "do_normalize", "do_convert_rgb"}
"""What image processors do that is known here; cropping is that of the data."""
_MORE_STEPS = ("include_top", "rescale_offset")
"""Steps of some that are not named like steps."""

_ABOUT_A_COPY = ("_name_or_path", "transformers_version", "dtype", "torch_dtype")
"""Entries of a configuration that say nothing about the function."""


@final
class Classified(nn.Module):
    """A model of transformers: pixels (B, C, H, W) -> its logits (B, K)."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        """Scores (B, K)."""
        scores: Tensor = self.model(pixel_values=x).logits
        return scores


@final
class HuggingFace(Library):
    """``hf:FOLDER`` as ``save_pretrained`` writes it, or ``hf:OWNER/NAME`` from the cache."""

    name: ClassVar[str] = "hf"

    def built(self, rest: str, num_classes: int | None) -> Built:
        """The model in float32; its own configuration says its classes."""
        spec = f"{self.name}:{rest}"
        transformers = needed("transformers", "hf", spec)
        self._read(transformers, spec, rest, "config.json")  # a mistake in the place is told before transformers tries
        try:
            with _without_bars(transformers):
                model, report = transformers.AutoModelForImageClassification.from_pretrained(
                    rest, local_files_only=True, trust_remote_code=False, output_loading_info=True, dtype=torch.float32
                )
        except Exception as error:  # whatever is wrong with a folder, transformers says it in its own way
            received = first_line(error)
            rule = "must hold an image classifier of transformers with its weights"
            raise ModelError(spec, rule, received, "Save it by model.save_pretrained(FOLDER).") from error
        _refuse_fresh(spec, report)
        found = int(model.config.num_labels)
        classes = 2 if found == 1 else found
        if num_classes not in (None, classes):
            raise ModelError("num_classes", f"{spec} has {classes} classes", num_classes, "Leave it out.")
        settings = {key: value for key, value in model.config.to_dict().items() if key not in _ABOUT_A_COPY}
        extra = json.dumps(settings, sort_keys=True, default=str).encode()
        before = _preprocessing(spec, self._read(transformers, spec, rest, "preprocessor_config.json"), model.config)
        return Built(Classified(model), classes, extra=extra, before=before, structured=True)

    def _read(self, transformers: Any, spec: str, place: str, file: str) -> dict[str, Any] | None:
        """What a file of a folder, or of a model in the cache, says; None where only that file is missing."""
        folder, needs_it = Path(place).is_dir(), file == "config.json"
        path = Path(place) / file if folder else _cached(transformers, place, file)
        if path is None or not path.is_file():
            if not needs_it:
                return None
            if folder:
                rule, remedy = "must hold config.json", "Save it by model.save_pretrained(FOLDER)."
                raise ModelError(spec, rule, "a folder without one", remedy)
            rule = "must be a folder, or a model in the cache of Hugging Face (nothing is fetched)"
            remedy = f"Fetch it where there is a network: hf download {place}. Or give the path of its folder."
            raise ModelError(spec, rule, f"neither ('{place}')", remedy)
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ModelError(path, "must be a JSON file", error, "Save the model again.") from error
        return told if isinstance(told, dict) else {}


def _cached(transformers: Any, name: str, file: str) -> Path | None:
    """A file of a model in the cache."""
    try:
        found = transformers.utils.cached_file(name, file, local_files_only=True)
    except Exception:  # names that are none, models and files that are not there: transformers raises for each
        return None
    return None if found is None else Path(found)


@contextmanager
def _without_bars(transformers: Any) -> Iterator[None]:
    """Loading a file needs no bar among the remarks of a command."""
    shown = transformers.utils.logging.is_progress_bar_enabled()
    transformers.utils.logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers.utils.logging.enable_progress_bar()


def _refuse_fresh(spec: str, report: dict[str, Any]) -> None:
    """Weights that the folder lacks would be random, and so would the answers."""
    missing = [*report.get("missing_keys", ()), *report.get("mismatched_keys", ())]
    if missing:
        received = f"{len(missing)} weights missing or of another size, first {sorted(map(str, missing))[0]}"
        remedy = "Give the folder of a model that was trained as a classifier."
        raise ModelError(spec, "must hold all weights of the classifier", received, remedy)


def _preprocessing(spec: str, told: dict[str, Any] | None, config: Any) -> Preprocessing:
    """What an image processor does to pixels in [0, 1]; without one what the model says: those of timm all of it."""
    if told is None:
        side, timm = getattr(config, "image_size", None), getattr(config, "pretrained_cfg", None) or {}
        numbers = (timm["mean"], timm["std"]) if {"mean", "std"} <= timm.keys() else None
        size = _pair(side) or _pair(timm.get("input_size", ())[1:])
        return Preprocessing(numbers, size, str(timm.get("interpolation", "bicubic")))
    if told.get("do_normalize") and not (told.get("image_mean") and told.get("image_std")):
        rule, remedy = "must tell image_mean and image_std if do_normalize", "Write both into preprocessor_config.json."
        raise ModelError(spec, rule, "a processor without one of them", remedy)
    steps = {key for key, value in told.items() if value is True and (key.startswith("do_") or key in _MORE_STEPS)}
    if unknown := sorted(steps - _STEPS):
        rule, remedy = "has a processor with steps that are not known here", "Write a factory: file.py:factory."
        raise ModelError(spec, rule, ", ".join(unknown), remedy)
    # Pixels come as 0 .. 255 to a processor, which multiplies them by this number, usually 1/255.
    scale = 255 * float(told.get("rescale_factor", 1 / 255)) if told.get("do_rescale", True) else 255.0
    normalises = told.get("do_normalize", True) and told.get("image_mean") and told.get("image_std")
    numbers = (told["image_mean"], told["image_std"]) if normalises else ([0.0], [1.0])
    mean, std = ([float(one) / scale for one in part] for part in numbers)
    identity = not normalises and abs(scale - 1) < 1e-6
    normalization: Normalization | None = None if identity else (mean, std)
    chosen = told.get("crop_size") if told.get("do_center_crop") else told.get("size")
    size = _pair(chosen) if told.get("do_resize", True) or told.get("do_center_crop") else None
    return Preprocessing(normalization, size, _RESAMPLING.get(told.get("resample", 2), "bicubic"))


def _pair(size: Any) -> tuple[int, int] | None:
    """(height, width) of what configurations write: a number, two, or a mapping."""
    if isinstance(size, dict):
        size = (size["height"], size["width"]) if "height" in size else size.get("shortest_edge")
    if isinstance(size, int):
        return size, size
    return (int(size[0]), int(size[1])) if isinstance(size, list | tuple) and len(size) == 2 else None
