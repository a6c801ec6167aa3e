"""The YAML of a sweep file, read so that what a user wrote is what comes out, whoever wrote the file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from ringfence.errors import DataError
from ringfence.store.atomic import read_file

LARGEST = 2**20
"""Bytes of a file at most."""
MOST = 50_000
"""Values of a file at most, aliases counted wherever they stand."""


class Lines(dict[str, Any]):
    """A mapping that knows the line it begins at."""

    line = 0


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Everything but true, false and null is text, exactly as it stands: 1.0 stays 1.0, 0:1:0.01 is no time of day."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  (PyYAML's name)
    yaml_constructors: dict[str | None, Any] = {  # noqa: RUF012
        tag: yaml.SafeLoader.yaml_constructors[tag]
        for tag in (None, "tag:yaml.org,2002:str", "tag:yaml.org,2002:seq", "tag:yaml.org,2002:null")
    }


def _mapping(loader: _Loader, node: yaml.MappingNode) -> Iterator[Lines]:
    """Keys are text and stand once; << is a key like any other, so that merging cannot blow a file up."""
    made = Lines()
    made.line = node.start_mark.line + 1
    yield made
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str) or key in made:
            told = f"the key {key!r} stands twice" if isinstance(key, str) else "a key must be text"
            raise yaml.constructor.ConstructorError(None, None, told, key_node.start_mark)
        made[key] = loader.construct_object(value_node, deep=True)


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)
_Loader.add_constructor("tag:yaml.org,2002:bool", lambda loader, node: loader.construct_scalar(node) == "true")
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false)$"), list("tf"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"^(?:~|null|)$"), ["~", "n", ""])


def read_document(file: Path) -> Lines:
    """The mapping that the file holds; a DataError with the line where it is none."""

    def refused(rule: str, received: object) -> DataError:
        return DataError(str(file), rule, received, "docs/sweep.md shows a whole sweep file.")

    content = read_file(file)
    if len(content) > LARGEST:
        raise refused("must be smaller than 1 MiB", f"{len(content):,} bytes")
    try:
        found = yaml.load(content, _Loader)
    except yaml.MarkedYAMLError as error:
        where = "" if error.problem_mark is None else f"line {error.problem_mark.line + 1}: "
        raise refused("must be YAML", f"{where}{error.problem or error}") from error
    except yaml.YAMLError as error:
        raise refused("must be YAML", str(error).splitlines()[0]) from error
    except RecursionError as error:
        raise refused("must be nested less deeply", "values within values without end") from error
    if not isinstance(found, Lines):
        raise refused("must be a mapping: train, certify, ...", type(found).__name__)
    _refuse_too_many(file, found)
    return found


def _refuse_too_many(file: Path, found: Any) -> None:
    """Aliases of aliases cost nothing to read and everything to walk through: each counts wherever it stands."""
    waiting, seen = [found], 0
    while waiting:
        one = waiting.pop()
        seen += 1
        if seen > MOST:
            remedy = "Aliases count wherever they stand."
            raise DataError(str(file), f"must hold at most {MOST:,} values", "more than that", remedy)
        waiting += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
