"""A client's training run by leakscope inside Flower: what defences need that act before an update is finished."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flwr.app import ArrayRecord, Context
from torch import Tensor, nn

from leakscope.client import ClientRun, ClientStep, check_targets, client_generator, harden
from leakscope.defence import Defence, Hardened
from leakscope.errors import UsageError
from leakscope.flower.records import load_arrays, to_record, to_tensors
from leakscope.registry import as_defence
from leakscope.rng import child_seed
from leakscope.tasks import Task
from leakscope.types import Batch, LocalTraining, Loss

# Where a client keeps what never leaves it, from round to round: Flower holds it in the client's own Context.
PRIVATE = "leakscope.private"


@dataclass(frozen=True)
class OwnTraining:
    """How a client trains, in place of the app's own training function.

    Attributes:
        model: builds the network as it is without a defence; weights come from the server.
        data: the client's examples of a round, from its Context; `node_config["partition-id"]` says which it is.
        local: local training; None shares one gradient, which the server's strategy must then expect.
        loss: what clients train with unless the defence brings its own; by default that of the task.
        task: what the network is for, by default classification.
    """

    model: Callable[[], nn.Module]
    data: Callable[[Context], Batch]
    local: LocalTraining | None = None
    loss: Loss | None = None
    task: Task | None = None

    def run(
        self,
        received: dict[str, Tensor],
        context: Context,
        *,
        defence: Defence,
        client: int,
        seed: int,
        turn: int,
        held_back: dict[str, Tensor],
    ) -> tuple[ClientRun, Batch]:
        """Train on what was handed out; parameters that never leave the client stay in its Context."""
        own = seed if client == 0 else child_seed(seed, "private", client)
        network = harden(self.model(), defence, seed=own)
        load_arrays(network.client, {**_private_state(network, context), **received})
        network.client.train()
        batch = self.data(context)
        check_targets(network.client, batch, own_loss=network.loss is not None, task=self.task)
        step = ClientStep.of(network, defence=defence, local=self.local, loss=self.loss, task=self.task)
        rng = client_generator(child_seed(seed, "flower", client, turn), batch)
        run = step.run(network.client, batch, rng, held_back=held_back)
        if network.private:
            self._keep_private(network, run, context)
        return run, batch

    def _keep_private(self, network: Hardened, run: ClientRun, context: Context) -> None:
        if self.local is None:
            raise UsageError(
                f"{', '.join(sorted(network.private)[:2])} … stay with the client, which must train them itself; "
                "give OwnTraining(local=LocalTraining(…))"
            )
        state = network.client.state_dict()
        own = {name: state[name].detach().clone() for name in network.private if name in state}
        moved = {name: own[name] + change for name, change in run.private.items()}
        context.state[PRIVATE] = to_record({**own, **moved})


def _private_state(network: Hardened, context: Context) -> dict[str, Tensor]:
    """What the client kept of its own parameters; in its first round what the defence drew for it."""
    if PRIVATE in context.state.array_records:
        return to_tensors(context.state.array_records[PRIVATE])
    state = network.client.state_dict()
    return {name: state[name] for name in network.private if name in state}


def initial_arrays(model: nn.Module, defence: Defence | str | None = None, *, seed: int = 0) -> ArrayRecord:
    """What the server hands out in the first round: the network under `defence`, without what never leaves a client."""
    chosen = None if defence is None else as_defence(defence)
    network = harden(model, chosen, seed=seed)
    return to_record({n: v for n, v in network.client.state_dict().items() if n not in network.private})
