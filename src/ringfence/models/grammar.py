"""The grammar of classifiers: ``soft(zoo:a:0, zoo:a:1)`` as text and as a tree of leaves and nodes.

    tree  = node | leaf
    node  = NAME "(" [arg {"," arg}] ")"      no space before "("
    arg   = KEY "=" value | tree              models come first
    value = tree | text                       the field's declared type decides which
    leaf  = quoted | text without ( ) , ' " and newlines

Nothing is evaluated: what a name means is the registry's business (models/nodes.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, final

from ringfence.errors import ModelError

MOST_CHARACTERS: Final = 100_000
DEEPEST: Final = 50
"""Levels of nesting; far beyond any use, and short of Python's own limit."""

LIVE: Final = "in-memory:"
"""How the text of a tree names a network that no text builds."""

_COMPOSED = ("soft", "softmax", "hard", "max-margin", "weighted", "consensus", "lanes", "aces")
"""Nodes that make one classifier, or several, of members; every other one wraps what it is given."""

_OPENING = re.compile(r"([A-Za-z][A-Za-z0-9_-]*)\(")
_KEY = re.compile(r"([a-z][a-z0-9_]*)[ \t]*=")
_SPACED = re.compile(r"\s*([A-Za-z][A-Za-z0-9_-]*)\s+\(.*\)\s*", re.DOTALL)
_PLAIN = re.compile(r"[^(),'\"\n\r]+")


@final
@dataclass(frozen=True)
class Leaf:
    """A model source, or the text of a setting."""

    text: str

    def __str__(self) -> str:
        plain = _PLAIN.fullmatch(self.text) and self.text == self.text.strip() and not _KEY.match(self.text)
        return self.text if plain else quoted(self.text)


@final
@dataclass(frozen=True)
class Node:
    """A named wrapper around models, with settings whose values are trees or texts."""

    name: str
    models: tuple[Tree, ...] = ()
    settings: Mapping[str, Tree] = field(default_factory=dict)

    def __str__(self) -> str:
        parts = [*map(str, self.models), *(f"{key}={value}" for key, value in self.settings.items())]
        return f"{self.name}({', '.join(parts)})"

    def __hash__(self) -> int:
        return hash(str(self))


@final
@dataclass(frozen=True)
class Live:
    """A network of the program itself: no text builds it, so that it must be given again where a config is read."""

    module: Any = field(repr=False)

    def __str__(self) -> str:
        return str(Leaf(f"{LIVE}{type(self.module).__name__}"))  # a class may have any name

    def __hash__(self) -> int:
        return id(self.module)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Live) and self.module is other.module


Tree = Leaf | Node | Live


def live_places(tree: Tree) -> list[Tree]:
    """Every live network of a tree, in its order: the networks themselves, or what a config says of them."""
    if isinstance(tree, Node):
        return [found for part in (*tree.models, *tree.settings.values()) for found in live_places(part)]
    return [tree] if isinstance(tree, Live) or tree.text.startswith(LIVE) else []


def with_live(tree: Tree, modules: Iterator[Any]) -> Tree:
    """The tree of a config with these networks in the places of its live ones."""
    if isinstance(tree, Node):
        models = tuple(with_live(one, modules) for one in tree.models)
        return Node(tree.name, models, {key: with_live(one, modules) for key, one in tree.settings.items()})
    return Live(next(modules)) if live_places(tree) else tree


def quoted(text: str) -> str:
    """The text in quotes, in which a backslash stands before a quote, a backslash and, as n and r, a line's end."""
    for plain, escaped in (("\\", "\\\\"), ("'", "\\'"), ("\n", "\\n"), ("\r", "\\r")):
        text = text.replace(plain, escaped)
    return f"'{text}'"


def parse(text: str) -> Tree:
    """The tree that a text describes."""
    if len(text) > MOST_CHARACTERS:
        raise ModelError(
            text[:40] + "...", f"has at most {MOST_CHARACTERS} characters", len(text), "Name files instead."
        )
    reader = _Reader(text)
    tree = reader.tree(0)
    reader.skip_space()
    if not reader.ended:
        raise reader.spaced() or reader.wrong("ends after one model", "Join several models by a vote: soft(A, B).")
    return tree


def as_tree(spec: str) -> Tree:
    """What a user wrote as a model: a tree if it begins like one or is quoted, else the source as it stands."""
    begins = spec.lstrip()
    as_one = begins[:1] in ("'", '"') or _OPENING.match(begins) or _SPACED.fullmatch(spec)
    return parse(spec) if as_one else Leaf(spec)


def outermost(model: str) -> Node | None:
    """The outermost node of a tree; None for a single source and for what no parser reads."""
    try:
        tree = as_tree(model)
    except ModelError:
        return None
    return tree if isinstance(tree, Node) else None


def composition(model: str) -> dict[str, Any]:
    """What the outermost vote, consensus or selection of a tree is made of; empty for anything else."""
    tree = outermost(model)
    if tree is None or tree.name not in _COMPOSED:
        return {}
    told = {key: str(value) for key, value in tree.settings.items()}
    if tree.name == "aces":
        return {"select": "entropy", **told}
    members = [str(one) for one in tree.models]
    if tree.name == "consensus":
        return {"members": members, "votes": ["soft"], "consensus": [int(told["agree"])]}
    listed = {key: [] if told.get(key, "none") == "none" else told[key].split("/") for key in ("votes", "consensus")}
    votes = listed["votes"] or ([] if tree.name == "lanes" and "votes" in told else ["soft"])
    agree = [int(one) for one in listed["consensus"]]
    return {"members": members, "votes": votes if tree.name == "lanes" else [tree.name], "consensus": agree}


def split_models(text: str) -> list[str]:
    """Models divided by commas, those inside parentheses and quotes left whole: ``a,soft(b,c)`` is two."""
    text = text.strip().rstrip(",")
    reader, found = _Reader(text), []
    while not reader.ended:
        key = reader.match(_KEY)
        if key is not None:
            remedy = f"Quote a file of that name: '{key}=...'."
            raise ModelError(text, "is a list of models", f"a setting, '{key}='", remedy)
        found.append(str(reader.tree(1)))
        if not reader.takes(",") and not reader.ended:
            raise reader.spaced() or reader.wrong("divides models by commas", "Write A,B, or a tree: soft(A, B).")
    return found


class _Reader:
    """A place in a text, and what stands there."""

    def __init__(self, text: str) -> None:
        self.text, self.place = text, 0

    @property
    def ended(self) -> bool:
        return self.place >= len(self.text)

    def skip_space(self) -> None:
        while not self.ended and self.text[self.place].isspace():
            self.place += 1

    def takes(self, wanted: str) -> bool:
        self.skip_space()
        found = self.text.startswith(wanted, self.place)
        self.place += len(wanted) if found else 0
        return found

    def match(self, pattern: re.Pattern[str]) -> str | None:
        self.skip_space()
        found = pattern.match(self.text, self.place)
        if found is None:
            return None
        self.place = found.end()
        return found[found.lastindex or 0]

    def tree(self, depth: int) -> Tree:
        if depth > DEEPEST:
            raise self.wrong(f"is nested at most {DEEPEST} deep", "Write it flatter.")
        name = self.match(_OPENING)
        if name is not None:
            return self.arguments(name, depth)
        self.skip_space()
        if not self.ended and self.text[self.place] in "'\"":
            return Leaf(self.quotation(self.text[self.place]))
        found = (self.match(_PLAIN) or "").strip()
        if not found:
            raise self.wrong("must name a model here", "Write a model, or quote a name that holds ( ) , or quotes.")
        return Leaf(found)

    def arguments(self, name: str, depth: int) -> Node:
        models: list[Tree] = []
        settings: dict[str, Tree] = {}
        if self.takes(")"):
            return Node(name)
        while True:
            key = self.match(_KEY)
            if key is None and settings:
                raise self.wrong(f"names the models of {name} before its settings", "Move the models to the front.")
            if key is None:
                models.append(self.tree(depth + 1))
            elif key in settings:
                raise self.wrong(f"says each setting of {name} once", f"Leave out one '{key}='.")
            else:
                settings[key] = self.tree(depth + 1)
            if self.takes(")"):
                return Node(name, tuple(models), settings)
            if not self.takes(","):
                rule = f"needs a comma or the closing parenthesis of {name}("
                raise self.spaced() or self.wrong(rule, f"Write e.g. {name}(A, B).")

    def quotation(self, mark: str) -> str:
        found: list[str] = []
        self.place += 1
        while not self.ended and self.text[self.place] != mark:
            if self.text[self.place] == "\\" and self.place + 1 < len(self.text):
                self.place += 1
                found.append({"n": "\n", "r": "\r"}.get(self.text[self.place], self.text[self.place]))
            else:
                found.append(self.text[self.place])
            self.place += 1
        if self.ended:
            raise self.wrong("closes its quotes", f"Add {mark}.")
        self.place += 1
        return "".join(found)

    def spaced(self) -> ModelError | None:
        """The hint for ``soft (a)``, if that is what stands here."""
        before = self.text[: self.place]
        if not self.text.startswith("(", self.place) or before == before.rstrip():
            return None
        name = re.split(r"[\s(),=]", before.rstrip())[-1]
        return self.wrong("has no space before (", f"Write {name}(...); quote a file name that holds parentheses.")

    def wrong(self, rule: str, remedy: str) -> ModelError:
        self.skip_space()
        rest = self.text[self.place : self.place + 20]
        return ModelError(_short(self.text), rule, f"{rest!r} at position {self.place}" if rest else "its end", remedy)


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."
