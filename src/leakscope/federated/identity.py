"""What makes two federated trainings the same one: a training is continued only by itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import fields
from types import FunctionType

from torch import nn

from leakscope.client import digest, run_client
from leakscope.federated.cache import tell
from leakscope.federated.client import Client
from leakscope.federated.experiment import Experiment
from leakscope.networks import copy_network
from leakscope.software import software
from leakscope.tensors import hash_tensors
from leakscope.types import Batch, SharedUpdate

# More rounds continue a training; an aggregator may hold keys, which no file may tell.
_LEFT_OUT = ("rounds", "aggregator", "loss", "task")
# How the files of a training are laid out; what an earlier layout wrote is not read as this one.
_LAYOUT = 2
# Of the examples that a client's step is compared on, at least.
_PROBED = 4


def identify(model: nn.Module, clients: Sequence[Client], test: Batch, experiment: Experiment) -> str:
    """Hash of the network, all examples, the experiment but for its rounds, and the software.

    Losses, tasks and networks of the user's own have no text that tells them whole: what a client sends of a few
    examples is part of the hash.
    """
    settings = {one.name: vars(experiment)[one.name] for one in fields(experiment) if one.name not in _LEFT_OUT}
    content = {
        "layout": _LAYOUT,
        "software": software(),
        "network": [_name(model), hash_tensors(model.state_dict())],
        "clients": [_describe(client) for client in sorted(clients, key=lambda one: one.number)],
        "test": digest(test),
        "settings": {name: tell(name, value) for name, value in settings.items()},
        "named": [_name(experiment.loss), _name(experiment.task), experiment.aggregator.name],
        "probe": _probe(model, clients[0].train, experiment),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _describe(client: Client) -> list[str | None]:
    held_out = None if client.held_out is None else digest(client.held_out)
    return [str(client.number), digest(client.train), held_out, repr(client.poison)]


def _name(value: object) -> str:
    named = value if isinstance(value, FunctionType | type) else type(value)
    return f"{named.__module__}.{named.__qualname__}"


def _probe(model: nn.Module, train: Batch, experiment: Experiment) -> str:
    """Hash of what one client would send of the first examples."""
    count = max(_PROBED, 0 if experiment.local is None else experiment.local.batch_size)
    few = Batch(train.inputs[:count], train.targets[:count], train.bounds)
    sent = run_client(
        experiment.harden(copy_network(model).eval()),
        few,
        defence=experiment.defence,
        local=experiment.local,
        loss=experiment.loss,
        task=experiment.task,
    ).update
    return hash_tensors({**sent.tensors, **sent.buffers}) if isinstance(sent, SharedUpdate) else "sealed"
