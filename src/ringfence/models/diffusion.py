"""``diffusion:FOLDER``: a UNet of diffusers as a denoiser in one step (Carlini et al. 2023)."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import ClassVar, Final, final

from torch import Tensor, nn

from ringfence.classifiers.denoised import DiffusionDenoiser
from ringfence.errors import ModelError, first_line
from ringfence.models.extras import needed
from ringfence.models.registry import Source

DIFFUSION: Final = "diffusion:"

_PREDICTIONS = {"epsilon": "noise", "sample": "clean", "v_prediction": "velocity"}
"""What networks predict, as schedules name it and as we do."""

_SAVE = "Save it by pipeline.save_pretrained(FOLDER)."


@final
class Predicted(nn.Module):
    """A UNet of diffusers: (x_t, t) -> its prediction, without the variance that some add as more channels."""

    def __init__(self, unet: nn.Module) -> None:
        super().__init__()
        self.unet = unet

    def forward(self, x: Tensor, step: Tensor) -> Tensor:
        """(B, C, H, W) and (B,) -> (B, C, H, W)."""
        found: Tensor = self.unet(x, step).sample
        return found[:, : x.shape[1]]


@final
class Diffusion(Source):
    """The name alone, where a classifier belongs."""

    name: ClassVar[str] = DIFFUSION.removesuffix(":")
    trusted: ClassVar[bool] = True

    def load(self, rest: str, num_classes: int | None) -> nn.Module:
        """Refused: it has no classes."""
        spec = f"{DIFFUSION}{rest}"
        remedy = f"Put a classifier behind it: denoised({spec}, CLASSIFIER)."
        raise ModelError(spec, "must be a classifier", "a denoiser", remedy)


def load_diffusion(rest: str, sigma: float | None) -> tuple[DiffusionDenoiser, bytes]:
    """The denoiser of ``FOLDER`` for noise of this sigma, or of ``FOLDER@SIGMA`` for another; and what neither
    its weights nor its layers say.

    FOLDER: a pipeline with unet/ and scheduler/, or a UNet with scheduler_config.json beside it.
    """
    place, level = _level(rest, sigma)
    spec, folder = f"{DIFFUSION}{rest}", Path(place)
    if not folder.is_dir():
        raise ModelError(spec, "must be a folder of diffusers", f"no folder '{place}'", _SAVE)
    diffusers = needed("diffusers", "diffusion", spec)
    parts = {part: folder / part if (folder / part).is_dir() else folder for part in ("unet", "scheduler")}
    try:
        unet, report = diffusers.UNet2DModel.from_pretrained(
            parts["unet"], local_files_only=True, output_loading_info=True, low_cpu_mem_usage=False
        )
        schedule = diffusers.DDPMScheduler.from_pretrained(parts["scheduler"], local_files_only=True)
    except Exception as error:  # diffusers fails in its own ways
        received = first_line(error)
        raise ModelError(spec, "must hold a UNet2DModel and its schedule", received, _SAVE) from error
    if missing := [*report["missing_keys"], *report["mismatched_keys"]]:
        received = f"{len(missing)} missing, first {sorted(map(str, missing))[0]}"
        raise ModelError(spec, "must hold all weights of the UNet", received, "Copy the folder again.")
    predicts = schedule.config.prediction_type
    if predicts not in _PREDICTIONS:
        rule = f"its schedule must predict one of {', '.join(_PREDICTIONS)}"
        raise ModelError(spec, rule, repr(predicts), "Use another model.")
    alphas = schedule.alphas_cumprod.double().tolist()
    denoiser = DiffusionDenoiser(Predicted(unet.float()), alphas, level, _PREDICTIONS[predicts])
    settings = {key: value for key, value in unet.config.items() if not key.startswith("_")}
    return denoiser, json.dumps(settings, sort_keys=True, default=str).encode()


def _level(rest: str, sigma: float | None) -> tuple[str, float]:
    """The folder and the noise level: the one written behind an @, or else the certificate's own."""
    place, _, written = rest.rpartition("@")
    if place and not Path(rest).is_dir():
        try:
            sigma, rest = float(written), place
        except ValueError:
            sigma = 0.0
        if not 0 < sigma < math.inf:
            rule, remedy = "is followed by @ and a noise level above 0", f"Write e.g. {DIFFUSION}{place}@0.25."
            raise ModelError(f"{DIFFUSION}{place}@{written}", rule, f"'{written}'", remedy)
    if sigma is None:
        rule, remedy = "is told the noise level, which is not known here", f"Write e.g. {DIFFUSION}{rest}@0.25."
        raise ModelError(f"{DIFFUSION}{rest}", rule, "none", remedy)
    return rest, sigma
