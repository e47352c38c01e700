"""The layer that labels are read off: which it is, its gradient however it was shared, and whether that tells labels.

Every label rule relies on one thing: the gradient in the output of the last layer is negative at the label and
nowhere else, and sums to zero over the classes, as that of softmax cross-entropy does; or, for one logit, is
negative for label 1 and positive for label 0, as that of a logistic loss is. Whether it is so is found by trying:
made-up logits take the place of the layer's output.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn
from torch.nn import functional

from leakscope import rng as random
from leakscope.errors import UnsuitableError
from leakscope.matching.replays.replay import gradient_factor
from leakscope.networks import find_head, noise_inputs, run
from leakscope.types import Loss, Observation

_EXAMPLES = 4
# Small logits: there the gradients of smoothed and of weighted cross-entropy have the signs of the plain one.
_SIZE = 0.1
# Logits of a network that is sure of itself.
_SURE = 8.0
_SLACK = 1e-3
_IMBALANCE = 0.05
_MISUSE = (RuntimeError, ValueError, TypeError, IndexError)


def probabilities(logits: Tensor) -> Tensor:
    """Label probabilities [..., classes]; of one logit the probability of label 1, since its softmax is always 1."""
    return logits.sigmoid() if logits.shape[-1] == 1 else logits.softmax(-1)


def likeliest(targets: Tensor, *, axes: int = 1) -> Tensor:
    """Whole labels for probabilities; the first `axes` axes count examples, a missing one after them is one logit."""
    each = targets.reshape(*targets.shape[:axes], -1)
    return (each[..., 0] >= 0.5).long() if each.shape[-1] == 1 else each.argmax(-1)


def find_last_layer(seen: Observation) -> tuple[str, nn.Linear]:
    """Name and module of the shared linear layer that produces the logits.

    The one with an output a class that was seen to do it: its output is the model's, or becomes it without mixing
    classes. A hidden layer may be as wide.
    """
    _check_has_labels(seen, "read off this update")
    wide = [
        (name, module)
        for name, module in seen.model.named_modules()
        if isinstance(module, nn.Linear) and module.out_features == seen.num_classes and not _is_tied(seen, module)
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


def _check_has_labels(seen: Observation, what: str) -> None:
    """Refuse a task whose targets are no labels."""
    if seen.task.why_no_labels is not None:
        raise UnsuitableError(
            f"labels cannot be {what}: {seen.task.why_no_labels}; use scenario A or B, which grant the targets"
        )


def _is_tied(seen: Observation, layer: nn.Linear) -> bool:
    """Whether another layer uses the weight, too: its gradient is then the sum of both."""
    return sum(value is layer.weight for _name, value in seen.model.named_parameters(remove_duplicate=False)) > 1


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


def feeds_logits(seen: Observation, layer: nn.Module) -> bool:
    """Whether the output of `layer` is the logits, or tells labels as they do: through a LogSoftmax, a scale, a sum."""
    usual = _logistic if seen.num_classes == 1 else functional.cross_entropy
    return _tells(seen, layer, usual, _forms(seen)[0])


def check_loss(seen: Observation, layer: nn.Module) -> None:
    """Refuse a loss whose gradient in the output of `layer` does not tell labels."""
    if any(_tells(seen, layer, seen.loss, targets) for targets in _forms(seen)):
        return
    raise UnsuitableError(
        "labels are read off the gradient of cross-entropy on class labels, or of a logistic loss of one logit; got "
        f"{_name(seen.loss)} of {seen.num_classes} outputs; use scenario A or B, or an attack that needs no labels "
        "(fc-inversion) or optimises them (dlg)"
    )


def absent_never_negative(seen: Observation, layer: nn.Module) -> bool:
    """Whether a class that does not occur never has a negative gradient, however sure the network is.

    Label smoothing breaks it.
    """
    if seen.task.is_cross_entropy or seen.num_classes == 1:
        return True
    return any(_tells(seen, layer, seen.loss, targets, size=_SURE) for targets in _forms(seen))


def check_takes_labels(seen: Observation) -> None:
    """Refuse a loss that cannot be replayed with labels as they are inferred: whole numbers [n]."""
    if not seen.task.is_cross_entropy:
        _try(seen, _forms(seen)[0], "inferred labels are whole numbers [n]")


def check_takes_probabilities(seen: Observation) -> None:
    """Refuse a loss that cannot be replayed with labels as they are optimised: probabilities [n, classes]."""
    _check_has_labels(seen, "optimised as probabilities")
    if not seen.task.is_cross_entropy:
        _try(seen, probabilities(_logits(seen)), "optimised labels are probabilities [n, classes]")


def _try(seen: Observation, targets: Tensor, what: str) -> None:
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            seen.loss(_logits(seen), targets)
    except _MISUSE as error:
        raise UnsuitableError(
            f"{what}, and {_name(seen.loss)} does not take them ({error}); use scenario A or B, or wrap the loss"
        ) from error


def _tells(seen: Observation, layer: nn.Module, loss: Loss, targets: Tensor, *, size: float = _SIZE) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            slope = _slope(seen, layer, loss, targets, size=size)
    except _MISUSE:
        return False
    if slope is None:
        return False
    labels = _forms(seen)[0]
    if seen.num_classes == 1:
        return bool((slope[:, 0] * (1 - 2 * labels) > 0).all())
    # A class may weigh nothing, or be ignored: its examples say nothing, for or against.
    largest = slope.abs().amax(1)
    slope, labels = slope[largest > 0], labels[largest > 0]
    own = functional.one_hot(labels, seen.num_classes).bool()
    signs = (slope[own] < 0).all() & (slope[~own] >= -_SLACK * float(largest.max())).all()
    return len(labels) > 0 and bool(signs & (slope.sum(1).abs() <= _IMBALANCE * slope.abs().sum(1)).all())


def _slope(seen: Observation, layer: nn.Module, loss: Loss, targets: Tensor, *, size: float) -> Tensor | None:
    """∂loss/∂output of `layer` [examples, classes] where it is called once; neither model nor randomness changes."""
    put: list[Tensor] = []

    def replace(_name: str, output: Tensor) -> Tensor:
        rng = random.generator(0, "made-up logits")
        put.append((size * random.normal(tuple(output.shape), rng, like=output)).requires_grad_())
        return put[-1]

    names = [name for name, module in seen.model.named_modules() if module is layer]
    state = {name: value.detach() for name, value in seen.model.named_parameters()}
    inputs = noise_inputs(seen.model, seen.input_shape, count=_EXAMPLES)
    with torch.enable_grad():
        output = seen.task.check_output(run(seen.model, inputs, parameters=state, layers=names, after=replace))
        if len(put) != 1:
            return None
        found = torch.autograd.grad(loss(output, targets), put[0])[0]
    return found.reshape(_EXAMPLES, -1, seen.num_classes).sum(1)


def _forms(seen: Observation) -> list[Tensor]:
    """The labels of the made-up examples in the forms a loss may take; one logit has several."""
    if seen.num_classes > 1:
        return [torch.linspace(0, seen.num_classes - 1, _EXAMPLES).long().to(seen.device)]
    labels = torch.arange(_EXAMPLES, device=seen.device) % 2
    real = labels.to(seen.dtype)
    return [labels, real, real[:, None]]


def _logits(seen: Observation) -> Tensor:
    like = torch.empty(0, device=seen.device, dtype=seen.dtype)
    return random.normal((_EXAMPLES, seen.num_classes), random.generator(0, "made-up logits"), like=like)


def _logistic(output: Tensor, labels: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(output.reshape(-1), labels.to(output))


def _name(loss: Loss) -> str:
    return getattr(loss, "__name__", type(loss).__name__)
