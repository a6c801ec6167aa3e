"""Digests with named parts: what identifies a model or a data set, and what changed between two of them.

``v2 weights:5fba... ours:0a1b...``: the scheme, then one BLAKE2b per part. Digests of the scheme before were one bare
hexadecimal number. The part ``v1`` is that number, present only where it covered all that the parts cover, so that
older runs can be continued. A digest is evidence, not proof: code can read what no digest sees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b

SCHEME = "v2"
EARLIER = "v1"
READ = "read"
"""Variables and functions that the code reads. Earlier digests lack this part, which is then not compared."""
STRUCTURE, UNFILLED = "structure", "unfilled"
"""Layers and attributes of a network; and, where its own code fills some of them as it runs, the same without these."""

SPOKEN = {
    "weights": "weights",
    "code": "model code",
    "program": "exported program, configuration, or kind of denoiser",
    STRUCTURE: "layers or attributes of the network (one that stores something while it runs: make it anew)",
    READ: "variables or functions that its code reads",
    "ours": "Ringfence's own networks (another kind or version)",
    "inputs": "data bytes",
    "labels": "labels",
    "index": "index",
    "tree": "how its models are composed",
    "framing": "size or colour mode of the images",
    "form": "range or channels of the inputs",
}
"""Parts as messages name them."""


INCOMPARABLE = "the run is of an earlier version, whose digest covered less (no code, no index, no bytes of images)"


def hashed(chunks: Iterable[bytes | memoryview]) -> str:
    """32 hexadecimal digits over the chunks, one after the other."""
    digest = blake2b(digest_size=16)
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def write_digest(parts: Mapping[str, str]) -> str:
    """The digest of these parts."""
    return " ".join([SCHEME, *(f"{name}:{value}" for name, value in parts.items())])


def read_digest(text: str) -> dict[str, str] | None:
    """The parts of a digest; None for one of an earlier scheme, or none at all."""
    scheme, *parts = text.split(" ")
    return dict(part.partition(":")[::2] for part in parts) if scheme == SCHEME else None


def joined(digests: Sequence[str], join: Callable[[Sequence[str]], str], *settings: str) -> str:
    """The digest of a model made of several: part by part, in their order, and the settings that compose them."""
    read = [read_digest(one) or {"weights": one} for one in digests]
    names = dict.fromkeys(name for parts in read for name in parts)
    if UNFILLED in names:  # of a model that fills nothing it is the whole
        read = [{UNFILLED: parts.get(STRUCTURE, ""), **parts} for parts in read]
    parts = {
        name: hashed([join([parts.get(name, "") for parts in read]).encode()])
        for name in names
        if name != EARLIER or all(EARLIER in parts for parts in read)
    }
    return write_digest({**parts, "tree": hashed([" ".join([*settings, parts.get("tree", "")]).encode()])})


def changes(now: str, then: str, filled: bool = True) -> str | None:
    """What changed, in words; None where nothing did, as far as the digests can tell.

    filled: whether attributes count that a network's own code fills; not where its answers are compared, too.
    """
    ours, theirs = read_digest(now), read_digest(then)
    if now == then or ours is None:
        return None if now == then else "its contents"
    if theirs is None:
        known = ours.get(EARLIER)
        if known is None:
            return INCOMPARABLE
        return None if known == then else "its contents"
    told = {**ours, **theirs}.keys() - {EARLIER, UNFILLED} - ({READ} if READ not in theirs else set())
    if not filled and UNFILLED in ours and ours[UNFILLED] == theirs.get(UNFILLED):
        told -= {STRUCTURE}
    names = [name for name in {**ours, **theirs} if name in told and ours.get(name) != theirs.get(name)]
    return ", ".join(SPOKEN.get(name, name) for name in names) or None


def apart(one: str, other: str) -> str | None:
    """What differs between two digests of which neither came first; None where either scheme knows them as one."""
    return changes(one, other) and changes(other, one)


def difference(what: str, now: str, then: str) -> str | None:
    """What changed since a run began, as a clause about ``the model`` or ``the data``; a model's answers are compared
    beside it, so that it may have counted and cached since (same_network.py)."""
    changed = changes(now, then, filled=False)
    if changed is None:
        return None
    return f"{what} cannot be compared: {changed}" if changed == INCOMPARABLE else f"{what} changed: {changed}"
