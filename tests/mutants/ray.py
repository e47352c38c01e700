"""Wrong rules between the sweep and its workers, and around a cluster of its own."""

from __future__ import annotations

from mutants.mutant import Mutant

_WORKERS = ("runner/test_workers.py",)
_FOLDER = ("runner/test_ray_folder.py",)
_CALLS = ("runner/test_calls.py",)
_LIMITS = ("audits/test_on_ray.py",)

MUTANTS = (
    Mutant(
        "a worker that died of hunger is tried again among others",
        "runner/dispatch.py",
        "alone=job.alone or death.hungry",
        "alone=job.alone",
        _WORKERS,
    ),
    Mutant(
        "hunger alone is an error like any other",
        "runner/dispatch.py",
        "elif death.hungry:",
        "elif False:",
        _WORKERS,
    ),
    Mutant(
        "a worker that refuses is waited for",
        "runner/workers.py",
        'raise UsageError(header["refused"])',
        "continue",
        _WORKERS,
    ),
    Mutant(
        "workers stay when the sweep has ended",
        "runner/dispatch.py",
        "        worker.kill()\n",
        "",
        _WORKERS,
    ),
    Mutant(
        "the token may be read by others",
        "runner/ray_folder.py",
        "os.O_EXCL, 0o600)",
        "os.O_EXCL, 0o644)",
        _FOLDER,
    ),
    Mutant(
        "a cluster without authentication",
        "runner/ray_folder.py",
        '"RAY_AUTH_MODE": "token",',
        '"RAY_AUTH_MODE": "disabled",',
        _FOLDER,
    ),
    Mutant(
        "a token from the environment comes before the file",
        "runner/ray_folder.py",
        '(*settings, "RAY_AUTH_TOKEN", "RAY_ADDRESS")',
        "settings",
        _FOLDER,
    ),
    Mutant(
        "processes of other clusters are ended, too",
        "runner/ray_guard.py",
        "return any(_target",
        "return TOKEN.encode() in (process / 'environ').read_bytes() or any(_target",
        _FOLDER,
    ),
    Mutant(
        "what outlives a cluster stays",
        "runner/ray_guard.py",
        "os.kill(int(entry.name), signal.SIGKILL)",
        "pass",
        _FOLDER,
    ),
    Mutant(
        "folders of living runs are removed",
        "runner/ray_folder.py",
        '            with lock.hold(folder / "lock"):\n                end',
        "            if True:\n                end",
        _FOLDER,
    ),
    Mutant(
        "settings are shown",
        "runner/calls.py",
        "field(default_factory=dict, repr=False)",
        "field(default_factory=dict)",
        _CALLS,
    ),
    Mutant(
        "a lambda goes by its name",
        "runner/calls.py",
        " or found.find() is not function",
        "",
        _CALLS,
    ),
    Mutant(
        "the memory of this machine for that of a cluster",
        "audits/limits.py",
        "0 if is_elsewhere(on) else default_memory_mb(workers)",
        "default_memory_mb(workers)",
        _LIMITS,
    ),
)
