"""Ensembles as the command line describes them: ``--members a,b,c --vote soft [--consensus K] ...``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from ringfence.classifiers import VOTES, KConsensus, Lanes, Members, lane_names
from ringfence.classifiers.votes import ScoreKind, weighted
from ringfence.digests import joined
from ringfence.errors import ArgumentError
from ringfence.models import LoadedModel, load_model


@dataclass(frozen=True)
class EnsembleChoice:
    """Which members vote how; one vote over all members is one classifier, anything more becomes lanes."""

    members: tuple[str, ...]
    votes: tuple[str, ...] = ("soft",)
    consensus: tuple[int, ...] = ()
    weights: tuple[float, ...] = ()
    weights_on: ScoreKind = "logits"
    prefixes: bool = False
    singles: bool = False
    after_smoothing: bool = False

    def __post_init__(self) -> None:
        if not self.members:
            raise ArgumentError("--members", "needs at least one member", "none", "Write --members a,b,c.")
        known = (*VOTES, "weighted")
        for vote in self.votes:
            if vote not in known:
                raise ArgumentError("--vote", f"must be among {', '.join(known)}", repr(vote), "Use soft.")
        if ("weighted" in self.votes) != bool(self.weights):
            rule = "--vote weighted and --member-weights go together"
            raise ArgumentError("--member-weights", rule, list(self.weights), "Learn them with ringfence weights.")
        if self.weights:
            weighted(self.weights, len(self.members), self.weights_on)
        elif self.weights_on != "logits":
            rule = "says what --member-weights multiply, and there are none"
            raise ArgumentError("--weights-on", rule, repr(self.weights_on), "Give weights, or leave it out.")
        for agree in self.consensus:
            if not 1 <= agree <= len(self.members):
                rule = f"must lie between 1 and the number of members, {len(self.members)}"
                raise ArgumentError("--consensus", rule, agree, "Ask for fewer members to agree.")

    def settings(self) -> dict[str, Any]:
        """Every choice, for the run's config."""
        return {
            "members": list(self.members),
            "votes": list(self.votes),
            "consensus": list(self.consensus),
            "weights": list(self.weights),
            "weights_on": self.weights_on,
            "prefixes": self.prefixes,
            "singles": self.singles,
        }

    def load(self, mean: Sequence[float] | None, std: Sequence[float] | None, classes: int | None) -> LoadedModel:
        """All members loaded and composed."""
        loaded = self.load_members(mean, std, classes)
        counts = {one.num_classes for one in loaded} - {None}
        digest = joined([one.digest for one in loaded])
        module = self._compose([one.module for one in loaded])
        return LoadedModel(module, counts.pop() if counts else None, digest, "+".join(self.members))

    def load_members(
        self, mean: Sequence[float] | None, std: Sequence[float] | None, classes: int | None
    ) -> list[LoadedModel]:
        """Every member on its own; they must have the same classes."""
        loaded = [load_model(spec, num_classes=classes, mean=mean, std=std) for spec in self.members]
        if len({one.num_classes for one in loaded} - {None}) > 1:
            listed = ", ".join(f"{one.spec}: {one.num_classes}" for one in loaded)
            raise ArgumentError("--members", "must have the same classes", listed, "Leave out the ones that differ.")
        return loaded

    @property
    def lanes(self) -> tuple[str, ...]:
        """What the records' lanes are called; one classifier is ``main``."""
        if self._single:
            return ("main",)
        return lane_names(len(self.members), self.votes, self.prefixes, self.singles, self.consensus)

    @property
    def _single(self) -> bool:
        """Whether all this is one classifier (or, after smoothing, one claim about all members)."""
        alone = not self.prefixes and not self.singles and len(self.votes) == 1
        return self.after_smoothing or (alone and (not self.consensus or self._skips_members))

    @property
    def _skips_members(self) -> bool:
        """One K-consensus alone runs with its work truly skipped."""
        alone = not self.prefixes and not self.singles
        return alone and len(self.consensus) == 1 and self.votes == ("soft",)

    def _compose(self, members: list[nn.Module]) -> nn.Module:
        if self.after_smoothing:
            return Members(members)
        if self._skips_members:
            return KConsensus(members, self.consensus[0])
        settings = self.votes, self.prefixes, self.singles, self.consensus, self.weights, self.weights_on
        return Lanes(members, *settings)
