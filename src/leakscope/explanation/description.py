"""The update that examples would have caused, by the description under which an update is observed.

A description is the network with its modes, the kind of update, and the local training. Hypotheses are other
descriptions of the same update, so everything here takes an `Observation` and reads nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from leakscope.local_training import LocalTraining
from leakscope.steps import replay_gradient, replay_local, trainable
from leakscope.tensors import scale
from leakscope.types import Knowledge, Observation

# Local steps that are replayed one by one; a longer training is compared by its mean gradient.
MOST_STEPS = 100

Predict = Callable[[Tensor, Tensor], dict[str, Tensor]]


@dataclass(frozen=True)
class Replayed:
    """One way to compute what a client with these examples would have sent.

    Attributes:
        seen: the observation whose description is followed.
        local: the local training to repeat; None compares one gradient of all examples.
        sign: −1 where that gradient stands for a change of weights.
        create_graph: whether the result can be differentiated in the examples.
    """

    seen: Observation
    local: LocalTraining | None
    sign: float = 1.0
    create_graph: bool = False

    def __call__(self, inputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """The tensors that were shared, in the units of the update."""
        seen = self.seen
        weights = {name: value.detach().requires_grad_() for name, value in trainable(seen.model).items()}
        if self.local is None:
            found = replay_gradient(
                seen.model,
                weights,
                inputs,
                targets,
                loss=seen.loss,
                task=seen.task,
                create_graph=self.create_graph,
                given=seen.given,
            )
            found = scale(found, self.sign)
        else:
            found = replay_local(
                seen.model,
                weights,
                inputs,
                targets,
                local=self.local,
                loss=seen.loss,
                task=seen.task,
                create_graph=self.create_graph,
                order=seen.order,
                given=seen.given,
            )
        return {name: found[name] for name in seen.update.tensors}


def replays(seen: Observation, count: int, *, create_graph: bool = False) -> tuple[Replayed, ...]:
    """The ways in which `count` examples may have made this update, best known first.

    Where different examples were used in different steps, in an order that is not known, neither the plain order nor
    one gradient of all examples is what the client did: both are given, and whatever explains more counts.
    """
    if seen.update.kind == "gradient":
        return (Replayed(seen, None, 1.0, create_graph),)
    at_once = Replayed(seen, None, -_total_rate(seen, count), create_graph)
    if seen.local is None or count_steps(seen, count) > MOST_STEPS:
        return (at_once,)
    steps = Replayed(seen, seen.local, 1.0, create_graph)
    return (steps, at_once) if _is_order_open(seen, seen.local, count) else (steps,)


def scale_known(seen: Observation) -> bool:
    """Whether the description tells how long the update of given examples is, not its direction alone."""
    return seen.update.kind == "gradient" or seen.local is not None


def count_steps(seen: Observation, count: int) -> int:
    """Local steps of the client; 1 where nothing is known of them."""
    if seen.order is not None:
        return len(seen.order)
    return 1 if seen.local is None else seen.local.count_steps(count)


def _total_rate(seen: Observation, count: int) -> float:
    return 1.0 if seen.local is None else seen.local.total_rate(count_steps(seen, count))


def _is_order_open(seen: Observation, local: LocalTraining, count: int) -> bool:
    if Knowledge.LABEL_ORDER in seen.knowledge and (seen.order is not None or not local.shuffle):
        return False
    return count > local.batch_size
