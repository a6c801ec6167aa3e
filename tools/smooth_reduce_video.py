"""Certifies the two video tasks with plain smoothing and Smooth-Reduce-(t,m), into run folders under --out.

    python tools/smooth_reduce_video.py --weights results/smooth_reduce/weights --shapes video_colored_shapes.npz \
        --mnist mnist.npz --runs runs/smooth_reduce --out results/smooth_reduce/video

With noise on the video one run per task and sigma holds all, one lane per (t,m), on the same draws; noise on every
sub-video is a run of its own. n0 = 10 and n = 1000 as in the paper. Running it again continues; a finished run is
verified and copied to --out, with pictures for the first of a task.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace
from pathlib import Path

from ringfence.cli.job import Choices
from ringfence.cli.smooth_reduce_job import Loaded, Reducing, SubVideoChoice, certify, load
from smooth_reduce_pack import pack

from ringfence.analysis.metrics import metrics_by_lane
from ringfence.classifiers.clip_lanes import ClipLane, ClipLanes
from ringfence.cli.progress import show_progress
from ringfence.engines import certify_into
from ringfence.engines.local import default_radii
from ringfence.store import RunConfig, RunFolder

NETWORKS = "ringfence.classifiers.architectures.video_cnn"
ALPHA, N0, COUNT = 0.001, 10, 3


def lanes(length: int, chunks: tuple[int, ...]) -> list[ClipLane]:
    """Plain smoothing of m-frame chunks, then sub-videos of half and of three quarters of the video, mean and max."""
    found = [ClipLane(chunk) for chunk in chunks]
    for frames in (length // 2, 3 * length // 4):
        for chunk in chunks:
            if frames % chunk == 0:
                found += [ClipLane(chunk, frames, COUNT, reduce) for reduce in ("mean", "max")]
    return found


def certify_lanes(choices: Choices, loaded: Loaded, compared: list[ClipLane], folder: Path) -> RunFolder:
    """One run, one lane per way to reduce, noise on the video."""
    classifier = ClipLanes(loaded.model.module, compared)
    base = choices.config(loaded.model, loaded.dataset, loaded.dataset.num_classes or 0).model_dump()
    described = {"clips": [asdict(lane) for lane in compared], "mode": "input", "form": "sound"}
    extra = {**base["extra"], "smooth_reduce": described}
    config = RunConfig.model_validate({**base, "lanes": list(classifier.names), "extra": extra})
    run = RunFolder.create_or_resume(folder, config)
    with show_progress(len(loaded.dataset), len(run.done_ids()), quiet=False) as report:
        return certify_into(
            run,
            classifier,
            loaded.dataset,
            noise=choices.noise,
            procedure=choices.test,
            mechanisms=choices.mechanisms,
            execution=choices.execution,
            on_progress=report,
        )


def certify_patches(choices: Choices, loaded: Loaded, reducing: Reducing, folder: Path) -> RunFolder:
    """One run with noise on every sub-video."""
    done = len(RunFolder.open(folder).done_ids()) if (folder / "config.json").exists() else 0
    with show_progress(len(loaded.dataset), done, quiet=False) as report:
        return certify(choices, reducing, loaded, folder, on_progress=report)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, required=True, help="folder of TASK-sigmaS.safetensors")
    parser.add_argument("--shapes", required=True)
    parser.add_argument("--mnist", required=True)
    parser.add_argument("--runs", type=Path, required=True, help="where the work is done")
    parser.add_argument("--out", type=Path, required=True, help="where finished runs are kept")
    parser.add_argument("--sigmas", default="0.25,0.5")
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--inputs", type=int, default=48, help="clips per task; the shapes have 45")
    parser.add_argument("--batch", default="auto")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    tasks = {
        "motion": ("motion_cnn", f"mnist-motion:{options.mnist}", 1, 64, (8, 16)),
        "shapes": ("shapes_cnn", options.shapes, 3, 16, (4, 8)),
    }
    for task, (factory, data, skip, length, chunks) in tasks.items():
        for sigma in options.sigmas.split(","):
            choices = Choices(
                f"{NETWORKS}:{factory}",
                data,
                float(sigma),
                "fixed",
                {"alpha": ALPHA, "n0": N0, "n": options.n},
                weights=options.weights / f"{task}-sigma{sigma}.safetensors",
                skip=skip,
                limit=options.inputs,
                batch=options.batch,
                device=options.device,
            )
            loaded = load(choices)
            named = replace(choices, data=loaded.dataset.name)  # where the file lay is nobody's business
            half = SubVideoChoice(length // 2, COUNT)
            patched = Reducing(half, chunks[-1], "mean", "patch")
            for kind in ("input", "patch"):
                name = f"{task}-sigma{sigma}-{kind}"
                folder = options.runs / name
                if kind == "input":
                    run = certify_lanes(named, loaded, lanes(length, chunks), folder)
                else:
                    run = certify_patches(named, loaded, patched, folder)
                pack(run.path, options.out / name, pictures=kind == "input" and sigma == options.sigmas.split(",")[0])
                for found in metrics_by_lane(run, default_radii(run)):
                    print(f"{name} {found.lane or ''}: ACR {found.acr:.3f}", flush=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("stopped; the same command goes on") from None
