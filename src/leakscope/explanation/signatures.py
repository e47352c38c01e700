"""What an update shows of its own making, together with the network: weight decay and dropout.

Dropout sets features to zero, and with them whole columns of the next layer's weight gradient.
"""

from __future__ import annotations

from torch import Tensor, nn

from leakscope.networks import find_head, noise_inputs
from leakscope.observation.consistency import CHANGED, TOO_LARGE, TOO_MANY
from leakscope.observation.making import Decay, find_decay
from leakscope.types import Observation, Tensors


def shown_decay(seen: Observation) -> Decay | None:
    """What the row sums of the last layer say of weight decay; None where they say nothing."""
    if not seen.task.is_cross_entropy:
        return None
    head = find_head(seen.model, noise_inputs(seen.model, seen.input_shape))
    if head is None:
        return None
    change = _of(seen, head.weight)
    return None if change is None else find_decay(change, head.weight)


def was_changed(seen: Observation) -> bool:
    """Whether the marks of a gradient are broken as noise, pruning and quantisation break them."""
    return any(note in (CHANGED, TOO_LARGE, TOO_MANY) for note in seen.notes)


def empty_columns(tensors: Tensors, name: str) -> float:
    """The share of inputs of a linear layer that got no gradient at all."""
    return float((tensors[name].detach() == 0).all(dim=0).double().mean())


def behind_dropout(model: nn.Module) -> list[str]:
    """Names of the weights of linear layers that follow a dropout layer which is declared inactive."""
    found: list[str] = []
    waiting = False
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0 and not module.training:
            waiting = True
        elif isinstance(module, nn.Linear):
            if waiting:
                found.append(f"{name}.weight")
            waiting = False
    return found


def _of(seen: Observation, parameter: Tensor) -> Tensor | None:
    names = {id(value): name for name, value in seen.model.named_parameters()}
    return seen.update.tensors.get(names.get(id(parameter), ""))
