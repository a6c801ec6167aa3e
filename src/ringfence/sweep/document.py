"""A sweep file: its YAML, read so that what a user wrote is what comes out, and its grids and braces as many jobs."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from ringfence.errors import DataError
from ringfence.store.atomic import read_file
from ringfence.yaml_files import refuse_too_many

LARGEST = 2**20
"""Bytes of a file at most."""


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
        return DataError(file, rule, received, "docs/sweep.md shows a whole sweep file.")

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
    refuse_too_many(file, found, DataError)
    return found


MOST_JOBS = 5_000
"""Jobs of one entry at most."""
LONGEST = 20_000
"""Characters that braces may grow a text to."""
_BRACE = re.compile(r"\{([A-Za-z][A-Za-z0-9_-]*)\}")
Values = Mapping[str, Any]


def is_plain(value: Any) -> bool:
    """Whether it is one word on a command line, or says that there is none."""
    return value is None or isinstance(value, str | bool | int | float)


def combinations(each: Any) -> Iterator[dict[str, Any]]:
    """Every assignment of values: of one mapping all combinations, of a list of mappings those of each in turn."""
    for one in each if isinstance(each, list) else [each or {}]:
        if not isinstance(one, dict):
            raise ValueError("each must be a mapping of lists of values, or a list of such mappings")
        lists = [value if isinstance(value, list) else [value] for value in one.values()]
        if not all(is_plain(value) for values in lists for value in values):
            raise ValueError("each holds texts and numbers, or lists of them")
        if math.prod(map(len, lists)) > MOST_JOBS:
            raise ValueError(f"each makes more than {MOST_JOBS:,} jobs")
        for values in itertools.product(*lists):
            yield dict(zip(one, values, strict=True))


def filled(value: Any, known: Values) -> Any:
    """The value with every {name} replaced; a text that is nothing but {name} becomes what the name stands for."""
    if isinstance(value, dict):
        return {key: filled(one, known) for key, one in value.items()}
    if isinstance(value, list):
        return [filled(one, known) for one in value]
    if not isinstance(value, str):
        return value
    for _ in range(10):  # what a name stands for may hold names
        names = _BRACE.findall(value)
        if not names:
            return value
        if missing := [name for name in names if name not in known]:
            raise ValueError(f"nothing says what {{{missing[0]}}} is")
        if value == f"{{{names[0]}}}" and not isinstance(known[names[0]], str):
            return known[names[0]]
        value = _BRACE.sub(lambda found: text_of(known[found[1]]), value)
        if len(value) > LONGEST:
            raise ValueError("braces make a text that is too long")
    raise ValueError(f"{value[:60]!r} holds names that stand for each other")


def text_of(value: Any) -> str:
    """A value as it is written on a command line; a list by commas."""
    if isinstance(value, list):
        return ",".join(map(text_of, value))
    if isinstance(value, dict):
        raise ValueError("a mapping has no place inside a text: name it by `use`")
    return str(value).lower() if isinstance(value, bool) else str(value)
