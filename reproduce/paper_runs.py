"""Finished runs by what their configs say.

Everything that pages read of a run's config is read here. A page asks for runs by what was certified (training,
architecture, sigma, procedure, radius, ...), never by a folder's name, so a further run needs no further code.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, final

from paper_trainings import ZOO, Training, read_training

from ringfence.analysis.metrics import RunMetrics, metrics_by_lane
from ringfence.models.grammar import Node, as_tree
from ringfence.store import RunConfig, RunFolder


@final
@dataclass(frozen=True, eq=False)
class Run:
    """A finished run."""

    name: str
    folder: RunFolder
    zoo: Path = ZOO
    _known: dict[tuple[float, ...], dict[str, RunMetrics]] = field(default_factory=dict, repr=False)

    @property
    def config(self) -> RunConfig:
        """What was certified."""
        return self.folder.config

    @property
    def sigma(self) -> float:
        """Noise level."""
        return self.config.noise.sigma

    @property
    def family(self) -> str:
        """Of the noise."""
        return self.config.noise.family

    @property
    def procedure(self) -> str:
        """Its name."""
        return self.config.procedure.name

    @property
    def n(self) -> int | None:
        """Draws that bound the class, where the procedure fixes them."""
        draws = self.config.procedure.settings.get("n")
        return None if draws is None else int(draws)

    @property
    def n0(self) -> int:
        """Draws that choose the class."""
        return int(self.config.procedure.settings.get("n0", 0))

    @property
    def alpha(self) -> float:
        """Failure probability."""
        return float(self.config.procedure.settings["alpha"])

    @property
    def radius(self) -> float | None:
        """The radius that was to be proved, where there was one."""
        known = self.config.procedure.settings.get("radius")
        return None if known is None else float(known)

    @property
    def stages(self) -> list[int]:
        """Draws of the stages of a staged run."""
        return list(self.config.procedure.settings.get("stages", ()))

    @property
    def inputs(self) -> int:
        """How many."""
        return int(self.config.data.count or 0)

    @property
    def draws(self) -> str:
        """How many inputs and draws, for a section's text."""
        return f"{self.inputs} inputs, n = {self.n:,}"

    @property
    def model(self) -> str:
        """The classifier as written."""
        return self.config.classifier.tree

    @property
    def data(self) -> str:
        """Kind of the data, without its place."""
        return self.config.data.source.partition(":")[0]

    @property
    def split(self) -> str:
        """Which part of the data."""
        return self.config.data.split

    @property
    def members(self) -> list[str]:
        """The networks that vote, as written; one where nothing votes."""
        ensemble = self.config.ensemble
        return list(ensemble["members"]) if "members" in ensemble else [self.model]

    @property
    def size(self) -> int:
        """How many networks vote."""
        return len(self.members)

    @property
    def agree(self) -> int | None:
        """K of a K-consensus that is the run's only lane."""
        asked = list(self.config.ensemble.get("consensus", ()))
        return int(asked[0]) if asked and self.lane_names == ["main"] else None

    @property
    def lane_names(self) -> list[str]:
        """In the order of the classifier's answers."""
        return self.config.classifier.names

    @property
    def weights(self) -> list[float]:
        """Of the weighted vote, if there is one."""
        tree = as_tree(self.model)
        stored = tree.settings.get("weights") if isinstance(tree, Node) else None
        return [] if stored is None else [float(one) for one in str(stored).split("/")]

    @property
    def reducing(self) -> dict[str, Any] | None:
        """How ``crops`` or ``clips`` are cut, the frames of a ``chunk``, how to ``reduce``; None for other runs."""
        tree, chunk = as_tree(self.model), None
        cut = tree if isinstance(tree, Node) and tree.name in ("patches", "clips") else None
        inner = cut.models[0] if cut else tree
        if isinstance(inner, Node) and inner.name == "chunks":
            chunk = str(inner.settings["frames"])
        if cut is None:
            return None if chunk is None else {"clips": None, "chunk": chunk, "reduce": "mean"}
        settings = {key: str(value) for key, value in cut.settings.items()}
        kind = "crops" if cut.name == "patches" else "clips"
        return {kind: settings, "chunk": chunk, "reduce": settings.get("reduce", "mean")}

    @property
    def mode(self) -> str:
        """Where noise enters."""
        name = self.config.lift.name
        return "input" if name == "identity" else name

    @property
    def factor(self) -> float:
        """What every radius is divided by."""
        return self.config.lift.norm_bound

    @property
    def factor_left_out(self) -> float | None:
        """What a published form should have divided by and did not."""
        found = (self.config.lift.model_extra or {}).get("norm_left_out")
        return None if found is None else float(found)

    @cached_property
    def trainings(self) -> list[Training]:
        """What of the zoo stands behind it, in the order of its members, each once."""
        return self._behind(self.model)

    @cached_property
    def selector(self) -> Training | None:
        """What the network that selects was trained with; None where none does: ACES by entropy, and all other runs."""
        select = str(self.config.ensemble.get("select", "entropy"))
        return None if select == "entropy" else next(iter(self._behind(select)), Training(select, {}))

    def _behind(self, model: str) -> list[Training]:
        found = re.findall(r"zoo:([^:,+\s)]+)|([\w.-]+)/final-\d", model)
        names = dict.fromkeys(spec or f"{self.data}/{folder}" for spec, folder in found)
        return [read_training(self.zoo, name) for name in names]

    @property
    def plain(self) -> bool:
        """Networks of the zoo as they are: no denoiser, no patches, no selection."""
        return self.reducing is None and all(one.startswith("zoo:") for one in self.members)

    @property
    def kind(self) -> str:
        """What the first network was trained with."""
        return self.trainings[0].kind if self.trainings else ""

    @property
    def architecture(self) -> str:
        """Of the first network."""
        return self.trainings[0].architecture if self.trainings else ""

    def lanes(self, radii: Sequence[float]) -> dict[str, RunMetrics]:
        """Metrics of every lane, ``main`` where there is one only."""
        key = tuple(radii)
        if key not in self._known:
            self._known[key] = {one.lane or "main": one for one in metrics_by_lane(self.folder, radii)}
        return self._known[key]


@final
@dataclass(frozen=True)
class Runs:
    """The finished runs under a folder, in the order of their names."""

    all: tuple[Run, ...]

    @classmethod
    def under(cls, folder: Path, zoo: Path = ZOO) -> Runs:
        """Those with a summary; others are named and left out."""
        found = []
        for path in sorted(folder.glob("*/config.json")):
            run = RunFolder.open(path.parent)
            if run.summary() is None:
                print(f"unfinished, left out: {path.parent.name}", file=sys.stderr)
            else:
                found.append(Run(path.parent.name, run, zoo))
        return cls(tuple(found))

    def __iter__(self) -> Iterator[Run]:
        return iter(self.all)

    def named(self, name: str) -> Run | None:
        """The run in a folder of this name."""
        return next((run for run in self if run.name == name), None)

    def of(self, **wanted: Any) -> list[Run]:
        """Runs with these properties, by the names that ``Run`` gives them."""
        return [run for run in self if all(getattr(run, name) == value for name, value in wanted.items())]

    def one(self, **wanted: Any) -> Run | None:
        """The first of them."""
        return next(iter(self.of(**wanted)), None)
