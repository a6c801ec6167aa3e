"""The tables and the figure of docs/ensembles.md: votes of the embedded digit networks, from results/ensembles.

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
from pathlib import Path
from typing import Any

import numpy as np
from paper_runs import Run
from paper_tables import ROOT, filled, table

from ringfence.store import RunFolder
from ringfence.types import FloatArray

RESULTS, DOCS = ROOT / "results" / "ensembles", ROOT / "docs"
RADII = (0.0, 0.5, 1.0, 1.25)
VOTES = ("soft-2", "soft-3", "softmax-3", "hard-3", "max-margin-3", "weighted-3")


def tables() -> dict[Path, str]:
    """docs/ensembles.md with its four tables."""
    run = Run("lanes", RunFolder.open(RESULTS / "lanes"))
    parts = {"votes": votes(run), "consensus": consensus(run), "holdout": holdout(), "variance": variance()}
    page = DOCS / "ensembles.md"
    return {
        page: filled(page, {name: "\n".join(lines) for name, lines in parts.items()}, "<!-- {} -->", "<!-- /{} -->")
    }


def earned(run: Run, lane: str) -> FloatArray:
    """radius * [correct] per input of one lane, in the order of ids."""
    found = run.folder.records(["lane", "label", "prediction", "radius"])
    rows = {name: np.asarray(found[name].to_pylist()) for name in found.column_names}
    of = rows["lane"] == lane
    return np.asarray(np.where(rows["prediction"] == rows["label"], rows["radius"], 0.0)[of])


def votes(run: Run) -> list[str]:
    """Every vote beside the members."""
    found, base = run.lanes(RADII), earned(run, "member-1")
    rows = []
    for name in ("member-1", "member-2", "member-3", *VOTES):
        one, gap = found[name], earned(run, name) - base
        error = gap.std(ddof=1) / np.sqrt(len(gap))
        gain = "" if name == "member-1" else f"{gap.mean():+.4f} ± {error:.4f}"
        accuracy = [f"{100 * one.certified_accuracy[radius]:.0f}" for radius in RADII]
        rows.append([f"`{name}`", f"{one.acr:.4f}", gain, *accuracy])
    return table(["lane", "ACR", "over member-1", *(f"r={radius:g}" for radius in RADII)], rows)


def consensus(run: Run) -> list[str]:
    """What K-consensus saves."""
    rows = []
    for agree in (1, 2, 3):
        one = run.lanes(RADII)[f"consensus-{agree}"]
        saved = one.consensus
        assert saved is not None
        work = [f"{100 * saved.kcr:.2f}", f"{saved.forwards_per_draw:.3f}", f"{saved.forwards_rf:.2f}"]
        rows.append([str(agree), f"{one.acr:.4f}", *work])
    return table(["K", "ACR", "KCR %", "forwards per draw", "times fewer forwards"], rows)


def holdout() -> list[str]:
    """What ``rank`` and ``weights`` said."""
    ranking, weights = _read("rank.json"), _read("weights.json")
    ranked = [
        [f"`{one['member']}`", f"{100 * one['accuracy']:.2f} ± {100 * one['error']:.2f}"] for one in ranking["ranking"]
    ]
    learned = []
    for one in weights["learned"]:
        shares = ", ".join(f"{weight:.3f}" for weight in one["weights"])
        learned.append([one["method"], shares, f"{one['loss']:.4f}", f"{100 * one['accuracy']:.2f}"])
    order = ", ".join(f"`{one}`" for one in weights["members"])
    first = table(["member", "noisy hold-out accuracy %"], ranked)
    return [*first, "", *table(["weights", order, "cross-entropy", "noisy accuracy %"], learned)]


def variance() -> list[str]:
    """What ``variance`` said."""
    found = _read("variance.json")
    rows = []
    for entry in found["sizes"]:
        pairs = (entry[name] for name in ("variance_ratio", "margin_variance_ratio", "success", "radius"))
        cells = [f"{one['predicted']:.4f} / {one['measured']:.4f} ± {one['error']:.4f}" for one in pairs]
        rows.append([str(entry["k"]), *cells])
    head = ["k", "variance ratio by zeta_p", "by the margins' correlation", "success probability", "radius"]
    return [f"{found['inputs']} inputs, mean $\\zeta_p$ = {found['zeta_p']:.3f}:", "", *table(head, rows)]


def _read(name: str) -> Any:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def figures() -> None:
    """Certified accuracy against the radius for the members and two votes."""
    from matplotlib.figure import Figure

    run, grid = Run("lanes", RunFolder.open(RESULTS / "lanes")), np.linspace(0, 1.6, 161)
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.add_subplot()
    styles = {"member-1": ":", "member-2": ":", "member-3": ":", "max-margin-3": "--", "soft-3": "-"}
    for lane, style in styles.items():
        radii = earned(run, lane)
        shares = [(radii >= radius).mean() if radius else (radii > 0).mean() for radius in grid]
        axes.plot(grid, shares, style, label=lane)
    axes.set(xlabel="l2 radius", ylabel="certified accuracy", ylim=(0, 1.02))
    axes.legend(frameon=False)
    figure.savefig(DOCS / "img" / "ensembles-curves.png", dpi=110)
