"""Standard output and error that cannot change how a command ends.

A reader who leaves early (`leakscope list | head -1`) is no error, and standard error that cannot be written to must
not stop an audit. Standard output that cannot be written to is one: the result was not delivered. Characters that the
terminal's encoding does not have are replaced by what people write instead.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import io
import os
import sys
import unicodedata
from collections.abc import Iterator
from typing import TextIO

from leakscope.errors import StorageError
from leakscope.text import printable

_HANDLER = "leakscope-plain"
_PLAIN = {
    "–": "-",
    "—": "-",
    "−": "-",
    "×": "x",
    "·": "*",
    "±": "+/-",
    "≥": ">=",
    "≤": "<=",
    "≈": "~",
    "∞": "inf",
    "→": "->",
    "²": "^2",
    "‖": "||",
    "∇": "grad ",
    "Σ": "sum ",
    "∑": "sum ",
    "√": "sqrt",
    "⟨": "<",
    "⟩": ">",
    "α": "alpha",
    "β": "beta",
    "ε": "epsilon",
    "λ": "lambda",
    "σ": "sigma",
    "‘": "'",
    "’": "'",
    "“": '"',
    "”": '"',
}


def echo(text: str) -> None:
    """Print lines to standard output, free of what a terminal would obey.

    Click's own `echo` would write UTF-8 to a terminal that asked for ASCII.
    """
    print("\n".join(printable(line, most=len(line)) for line in text.split("\n")))


@contextlib.contextmanager
def safe_streams() -> Iterator[None]:
    """Standard output and error as described above, for the length of a command.

    Raises:
        StorageError: standard output could not be written to.
    """
    codecs.register_error(_HANDLER, _replace)
    before = sys.stdout, sys.stderr
    sys.stdout = _protect(sys.stdout, may_fail=False)
    sys.stderr = _protect(sys.stderr, may_fail=True)
    try:
        yield
        # Here and not when Python ends: that would be exit code 120 and a traceback.
        sys.stdout.flush()
    except OutputError as error:
        raise StorageError(f"standard output cannot be written to ({error.strerror}); nothing else was lost") from error
    finally:
        with contextlib.suppress(OutputError):
            sys.stdout.flush()
        sys.stderr.flush()
        sys.stdout, sys.stderr = before


class OutputError(OSError):
    """Standard output failed."""


class _Outlet(io.RawIOBase):
    """A file descriptor that keeps quiet once its reader has left."""

    def __init__(self, raw: io.RawIOBase, *, may_fail: bool) -> None:
        super().__init__()
        self._raw, self._may_fail, self._failed = raw, may_fail, False

    def write(self, data, /) -> int | None:
        if self._failed:
            return len(data)
        try:
            return self._raw.write(data)
        except OSError as error:
            self._failed = True
            if self._may_fail or error.errno in (errno.EPIPE, errno.ECONNRESET):
                return len(data)
            raise OutputError(error.errno, error.strerror) from error

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self._raw.isatty()

    def fileno(self) -> int:
        return self._raw.fileno()


def _protect(stream: TextIO | None, *, may_fail: bool) -> TextIO:
    """The stream with our treatment of errors; a closed one (`>&-`) swallows what is written."""
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    # With PYTHONUNBUFFERED there is no buffer in between.
    raw = stream.buffer.raw if isinstance(stream.buffer, io.BufferedWriter) else stream.buffer
    if not isinstance(raw, io.FileIO):
        stream.reconfigure(errors=_HANDLER)
        return stream
    with contextlib.suppress(OSError):
        stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_Outlet(raw, may_fail=may_fail)),
        encoding=stream.encoding,
        errors=_HANDLER,
        line_buffering=may_fail or raw is stream.buffer or stream.isatty(),
    )


def _replace(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_plain(mark) for mark in error.object[error.start : error.end]), error.end


def _plain(mark: str) -> str:
    if mark in _PLAIN:
        return _PLAIN[mark]
    ascii_only = unicodedata.normalize("NFKD", mark).encode("ascii", "ignore").decode()
    return ascii_only if ascii_only.isprintable() and ascii_only else "?"
