"""The numbers of docs/ensembles.md: read from results/ensembles, written between the page's markers.

The runs behind them (the second and third need the MNIST test set; hold-out images are 1, 21, 41, ...):
  ringfence certify --members default:1,default:2,default:0 --vote soft,softmax,hard,max-margin,weighted
      --member-weights 0.465,0.309,0.226 --consensus 1,2,3 --prefixes --singles --sigma 0.5 --limit 100 --n 10000
      --out results/ensembles/lanes
  ringfence rank --members default:0,default:1,default:2 --sigma 0.5 --data mnist:PATH --json > .../rank.json
  ringfence weights --members default:1,default:2,default:0 --sigma 0.5 --data mnist:PATH --json > .../weights.json
  ringfence variance --members default:1,default:2,default:0 --sigma 0.5 --limit 12 --json > .../variance.json
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ringfence.analysis.metrics import RunMetrics, metrics_by_lane
from ringfence.store import RunFolder

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE = ROOT / "results" / "ensembles", ROOT / "docs" / "ensembles.md"
RADII = (0.0, 0.5, 1.0, 1.25)


def table(columns: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def read(name: str) -> Any:
    return json.loads((RESULTS / name).read_text())


def lanes() -> dict[str, RunMetrics]:
    return {one.lane or "main": one for one in metrics_by_lane(RunFolder.open(RESULTS / "lanes"), RADII)}


def earned(lane: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """radius * [correct] per input of one lane, in the order of ids."""
    found = RunFolder.open(RESULTS / "lanes").records(["lane", "label", "prediction", "radius"])
    rows = {name: np.asarray(found[name].to_pylist()) for name in found.column_names}
    of = rows["lane"] == lane
    return np.where(rows["prediction"] == rows["label"], rows["radius"], 0.0)[of]


def votes_table() -> str:
    found = lanes()
    base = earned("member-1")
    names = [
        "member-1", "member-2", "member-3", "soft-2", "soft-3", "softmax-3", "hard-3", "max-margin-3", "weighted-3",
    ]  # fmt: skip
    rows = []
    for name in names:
        one, gap = found[name], earned(name) - base
        error = gap.std(ddof=1) / np.sqrt(len(gap))
        gain = "" if name == "member-1" else f"{gap.mean():+.4f} ± {error:.4f}"
        accuracy = [f"{100 * one.certified_accuracy[radius]:.0f}" for radius in RADII]
        rows.append([f"`{name}`", f"{one.acr:.4f}", gain, *accuracy])
    return table(["lane", "ACR", "over member-1", *(f"r={radius:g}" for radius in RADII)], rows)


def consensus_table() -> str:
    found = lanes()
    rows = []
    for agree in (1, 2, 3):
        one = found[f"consensus-{agree}"]
        assert one.consensus is not None
        stats = one.consensus
        rows.append(
            [
                str(agree),
                f"{one.acr:.4f}",
                f"{100 * stats.kcr:.2f}",
                f"{stats.forwards_per_draw:.3f}",
                f"{stats.forwards_rf:.2f}",
            ]
        )
    return table(["K", "ACR", "KCR %", "forwards per draw", "times fewer forwards"], rows)


def holdout_table() -> str:
    ranking, weights = read("rank.json"), read("weights.json")
    ranked = [
        [f"`{one['member']}`", f"{100 * one['accuracy']:.2f} ± {100 * one['error']:.2f}"] for one in ranking["ranking"]
    ]
    learned = [
        [
            one["method"],
            ", ".join(f"{weight:.3f}" for weight in one["weights"]),
            f"{one['loss']:.4f}",
            f"{100 * one['accuracy']:.2f}",
        ]
        for one in weights["learned"]
    ]
    order = ", ".join(f"`{one}`" for one in weights["members"])
    return "\n\n".join(
        [
            table(["member", "noisy hold-out accuracy %"], ranked),
            table(["weights", order, "cross-entropy", "noisy accuracy %"], learned),
        ]
    )


def variance_table() -> str:
    found = read("variance.json")
    rows = []
    for entry in found["sizes"]:
        cells = [str(entry["k"])]
        for name in ("variance_ratio", "margin_variance_ratio", "success", "radius"):
            one = entry[name]
            cells.append(f"{one['predicted']:.4f} / {one['measured']:.4f} ± {one['error']:.4f}")
        rows.append(cells)
    head = ["k", "variance ratio by zeta_p", "by the margins' correlation", "success probability", "radius"]
    return f"{found['inputs']} inputs, mean $\\zeta_p$ = {found['zeta_p']:.3f}:\n\n{table(head, rows)}"


def plot() -> None:
    """ACR of every lane, and certified accuracy against the radius for a member and the soft vote."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    grid = np.linspace(0, 1.6, 161)
    for lane, style in (
        ("member-1", ":"),
        ("member-2", ":"),
        ("member-3", ":"),
        ("max-margin-3", "--"),
        ("soft-3", "-"),
    ):
        radii = earned(lane)
        axes.plot(
            grid, [(radii >= radius).mean() if radius else (radii > 0).mean() for radius in grid], style, label=lane
        )
    axes.set(xlabel="l2 radius", ylabel="certified accuracy", ylim=(0, 1.02))
    axes.legend(frameon=False)
    (ROOT / "docs" / "img").mkdir(exist_ok=True)
    figure.savefig(ROOT / "docs" / "img" / "ensembles-curves.png", dpi=110)


PARTS: dict[str, Callable[[], str]] = {
    "votes": votes_table,
    "consensus": consensus_table,
    "holdout": holdout_table,
    "variance": variance_table,
}


def main() -> int:
    text = PAGE.read_text(encoding="utf-8")
    for name, make in PARTS.items():
        begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        text, found = re.subn(
            f"{begin}.*?{end}", lambda _, m=make, b=begin, e=end: f"{b}\n{m()}\n{e}", text, flags=re.DOTALL
        )
        assert found == 1, name
    if "--check" in sys.argv:
        return 0 if PAGE.read_text(encoding="utf-8") == text else 1
    PAGE.write_text(text, encoding="utf-8")
    plot()
    return 0


if __name__ == "__main__":
    sys.exit(main())
