"""Functions that another machine can find."""

from __future__ import annotations

from functools import partial

import pytest
import sweep_workloads as workloads

from leakscope.errors import UsageError
from leakscope.runner import NamedCall
from leakscope.runner.calls import name_call
from leakscope.types import Status


def test_a_function_goes_by_its_name_and_its_settings_by_value() -> None:
    call = NamedCall.to(workloads.execute_with, settings={"places": ("a", "b"), "secret": "c4n4ry"})
    assert call.function == "sweep_workloads:execute_with"
    found = call({"do": "work"})
    assert found.status is Status.OK
    assert found.record == {"settings": {"places": ["a", "b"], "secret": "c4n4ry"}}, "as JSON gives them back"
    assert "c4n4ry" not in repr(call)
    assert name_call(call) is call
    assert name_call(workloads.execute) == NamedCall("sweep_workloads:execute")


def test_settings_that_are_not_json_are_refused() -> None:
    with pytest.raises(UsageError, match="expected plain JSON"):
        NamedCall.to(workloads.execute_with, settings={"a": object()})


@pytest.mark.parametrize("execute", [lambda spec: workloads.execute(spec), partial(workloads.execute)])
def test_what_has_no_name_is_refused(execute: object) -> None:
    with pytest.raises(UsageError, match="at the top level of a module"):
        name_call(execute)


def test_the_program_itself_is_not_a_module_that_others_can_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workloads.execute_with, "__module__", "__main__")
    with pytest.raises(UsageError, match="got __main__:execute_with; put it into a module of its own"):
        name_call(workloads.execute_with)


@pytest.mark.parametrize("name", ["no_such_module:f", "sweep_workloads:no_such_function"])
def test_a_machine_without_the_function_says_so(name: str) -> None:
    with pytest.raises(UsageError, match=f"cannot import {name}"):
        NamedCall(name).find()
