"""A function as another machine can find it: by name, with settings that are plain JSON."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from leakscope.errors import UsageError
from leakscope.runner.cells import JSON, CellOutcome, Execute, canonical_json


@dataclass(frozen=True)
class NamedCall:
    """An `Execute` that calls `package.module:function` with a spec, and with `settings` by keyword.

    Settings may hold what is private: they are shown by no message.
    """

    function: str
    settings: Mapping[str, JSON] = field(default_factory=dict, repr=False)

    @classmethod
    def to(cls, function: Callable[..., CellOutcome], **settings: JSON) -> NamedCall:
        """The call of a function at the top level of a module.

        Example:
            >>> from leakscope.runner import cells
            >>> NamedCall.to(cells.CellOutcome, seconds=1.0).function
            'leakscope.runner.cells:CellOutcome'
        """
        found = cls(f"{function.__module__}:{function.__qualname__}", json.loads(canonical_json(settings)))
        if function.__module__ == "__main__" or found.find() is not function:
            raise UsageError(
                f"execute must be a function at the top level of a module that other machines can import, got "
                f"{found.function}; put it into a module of its own"
            )
        return found

    def find(self) -> Callable[..., CellOutcome]:
        """Import the function.

        Raises:
            UsageError: there is none of that name on this machine.
        """
        module, _, name = self.function.partition(":")
        try:
            return vars(importlib.import_module(module))[name]
        except (ImportError, KeyError) as error:
            raise UsageError(
                f"cannot import {self.function} ({type(error).__name__}: {error}); execute must be at the top level "
                "of a module that workers can import"
            ) from error

    def __call__(self, spec: Mapping[str, Any]) -> CellOutcome:
        """Run the cell of `spec`."""
        return self.find()(spec, **self.settings)


def name_call(execute: Execute) -> NamedCall:
    """`execute` by name, which a function at the top level of a module has, and a `NamedCall` is.

    Raises:
        UsageError: it is something else, a lambda or a partial for example.
    """
    if isinstance(execute, NamedCall):
        return execute
    try:
        return NamedCall.to(execute)
    except AttributeError as error:
        raise UsageError(
            f"execute must be a function at the top level of a module, or a NamedCall of one with its settings, got "
            f"{type(execute).__name__}"
        ) from error
