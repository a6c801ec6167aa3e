"""Trains and certifies every row of results/mnist.md on one GPU, within a time budget; resumable.

    python tools/mnist_gpu.py smoke   --data carry/mnist.npz
    python tools/mnist_gpu.py train   --data carry/mnist.npz --work build/mnist --out OUT --seconds 480
    python tools/mnist_gpu.py certify --data carry/mnist.npz --work build/mnist --out OUT --seconds 480
    python tools/mnist_gpu.py keep    --work build/mnist

Tasks run side by side, a process each; trainings of one task overlap as branches of one recorded step. What is
unfinished when the seconds are over is stopped; the same command goes on with it.
Afterwards OUT holds ``zoo-N.tgz`` (weights, settings, logs) and ``rest-N.tgz`` (checkpoints of what is unfinished), or
``runs-N.tgz`` (run folders). A work folder can be restored by unpacking them into it. keep copies what is finished to
zoo/mnist and results/mnist.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpu_packing import keep, pack_runs, pack_zoo, trained

ROOT = Path(__file__).resolve().parents[1]
SIGMAS = (0.5, 0.25, 1.0)
MEMBERS = 3
LIGHT = ("gaussian", "stability", "consistency", "macer", "adp", "gal")
HEAVY = ("smoothadv", "smoothmix")
TUNED = ("drt-gaussian", "drt-smoothadv")
SINGLES = ("macer", "consistency", "stability", "smoothmix")


@dataclass(frozen=True)
class Task:
    """A piece of work for one process; after: outputs that must exist before it may start."""

    name: str
    run: Callable[[], None]
    done: Path
    after: tuple[Path, ...] = ()


# Training ---------------------------------------------------------------------------------------------------


def make_job(row: str, sigma: float, options: argparse.Namespace) -> Any:
    """The training behind a row of the table."""
    from ringfence.training.job import TrainJob
    from ringfence.training.recipes import _MNIST_RHO

    epochs = options.heavy_epochs if row in HEAVY else options.tune_epochs if row in TUNED else options.epochs
    common: dict[str, Any] = {
        "data": f"mnist:{options.data}",
        "out": options.work / "zoo" / f"{row}-{sigma:g}",
        "options": {"sigma": sigma, "epochs": epochs, "batch": 256, "graph": options.graph, "compile": options.compile},
        "schedule": {"lr": 0.01, "kind": "step", "every": max(1, -(-epochs // 3))},
        "device": options.device,
        "limit": options.limit,
    }
    if row.startswith("drt-"):
        base = row.removeprefix("drt-")
        rho1, rho2 = _MNIST_RHO[(sigma, base)]
        return TrainJob(
            **(common | {"schedule": common["schedule"] | {"lr": 0.001}}),
            objective="drt",
            base=base,
            members=MEMBERS,
            settings={"rho1": rho1, "rho2": rho2},
            init=options.work / "zoo" / f"{base}-{sigma:g}",
        )
    settings: dict[str, Any] = {"macer": {"weight": 4.0}, "smoothmix": {"steps": 4, "step": 0.5}}.get(row, {})
    if row == "macer":
        # Without it the noisy accuracy on the training images fell from 92% to 77% between the epochs 10 and 30.
        common["options"] |= {"clip": 1.0}
    return TrainJob(**common, objective=row, members=1 if row in SINGLES else MEMBERS, settings=settings)


def train_together(trainings: list[tuple[Any, int]]) -> None:
    """Trainings (job, member) in a process of their own, as branches of one recorded step; a line every ten epochs."""
    import torch

    from ringfence.training.running import run_together

    torch.set_num_threads(1)

    def report(job: Any, number: int, status: Any) -> None:
        if status.step == status.steps and (status.epoch % 10 == 0 or status.epoch == status.epochs):
            terms = ", ".join(f"{name} {value:.3f}" for name, value in status.terms.items())
            print(
                f"{job.out.name} [{number}] epoch {status.epoch}/{status.epochs}: {terms}, "
                f"noisy accuracy {status.accuracy:.4f}, {status.seconds:.0f} s, {status.left:.0f} s left",
                flush=True,
            )

    run_together(trainings, report)


def training_tasks(options: argparse.Namespace) -> list[Task]:
    """Longest first; a DRT waits for the members it starts from. Members go together, and all DRTs."""
    tasks: list[Task] = []
    tuned: list[Any] = []
    for sigma in options.sigmas:
        rows = ["smoothadv", "gaussian", "drt-smoothadv", "drt-gaussian"]
        if sigma == SIGMAS[0]:
            rows += ["macer", "smoothmix", "gal", "adp", "consistency", "stability"]
        for row in rows:
            if options.rows and row not in options.rows:
                continue
            job = make_job(row, sigma, options)
            if row in TUNED:
                tuned += [] if job.finished else [job]
                continue
            every = [(job, member) for member in job.trainings]
            tasks.append(Task(f"{row}-{sigma:g}", Bound(train_together, (every,)), job.final(job.members - 1)))
    if tuned:
        needed = tuple(job.init / f"final-{i}.safetensors" for job in tuned for i in range(MEMBERS))
        name = " ".join(job.out.name for job in tuned)
        every = [(job, 0) for job in tuned]
        tasks.insert(0, Task(name, Bound(train_together, (every,)), tuned[-1].final(MEMBERS - 1), needed))
    return tasks


@dataclass(frozen=True)
class Bound:
    """A call that can be sent to another process."""

    function: Callable[..., None]
    arguments: tuple[Any, ...]

    def __call__(self) -> None:
        """Call it."""
        self.function(*self.arguments)


# Certification ------------------------------------------------------------------------------------------------


def certify_group(group: str, sigma: float, folders: list[Path], options: argparse.Namespace) -> None:
    """Every lane of a group of networks from one pass: single members, mean softmax, max-margin, SWEEN."""
    import torch

    from ringfence.data import load_dataset
    from ringfence.driver import Execution
    from ringfence.engines import certify_into
    from ringfence.lift import Identity
    from ringfence.mechanisms import mechanism
    from ringfence.models import load_model, state_digest
    from ringfence.noise import Gaussian
    from ringfence.procedures import Fixed
    from ringfence.store import RunConfig, RunFolder

    torch.set_num_threads(1)
    files = [file for folder in folders for file in sorted(folder.glob("final-*.safetensors"))]
    models = [load_model("lenet", weights=file).module for file in files]
    ensemble = len(folders) == 1 and len(files) > 1
    weights = sween_weights(models, sigma, options) if group in ("gaussian", "smoothadv") else None
    classifier = table_lanes(models, ensemble, weights)
    names = [f"{one.parent.name}/{one.name}" for one in files]
    lanes = [f"member-{i + 1}" for i in range(len(files))] if ensemble else [folder.name for folder in folders]
    lanes += ["softmax-3", "max-margin-3"] if ensemble else []
    lanes += ["sween-3"] if weights is not None else []
    dataset = load_dataset(f"mnist:{options.data}", skip=options.skip, num_classes=10)
    procedure = Fixed(alpha=0.001, n0=100, n=options.n)
    certificate = mechanism("one-sided")
    config = RunConfig(
        model="+".join(names),
        weights_hash=state_digest(classifier),
        data="mnist",
        data_hash=dataset.digest,
        num_classes=10,
        skip=options.skip,
        sigma=sigma,
        lift=Identity().settings(),
        procedure=procedure.name,
        procedure_settings=procedure.settings(),
        mechanism=certificate.name,
        mechanisms=[certificate.name],
        lanes=lanes,
        seed=0,
        extra={
            "split": "test",
            "count": len(dataset),
            "group": group,
            "sween_weights": weights,
            "training": {folder.name: json.loads((folder / "config.json").read_text())["plan"] for folder in folders},
        },
    )
    run = RunFolder.create_or_resume(options.work / "runs" / f"{group}-{sigma:g}", config)
    begin = time.perf_counter()
    certify_into(
        run,
        classifier,
        dataset,
        noise=Gaussian(sigma),
        procedure=procedure,
        mechanisms=[certificate],
        execution=Execution(device=options.device, precision="bf16", compile=options.compile, batch=options.batch),
    )
    (options.work / "runs" / f"{group}-{sigma:g}.done").touch()
    print(f"certified {run.path.name}: {len(dataset)} inputs, {time.perf_counter() - begin:.0f} s", flush=True)


def table_lanes(models: list[Any], ensemble: bool, weights: list[float] | None) -> Any:
    """Scores (B, lanes, 10): every network alone; where they are one ensemble, its votes too."""
    import torch

    from ringfence.classifiers import Classifier, Members, Scored
    from ringfence.classifiers.votes import max_margin, softmax

    class TableLanes(Classifier):
        def __init__(self) -> None:
            super().__init__()
            self.members = Members(models)

        def score(self, x: torch.Tensor) -> Scored:
            every = self.members.score(x).scores
            lanes = list(every.unbind(1))
            if ensemble:
                lanes += [softmax(every), max_margin(every)]
            if weights is not None:
                shares = every.float().softmax(-1).unbind(1)
                lanes.append(torch.stack([w * one for w, one in zip(weights, shares, strict=True)]).sum(0))
            return Scored(torch.stack(lanes, dim=1), len(models))

    return TableLanes()


def sween_weights(models: list[Any], sigma: float, options: argparse.Namespace) -> list[float]:
    """Weights on the simplex that minimise the noisy cross-entropy of the weighted softmax on training images."""
    from ringfence.analysis.ranking import holdout_scores
    from ringfence.analysis.sween import gradient_weights
    from ringfence.data import load_dataset
    from ringfence.noise import Gaussian
    from ringfence.sampling import pick_device

    dataset = load_dataset(f"mnist:{options.data}", split="train", skip=30)
    scores = holdout_scores(models, dataset, Gaussian(sigma), draws=4, device=pick_device(options.device))
    return [round(value, 6) for value in gradient_weights(scores, "softmax", steps=300).weights]


def certification_tasks(options: argparse.Namespace) -> list[Task]:
    """One task per group and sigma; rows whose training is unfinished are left out."""
    zoo, tasks = options.work / "zoo", []
    for sigma in options.sigmas:
        groups = {row: [f"{row}-{sigma:g}"] for row in ("gaussian", "smoothadv", "drt-gaussian", "drt-smoothadv")}
        if sigma == SIGMAS[0]:
            groups |= {"single": [f"{row}-{sigma:g}" for row in SINGLES]}
            groups |= {row: [f"{row}-{sigma:g}"] for row in ("adp", "gal")}
        for group, names in groups.items():
            if options.rows and group not in options.rows:
                continue
            folders = [zoo / name for name in names if trained(zoo / name)]
            if folders:
                done = options.work / "runs" / f"{group}-{sigma:g}.done"
                run = Bound(certify_group, (group, sigma, folders, options))
                tasks.append(Task(f"certify {group}-{sigma:g}", run, done))
            else:
                print(f"not trained yet: {', '.join(names)}", flush=True)
    return tasks


# Running tasks -------------------------------------------------------------------------------------------------


def guarded(task: Task) -> None:
    """The task with its traceback printed at once."""
    try:
        task.run()
    except BaseException:
        print(f"FAILED {task.name}\n{traceback.format_exc()}", flush=True)
        raise SystemExit(1) from None


def run_tasks(tasks: list[Task], processes: int, seconds: float) -> None:
    """Run what is not done, side by side, until the seconds are over."""
    begin = time.monotonic()
    spawn = multiprocessing.get_context("spawn")
    waiting = [task for task in tasks if not task.done.exists()]
    running: dict[str, Any] = {}
    failed: list[str] = []
    while (waiting or running) and time.monotonic() - begin < seconds:
        for task in list(waiting):
            if len(running) < processes and all(path.exists() for path in task.after):
                waiting.remove(task)
                running[task.name] = spawn.Process(target=guarded, args=(task,))
                running[task.name].start()
        for name, process in list(running.items()):
            if process.exitcode is not None:
                del running[name]
                failed += [name] if process.exitcode else []
        if not running and not any(all(path.exists() for path in task.after) for task in waiting):
            break  # what the others wait for has failed
        time.sleep(0.2)
    for process in running.values():
        process.terminate()
    for process in running.values():
        process.join()
    unfinished = [*running, *(task.name for task in waiting)]
    print(
        f"{time.monotonic() - begin:.0f} s; unfinished: {unfinished or 'none'}; failed: {failed or 'none'}", flush=True
    )


def smoke(options: argparse.Namespace) -> None:
    """Milliseconds per step of every objective, eager and as a graph; shows that each runs here at all."""
    import tempfile

    import torch

    from ringfence.classifiers.architectures import LeNet
    from ringfence.data import load_dataset
    from ringfence.training.data_on_device import DeviceData, load_device_data
    from ringfence.training.fabric import make_fabric
    from ringfence.training.recording import steps_of
    from ringfence.training.stepper import Stepper

    fabric = make_fabric(options.device, 1, "fp32")
    fabric.launch()
    whole = load_device_data(load_dataset(f"mnist:{options.data}", split="train", limit=8192), 10)
    data = DeviceData(whole.x, whole.y, 10).to(fabric.device)
    with tempfile.TemporaryDirectory() as place:
        for row in (*LIGHT, *HEAVY, *TUNED):
            for graph in (False, True):
                job = make_job(row, 0.5, argparse.Namespace(**(vars(options) | {"work": Path(place), "graph": graph})))
                plan = replace(job.plan(0), graph=graph)
                members = [LeNet().to(fabric.device) for _ in range(job.members if job.joint else 1)]
                try:
                    stepper = Stepper(plan, members, data, fabric)
                    step = steps_of([stepper])
                    stepper.clear(20, 1.0, 1.0)
                    order = torch.arange(256, device=fabric.device)
                    for count in (5, options.steps):
                        begin = time.perf_counter()
                        for _ in range(count):
                            stepper.aim(order, 0.01)
                            step()
                        loss = float(stepper.sums[0])
                    print(
                        f"{row:>14} {'graph' if graph else 'eager'}: "
                        f"{1000 * (time.perf_counter() - begin) / count:.2f} ms/step, mean loss "
                        f"{loss / (options.steps + 5):.3f}, first bad {int(stepper.first_bad)}",
                        flush=True,
                    )
                except Exception as error:
                    print(
                        f"{row:>14} {'graph' if graph else 'eager'}: FAILED {type(error).__name__}: {error}", flush=True
                    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("phase", choices=("smoke", "train", "certify", "keep"))
    parser.add_argument("--data", type=Path, help="mnist.npz")
    parser.add_argument("--work", type=Path, default=Path("build/mnist"), help="folder kept between calls")
    parser.add_argument("--out", type=Path, help="where the archives go")
    parser.add_argument("--seconds", type=float, default=480, help="stop after this time")
    parser.add_argument("--processes", type=int, default=12, help="tasks side by side")
    parser.add_argument("--epochs", type=int, default=90, help="epochs of the cheap objectives")
    parser.add_argument("--heavy-epochs", type=int, default=90, help="epochs of those with an attack")
    parser.add_argument("--tune-epochs", type=int, default=90, help="epochs of DRT, which starts from trained members")
    parser.add_argument("--graph", action=argparse.BooleanOptionalAction, default=True, help="CUDA graphs")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True, help="compile networks")
    parser.add_argument("--sigmas", type=float, nargs="+", default=list(SIGMAS))
    parser.add_argument("--rows", nargs="+", help="only these rows (groups)")
    parser.add_argument("--limit", type=int, help="train on the first so many images only (to try it out)")
    parser.add_argument("--skip", type=int, default=10, help="certify every so many-th test image")
    parser.add_argument("--n", type=int, default=100_000, help="draws per image")
    parser.add_argument("--batch", type=int, help="certify: rows per forward (small networks want many)")
    parser.add_argument("--steps", type=int, default=100, help="smoke: steps per objective")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    if options.phase == "keep":
        keep(options.work / "zoo", options.work / "runs", ROOT / "zoo/mnist", ROOT / "results/mnist")
        return
    if options.data is None:
        parser.error("--data: name the file")
    if options.phase == "smoke":
        smoke(options)
        return
    tasks = training_tasks(options) if options.phase == "train" else certification_tasks(options)
    (options.work / "runs").mkdir(parents=True, exist_ok=True)
    run_tasks(tasks, options.processes, options.seconds)
    if options.out is not None:
        if options.phase == "train":
            pack_zoo(options.work / "zoo", options.out)
        else:
            pack_runs(options.work / "runs", options.out)


if __name__ == "__main__":
    main()
