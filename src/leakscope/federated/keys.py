"""What a global model is worth without the clients' own keys and lock layers."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

from torch import Tensor, nn

from leakscope.client import harden
from leakscope.errors import UsageError
from leakscope.federated.evaluation import evaluate
from leakscope.federated.federation import Training
from leakscope.federated.memory import ClientMemory, draw_private
from leakscope.federated.rounds import seed_globally
from leakscope.networks import copy_network
from leakscope.rng import child_seed
from leakscope.types import Batch, Tensors


@dataclass(frozen=True)
class KeyAccuracies:
    """Test accuracy of one global model behind different keys and lock layers.

    Keys are the private buffers of the network, lock layers its private parameters.

    Attributes:
        own: by client: with its key and the lock layers it trained.
        random_key: with a key drawn anew and the client's lock layers, mean over the clients.
        initial_locks: with the client's key and its lock layers as they were before training, mean over the clients.
        random_and_initial: with a key drawn anew and untrained lock layers, as a server could try; the mean likewise.
    """

    own: dict[int, float]
    random_key: float
    initial_locks: float
    random_and_initial: float

    @property
    def mean(self) -> float:
        """Over the clients, each with its own."""
        return fmean(self.own.values())


def evaluate_keys(training: Training, model: nn.Module, test: Batch) -> KeyAccuracies:
    """Test a finished training with each client's key, with random keys and with untrained lock layers.

    `model` is what `train_federated` was given: the untrained lock layers are drawn again from it.

    References:
        Tables 5.1 (mean over the clients) and 5.3 (each client, and a random key with untrained locks) of Ren's thesis.
    """
    experiment, network = training.experiment, training.network
    if not network.private:
        raise UsageError("evaluate_keys needs a defence that keeps keys with the clients; train with key-lock")
    keys = frozenset(name for name, _ in network.client.named_buffers()) & network.private
    own, found = dict[int, float](), {"random_key": [], "initial_locks": [], "random_and_initial": []}
    for client in training.clients:
        start = draw_private(model, network, defence=experiment.defence, client=client.number, seed=experiment.seed)
        drawn = _draw_again(model, training, client=client.number)
        trained = client.memory.private
        own[client.number] = _test(training, test, trained)
        found["random_key"].append(_test(training, test, _join(keys, drawn, trained)))
        found["initial_locks"].append(_test(training, test, _join(keys, trained, start)))
        found["random_and_initial"].append(_test(training, test, _join(keys, drawn, start)))
    return KeyAccuracies(own, **{name: fmean(values) for name, values in found.items()})


def _draw_again(model: nn.Module, training: Training, *, client: int) -> Tensors:
    """What a stranger would draw for itself."""
    seed = child_seed(training.experiment.seed, "random key", client)
    other = harden(copy_network(model), training.experiment.defence, seed=seed).client
    return {**dict(other.named_parameters()), **dict(other.named_buffers())}


def _join(keys: frozenset[str], key_source: Tensors, lock_source: Tensors) -> dict[str, Tensor]:
    return {name: (key_source if name in keys else lock_source)[name].detach() for name in lock_source}


def _test(training: Training, test: Batch, private: Tensors) -> float:
    experiment = training.experiment
    network = copy_network(training.model)
    with seed_globally(network, child_seed(experiment.seed, "keys")):
        memories = [ClientMemory(private=dict(private))]
        return evaluate(network, test, loss=experiment.loss, task=experiment.known_task, memories=memories)[0]
