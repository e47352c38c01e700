"""The gradient of the layer that produces the logits, however it was shared."""

from __future__ import annotations

from torch import Tensor, nn

from leakscope.errors import UnsuitableError
from leakscope.matching.labels.tail import check_loss, feeds_logits
from leakscope.matching.replays.replay import gradient_factor
from leakscope.matching.replays.replay import scale_known as scale_known
from leakscope.networks import find_head, noise_inputs
from leakscope.types import Observation


def find_last_layer(seen: Observation) -> tuple[str, nn.Linear]:
    """Name and module of the shared linear layer that produces the logits.

    The one with an output a class that was seen to do it: its output is the model's, or becomes it without mixing
    classes. A hidden layer may be as wide.
    """
    wide = [
        (name, module)
        for name, module in seen.model.named_modules()
        if isinstance(module, nn.Linear) and module.out_features == seen.num_classes
    ]
    # Modules may be registered in any order.
    head = find_head(seen.model, noise_inputs(seen.model, seen.input_shape)) if wide else None
    found = [one for one in wide if one[1] is head] or [one for one in wide if feeds_logits(seen, one[1])]
    if found and _parameter(found[-1][0], "weight") in seen.update.tensors:
        return found[-1]
    raise UnsuitableError(
        f"labels cannot be read off this update: no shared linear layer with {seen.num_classes} outputs; "
        "share the last layer, use scenario A or B, or an attack that optimises labels (dlg)"
    )


def check_readable(seen: Observation) -> None:
    """Refuse a loss whose gradient does not tell labels, before any is read."""
    if not seen.task.is_cross_entropy:
        check_loss(seen, find_last_layer(seen)[1])


def last_layer(seen: Observation) -> tuple[Tensor, Tensor | None]:
    """Weight and bias *gradient* of the layer that produces the logits, mean over examples.

    A delta is turned into a gradient by its sign, and by rate and steps where granted.
    """
    name, _module = find_last_layer(seen)
    weight = seen.update.tensors[_parameter(name, "weight")]
    bias = seen.update.tensors.get(_parameter(name, "bias"))
    factor = gradient_factor(seen)
    return weight * factor, None if bias is None else bias * factor


def _parameter(layer: str, name: str) -> str:
    return f"{layer}.{name}" if layer else name
