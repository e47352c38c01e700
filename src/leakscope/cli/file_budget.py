"""`--budget-mb`: how much memory the content of one file may take."""

from __future__ import annotations

import os
from typing import Any

import typer

from leakscope.errors import UsageError

# As `leakscope.files.opening` reads it; named here again, because that module loads torch.
_VARIABLE = "LEAKSCOPE_BUDGET_MB"
_MOST_MB = 2**20


def budget_option() -> Any:
    """The option; it holds for the command and for the workers it starts."""
    return typer.Option(
        None,
        "--budget-mb",
        help="Most memory that one file, a reference network or simulated steps may take, in MB (default 2048).",
        callback=_use_budget,
    )


def _use_budget(context: typer.Context, value: float | None) -> float | None:
    if value is None:
        return None
    if not 0 < value <= _MOST_MB:
        raise UsageError(f"--budget-mb must be a number of megabytes above 0 and up to {_MOST_MB:,}, got {value}")
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = repr(value)

    def restore() -> None:
        if before is None:
            os.environ.pop(_VARIABLE, None)
        else:
            os.environ[_VARIABLE] = before

    context.call_on_close(restore)
    return value
