"""ACES as the command line describes it: three model specs and a grid of thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringfence.analysis.aces_runs import AcesRun, is_aces, plain_component
from ringfence.classifiers import Aces, EntropySelector, NetworkSelector, Selector, check_thetas, theta_names
from ringfence.cli.console import numbers
from ringfence.digests import joined
from ringfence.errors import ArgumentError
from ringfence.models import LoadedModel, load_model
from ringfence.store import RunFolder
from ringfence.store.component_logs import Component, read_component, selection_logs


@dataclass(frozen=True)
class AcesChoice:
    """Certification network, selector (``entropy`` or a spec) and core network."""

    certify: str
    select: str
    core: str
    thetas: tuple[float, ...]

    def __post_init__(self) -> None:
        check_thetas(self.thetas)

    @property
    def lanes(self) -> tuple[str, ...]:
        """One lane per theta."""
        return theta_names(self.thetas)

    def settings(self) -> dict[str, Any]:
        """Every choice, for the run's config."""
        return {"certify": self.certify, "select": self.select, "core": self.core, "thetas": list(self.thetas)}

    def load(self, mean: Sequence[float] | None, std: Sequence[float] | None, classes: int | None) -> LoadedModel:
        """The models, loaded and composed; their digest covers all of them."""
        specs = (self.certify, self.core)
        certify, core = (load_model(spec, num_classes=classes, mean=mean, std=std) for spec in specs)
        if None not in (certify.num_classes, core.num_classes) and certify.num_classes != core.num_classes:
            rule = f"must have the certification network's {certify.num_classes} classes"
            raise ArgumentError("--core", rule, f"{core.num_classes} classes", "Use networks for the same classes.")
        selector: Selector = EntropySelector(self.thetas)
        digests = [certify.digest, core.digest]
        if self.select != "entropy":
            head, colon, _ = self.select.partition("@")[0].rpartition(":")
            # A factory must be told; weights tell themselves, and are refused below with what they have.
            told = 2 if colon and head.partition(":")[0] not in ("default", "zoo", "denoised") else None
            chosen = load_model(self.select, num_classes=told, mean=mean, std=std)
            if chosen.num_classes not in (None, 2):
                received = f"{chosen.num_classes} outputs"
                remedy = "Use entropy, or train one with ringfence train --objective select."
                raise ArgumentError("--select", "must have two outputs, (core, certify)", received, remedy)
            selector = NetworkSelector(chosen.module, self.thetas)
            digests.append(chosen.digest)
        digest = joined(digests)
        module = Aces(certify.module, selector, core.module)
        spec = f"aces({self.certify}, {self.select}, {self.core})"
        return LoadedModel(module.eval(), certify.num_classes, digest, spec)


def parse_thetas(text: str) -> tuple[float, ...]:
    """``0:1:0.01`` (both ends included) or ``0.1,0.35``."""
    parts = text.split(":")
    if len(parts) == 1:
        return check_thetas(sorted(set(numbers(text, "--thetas"))))
    bounds = [number for part in parts for number in numbers(part, "--thetas")]
    if len(bounds) != 3 or not bounds[2] > 0 or bounds[1] < bounds[0]:
        raise ArgumentError("--thetas", "must be start:stop:step or numbers by commas", repr(text), "Write 0:1:0.01.")
    start, stop, step = bounds
    check_thetas([start])
    check_thetas([stop])
    steps = int((stop - start) / step + 1e-9)
    if steps > 10_000:
        raise ArgumentError("--thetas", "must be at most 10000 thresholds", repr(text), "Use a larger step.")
    return check_thetas([round(start + step * k, 10) for k in range(steps + 1)])


def certification_part(path: Path) -> Component:
    """The certification network's results: a run folder or a log."""
    return plain_component(RunFolder.open(path)) if path.is_dir() else read_component(path)


def selection_parts(paths: Sequence[Path]) -> dict[float, Component]:
    """The selector's results per theta, ascending: ACES run folders, logs, or some of both."""
    found: dict[float, Component] = {}
    for path in paths:
        if (path / "config.json").exists():
            parts = AcesRun.read(RunFolder.open(path)).selection()
        else:
            parts = {theta: _bits(read_component(log)) for theta, log in selection_logs([path]).items()}
        for theta, part in parts.items():
            if theta in found:
                received = f"{theta:g} also in {found[theta].source}"
                raise ArgumentError(part.source, "each theta stands once", received, "Give one of the two.")
            found[theta] = part
    return dict(sorted(found.items()))


def core_part(path: Path) -> Component:
    """The core network's classes: an ACES run folder, an ordinary run's predictions, or a log."""
    if not path.is_dir():
        return read_component(path)
    run = RunFolder.open(path)
    return AcesRun.read(run).core() if is_aces(run) else plain_component(run)


def _bits(part: Component) -> Component:
    """Refuse a log whose predictions are classes."""
    if part.predict.max() > 1:
        rule, remedy = "predict must be 1, 0 or -1 in a selection log", "Give the selector's log."
        raise ArgumentError(part.source, rule, int(part.predict.max()), remedy)
    return part
