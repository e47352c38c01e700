"""The page of wrong formulas: what a part of them came to replaces their rows, and leaves the others."""

from __future__ import annotations

import pytest

from mutants import ALL
from mutants import run as runner
from mutants.run import page, read_rows, report, row


def test_rows_of_a_page_are_read_back(tmp_path):
    first, second = ALL[:2]
    rows = [row(first, "a/test_b.py::test_c[d | e]"), row(second, "")]
    written = tmp_path / "page.md"
    written.write_text("\n".join(page(rows)), encoding="utf-8")
    assert read_rows(written) == {first.name: rows[0], second.name: rows[1]}
    assert "Of 2 mistakes 1 were noticed" in written.read_text(encoding="utf-8")
    assert read_rows(tmp_path / "none.md") == {}


def test_a_part_replaces_its_rows_and_leaves_the_others(tmp_path, monkeypatch):
    first, second, third = ALL[:3]
    written = tmp_path / "page.md"
    gone = "| a formula that is no longer tried | `attacks/cpl.py` | `test_x` |"
    written.write_text("\n".join(page([gone, row(first, "old"), row(second, "")])), encoding="utf-8")
    monkeypatch.setattr(runner, "PAGE", written)
    found = {one.name: runner.Verdict(one.name, "new", 1.0) for one in (second, third)}
    with pytest.raises(SystemExit) as left:
        report([second, third], found, write=True)
    assert left.value.code == 0
    assert list(read_rows(written).values()) == [row(first, "old"), row(second, "new"), row(third, "new")]
