"""Workers that are actors of a Ray cluster.

Ray restarts and repeats nothing here: what becomes of a cell whose actor died is decided by the sweep, as it is for
processes.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Container, Mapping, Sequence
from typing import Any

from leakscope.runner.calls import name_call
from leakscope.runner.cells import Execute
from leakscope.runner.frames import pack_message
from leakscope.runner.ray_actor import CellActor, pack_start
from leakscope.runner.ray_cluster import RayCluster, first_line, ray_errors
from leakscope.runner.workers import Worker, WorkerDied, WorkerPool

_FETCH_SECONDS = 60.0
_BURIAL_SECONDS = 10.0


class RayWorker(Worker):
    """One actor, and the answer that it owes."""

    def __init__(self, library: Any, actor: Any, *, start: bytes, arrived: Container[Any]) -> None:
        """Of `actor`, which gets the message `start` first; its pool keeps up which answers have `arrived`."""
        super().__init__()
        self._ray = library
        self._actor = actor
        self._arrived = arrived
        self._owed = actor.start.remote(start)

    @property
    def awaited(self) -> Any:
        """The answer that is owed."""
        return self._owed

    def _send(self, request: Mapping[str, Any]) -> None:
        self._owed = self._actor.run.remote(pack_message(request))

    def _receive(self) -> bytes | None:
        if self._owed is None or self._owed not in self._arrived:
            return None
        owed, self._owed = self._owed, None
        problems = self._ray.exceptions
        try:
            return self._ray.get(owed, timeout=_FETCH_SECONDS)
        except problems.OutOfMemoryError:
            raise WorkerDied("stopped by Ray, as its node was out of memory", hungry=True) from None
        except problems.RayError as error:
            how = "died" if self.private_mb is not None else f"died at its start: {first_line(error)}"
            raise WorkerDied(how) from None

    def kill(self) -> None:
        """End the actor; its process ends what the cell has started."""
        # A cluster that is gone has no actors either.
        with contextlib.suppress(Exception):
            self._ray.kill(self._actor, no_restart=True)
            if self._owed is not None:
                self._ray.wait([self._owed], timeout=_BURIAL_SECONDS)


class RayPool(WorkerPool):
    """Starts actors that run `execute`, which every node imports by its name."""

    remedy = "Every node needs leakscope, the module of execute, and a free processor for each of its workers"

    def __init__(self, execute: Execute, cluster: RayCluster) -> None:
        """On `cluster`, which `close` closes."""
        self._call = name_call(execute)
        self._cluster = cluster
        self._arrived: set[Any] = set()

    def start(self) -> Worker:
        """Start an actor. The first one also starts, or connects, the cluster."""
        library = self._cluster.library
        # Spread: memory is what a node runs out of first.
        options = {"num_cpus": 1, "max_restarts": 0, "max_task_retries": 0, "scheduling_strategy": "SPREAD"}
        with ray_errors("cannot start a worker on Ray"):
            actor = library.remote(**options)(CellActor).remote()
            return RayWorker(library, actor, start=pack_start(self._call), arrived=self._arrived)

    def wait(self, workers: Sequence[Worker], *, seconds: float) -> None:
        """Sleep until an answer has come."""
        owed = [worker.awaited for worker in workers if worker.awaited is not None]
        if not owed:
            time.sleep(seconds)
            return
        library = self._cluster.library
        self._arrived.clear()
        with ray_errors("the connection to Ray was lost"):
            if library.wait(owed, num_returns=1, timeout=seconds)[0]:
                # All that are there, in one question: one for each of hundreds of workers takes longer than a cell.
                self._arrived.update(library.wait(owed, num_returns=len(owed), timeout=0)[0])

    def close(self) -> None:
        """Close the cluster: one of ours ends, another goes on."""
        self._cluster.close()
