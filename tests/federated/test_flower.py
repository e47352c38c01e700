"""The public name of what runs inside Flower, where Flower itself is not installed."""

from __future__ import annotations

import sys

import pytest

from leakscope.errors import MissingExtraError
from leakscope.federated import flower


def test_without_flower_the_message_is_the_line_that_installs_it(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[:2] == ["leakscope", "flower"]]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "flwr", None)
    with pytest.raises(MissingExtraError, match=r"pip install .* -e '\.\[flower\]'"):
        _ = flower.Capture


def test_other_names_are_not_there():
    with pytest.raises(AttributeError, match="no attribute 'capture'"):
        _ = flower.capture
    assert dir(flower) == sorted(flower.__all__)
