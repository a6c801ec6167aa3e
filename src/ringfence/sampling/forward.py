"""Forward: the classifier at one fixed shape and precision, and the check that its rows are independent."""

from __future__ import annotations

import copy
from dataclasses import asdict, dataclass
from typing import Any, Literal, final

import torch
from torch import Tensor, nn

from ringfence.classifiers import KConsensus, Members, Scored, fold_batch_norm, score
from ringfence.classifiers.fused import FusedResNet, fuse_resnets, rows_at_a_time
from ringfence.classifiers.patches import Patches
from ringfence.errors import ArgumentError, ClassifierError
from ringfence.sampling.compiling import compiled

Precision = Literal["fp32", "bf16"]
PRECISIONS: dict[str, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16}


@final
@dataclass(frozen=True)
class ForwardPlan:
    """The shape of every forward of a run: chosen once, stored, reused on resume, short batches padded to it.

    parts: slices of the batch that the first members of a K-consensus see one after the other.
    fused: CIFAR ResNets run as one kernel each, whose activations stay on the chip (bf16).
    """

    batch: int
    precision: Precision = "fp32"
    channels_last: bool = False
    compile: bool = False
    stacked: bool = False
    fold: bool = False
    autotune: bool = False
    parts: int = 1
    fused: bool = False

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise ArgumentError("batch", "must be at least 1", self.batch, "Leave it at auto.")
        if self.parts < 1:
            raise ArgumentError("parts", "must be at least 1", self.parts, "Leave it out.")
        if self.precision not in PRECISIONS:
            raise ArgumentError("precision", f"must be one of {sorted(PRECISIONS)}", self.precision, "Use fp32.")
        if self.fused and (self.precision != "bf16" or self.stacked):
            received = f"{self.precision}{', stacked' if self.stacked else ''}"
            raise ArgumentError("fused", "needs bf16, and members one by one", received, "Leave it out.")

    def settings(self) -> dict[str, Any]:
        """Every field, for the run folder."""
        return asdict(self)


@final
class Forward:
    """Noisy float32 batches (B, *shape) -> float32 scores (B, lanes, K), always at plan.batch rows.

    The noise was added in float32; the cast to the network's precision happens here, because it belongs
    to the classifier being certified. TF32 stays off.
    """

    def __init__(self, classifier: nn.Module, plan: ForwardPlan, device: torch.device, num_classes: int) -> None:
        self.plan = plan
        self.device = device
        self.num_classes = num_classes
        self.dtype = PRECISIONS[plan.precision]
        module = fuse_resnets(classifier, device) if plan.fused else classifier
        module = fold_batch_norm(module) if plan.fold else module
        if self.dtype != torch.float32 and module is classifier:
            module = copy.deepcopy(classifier)  # the caller's weights keep their precision
        module = module.to(device=device, dtype=self.dtype).eval()
        # Both ways: weights left in another plan's layout would run other kernels than the stored plan says.
        module = module.to(memory_format=self.layout)  # type: ignore[call-overload]
        if device.type == "cuda":
            torch.backends.cuda.matmul.allow_tf32 = False
            torch.backends.cudnn.allow_tf32 = False
        for part in module.modules():
            if isinstance(part, Members):
                part.use_stack(plan.stacked and part.stackable)
            if isinstance(part, KConsensus):
                part.parts = plan.parts
                members = [*part.first.members, *(part.rest.members if part.rest else ())]
                part.wave = rows_at_a_time(device) if all(isinstance(one, FusedResNet) for one in members) else 0

        def run(x: Tensor) -> Scored:
            return score(module, x)

        self._run, self._merge = run, None if plan.compile else _merge
        # Patches make their matrices at the first batch: a trace must find them there, it cannot make them.
        self._before = run if plan.compile and any(isinstance(part, Patches) for part in module.modules()) else None
        if plan.compile:
            # A fused network is compiled already; a K-consensus of such has shapes that differ from batch to batch.
            waves = any(isinstance(part, KConsensus) and part.wave for part in module.modules())
            if not (isinstance(module, FusedResNet) or waves):
                self._run = compiled(run, "max-autotune-no-cudagraphs" if plan.autotune else None)

    @property
    def layout(self) -> torch.memory_format:
        """How the network wants its input laid out."""
        return torch.channels_last if self.plan.channels_last else torch.contiguous_format

    def _layout_of(self, dimensions: int) -> torch.memory_format:
        """Of a batch; only images (4) can have their channels last."""
        return self.layout if dimensions == 4 else torch.contiguous_format

    def room(self, shape: tuple[int, ...]) -> Tensor:
        """An empty batch (B, *shape) as the network takes it."""
        size, layout = (self.plan.batch, *shape), self._layout_of(1 + len(shape))
        return torch.empty(size, dtype=self.dtype, device=self.device, memory_format=layout)

    @torch.inference_mode()
    def merge(self, noise: Tensor, clean: Tensor, rows: Tensor) -> Tensor:
        """clean[rows] + noise (B, *shape), overwriting the noise: added in float32, then cast and laid out at once."""
        if self._merge is None:  # not before: noise may come from a kernel that has added it already
            self._merge = compiled(_merge_fused)
        merged: Tensor = self._merge(noise, clean, rows, self.dtype, self._layout_of(noise.dim()))
        return merged

    @torch.inference_mode()
    def __call__(self, noisy: Tensor) -> Scored:
        """Scores (B, lanes, K) and work of one batch."""
        ready = noisy.to(dtype=self.dtype, memory_format=self._layout_of(noisy.dim()))
        if self._before is not None:
            self._before(ready[:1])
            self._before = None
        scores, work = self._run(ready)
        return Scored((scores.unsqueeze(1) if scores.dim() == 2 else scores).float(), work)

    @torch.inference_mode()
    def check(self, sample: Tensor) -> Scored:
        """Refuse classifiers that cannot be certified; return the scores and work of the sample.

        sample (B, *shape) is a noisy batch. Scores must be (B, K) or (B, lanes, K), not all invalid, the
        same when asked again (no dropout), and the same for a row whatever its neighbours are (no batch
        statistics): otherwise a draw would not be an independent sample of one fixed classifier.
        """
        answer = self(sample)
        scores = answer.scores
        if scores.dim() != 3 or scores.shape[0] != len(sample) or scores.shape[2] != self.num_classes:
            rule = f"must return scores of shape ({len(sample)}, {self.num_classes})"
            received = tuple(scores.squeeze(1).shape)
            raise ClassifierError("classifier", rule, received, "Check num_classes and the model's last layer.")
        valid = torch.isfinite(scores).all(-1)
        if not bool(valid.any()):
            raise ClassifierError(
                "classifier",
                "must return finite scores",
                "NaN or infinite scores on every probe input",
                "Check the weights and the normalisation (--mean/--std).",
            )
        neighbours = sample.flip(0) * 3 + 1
        neighbours[: (len(sample) + 1) // 2] = sample[: (len(sample) + 1) // 2]
        half = slice(0, (len(sample) + 1) // 2)
        for other, cause in (
            (sample, "it answers differently when asked twice (dropout or internal randomness)"),
            (neighbours, "a row's scores depend on the other rows of its batch (batch statistics)"),
        ):
            again = self(other).scores[half]
            both = torch.isfinite(again) & torch.isfinite(scores[half])
            drift = torch.where(both, (again - scores[half]).abs(), 0).amax()
            scale = torch.where(both, scores[half].abs(), 0).amax()
            if float(drift) > (1e-3 if self.dtype == torch.float32 else 5e-2) * max(float(scale), 1e-6):
                raise ClassifierError(
                    "classifier",
                    "must treat every row alone, as a fixed function",
                    cause,
                    "Put it in eval mode with running statistics, and remove active dropout.",
                )
        return answer


def _merge(noise: Tensor, clean: Tensor, rows: Tensor, dtype: torch.dtype, layout: torch.memory_format) -> Tensor:
    return noise.add_(clean.index_select(0, rows)).to(dtype=dtype, memory_format=layout)


def _merge_fused(noise: Tensor, clean: Tensor, rows: Tensor, dtype: torch.dtype, layout: torch.memory_format) -> Tensor:
    return (noise + clean.index_select(0, rows)).to(dtype=dtype, memory_format=layout)  # one kernel when compiled
