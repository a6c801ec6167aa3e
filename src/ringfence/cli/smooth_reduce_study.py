"""The study of Smooth-Reduce: every ablation of paper 003 as a list of runs, and their table."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ringfence.analysis.metrics import RunMetrics
from ringfence.classifiers.patches import REDUCTIONS
from ringfence.cli.job import Choices
from ringfence.cli.progress import in_words, meter
from ringfence.cli.smooth_reduce_histograms import draw_histograms, forwards, histogram
from ringfence.cli.smooth_reduce_job import Loaded, Reducing, certify
from ringfence.driver import Progress
from ringfence.errors import ArgumentError
from ringfence.lift import MODES
from ringfence.operators import Crops
from ringfence.sampling import ForwardPlan, pick_device
from ringfence.store import RunFolder
from ringfence.store.atomic import write_atomically

RATE_ROWS = 100
LEAST_BATCH = 20
CALIBRATED = 0.01
"""The alpha the paper gives its own method in a comparison with a baseline at 0.001."""


@dataclass(frozen=True)
class Arm:
    """One run of the study: the question it answers, its name, settings, draws, and its own alpha, if any."""

    question: str
    name: str
    reducing: Reducing
    n: int
    alpha: float | None = None

    @property
    def patches(self) -> int:
        """Network forwards of a draw."""
        crops = self.reducing.patches
        return crops.count or 1 if isinstance(crops, Crops) else 1

    def settings(self, choices: Choices) -> dict[str, Any]:
        """Those of the procedure; equal compute divides the draws that choose the class, too."""
        n0 = max(1, round(choices.settings["n0"] * self.n / choices.settings["n"]))
        return {**choices.settings, "n0": n0, "n": self.n, "alpha": self.alpha or choices.settings["alpha"]}


def arms(side: int, counts: Sequence[int], resizes: Sequence[int], n: int, paper: bool, seed: int) -> list[Arm]:
    """Every run, the base first. All but the numbers of patches compare at equal compute: n forwards, n/k draws."""
    for name, values in (("--counts", counts), ("--resizes", resizes)):
        if not values:
            raise ArgumentError(name, "needs at least one whole number", "none", "Leave it out for the usual ones.")
    k, larger = counts[0], resizes[0]
    crops = Crops(size=side, resize=larger, count=k)
    fair = max(1, n // k)
    found = [Arm("base", "base", Reducing(), n)]
    for count in counts:
        for reduce in REDUCTIONS:
            patched = Reducing(Crops(size=side, resize=larger, count=count), reduce=reduce)
            found.append(Arm("number of patches, same draws", f"k{count}-{reduce}", patched, n))
            found.append(
                Arm("number of patches, equal compute", f"k{count}-{reduce}-fair", patched, max(1, n // count))
            )
    for target in resizes[1:]:
        found.append(Arm("resize", f"resize{target}", Reducing(replace(crops, resize=target)), fair))
    for reduce in REDUCTIONS:
        random = Reducing(replace(crops, sampling="random", seed=seed), reduce=reduce)
        found.append(Arm("random patches", f"random-{reduce}", random, fair))
        for mode in MODES[1:]:
            found.append(Arm("noise mode", f"{mode}-{reduce}", Reducing(crops, None, reduce, mode), fair))
        if paper:
            for mode in ("patch", "per-patch-input"):
                published = Reducing(crops, None, reduce, mode, "paper")
                found.append(Arm("paper form", f"paper-{mode}-{reduce}", published, fair))
    if paper:
        published = Reducing(crops, None, "mean", "patch", "paper")
        found.append(Arm("paper form, calibrated", "paper-calibrated", published, fair, CALIBRATED))
    return found


def run_study(
    choices: Choices,
    planned: Sequence[Arm],
    loaded: Loaded,
    out: Path,
    histograms: int = 0,
    tell: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Every arm into its own run folder, then study.json and study.md; running it again continues."""
    for arm in planned:
        arm.reducing.compose(loaded.model.at_input, loaded.dataset.shape)  # refuses what does not fit
    crops = next(arm.reducing.patches for arm in planned if isinstance(arm.reducing.patches, Crops))
    shown = range(min(histograms, len(loaded.dataset)))
    costs = [remaining(choices, arm, loaded, out) for arm in planned]
    total = sum(costs) + len(shown) * forwards(crops, loaded.dataset.shape)
    if tell and any(costs):
        seconds = total * seconds_per_forward(choices, loaded)
        tell(
            f"{len(planned)} runs of {len(loaded.dataset)} inputs, {total:,} network forwards to do: roughly "
            f"{in_words(seconds)} here; fewer with --limit, --n and --counts"
        )
    rows: list[dict[str, Any]] = []
    before = 0
    begin = time.monotonic()
    with meter(quiet=tell is None or total <= 0) as show:
        for arm, cost in zip(planned, costs, strict=True):

            def report(progress: Progress, arm: Arm = arm, before: int = before) -> None:
                forwards = before + progress.draws * arm.patches
                left = (total - forwards) * (time.monotonic() - begin) / forwards if forwards else None
                show("study", forwards, total, arm.name, left)

            # A study is of the data, wherever they lie.
            ours = replace(choices, settings=arm.settings(choices), data=loaded.dataset.name)
            folder, plan = out / "runs" / arm.name, smaller_plan(choices, arm, out)
            run, found = certify(ours, arm.reducing, loaded, folder, on_progress=report, plan=plan)
            before += cost
            rows.append(describe(arm, run, found))
            if tell:
                label = "" if found.sound else "  PAPER FORM, UNSOUND"
                tell(f"{arm.name}: ACR {found.acr or 0:.3f}, factor {rows[-1]['factor']:.4g}{label}")
        drawn = []
        for index in shown:
            show("study", before, total, "histograms")
            drawn.append(histogram(choices, loaded, crops, index))
            before += forwards(crops, loaded.dataset.shape)
    weights = choices.weights.name if choices.weights else None
    facts = {"sigma": choices.sigma, "model": choices.model, "weights": weights, "data": loaded.dataset.name}
    facts |= {"arms": rows, "histograms": drawn}
    write_atomically(out / "study.json", json.dumps(facts, indent=1, allow_nan=False).encode())
    write_atomically(out / "study.md", (headline(facts) + table(rows)).encode())
    if drawn:
        draw_histograms(drawn, out / "histograms.png")
    return facts


def smaller_plan(choices: Choices, arm: Arm, out: Path) -> ForwardPlan | None:
    """The plan measured for the base, its batch divided by the number of patches: measuring all would take minutes."""
    base = out / "runs" / "base"
    if choices.batch != "auto" or arm.reducing.patches is None or not (base / "forward.json").exists():
        return None
    plan = ForwardPlan(**RunFolder.open(base).forward_plans()[-1])
    return replace(plan, batch=max(LEAST_BATCH, plan.batch // arm.patches))


def remaining(choices: Choices, arm: Arm, loaded: Loaded, out: Path) -> int:
    """Network forwards that an arm still needs."""
    folder = out / "runs" / arm.name
    done = len(RunFolder.open(folder).done_ids()) if (folder / "config.json").exists() else 0
    settings = arm.settings(choices)
    return (len(loaded.dataset) - done) * int(settings["n0"] + settings["n"]) * arm.patches


@torch.inference_mode()
def seconds_per_forward(choices: Choices, loaded: Loaded) -> float:
    """Drawing noise and one forward of the network, measured on a small batch; the best of three."""
    device = pick_device(choices.device)
    network = loaded.model.at_input.to(device).eval()
    noise, times = torch.empty(RATE_ROWS, *loaded.dataset.shape, device=device), []
    for key in range(4):
        begin = time.perf_counter()
        choices.noise.fill(noise, key)
        float(network(noise).sum())  # reading one number waits for the device
        times.append(time.perf_counter() - begin)
    return min(times[1:]) / RATE_ROWS


def describe(arm: Arm, run: RunFolder, found: RunMetrics) -> dict[str, Any]:
    """One row of the study."""
    patched = arm.reducing.patches is not None
    return {
        "question": arm.question,
        "name": arm.name,
        "sound": found.sound,
        "mode": arm.reducing.mode if patched else "-",
        "form": arm.reducing.form,
        "reduce": arm.reducing.reduce if patched else "-",
        "factor": run.config.lift["norm_bound"],
        "factor_left_out": run.config.lift.get("norm_left_out"),
        "alpha": run.config.procedure_settings["alpha"],
        "draws": found.draws / found.count,
        "forwards": found.forwards / found.count,
        "acr": found.acr,
        "abstention": found.abstention,
        "certified_accuracy": {f"{r:g}": share for r, share in found.certified_accuracy.items()},
        "inputs": found.count,
    }


def headline(facts: dict[str, Any]) -> str:
    """What was run, in front of the table."""
    inputs = facts["arms"][0]["inputs"]
    return (
        f"# Smooth-Reduce: model `{facts['model']}`, data `{facts['data']}`, sigma {facts['sigma']:g}, {inputs} inputs"
        "\n\nCertified accuracy in percent at each radius. `fair` runs and noise modes use as many network forwards as "
        "the base (k patches, n/k draws). Rows marked unsound reproduce the paper and prove nothing.\n\n"
    )


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The study as a Markdown table, one line a run; unsound ones say so."""
    radii = sorted({float(r) for row in rows for r in row["certified_accuracy"]})
    head = ["run", "question", "noise", "factor", "alpha", "draws", "forwards", "ACR", "abstained %"]
    head += [f"{r:g}" for r in radii]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        name = row["name"] if row["sound"] else f"**{row['name']} (unsound: no guarantee)**"
        factor = f"{row['factor']:.4f}" if row["sound"] else f"1 instead of {row['factor_left_out']:.4f}"
        acr = "-" if row["acr"] is None else f"{row['acr']:.3f}"
        shares = [f"{100 * row['certified_accuracy'].get(f'{r:g}', 0.0):.1f}" for r in radii]
        cost = [f"{row['alpha']:g}", f"{row['draws']:.0f}", f"{row['forwards']:.0f}"]
        cells = [name, row["question"], row["mode"], factor, *cost, acr, f"{100 * row['abstention']:.1f}", *shares]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
