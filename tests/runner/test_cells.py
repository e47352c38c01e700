"""Keys name work: equal work has equal keys, other work has others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leakscope.errors import UsageError
from leakscope.runner import Cell
from leakscope.runner.cells import canonical_json

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_key_is_the_digest_of_the_canonical_json() -> None:
    # From `printf '{"code":"1","spec":{"a":[1,2],"b":null}}' | sha256sum`.
    expected = "ee35b52b02fb5708bd5c1b7c976544d17d9149e0539f9a1b20eac105ff6b2d5e"
    assert Cell.of({"b": None, "a": (1, 2)}, code_version="1").key == expected


@given(st.dictionaries(st.text(), PLAIN, max_size=4))
def test_order_of_names_does_not_change_the_key(spec: dict) -> None:
    turned = dict(reversed(list(spec.items())))
    assert Cell.of(turned, code_version="1") == Cell.of(spec, code_version="1")


def test_spec_code_version_and_types_change_the_key() -> None:
    cells = [
        Cell.of({"seed": 0}, code_version="1"),
        Cell.of({"seed": 1}, code_version="1"),
        Cell.of({"seed": "0"}, code_version="1"),
        Cell.of({"seed": 0}, code_version="2"),
    ]
    assert len({cell.key for cell in cells}) == len(cells)


def test_the_label_does_not_change_the_key() -> None:
    assert Cell.of({}, code_version="1", label="x") == Cell.of({}, code_version="1")


def test_changing_the_callers_spec_later_changes_nothing() -> None:
    spec: dict = {"steps": [1, 2]}
    cell = Cell.of(spec, code_version="1")
    spec["steps"].append(3)
    assert cell.spec == {"steps": [1, 2]}


@pytest.mark.parametrize("spec", [{"x": float("nan")}, {"x": float("inf")}, {"x": object()}, {"x": {1: 2}}, {1: 2}])
def test_what_is_not_plain_json_is_refused(spec: dict) -> None:
    with pytest.raises(UsageError, match="expected"):
        Cell.of(spec, code_version="1")


@pytest.mark.parametrize("key", ["", "../../etc/passwd", "A" * 64, "0" * 63, "0" * 64 + "\n"])
def test_a_key_that_is_no_digest_is_refused(key: str) -> None:
    with pytest.raises(UsageError, match="64 hexadecimal digits"):
        Cell({}, key)


def test_canonical_json_may_hold_nan_in_outcomes() -> None:
    assert canonical_json({"x": float("nan")}, finite=False) == '{"x":NaN}'
