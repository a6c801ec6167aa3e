"""Puts the best of the certifications choose-* into mnist.yaml: `python choose.py RUNS`, where their run folders lie.

The largest average radius (mean softmax, training images that were held out) decides on the way to add pairs up and on
the rate: among the trainings with a rho1 of at most 1 for `gentle`, among the others for `steep`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import ringfence as rf

SWEEP = Path(__file__).resolve().parent / "mnist.yaml"
NAME = re.compile(r"choose-0\.5-(?P<rho1>[\d.]+)-[\d.]+-(?P<reduction>\w+)-lr(?P<rate>[\d.]+)")
SMALL = 1.0


@dataclass(frozen=True)
class Choice:
    """A training that was certified, and its average radius."""

    rho1: float
    reduction: str
    rate: str
    acr: float

    @property
    def settings(self) -> str:
        """As the sweep file has them; the derivative's mean has squared lengths."""
        squared = "true" if self.reduction == "mean" else "false"
        return f"{{lr: {self.rate}, reduction: {self.reduction}, squared: {squared},"


def choices(runs: Path, text: str) -> Iterator[Choice]:
    """Those that a sweep file names, in the order of their names; one that is missing or unfinished is refused."""
    for told in sorted(NAME.finditer(text), key=lambda one: one[0]):
        if not (runs / told[0] / "summary.json").exists():
            raise SystemExit(f"{told[0]} is not finished.")
        (found,) = rf.load(runs / told[0]).metrics()
        yield Choice(float(told["rho1"]), told["reduction"], told["rate"], found.acr or 0.0)


def chosen(text: str, found: list[Choice]) -> str:
    """The sweep file with the best of each kind; a kind without any stays as it is."""
    kinds = {"gentle": [one for one in found if one.rho1 <= SMALL], "steep": [one for one in found if one.rho1 > SMALL]}
    for kind, among in kinds.items():
        if among:
            best = max(among, key=lambda one: one.acr)
            text, changed = re.subn(rf"(?m)^(  {kind}: ){{lr: [^}}]*?squared: \w+,", rf"\1{best.settings}", text)
            if changed != 1:
                raise SystemExit(f"{SWEEP.name} has no line of settings called {kind}.")
            print(f"{kind}: {best.settings} average radius {best.acr:.4f} of {len(among)}")
    return text


if __name__ == "__main__":
    text = SWEEP.read_text(encoding="utf-8")
    SWEEP.write_text(chosen(text, list(choices(Path(sys.argv[1]), text))), encoding="utf-8")
