"""An experiment on Flower's simulation engine, which runs every client in a process of Ray's."""

from __future__ import annotations

import logging
import os
import secrets
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import Strategy
from flwr.simulation import run_simulation
from torch import nn

from leakscope.errors import UsageError
from leakscope.federated.client import Client
from leakscope.federated.experiment import Experiment
from leakscope.federated.federation import Training
from leakscope.flower.client_side import client_app
from leakscope.flower.own_training import client_number
from leakscope.flower.server_side import ExperimentStrategy
from leakscope.types import Batch

# Nobody but this machine reaches the cluster, which has no dashboard.
_LOOPBACK = {"_node_ip_address": "127.0.0.1", "include_dashboard": False}
# Read by Ray when it is imported, and by the processes that it starts. One token for all simulations of a process: Ray
# remembers the first.
_PRIVATE = {
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
    # On Linux, Ray replaces the loopback address by one that other machines reach, unless this is off.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray would run clients at a lower priority than the server that waits for them.
    "RAY_worker_niceness": "0",
}
_LOG = logging.getLogger("flwr")
# Set once a simulation has imported Ray under these settings.
_ray_is_private = threading.Event()


def apps(
    model: nn.Module,
    clients: Sequence[Client],
    test: Batch,
    experiment: Experiment,
    *,
    mods: Sequence[Any] = (),
    wrap: Callable[[ExperimentStrategy], Strategy] | None = None,
    time_limit: float = 3_600.0,
) -> tuple[ServerApp, ClientApp]:
    """The same experiment as `train_federated` plays, as the two apps of Flower.

    The clients are those of a simulation: node i of it is the i-th of `clients`. Where clients are on machines of their
    own, `client_app` and `ExperimentStrategy` are the two sides.

    Args:
        model: The network without the defence; its weights are where training starts.
        clients: The participants, each with a number of its own.
        test: Examples that accuracy and loss are taken on after every round.
        experiment: How to train.
        mods: Client mods, the first outermost.
        wrap: Puts another strategy around the experiment's, such as `Capture` with sends="change".
        time_limit: Seconds to wait for the clients of a round.
    """
    strategy = ExperimentStrategy(model, test, experiment, clients=len(clients), time_limit=time_limit)
    return _server_app(strategy, wrap, time_limit), _client_app(model, clients, test, experiment, mods)


def simulate(
    model: nn.Module,
    clients: Sequence[Client],
    test: Batch,
    experiment: Experiment,
    *,
    mods: Sequence[Any] = (),
    wrap: Callable[[ExperimentStrategy], Strategy] | None = None,
    time_limit: float = 3_600.0,
    cpus_per_client: float = 1.0,
) -> Training:
    """Run the experiment on Flower's simulation engine; arguments as for `apps`.

    The result is that of `train_federated`. What clients keep for themselves stays in Flower: `Training.clients` have
    no memory.

    Raises:
        RoundFailedError: Too few clients completed a round.
    """
    strategy = ExperimentStrategy(model, test, experiment, clients=len(clients), time_limit=time_limit)
    simulate_apps(
        _server_app(strategy, wrap, time_limit),
        _client_app(model, clients, test, experiment, mods),
        clients=len(clients),
        cpus_per_client=cpus_per_client,
    )
    server = strategy.server
    return Training(server.model.eval(), server.network, tuple(strategy.records), tuple(clients), experiment)


def simulate_apps(server_app: ServerApp, client_app: ClientApp, *, clients: int, cpus_per_client: float = 1.0) -> None:
    """Run two apps of Flower's on its simulation engine, on a Ray that only this process reaches.

    Raises:
        UsageError: Ray was imported before, and has already chosen whom it lets in.
    """
    with _private_ray():
        run_simulation(
            server_app=server_app,
            client_app=client_app,
            num_supernodes=clients,
            backend_config={
                "init_args": dict(_LOOPBACK),
                "client_resources": {"num_cpus": cpus_per_client, "num_gpus": 0.0},
            },
        )


@contextmanager
def _private_ray() -> Iterator[None]:
    """The environment in which Flower imports and starts Ray; the caller's returns afterwards."""
    if "ray" in sys.modules and not _ray_is_private.is_set():
        raise UsageError(
            "expected to import Ray itself, to have it listen on loopback and ask for a token, but it was imported in "
            "this process before; simulate before anything imports ray, or in a process of its own"
        )
    _ray_is_private.set()
    before = {name: os.environ.get(name) for name in _PRIVATE}
    os.environ.update(_PRIVATE)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _server_app(
    strategy: ExperimentStrategy, wrap: Callable[[ExperimentStrategy], Strategy] | None, time_limit: float
) -> ServerApp:
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        chosen = strategy if wrap is None else wrap(strategy)
        chosen.start(
            grid=grid,
            initial_arrays=strategy.initial_arrays,
            num_rounds=strategy.server.experiment.rounds,
            timeout=time_limit,
        )

    return app


def _client_app(
    model: nn.Module, clients: Sequence[Client], test: Batch, experiment: Experiment, mods: Sequence[Any]
) -> ClientApp:
    numbers = [client.number for client in clients]
    if not numbers or len(set(numbers)) < len(numbers):
        raise UsageError(f"an experiment needs at least one client, each with its own number, got {numbers}")
    participants = tuple(clients)

    def client_of(context: Context) -> Client:
        return participants[client_number(context)]

    return client_app(model, client_of, experiment, test=test, mods=mods)
