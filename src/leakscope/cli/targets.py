"""Files that a command is asked to write: checked before hours of work, written whole at the end."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from leakscope.errors import StorageError, UsageError

if TYPE_CHECKING:
    from leakscope.report import Summary


def check_target(path: Path, option: str) -> None:
    """Refuse a file that could not be written before hours of attacks, and create nothing yet."""
    told = f"{option} {str(path)!r}"
    try:
        if path.is_symlink() or (path.exists() and not path.is_file()):
            kind = "a symbolic link" if path.is_symlink() else "a folder" if path.is_dir() else "something else"
            raise StorageError(f"{told}: expected a plain file or none, got {kind}; choose another name")
        nearest = next(folder for folder in path.absolute().parents if folder.exists())
        if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
            raise StorageError(f"{told}: cannot write into {str(nearest)!r}; choose another place")
    except StorageError:
        raise
    except ValueError as error:
        raise UsageError(f"{told}: {error}; choose another name") from error
    except OSError as error:
        raise StorageError(f"{told}: cannot be written ({error.strerror}); choose another name") from error


def write_build_files(
    summary: Summary, *, junit: Path | None, sarif: Path | None, location: Path, exit_code: int
) -> list[str]:
    """Write what build servers read, and say in lines what was written.

    SARIF only of a run that ended: a code host takes a file without results for "nothing was found".
    """
    from leakscope.files import write_atomic
    from leakscope.report.junit import junit_xml
    from leakscope.report.sarif import sarif_json

    lines = []
    if junit is not None:
        write_atomic(junit, junit_xml(summary))
        lines.append(f"junit: {junit}")
    if sarif is not None and exit_code in (0, 1, 3):
        write_atomic(sarif, sarif_json(summary, location=_relative(location), exit_code=exit_code))
        lines.append(f"sarif: {sarif}")
    elif sarif is not None:
        lines.append(f"sarif: not written, the run did not end; {sarif} is as it was")
    return lines


def _relative(path: Path) -> str:
    """The path below the working folder, or the name alone: other folders are nobody's business."""
    try:
        return path.resolve().relative_to(Path.cwd()).as_posix()
    except (ValueError, OSError):
        return path.name
