"""Ends what is left of a Ray cluster: as functions, and as a small program that outlives a killed run to do so.

Every process of the cluster inherits the path of its token, and has logs or sockets open in its folder: by these it is
found. Some of Ray's own notice late, or not at all, that nobody needs them any more.

Started as a program by its path, with the folder as argument, it imports nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

TOKEN = "RAY_AUTH_TOKEN_PATH"
_MOST_PASSES = 50


def end_processes(folder: Path) -> None:
    """Kill what still runs of the cluster whose folder this is, until nothing does."""
    for _ in range(_MOST_PASSES):
        found = [entry for entry in Path("/proc").glob("[0-9]*") if _belongs(entry, folder)]
        if not found:
            return
        for entry in found:
            with contextlib.suppress(OSError):
                os.kill(int(entry.name), signal.SIGKILL)
        time.sleep(0.1)


def _belongs(process: Path, folder: Path) -> bool:
    try:
        if int(process.name) == os.getpid():
            return False
        # Some of Ray's processes write their title over their environment.
        if f"{TOKEN}={folder / 'token'}".encode() in (process / "environ").read_bytes().split(b"\0"):
            return True
        # A lock is held by the run itself, and outside the folder that Ray has for its own.
        return any(_target(file).startswith(f"{folder}/r/") for file in (process / "fd").iterdir())
    except OSError:
        return False


def _target(file: Path) -> str:
    try:
        return os.readlink(file)
    except OSError:
        return ""


def guard(folder: Path) -> None:
    """Wait until the run ends, however it does, which closes our standard input; then leave nothing of its cluster."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    end_processes(folder)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    guard(Path(sys.argv[1]))
