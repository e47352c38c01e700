"""The list of wrong formulas is not stale: every one has its place and its tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from mutants import ALL

ROOT = Path(__file__).resolve().parents[2]


def test_there_are_enough_and_each_has_its_own_name():
    assert len(ALL) >= 100
    assert len({one.name for one in ALL}) == len(ALL)


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.name)
def test_a_wrong_formula_has_one_place_and_tests_that_exist(one):
    text = (ROOT / "src" / "leakscope" / one.file).read_text(encoding="utf-8")
    assert text.count(one.old) == 1, f"{one.old!r} in {one.file}"
    assert one.old != one.new
    compile(text.replace(one.old, one.new), one.file, "exec")
    assert one.tests
    for test in one.tests:
        assert (ROOT / "tests" / test.split("::")[0]).exists(), test
