"""Everything that decides what a federated training comes to."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor, nn

from leakscope.client import harden
from leakscope.counts import MOST_EXAMPLES, MOST_STEPS, check_count
from leakscope.defence import Defence, Hardened
from leakscope.errors import UsageError, suggest
from leakscope.federated.aggregator import Aggregator, PlainAggregator
from leakscope.federated.strategy import FedAvg, Strategy
from leakscope.networks import copy_network
from leakscope.steps.local import Memory, advance
from leakscope.tasks import Classification, Task
from leakscope.tensors import scale
from leakscope.types import LocalTraining, Loss, SharedUpdate, Tensors

_RULES = ("sgd", "adam")


@dataclass(frozen=True)
class ServerOptimiser:
    """How the server moves the model by the mean update.

    A mean gradient is descended along with rate `lr`. A mean change takes the place of a negative gradient: with the
    defaults it is added as it is, which is FedAvg; momentum gives FedAvgM, "adam" gives FedAdam.

    Attributes:
        rule: "sgd" or "adam", as in `torch.optim`.
        lr: rate of the server.
        momentum: of SGD.
        betas: decay of Adam's two moments.
        eps: added to Adam's denominator; FedAdam's authors take 1e-3.

    References:
        Reddi et al., "Adaptive federated optimization", ICLR 2021.
    """

    rule: Literal["sgd", "adam"] = "sgd"
    lr: float = 1.0
    momentum: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    def __post_init__(self) -> None:
        if self.rule not in _RULES:
            raise UsageError(f"the server has no optimiser {self.rule!r}.{suggest(str(self.rule), _RULES)}")
        self._as_steps()

    def step(self, weights: Tensors, update: SharedUpdate, *, memory: Memory) -> tuple[dict[str, Tensor], Memory]:
        """The weights that the update speaks of after one step, and what the next step must remember."""
        own = {name: weights[name] for name in update.tensors}
        downhill = update.tensors if update.kind == "gradient" else scale(update.tensors, -1.0)
        return advance(self._as_steps(), own, downhill, memory=memory, rate=self.lr)

    def _as_steps(self) -> LocalTraining:
        # The client's optimisers are the server's: one implementation of each, and one check of the options.
        return LocalTraining(self.lr, optimiser=self.rule, momentum=self.momentum, betas=self.betas, eps=self.eps)


@dataclass(frozen=True)
class Experiment:
    """A federated training but for its network and its data.

    Attributes:
        rounds: server steps.
        local: how clients train before they send what changed; None for FedSGD, where they send a gradient.
        strategy: how much each client counts.
        server: how the server moves the model.
        fraction: share of the clients that take part in a round, at least one; drawn for every round from the seed.
        min_completed: share of these that must complete the round, else it fails.
        defence: what clients do against leakage.
        task: what the network is for; classification unless given.
        loss: what clients train with; the task's unless given, and the defence's before both.
        seed: of who takes part, of every client's shuffling and noise, and of what the defence draws.
        freeze_batch_norm: keep batch-norm layers on their stored statistics.
        batch_size: examples that a client draws for its gradient in a round of FedSGD; None takes all it has.
        aggregator: how updates travel and are combined; in the clear unless given.
    """

    rounds: int
    local: LocalTraining | None = None
    strategy: Strategy = field(default_factory=FedAvg)
    server: ServerOptimiser = field(default_factory=ServerOptimiser)
    fraction: float = 1.0
    min_completed: float = 1.0
    defence: Defence | None = None
    task: Task | None = None
    loss: Loss | None = None
    seed: int = 0
    freeze_batch_norm: bool = False
    batch_size: int | None = None
    aggregator: Aggregator = field(default_factory=PlainAggregator)

    def __post_init__(self) -> None:
        check_count(self.rounds, "Experiment.rounds", most=MOST_STEPS)
        for name, value in (("fraction", self.fraction), ("min_completed", self.min_completed)):
            if not 0 < value <= 1:
                raise UsageError(f"Experiment needs 0 < {name} ≤ 1, a share of the clients, got {value}")
        if self.batch_size is not None:
            check_count(self.batch_size, "Experiment.batch_size", most=MOST_EXAMPLES)
            if self.local is not None:
                raise UsageError(
                    f"Experiment.batch_size={self.batch_size} is for clients that send a gradient; "
                    "those with local training have local.batch_size"
                )

    @property
    def kind(self) -> Literal["gradient", "delta"]:
        """What clients send."""
        return "gradient" if self.local is None else "delta"

    @property
    def known_task(self) -> Task:
        """The task, or classification."""
        return self.task or Classification()

    def count_selected(self, clients: int) -> int:
        """How many of so many clients take part in a round."""
        return max(1, math.floor(self.fraction * clients + 0.5))

    def count_needed(self, selected: int) -> int:
        """How many of so many that take part must complete a round."""
        # Rounded up, but 0.1 · 30 is a little above 3 to a computer.
        return max(1, math.ceil(self.min_completed * selected - 1e-9))

    def harden(self, model: nn.Module) -> Hardened:
        """The network under the defence, on a copy: what clients train and what the server holds."""
        return harden(copy_network(model), self.defence, seed=self.seed)
