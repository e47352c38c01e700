"""Where cells run, as a user writes it."""

from __future__ import annotations

import importlib.util

import pytest

from leakscope.errors import MissingExtraError, UsageError
from leakscope.execution import check_execution, is_elsewhere


@pytest.fixture
def with_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())


@pytest.mark.usefixtures("with_ray")
@pytest.mark.parametrize("on", ["processes", "ray", "ray://head:10001", "ray://10.0.0.1:1", "ray://[::1]:10001"])
def test_places_that_are_some(on: str) -> None:
    check_execution(on)
    assert is_elsewhere(on) is ("://" in on)


@pytest.mark.usefixtures("with_ray")
@pytest.mark.parametrize("on", ["", "rai", "ray:", "ray://", "ray://head", "ray://head:port", "http://head:1", "auto"])
def test_places_that_are_none(on: str) -> None:
    with pytest.raises(UsageError, match=r"cells run on processes, ray or ray://host:port, got"):
        check_execution(on)


def test_ray_must_be_installed_and_processes_need_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    check_execution("processes")
    with pytest.raises(MissingExtraError, match=r"pip install .* -e '\.\[ray\]'"):
        check_execution("ray")
