"""What a sweep may use."""

from __future__ import annotations

from dataclasses import dataclass

from leakscope.errors import UsageError

# Below this, a worker has no room for a cell besides itself.
_HEADROOM_MB = 32


@dataclass(frozen=True)
class Limits:
    """What a sweep may use: processes, seconds per cell, megabytes of all workers together, seconds in all."""

    workers: int = 1
    timeout: float | None = None
    memory_mb: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise UsageError(f"workers must be ≥ 1, got {self.workers}")
        if self.timeout is not None and not self.timeout > 0:
            raise UsageError(f"timeout must be > 0 seconds or None, got {self.timeout}")
        if self.memory_mb is not None and self.memory_mb < 1:
            raise UsageError(f"memory_mb must be ≥ 1 or None, got {self.memory_mb}")
        if self.seconds is not None and not self.seconds > 0:
            raise UsageError(f"seconds must be > 0 or None, got {self.seconds}")

    def share_mb(self, *, alone: bool) -> int | None:
        """What one worker may use: an equal share, or everything when it runs alone."""
        if self.memory_mb is None:
            return None
        return self.memory_mb if alone else self.memory_mb // self.workers

    def check_share(self, own_mb: float) -> None:
        """Refuse a share that a worker process of `own_mb` fills before its first cell."""
        share = self.share_mb(alone=False)
        if share is not None and share < own_mb + _HEADROOM_MB:
            least = self.workers * (int(own_mb) + 1 + _HEADROOM_MB)
            raise UsageError(
                f"memory_mb={self.memory_mb} gives each of {self.workers} workers {share} MB, but a worker alone "
                f"needs {own_mb:.0f} MB; allow {least} MB or more, or use fewer workers"
            )
