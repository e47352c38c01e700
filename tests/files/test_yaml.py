"""P6, P30: a configuration expands to no more than its file, executes nothing and ends in one typed error."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from leakscope.audits import load_config
from leakscope.errors import BadInputError, LeakscopeError
from leakscope.yaml_reader import parse_yaml


def _chain(levels: int, width: int = 9) -> str:
    """Nine times nine times … one word, in a few hundred bytes."""
    lines = ["title: x", f"a0: &a0 [{', '.join(['lol'] * width)}]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * width)}]" for i in range(1, levels)]
    return "\n".join(lines)


def _as_settings(levels: int) -> str:
    """The same inside a setting that exists, so that the schema would have to print it."""
    parts = [f"&b{i} [{', '.join([f'*b{i - 1}'] * 9)}]" for i in range(1, levels)]
    return "models: [&b0 [x, x], " + ", ".join(parts) + "]\n"


@pytest.mark.parametrize("text", [_chain(9), _chain(40), _as_settings(9), _as_settings(30)])
def test_an_alias_chain_is_refused_at_once(tmp_path: Path, text: str) -> None:
    path = tmp_path / "laughs.yaml"
    path.write_text(text)
    began = time.monotonic()
    with pytest.raises(LeakscopeError) as caught:
        load_config(path)
    assert time.monotonic() - began < 5
    assert "aliases expand to more than 2,000,000 characters" in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_long_text_that_is_repeated_counts_with_its_length() -> None:
    text = f"a: &a {'x' * 100_000}\nb: [{', '.join(['*a'] * 1000)}]"
    with pytest.raises(BadInputError, match="aliases expand"):
        parse_yaml(text, name="x.yaml")


def test_a_few_aliases_are_as_good_as_written_out() -> None:
    assert parse_yaml("a: &a {x: 1}\nb: *a\nc: {<<: *a, y: 2}", name="x.yaml") == {
        "a": {"x": 1},
        "b": {"x": 1},
        "c": {"x": 1, "y": 2},
    }


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("a: &a [*a]", "an alias stands inside what it repeats, line 1"),
        ("a: 1\nb: 2\na: 3", "the key 'a' occurs twice, line 3"),
        ("m:\n  x: 1\n  x: 1", "the key 'x' occurs twice, line 3"),
        ("a: " + "9" * 5000, "at most 100 characters, got 5,000"),
        ("a: 1" + ":00" * 100_000, "at most 100 characters"),
        ("a: 2020-13-45", "month must be in 1..12"),
        ("? [a, b]\n: 1", "found unhashable key|unhashable"),
        ("a: !!python/object/apply:os.system [echo]", "could not determine a constructor"),
        ("[" * 5000, "recursion|RecursionError|maximum"),
        ("a: \x1b[31m", "special characters are not allowed"),
        ("a: b: c", "mapping values are not allowed here in line 1"),
        ("%YAML 9.9\n---\na", "incompatible YAML document"),
    ],
)
def test_what_cannot_be_meant_is_not_valid(text: str, match: str) -> None:
    with pytest.raises(BadInputError, match=match) as caught:
        parse_yaml(text, name="x.yaml")
    assert len(str(caught.value)) < 500


def test_an_empty_file_holds_no_settings(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("")
    with pytest.raises(BadInputError, match="must hold a mapping of settings, got NoneType"):
        load_config(tmp_path / "empty.yaml")
