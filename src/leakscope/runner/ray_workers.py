"""Workers that are actors of a Ray cluster: one that is started for the run on this machine, or one that exists.

The only file that imports Ray. Ray restarts and repeats nothing here: what becomes of a cell whose actor died is
decided by the sweep, as it is for processes.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from leakscope.errors import LeakscopeError, MissingExtraError, UsageError
from leakscope.execution import WITHOUT_RAY
from leakscope.runner.calls import name_call
from leakscope.runner.cells import Execute
from leakscope.runner.frames import pack_message
from leakscope.runner.ray_actor import CellActor, pack_start
from leakscope.runner.ray_folder import cluster_environment, cluster_folder
from leakscope.runner.workers import Worker, WorkerDied, WorkerPool

_LOOPBACK = "127.0.0.1"
# Answers pass through this store one by one; what does not fit is kept on disk.
_STORE_BYTES = 256 << 20
_FETCH_SECONDS = 60.0
_BURIAL_SECONDS = 10.0


class RayCluster(ABC):
    """A cluster, connected when it is first needed."""

    def __init__(self) -> None:
        self._library: Any = None

    @property
    def library(self) -> Any:
        """The module `ray`, connected."""
        if self._library is None:
            with _own_handlers():
                self._library = self._connect()
        return self._library

    @abstractmethod
    def _connect(self) -> Any:
        """Import Ray and connect it."""

    def close(self) -> None:
        """Disconnect."""
        if self._library is not None:
            self._library.shutdown()
            self._library = None


class LocalCluster(RayCluster):
    """A cluster on this machine that lives as long as the run: reachable from here alone, and only with its token."""

    def __init__(self, workers: int) -> None:
        """For so many `workers`."""
        super().__init__()
        self._workers = workers
        self._held = ExitStack()

    def _connect(self) -> Any:
        with ExitStack() as held:
            folder = held.enter_context(cluster_folder())
            with cluster_environment(folder):
                library = _import_ray()
                _require_token(library)
                # Also where starting is interrupted, or fails half way.
                held.callback(library.shutdown)
                with _ray_errors("cannot start Ray on this machine"):
                    library.init(
                        address="local",
                        num_cpus=self._workers,
                        num_gpus=0,
                        include_dashboard=False,
                        log_to_driver=False,
                        logging_level=logging.ERROR,
                        object_store_memory=_STORE_BYTES,
                        # One further down: Ray opens its own folder to everybody.
                        _temp_dir=str(folder / "r"),
                    )
            _require_loopback(library)
            self._held = held.pop_all()
        return library

    def close(self) -> None:
        """Stop the cluster, and remove all it wrote."""
        self._library = None
        self._held.close()


class ExistingCluster(RayCluster):
    """A cluster that others started and that goes on without us."""

    def __init__(self, address: str, *, workers: int) -> None:
        """At `address`, ray://host:port, with at least so many processors as there are to be `workers`."""
        super().__init__()
        self._address = address
        self._workers = workers

    def _connect(self) -> Any:
        library = _import_ray()
        with _ray_errors(f"cannot connect to {self._address}"):
            library.init(self._address, log_to_driver=False, logging_level=logging.ERROR)
            processors = int(library.cluster_resources().get("CPU", 0))
        if processors < self._workers:
            library.shutdown()
            raise UsageError(
                f"{self._address} has {processors} processors, too few for {self._workers} workers of one each; "
                "use fewer workers"
            )
        return library


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
            how = "died" if self.private_mb is not None else f"died at its start: {_first_line(error)}"
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
        with _ray_errors("cannot start a worker on Ray"):
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
        with _ray_errors("the connection to Ray was lost"):
            if library.wait(owed, num_returns=1, timeout=seconds)[0]:
                # All that are there, in one question: one for each of hundreds of workers takes longer than a cell.
                self._arrived.update(library.wait(owed, num_returns=len(owed), timeout=0)[0])

    def close(self) -> None:
        """Close the cluster: one of ours ends, another goes on."""
        self._cluster.close()


def _import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError(WITHOUT_RAY) from error
    if ray.is_initialized():
        raise UsageError("Ray is in use in this process already; run leakscope in a process of its own")
    return ray


def _require_token(library: Any) -> None:
    """Refuse a Ray that was imported before it could be told to ask for a token."""
    from ray import _raylet

    if _raylet.get_authentication_mode() != _raylet.AuthenticationMode.TOKEN:
        raise UsageError(
            "Ray was imported in this process before leakscope could switch its authentication on; run leakscope in a "
            "process of its own, or set RAY_AUTH_MODE=token before the first import"
        )
    # That of an earlier run of this process is no longer valid.
    _raylet.AuthenticationTokenLoader.instance().reset_cache()


def _require_loopback(library: Any) -> None:
    found = {node["NodeManagerAddress"] for node in library.nodes()}
    if found != {_LOOPBACK}:
        raise UsageError(
            f"expected Ray to listen on {_LOOPBACK} alone, got {', '.join(sorted(found))}: it was imported in this "
            "process before leakscope could tell it; run leakscope in a process of its own"
        )


@contextmanager
def _own_handlers() -> Iterator[None]:
    """Ray takes SIGTERM for itself when it starts; here it stays with whoever had it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    except SystemExit as stop:
        # How Ray ends a process that gets the signal meanwhile.
        raise SystemExit(128 + signal.SIGTERM if stop.code == signal.SIGTERM else stop.code) from None
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)


@contextmanager
def _ray_errors(problem: str) -> Iterator[None]:
    """Turn what Ray raises into one sentence."""
    try:
        yield
    except LeakscopeError:
        raise
    # Of many unrelated types.
    except Exception as error:
        raise UsageError(
            f"{problem} ({_first_line(error)}); what was finished before is intact, and the same command continues"
        ) from error


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:200]
