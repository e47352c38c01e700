"""The folder of a Ray cluster that we start: private, with its token, and gone afterwards with all that belongs to it.

A guard, a process of its own, sees to that also where the run is killed.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from leakscope.errors import LeakscopeError
from leakscope.runner import lock, ray_guard
from leakscope.runner.ray_guard import TOKEN, end_processes

_PREFIX = "leakscope-ray-"
# Not the folder that TMPDIR names: with a longer path, Ray's sockets have names that no socket may have.
_PARENT = Path("/tmp")

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
            with _guarded(folder):
                yield folder
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
                end_processes(folder)
                shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _guarded(folder: Path) -> Iterator[None]:
    """Have a process of its own wait for our end: it ends the cluster, and removes its folder, whatever ended us."""
    # By its path, so that it imports nothing; apart from our terminal, so that Ctrl-C is for us alone.
    command = [sys.executable, "-I", ray_guard.__file__, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as process:
        try:
            yield
        finally:
            end_processes(folder)
            # Not for it to do: we live, and have Ray's logs open like its processes.
            process.kill()
