"""Ensembles as the command line describes them: ``--members a,b,c --vote soft [--consensus K] ...``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ringfence.classifiers import VOTES
from ringfence.classifiers.votes import ScoreKind, weighted
from ringfence.errors import ArgumentError
from ringfence.models import LoadedModel, as_tree, lanes_of, load_model
from ringfence.models.grammar import Leaf, Node, Tree


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
        self._refuse_unused()
        for agree in self.consensus:
            if not 1 <= agree <= len(self.members):
                rule = f"must lie between 1 and the number of members, {len(self.members)}"
                raise ArgumentError("--consensus", rule, agree, "Ask for fewer members to agree.")

    def _refuse_unused(self) -> None:
        """After smoothing, nothing of this says anything: the procedure looks at every member's own votes."""
        unused = [
            *([f"--vote {','.join(self.votes)}"] if self.votes != ("soft",) else []),
            *([f"--consensus {','.join(map(str, self.consensus))}"] if self.consensus else []),
            *(["--prefixes"] if self.prefixes else []),
            *(["--singles"] if self.singles else []),
        ]
        if self.after_smoothing and unused:
            rule = "after-smoothing smooths every member by itself, so that nothing is left to vote or to form lanes of"
            remedy = f"Leave out {' and '.join(unused)}, or use another procedure."
            raise ArgumentError("--procedure", rule, " ".join(["after-smoothing", *unused]), remedy)

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

    @property
    def tree(self) -> Node:
        """The same as a tree: one vote is its own node, anything more are lanes; after smoothing every member is."""
        models = tuple(as_tree(one) for one in self.members)
        if self.after_smoothing:
            return Node("lanes", models, {"votes": Leaf("none"), "singles": Leaf("true")})
        if self._skips_members:
            return Node("consensus", models, {"agree": Leaf(str(self.consensus[0]))})
        weights = {"weights": _listed(self.weights), "on": Leaf(self.weights_on)} if self.weights else {}
        if self._single:
            return Node(self.votes[0], models, weights)
        chosen: dict[str, Tree] = {"votes": Leaf("/".join(self.votes) or "none")}
        if self.consensus:
            chosen["consensus"] = _listed(self.consensus)
        flags = {"prefixes": self.prefixes, "singles": self.singles}
        return Node("lanes", models, {**chosen, **weights, **{key: Leaf("true") for key, on in flags.items() if on}})

    def load(self, mean: Sequence[float] | None, std: Sequence[float] | None, classes: int | None) -> LoadedModel:
        """All members loaded and composed."""
        return load_model(str(self.tree), num_classes=classes, mean=mean, std=std)

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
        """What the records' lanes are called; one classifier, or one claim about all members, is ``main``."""
        return ("main",) if self.after_smoothing else lanes_of(self.tree)

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


def _listed(values: Sequence[float]) -> Leaf:
    return Leaf("/".join(f"{value!r}" for value in values))
