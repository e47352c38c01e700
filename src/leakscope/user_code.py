"""The user's own code, named `package.module:function`.

It runs only where the caller says that the user asked for it on the command line: a configuration
file, which may come from anyone, never starts code. Whatever such code does wrong ends in one
`UsageError` of one line.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from leakscope.errors import LeakscopeError, UsageError


def is_code(name: str) -> bool:
    """Whether `name` has the form `package.module:function`; a path never has it."""
    module, colon, function = name.partition(":")
    return bool(colon) and not any(sign in module + function for sign in ("/", "\\")) and not os.path.exists(name)


def check_findable(name: str) -> None:
    """Refuse `package.module:function` whose package is nowhere, without importing anything."""
    package = name.partition(":")[0].partition(".")[0]
    try:
        # The working folder counts, as it does when the function is imported.
        folder = importlib.machinery.PathFinder.find_spec(package, [os.getcwd()])
        # What has no name is told by the import itself.
        found = (
            not package or package in sys.modules or folder is not None or importlib.util.find_spec(package) is not None
        )
    except (ImportError, ValueError):
        found = False
    if not found:
        raise UsageError(
            f"cannot import {name!r}: ModuleNotFoundError: No module named {package!r}; expected "
            "package.module:function, importable from the working folder"
        )


def import_function(name: str, *, allow_code: bool, expected: str) -> Callable[[], Any]:
    """Return the function that `name` stands for, without calling it.

    Args:
        name: `package.module:function`, importable from the working folder.
        allow_code: Whether the user named it on the command line; without that nothing is imported.
        expected: What the function should be, as a phrase for messages.
    """
    if not allow_code:
        raise UsageError(
            f"{name!r} is code, and code runs only when it is named on the command line, never from a "
            "configuration file; pass it as an option"
        )
    module_name, _, function_name = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    with report_errors(f"cannot import {name!r}", f"expected {expected}, importable from the working folder"):
        function = getattr(importlib.import_module(module_name), function_name)
    if not callable(function):
        raise UsageError(f"{name!r} cannot be called, it is of type {type(function).__name__}; expected {expected}")
    return function


def call(name: str, function: Callable[[], Any], *, expected: str) -> Any:
    """Call a function of the user's; an error in it becomes a `UsageError` that names its line."""
    with report_errors(f"{name!r} cannot be called", f"expected {expected}"):
        return function()


@contextlib.contextmanager
def report_errors(problem: str, remedy: str) -> Iterator[None]:
    """Turn every error of the user's code into one line; what it prints goes to standard error."""
    try:
        # Standard output may be promised to hold JSON and nothing else.
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except LeakscopeError:
        raise
    # SystemExit too: a script's own exit code would be read as the result of an audit.
    except (Exception, SystemExit) as error:
        raise UsageError(f"{problem}: {describe_error(error)}; {remedy}") from error


def describe_error(error: BaseException) -> str:
    """Type, message and place of an error in one line: no traceback will be shown."""
    here = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename.startswith(os.getcwd() + os.sep)
        and frame.filename != __file__
        and "site-packages" not in frame.filename
    ]
    place = f" ({os.path.relpath(here[-1].filename)}, line {here[-1].lineno})" if here else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())}{place}"
