"""Writes the tables of the embedded default in README.md from results/default.

python tools/default_table.py [--check]
python tools/default_table.py --measure mnist.npz    accuracies on the 9,500 test images that are not embedded
python tools/default_table.py --keep FOLDER          run folders made by the commands of the table, by their names
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

import torch
from result_page import finished_runs, write_or_check
from smooth_reduce_pack import pack
from train_default import load_digits, noisy_accuracy

from ringfence.analysis.metrics import metrics
from ringfence.models import load_model

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "results" / "default"
ACCURACY = FOLDER / "accuracy.json"
SIGMA, RADII = 0.5, (0.0, 0.25, 0.5, 0.75, 1.0)
RUNS = {
    "fixed-1000": "--n 1000",
    "sequential-0.5": "--radius 0.5",
    "sequential-1.0": "--radius 1.0",
    "sequential-0.5-default-1": "--radius 0.5 --model default:1",
    "sequential-0.5-default-2": "--radius 0.5 --model default:2",
}
"""What follows ``ringfence certify --sigma 0.5`` in each run."""


def measure(digits: Path) -> None:
    """Accuracies of the three networks, with and without noise."""
    _, _, x, y = load_digits(digits, torch.device("cpu"))
    found = {}
    for i in range(3):
        module = load_model(f"default:{i}").module.eval()
        found[f"default:{i}"] = {
            "noisy": noisy_accuracy(module, x, y, SIGMA),
            "clean": noisy_accuracy(module, x, y, 0.0, repeats=1),
        }
    FOLDER.mkdir(parents=True, exist_ok=True)
    ACCURACY.write_text(json.dumps({"sigma": SIGMA, "images": len(y), "accuracy": found}, indent=1) + "\n")


def accuracies() -> str:
    """One network a row."""
    measured = json.loads(ACCURACY.read_text())
    lines = [
        f"| network | accuracy under noise, sigma {measured['sigma']:g} | accuracy without noise |",
        "|---|---|---|",
    ]
    for name, one in measured["accuracy"].items():
        shown = "`default` (= `default:0`)" if name == "default:0" else f"`{name}`"
        lines.append(f"| {shown} | {one['noisy']:.4f} | {one['clean']:.4f} |")
    return "\n".join(lines)


def digits() -> str:
    """One run a row: at the radii it speaks of."""
    runs = finished_runs(FOLDER)
    head = " | ".join("r=0" if r == 0 else f"{r:g}".removeprefix("0") if r < 1 else f"{r:.1f}" for r in RADII)
    lines = [f"| command (`ringfence certify --sigma {SIGMA:g} ...`) | {head} | draws/input |", "|---" * 7 + "|"]
    for name, words in RUNS.items():
        run = runs[name]
        asked = run.config.procedure.settings.get("radius")
        found = metrics(run, RADII if asked is None else (asked,))
        about = "" if "--model" in words else " (sequential)"
        if asked is None:
            about = f" (fixed; ACR {found.acr:.3f}, abstains on {100 * found.abstention:.1f}%)"
        shares = found.certified_accuracy
        cells = [f"{100 * shares[r]:.1f}%" if asked in (None, r) else "" for r in RADII]
        lines.append(f"| `{words}`{about} | {' | '.join(cells)} | {found.draws / found.count:,.0f} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--measure", type=Path)
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure)
    for name in RUNS if options.keep else ():
        pack(options.keep / name, FOLDER / name, pictures=False)
    page = ROOT / "README.md"
    text = page.read_text(encoding="utf-8")
    for name, make in (("accuracies", accuracies), ("digits", digits)):
        pattern = re.compile(rf"(<!-- table {name} -->\n).*?(\n<!-- end -->)", re.DOTALL)
        content = make()
        text, count = pattern.subn(lambda found, content=content: f"{found[1]}{content}{found[2]}", text)
        assert count == 1, name
    return write_or_check(page, text, options.check, "two tables")


if __name__ == "__main__":
    sys.exit(main())
