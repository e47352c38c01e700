"""No word names two things: a class name stands in one place of the package."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import leakscope

ROOT = Path(leakscope.__file__).parent


def classes():
    found = defaultdict(list)
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(path.relative_to(ROOT)))
    return found


def test_no_two_classes_have_one_name():
    assert {name: places for name, places in classes().items() if len(places) > 1} == {}


def test_nothing_is_probed_that_a_base_class_can_declare():
    """`getattr` with a default, `hasattr` and runtime-checkable protocols are how members were once guessed."""
    # What an operating system offers cannot be declared.
    probing = re.compile(r"hasattr\((?!os,)|runtime_checkable")
    guessed = [str(path.relative_to(ROOT)) for path in sorted(ROOT.rglob("*.py")) if probing.search(path.read_text())]
    assert guessed == []
