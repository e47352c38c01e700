"""CKKS keys: sealing in this process, adding up and opening what came from elsewhere in a locked-down one."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from leakscope.errors import MissingExtraError, UsageError, install_line
from leakscope.sealed import ckks_engine
from leakscope.sealed.ckks_engine import DEGREE, HEADROOM_BITS, MOST_BLOCK_BYTES, SCALE_BITS, Engine, split_blocks
from leakscope.sealed.flooding import flood, flooding_deviation
from leakscope.sealed.keys import OpeningKeys, PayloadError, SealingKey, SealingLimits, Values
from leakscope.sealed.opening_count import OpeningCount

SCHEME = "ckks"
USUAL_OPENINGS = 2**17
# Standard deviations that no value of a network is beyond.
_TAIL = 8.0
# Of double precision through two Fourier transforms, for values of magnitude 1.
_ROUNDING = 2.0**-40
_WALL_SECONDS = 300
_CPU_SECONDS = 240
_HEADROOM = 256 * 2**20


def _engine() -> Engine:
    # One for each process and thread: forks and threads would write to the same unnamed file.
    return _engine_of(os.getpid(), threading.get_ident())


@lru_cache(maxsize=8)
def _engine_of(process: int, thread: int) -> Engine:
    try:
        return Engine()
    except ImportError as error:
        raise MissingExtraError(
            f"sealing with CKKS needs the package tenseal; install it {install_line('he')}"
        ) from error


@dataclass(frozen=True)
class CkksSealingKey(SealingKey):
    """SEAL's public key, and how many ciphertexts will be opened in all: the noise of every opening depends on it."""

    public_key: bytes = field(repr=False)
    limits: SealingLimits
    openings: int = USUAL_OPENINGS
    scheme: str = SCHEME

    def __post_init__(self) -> None:
        if self.limits.bound * self.limits.pieces > 2**HEADROOM_BITS:
            raise UsageError(
                f"bound × pieces must be at most 2^{HEADROOM_BITS}, got {self.limits.bound:g} × {self.limits.pieces}; "
                "lower one of them"
            )
        if isinstance(self.openings, bool) or not isinstance(self.openings, int) or self.openings < 1:
            raise UsageError(f"openings must be a whole number of ciphertexts ≥ 1, got {self.openings!r}")

    @property
    def deviation(self) -> float:
        """σ of the noise on an opened mean."""
        return flooding_deviation(DEGREE, 2.0**SCALE_BITS, openings=self.openings)

    @property
    def precision(self) -> float:
        """Eight deviations of the noise, and the rounding of double precision."""
        return _TAIL * self.deviation + self.limits.bound * _ROUNDING

    def encrypt(self, values: Values) -> bytes:
        """One ciphertext for every 8,192 values."""
        return _engine().encrypt(self.public_key, values)

    def check(self, payload: bytes, *, count: int) -> None:
        """Read once, in a process of its own."""
        self.add([payload], [1], count=count)

    def add(self, payloads: Sequence[bytes], numbers: Sequence[int], *, count: int) -> bytes:
        """Σ kᵢ cᵢ, in a process of its own: SEAL is not safe against crafted ciphertexts."""
        for place, payload in enumerate(payloads):
            check_blocks(payload, count=count, place=place)
        total = _run(list(payloads), task="add", numbers=list(numbers), output=_most_bytes(count))
        check_blocks(total, count=count, place=0)
        return total

    def _fields(self) -> dict[str, Any]:
        return {"public_key": base64.b64encode(self.public_key).decode(), "openings": self.openings}


class CkksKeys(OpeningKeys):
    """Both keys, and the count of what was opened with them."""

    def __init__(self, secret_key: bytes, public: CkksSealingKey, *, opened: OpeningCount | None = None) -> None:
        self._secret, self._public = secret_key, public
        self.opened = opened or OpeningCount()

    @classmethod
    def generate(cls, limits: SealingLimits, *, openings: int = USUAL_OPENINGS) -> CkksKeys:
        """New keys from the system's randomness."""
        public, secret = _engine().make_keys()
        return cls(secret, CkksSealingKey(public, limits, openings))

    @property
    def public(self) -> CkksSealingKey:
        """What goes to everyone."""
        return self._public

    def decrypt(self, payload: bytes, *, count: int, pieces: int) -> Values:
        """The mean with noise that hides the error; counted before anything is opened."""
        check_blocks(payload, count=count, place=0)
        public = self._public
        self.opened.spend(_blocks(count), limit=public.openings)
        expected = 8 * DEGREE * _blocks(count)
        raw = _run([self._secret, payload], task="open", numbers=[], output=expected)
        if len(raw) != expected:
            raise PayloadError(0, "malformed", f"expected {expected:,} bytes of opened values, got {len(raw):,}")
        means = np.frombuffer(raw, np.float64)[:count] / pieces
        found = flood(means, public.deviation)
        if not bool(np.all(np.abs(found) <= public.limits.bound + public.precision)):
            raise PayloadError(
                0,
                "out of range",
                "a value is beyond the bound: it was sealed with another key, or a client sealed more than is agreed",
            )
        return found

    def count_at(self, path: Path) -> None:
        """Count what is opened in that file, beginning with what was opened so far."""
        spent, self.opened = self.opened.spent, OpeningCount(path)
        missing = spent - self.opened.spent
        if missing > 0:
            self.opened.spend(missing, limit=self._public.openings)

    def secret_fields(self) -> dict[str, Any]:
        """SEAL's secret key."""
        return {"secret_key": base64.b64encode(self._secret).decode()}


def check_blocks(payload: bytes, *, count: int, place: int) -> None:
    """Refuse a payload that is not as many ciphertexts as `count` values need, before SEAL sees any of it."""
    try:
        found = sum(1 for _ in split_blocks(payload))
    except ValueError as error:
        raise PayloadError(place, "truncated", str(error)) from None
    if found != _blocks(count):
        raise PayloadError(place, "truncated", f"expected {_blocks(count):,} ciphertexts, got {found:,}")


def _blocks(count: int) -> int:
    return -(-count // DEGREE)


def _most_bytes(count: int) -> int:
    return _blocks(count) * (MOST_BLOCK_BYTES + 4)


def _run(parts: list[bytes], *, task: str, numbers: list[int], output: int) -> bytes:
    """What the engine makes of `parts` in a process that can do nothing else."""
    if not Path("/proc/self/statm").exists():
        raise UsageError("ciphertexts of CKKS need process limits that this system lacks; use scheme 'paillier'")
    _engine()
    # Never linked into a folder: the secret key is in one of them.
    with tempfile.TemporaryFile() as target, ckks_engine.UnnamedFile() as source:
        source.write(b"".join(parts))
        job = {
            "sys_path": [os.path.abspath(entry) for entry in sys.path if entry],
            "source": source.descriptor,
            "target": target.fileno(),
            "task": task,
            "numbers": numbers,
            "sizes": [len(part) for part in parts],
            "memory": 2 * sum(map(len, parts)) + 2 * output + _HEADROOM,
            "output": output + MOST_BLOCK_BYTES,
            "seconds": _CPU_SECONDS,
        }
        _wait(job)
        target.seek(0)
        return target.read()


def _wait(job: dict[str, Any]) -> None:
    keep = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "TMPDIR") if name in os.environ}
    try:
        done = subprocess.run(
            [sys.executable, "-I", ckks_engine.__file__, json.dumps(job)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=(job["source"], job["target"]),
            env=keep | {"OMP_NUM_THREADS": "1"},
            timeout=_WALL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise PayloadError(0, "malformed", f"SEAL did not finish within {_WALL_SECONDS} s") from None
    if done.returncode == 0:
        return
    said = done.stderr.decode("utf-8", "replace").strip()[-300:]
    # The engine begins its refusal with the place of what it refused.
    place, _, why = said.partition(" ")
    if done.returncode == ckks_engine.REFUSED and place.isdigit():
        raise PayloadError(int(place), "malformed", why)
    raise PayloadError(0, "malformed", f"the process that reads ciphertexts stopped ({said or done.returncode})")
