"""How clients train, as it is said on the command line: one way for `audit` and `attack`."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leakscope.local_training import LocalTraining


def parse_local(text: str) -> dict[str, Any]:
    """Settings of `LocalTraining` from name=value,…; a value may hold commas itself, as in betas=0.9,0.99."""
    from leakscope.errors import UsageError, suggest
    from leakscope.local_training import LocalTraining

    known = [field.name for field in fields(LocalTraining)]
    found: dict[str, Any] = {}
    for item in re.split(r",(?=[^,=]*=)", text):
        written, equals, value = (part.strip() for part in item.partition("="))
        name = "batch_size" if written == "batch" else written
        if not equals or not value:
            raise UsageError(f"--local: cannot read {item!r}; write name=value,name=value, as in lr=0.01,epochs=2")
        if name not in known:
            raise UsageError(f"--local has no setting {written!r}.{suggest(written, [*known, 'batch'])}")
        if name in found:
            raise UsageError(f"--local gives {name} twice, in {text!r}; give it once")
        found[name] = _parse_value(value)
    if "lr" not in found:
        raise UsageError(f"--local needs the clients' learning rate, got {text!r}; add lr=…")
    return found


def read_local(text: str) -> LocalTraining:
    """The same as a value, checked as a configuration file is."""
    from pydantic import TypeAdapter, ValidationError

    from leakscope.errors import UsageError
    from leakscope.local_training import LocalTraining

    try:
        return TypeAdapter(LocalTraining).validate_python(parse_local(text))
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        raise UsageError(f"--local: {name}: {first['msg']}, got {str(first['input'])[:80]!r}") from error


def _parse_value(text: str) -> Any:
    try:
        # As people write them in a shell and in YAML.
        return {"true": True, "false": False}[text.lower()]
    except KeyError:
        pass
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text
