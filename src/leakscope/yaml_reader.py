"""YAML from a file that may come from anyone: nothing is executed, and nothing expands beyond its file."""

from __future__ import annotations

import os
from typing import Any

import yaml

from leakscope.errors import BadInputError
from leakscope.regular_files import read_file, show

LARGEST_YAML = 1_000_000
# An alias repeats what it stands for; written out, the whole may have so many characters.
_MOST_EXPANDED = 2_000_000
# Numbers and dates: a longer one is made to keep the reader busy.
_LONGEST_NUMBER = 100
_TEXT = "tag:yaml.org,2002:str"
_MERGE = "tag:yaml.org,2002:merge"


def read_yaml(path: str | os.PathLike[str]) -> Any:
    """Return what a YAML file says, as plain values.

    Raises:
        BadInputError: It is not a regular file, too large, not YAML, repeats a key, or its aliases expand without
            measure.
    """
    return parse_yaml(read_file(path, most=LARGEST_YAML), name=os.fspath(path))


def parse_yaml(content: bytes | str, *, name: str) -> Any:
    """As `read_yaml`, for content that was read already."""
    try:
        loader = yaml.SafeLoader(content)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _measure(node, {})
            return loader.construct_document(node)
        finally:
            loader.dispose()
    # A date that does not exist, a number of too many digits, a key that is a list, nesting without end.
    except (yaml.YAMLError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise BadInputError(f"{show(name)} is not valid YAML: {_first_line(error)}") from error


def _measure(node: yaml.Node, known: dict[int, int | None]) -> int:
    """Characters of `node` with every alias written out; refuse what cannot be meant."""
    if id(node) in known:
        size = known[id(node)]
        if size is None:
            raise ValueError(f"an alias stands inside what it repeats, line {node.start_mark.line + 1}")
        return size
    known[id(node)] = None
    if isinstance(node, yaml.ScalarNode):
        size = _measure_scalar(node)
    elif isinstance(node, yaml.MappingNode):
        _check_keys(node)
        size = sum(_measure(part, known) for pair in node.value for part in pair)
    else:
        size = sum(_measure(part, known) for part in node.value)
    known[id(node)] = size = size + 1
    if size > _MOST_EXPANDED:
        raise ValueError(
            f"its aliases expand to more than {_MOST_EXPANDED:,} characters, line {node.start_mark.line + 1}; "
            "write it without aliases"
        )
    return size


def _measure_scalar(node: yaml.ScalarNode) -> int:
    if node.tag != _TEXT and len(node.value) > _LONGEST_NUMBER:
        raise ValueError(
            f"expected numbers and dates of at most {_LONGEST_NUMBER} characters, got {len(node.value):,}, "
            f"line {node.start_mark.line + 1}"
        )
    return len(node.value)


def _check_keys(node: yaml.MappingNode) -> None:
    seen: set[str] = set()
    for key, _value in node.value:
        if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
            continue
        if key.value in seen:
            raise ValueError(f"the key {show(key.value)} occurs twice, line {key.start_mark.line + 1}; give it once")
        seen.add(key.value)


def _first_line(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem and error.problem_mark:
        return f"{error.problem[:300]} in line {error.problem_mark.line + 1}"
    return str(error).splitlines()[0][:300] if str(error) else type(error).__name__
