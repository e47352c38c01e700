"""A Ray cluster: started for the run on this machine, or one that exists. The only file that imports Ray."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from leakscope.errors import LeakscopeError, MissingExtraError, UsageError
from leakscope.execution import WITHOUT_RAY
from leakscope.runner.ray_folder import cluster_environment, cluster_folder

_LOOPBACK = "127.0.0.1"
# Answers pass through this store one by one; what does not fit is kept on disk.
_STORE_BYTES = 256 << 20
_STARTS = 3


class RayFailed(UsageError):
    """Ray did not do what it was asked for."""


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
        for _ in range(_STARTS - 1):
            # Ray gives itself 30 s, too little on a machine that is busy.
            with contextlib.suppress(RayFailed):
                return self._start()
        return self._start()

    def _start(self) -> Any:
        with ExitStack() as held:
            folder = held.enter_context(cluster_folder())
            with cluster_environment(folder):
                library = _import_ray()
                _require_token()
                # Also where starting is interrupted, or fails half way.
                held.callback(library.shutdown)
                held.enter_context(_without_remarks())
                with ray_errors("cannot start Ray on this machine"):
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
        with ray_errors(f"cannot connect to {self._address}"):
            library.init(self._address, log_to_driver=False, logging_level=logging.ERROR)
            processors = int(library.cluster_resources().get("CPU", 0))
        if processors < self._workers:
            library.shutdown()
            raise UsageError(
                f"{self._address} has {processors} processors, too few for {self._workers} workers of one each; "
                "use fewer workers"
            )
        return library


def _import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError(WITHOUT_RAY) from error
    if ray.is_initialized():
        raise UsageError("Ray is in use in this process already; run leakscope in a process of its own")
    return ray


@contextmanager
def _without_remarks() -> Iterator[None]:
    """Keep Ray from printing what it thinks of a dead worker to standard output, where JSON may be promised."""
    from ray._private import worker

    before, worker.print_to_stdstream = worker.print_to_stdstream, _ignore
    try:
        yield
    finally:
        worker.print_to_stdstream = before


def _ignore(*_: object, **__: object) -> None:
    return


def _require_token() -> None:
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
def ray_errors(problem: str) -> Iterator[None]:
    """Turn what Ray raises into one sentence."""
    try:
        yield
    except LeakscopeError:
        raise
    # Of many unrelated types.
    except Exception as error:
        raise RayFailed(
            f"{problem} ({first_line(error)}); what was finished before is intact, and the same command continues"
        ) from error


def first_line(error: Exception) -> str:
    """What an exception of Ray says, without the pages that follow."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:200]
