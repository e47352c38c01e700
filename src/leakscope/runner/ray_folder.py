"""The folder of a Ray cluster that we start: private, with its token, and gone afterwards with all that belongs to it.

Every process of the cluster inherits the path of its token, and has logs or sockets open in the folder: by these it is
found when it outlives the cluster.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from leakscope.errors import LeakscopeError
from leakscope.runner import lock

_PREFIX = "leakscope-ray-"
# Not the folder that TMPDIR names: with a longer path, Ray's sockets have names that no socket may have.
_PARENT = Path("/tmp")
TOKEN = "RAY_AUTH_TOKEN_PATH"

# Read by Ray when it is imported, and by the processes that it starts.
_SETTINGS = {
    "RAY_AUTH_MODE": "token",
    # On Linux, Ray replaces the loopback address by one that other machines reach, unless this is off.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    # What a cell may use is limited as in a process; Ray would count the memory of other programs too.
    "RAY_memory_monitor_refresh_ms": "0",
    # A worker's end is the end of what its cell has started.
    "RAY_process_group_cleanup_enabled": "1",
    # Ray's workers make way for every other program unless told: a cell would wait for ever on a busy machine.
    "RAY_worker_niceness": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


@contextmanager
def cluster_folder() -> Iterator[Path]:
    """A folder of mode 0700 with the file `token` of mode 0600; afterwards both are gone, and whoever used them."""
    _remove_abandoned()
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_PARENT))
    token = folder / "token"
    try:
        with lock.hold(folder / "lock"):
            with open(os.open(token, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(secrets.token_hex(32))
            try:
                yield folder
            finally:
                _end_processes(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def cluster_environment(folder: Path) -> Iterator[None]:
    """The environment in which Ray is imported and started; the caller's returns afterwards."""
    settings = {**_SETTINGS, TOKEN: str(folder / "token")}
    # Either would come before the file.
    before = {name: os.environ.pop(name, None) for name in (*settings, "RAY_AUTH_TOKEN", "RAY_ADDRESS")}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _remove_abandoned() -> None:
    """Remove folders of runs that were killed: their processes are gone, and nobody holds their locks."""
    for folder in _PARENT.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError, LeakscopeError):
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            with lock.hold(folder / "lock"):
                _end_processes(folder)
                shutil.rmtree(folder, ignore_errors=True)


def _end_processes(folder: Path) -> None:
    """Kill what still runs of the cluster whose folder this is."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int(entry.name) != os.getpid() and _belongs(entry, folder):
                os.kill(int(entry.name), signal.SIGKILL)


def _belongs(process: Path, folder: Path) -> bool:
    # Some of Ray's processes write their title over their environment.
    if f"{TOKEN}={folder / 'token'}".encode() in (process / "environ").read_bytes().split(b"\0"):
        return True
    return any(_target(file).startswith(f"{folder}/") for file in (process / "fd").iterdir())


def _target(file: Path) -> str:
    try:
        return os.readlink(file)
    except OSError:
        return ""
