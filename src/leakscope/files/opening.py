"""Opening a file that may come from anyone: regular files only, bounded, every failure one typed error."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Protocol

from leakscope.errors import BadInputError, UsageError
from leakscope.regular_files import follow_links as follow_links  # readers know these five from here
from leakscope.regular_files import open_regular, path_text, report_damage
from leakscope.regular_files import show as show

if TYPE_CHECKING:
    from torch import Tensor

BUDGET_VARIABLE = "LEAKSCOPE_BUDGET_MB"
_BUDGET_MB = 2048
# 1 TB.
_MOST_MB = 2**20


class Stream(Protocol):
    """Anything that fills a buffer: a file or one member of a zip archive."""

    def readinto(self, buffer: memoryview, /) -> int:
        """Put bytes into `buffer`; return how many."""
        ...


@dataclass(frozen=True)
class ByteSource:
    """One opened input file, its size, and how many bytes its tensors may occupy."""

    path: str
    file: BinaryIO
    size: int
    budget: int

    def error(self, problem: str, *, tensor: str | None = None) -> BadInputError:
        """Return the one error readers raise: file, tensor, expected and actual, what to do."""
        where = "" if tensor is None else f", tensor {show(tensor)}"
        return BadInputError(f"{show(self.path)}{where}: {problem}")

    def read(self, offset: int, count: int) -> bytes:
        """Return exactly `count` bytes from `offset`."""
        self.file.seek(offset)
        data = self.file.read(count)
        if len(data) != count:
            raise self.error(f"expected {count} bytes at offset {offset}, got {len(data)}; the file is cut short")
        return data

    def check_total(self, total: int) -> None:
        """Refuse tensors that together need more memory than the budget."""
        if total > self.budget:
            raise self.error(
                f"tensors need {total:,} bytes, the budget is {self.budget:,}; "
                "pass a larger budget_mb (--budget-mb) if the file is meant to be this large"
            )


def fill(tensor: Tensor, stream: Stream) -> int:
    """Read bytes of `stream` into the contiguous `tensor`; return how many were missing."""
    if tensor.numel() == 0:
        return 0
    # Imported here: a configuration is opened without waiting for torch.
    import torch

    view = memoryview(tensor.reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]
    done = 0
    while done < len(view):
        got = stream.readinto(view[done:])
        if not got:
            break
        done += got
    return len(view) - done


def budget_bytes(budget_mb: float | None = None) -> int:
    """Return the memory budget in bytes: what is given, else what LEAKSCOPE_BUDGET_MB says, else 2 GiB.

    The variable is how the command line tells its workers: a limit on memory is not part of what a cell computes.
    """
    said = os.environ.get(BUDGET_VARIABLE) if budget_mb is None else None
    try:
        megabytes = float(said) if said else _BUDGET_MB if budget_mb is None else budget_mb
    except ValueError:
        megabytes = float("nan")
    if not 0 < megabytes <= _MOST_MB:
        raise UsageError(
            f"{BUDGET_VARIABLE if said else 'budget_mb'} must be a number of megabytes above 0 and up to {_MOST_MB:,}, "
            f"got {show(str(budget_mb if said is None else said))}"
        )
    return int(megabytes * 2**20)


@contextlib.contextmanager
def open_source(path: str | os.PathLike[str], *, budget_mb: float | None = None) -> Iterator[ByteSource]:
    """Open a regular file for reading; turn every kind of damage into a `BadInputError`."""
    budget = budget_bytes(budget_mb)
    name = path_text(path)
    with report_damage(name), open_regular(name) as file:
        size = os.fstat(file.fileno()).st_size
        if size == 0:
            raise BadInputError(f"{show(name)}: expected tensors, got an empty file; write or copy it again")
        yield ByteSource(name, file, size, budget)


@contextlib.contextmanager
def open_bytes(data: bytes, *, name: str) -> Iterator[ByteSource]:
    """As `open_source`, for the content of a file that was read already."""
    with report_damage(name):
        yield ByteSource(name, io.BytesIO(data), len(data), len(data))
