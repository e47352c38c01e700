"""What a defence is: it may change the network and the client's step in four places, and it knows its attacker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from torch import Generator, Tensor, nn

from leakscope.attack import Attack
from leakscope.types import Batch, LocalTraining, SealedUpdate, SharedUpdate, Tensors

# Takes what the client's network returned, unprocessed, and the targets.
TrainingLoss = Callable[[Any, Tensor], Tensor]


@dataclass(frozen=True)
class Hardened:
    """A network under a defence, as the client has it and as the server knows it.

    Attributes:
        client: what the client trains, with everything it keeps for itself.
        server: what the server knows of it: no key, no lock layer, no state of the client's.
        loss: what the client trains with, where that is not the task's own loss.
        private: names of parameters and buffers that never leave the client.
    """

    client: nn.Module
    server: nn.Module
    loss: TrainingLoss | None = None
    private: frozenset[str] = frozenset()


@dataclass(frozen=True)
class StepContext:
    """What a hook may read of the local step it acts in."""

    model: nn.Module
    parameters: Tensors
    batch: Batch
    loss: TrainingLoss
    step: int
    rng: Generator


@dataclass(frozen=True)
class ClientHooks:
    """Where a defence acts in the client's step; None leaves a place alone.

    Attributes:
        batch: the examples of one local step, before the network sees them.
        example_gradients: gradients of single examples, name → [n, …]; their mean follows.
        gradient: the gradient of one local step.
        update: the finished update, before it is sent.
        feedback: as `update`, for a client that adds what it held back in its last round: takes the finished update and
            what was held back, returns what is sent and what is held back now. It comes after `update`.
    """

    batch: Callable[[Batch, Generator], Batch] | None = None
    example_gradients: Callable[[dict[str, Tensor], StepContext], dict[str, Tensor]] | None = None
    gradient: Callable[[dict[str, Tensor], StepContext], dict[str, Tensor]] | None = None
    update: Callable[[SharedUpdate, Generator], SharedUpdate | SealedUpdate] | None = None
    feedback: Callable[[SharedUpdate, Tensors, Generator], tuple[SharedUpdate | SealedUpdate, Tensors]] | None = None


@dataclass(frozen=True)
class Guarantee:
    """(ε, δ) differential privacy, and what it proves of reconstruction.

    Attributes:
        epsilon: ε of all steps together; infinite where there is no noise.
        delta: δ it holds for.
        unit: what is protected: "example", or "client" with all its examples.
        sampling_rate: share of the examples, or of the clients, that takes part in a step.
        steps: how often the mechanism ran: rounds × `local_steps`.
        local_steps: how often it ran in one round.
        noise_multiplier: standard deviation of the noise over the sensitivity.
        reconstruction: the most probable success of any attacker, by the probability of a success without the update.
        assumes: how records are sampled, what neighbours are, and what else it holds for, in words.
    """

    epsilon: float
    delta: float
    unit: Literal["example", "client"]
    sampling_rate: float
    steps: int
    noise_multiplier: float
    reconstruction: Mapping[float, float]
    assumes: str = ""
    local_steps: int = 1


class Defence(ABC):
    """Changes the network, the client's step, or both."""

    name: str
    paper: str
    # Whether `harden` returns another network: it changes what an attack costs.
    changes_network: bool = False
    # Attacks, as the registry spells them, that do better under this defence than most; the audit runs them too.
    strong_attacks: tuple[str, ...] = ()

    def harden(self, model: nn.Module, *, seed: int = 0) -> Hardened:
        """The network under this defence; by default the network as it is, on both sides."""
        return Hardened(model, model)

    def hooks(self) -> ClientHooks:
        """What this defence does in the client's step; by default nothing."""
        return ClientHooks()

    def acts_in_training(self) -> bool:
        """Whether it must be part of the client's training; else it can be applied to an update that is finished."""
        hooks = self.hooks()
        inside = (hooks.batch, hooks.example_gradients, hooks.gradient)
        return self.changes_network or any(hook is not None for hook in inside)

    def guarantee(
        self, *, examples: int, batch_size: int, steps: int, local: LocalTraining | None = None
    ) -> Guarantee | None:
        """What is proven of `steps` steps, each on `batch_size` of a client's `examples`; None for nothing.

        With `local` each of them is a round, in which the client trains so on its batch and shares the change.
        """
        return None

    def unsealed(self) -> Defence | None:
        """What is left of this defence for someone who can open what it seals; None where it seals nothing."""
        return None

    @abstractmethod
    def adapt(self, attack: Attack) -> Attack:
        """`attack` as run by someone who knows this defence; still that attack."""


class UpdateDefence(Defence):
    """Rewrites the tensors of a finished update; what else belongs to the update stays."""

    def hooks(self) -> ClientHooks:
        """Act on the finished update alone."""
        return ClientHooks(update=self._update)

    @abstractmethod
    def rewrite(self, tensors: Tensors, rng: Generator) -> dict[str, Tensor]:
        """What is shared instead of `tensors`, by the same names."""

    def _update(self, update: SharedUpdate, rng: Generator) -> SharedUpdate:
        return replace(update, tensors=self.rewrite(update.tensors, rng))
