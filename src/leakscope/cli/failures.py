"""What an error in leakscope itself leaves behind: a log file that may be sent to a stranger.

It holds types, files, lines and versions. Values of variables are not in it, nor messages of exceptions or words of
the command line, all of which may quote data, names or paths.
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import time
import traceback
from contextvars import ContextVar
from pathlib import Path

from leakscope.version import __version__

_RUN_FOLDER: ContextVar[Path | None] = ContextVar("run_folder", default=None)
_PACKAGE = Path(__file__).resolve().parent.parent
_MOST_ERRORS = 10


def use_run_folder(folder: Path | None) -> None:
    """Say where the command that runs keeps its files: a log goes there, where the folder exists by then."""
    _RUN_FOLDER.set(folder)


def run_folder() -> Path | None:
    """The folder of the command that runs."""
    return _RUN_FOLDER.get()


def write_log(error: BaseException, *, command: str) -> Path | None:
    """Write the log of an internal error; None where no folder can be written to."""
    text = "\n".join([*_facts(command), "", *_describe(error)]) + "\n"
    for folder in _folders():
        try:
            path = folder / f"leakscope-error-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
            # Never through a link that somebody else put there.
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
        except OSError:
            continue
        return path
    return None


def _folders() -> list[Path]:
    """Where a log may go: the run's folder, the user's state folder, the folder for temporary files."""
    run = run_folder()
    found = [run] if run is not None and run.is_dir() else []
    state = Path(os.environ.get("XDG_STATE_HOME") or Path("~/.local/state").expanduser()) / "leakscope"
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        found.append(state)
    except (OSError, RuntimeError):
        pass
    try:
        return [*found, Path(tempfile.gettempdir())]
    except OSError:
        return found


def _facts(command: str) -> list[str]:
    torch = sys.modules.get("torch")
    return [
        f"leakscope {__version__}: an error in leakscope itself, in `leakscope {command}`",
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, "
        f"torch {torch.__version__ if torch else 'not imported'}",
        "Messages, values and the words of the command are left out: they may quote data.",
    ]


def _describe(error: BaseException) -> list[str]:
    """Types and places of an error and of those behind it, the oldest first."""
    chain: list[BaseException] = []
    found: BaseException | None = error
    while found is not None and found not in chain and len(chain) < _MOST_ERRORS:
        chain.append(found)
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)
    return [line for one in reversed(chain) for line in _describe_one(one)]


def _describe_one(error: BaseException) -> list[str]:
    # Not the source line either: that of a user's own function may hold anything.
    frames = traceback.extract_tb(error.__traceback__, limit=-100)
    places = [f'  File "{_name_file(frame.filename)}", line {frame.lineno}, in {frame.name}' for frame in frames]
    return [*places, f"{type(error).__module__}.{type(error).__qualname__}"]


def _name_file(name: str) -> str:
    """A file without the folders above its package: they name the user and the project."""
    path = Path(name)
    if path.is_relative_to(_PACKAGE.parent):
        return path.relative_to(_PACKAGE.parent).as_posix()
    parts = path.parts
    for root in ("site-packages", "dist-packages"):
        if root in parts:
            return "/".join(parts[len(parts) - parts[::-1].index(root) :])
    return path.name
