"""What an update gives away about itself: is it what it was declared to be?

Softmax and cross-entropy leave marks on the layer behind the logits. With logits z = W h + b the mean
gradient is ∂L/∂b = mean(p − y) and ∂L/∂W = mean((p − y) hᵀ), where p = softmax(z):

- Σ_c ∂L/∂b_c = 0 and Σ_c ∂L/∂W_c = 0, for every batch, every target and every number of local steps;
- Σ_c |∂L/∂b_c| ≤ 2, for a mean;
- ∂L/∂b_c < 0 only where class c occurs: in at most as many classes as there are examples;
- for one example ∂L/∂W / ∂L/∂b = h, so that p = softmax(W h + b) and y = p − ∂L/∂b follow: y has no
  negative entry unless W and b are another model's.

Noise, pruning, quantisation and smooth labels break these marks as a wrong declaration does. So nothing is
refused here: a broken mark becomes a note, which follows the observation into the report. Those that speak of
a wrong declaration are contradictions: an attack that then fails to explain the update is not evidence.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from leakscope.observation.making import find_decay, looks_like_adam
from leakscope.types import SharedUpdate

# Rounding in half precision stays below this; a change that matters does not.
_ROUNDING = 0.02
# How close to rank one a weight gradient must be to be read as that of one example.
_ONE_EXAMPLE = 1e-3

_KINDS = (("gradient", "delta"), ("delta", "gradient"))

CHANGED = (
    "the last layer's gradient does not sum to zero over the classes, as every gradient of softmax cross-entropy does: "
    "the update was changed before sharing (noise, pruning, quantisation), or another loss was used"
)
ADAM = (
    "all weights moved by about the same amount, as Adam moves them, and not in proportion to a gradient; "
    "declare optimiser='adam'"
)
DECAY = (
    "the last layer's rows sum to a multiple of its weights' over the classes, as weight decay makes them, and not to "
    "zero; declare weight_decay"
)
TOO_LARGE = (
    "the last bias gradient is larger than any mean of cross-entropy gradients can be: it was summed over examples, "
    "scaled, or changed before sharing"
)
REVERSED = (
    "the last layer's gradient has its signs reversed: the update declared as {kind} looks like a {other}; "
    "declare it as kind={other!r}, or correct the number of examples"
)
TOO_MANY = (
    "the last bias gradient is negative for more classes than there are examples: the number of examples is wrong, "
    "the labels are soft, or the update was changed before sharing"
)
ANOTHER_MODEL = (
    "the last layer's gradient does not follow from the last layer's weights: the update comes from another model or "
    "another round, or was changed before sharing; attack it with the weights the client started from"
)


def suspicions(
    head: nn.Linear | None, update: SharedUpdate, *, model: nn.Module, num_examples: int | None
) -> tuple[str, ...]:
    """Notes on marks that `update` should bear and does not; none where there is nothing to check.

    `head` is the layer of `model` that computes the logits, for updates of softmax cross-entropy.
    """
    if head is None or head.out_features < 2:
        return ()
    if update.local is not None and (not update.local.adds_gradients or update.local.weight_decay):
        # Only sums of gradients bear the marks of gradients.
        return ()
    names = {id(value): name for name, value in model.named_parameters()}
    weight = update.tensors.get(names.get(id(head.weight), ""))
    bias = update.tensors.get(names.get(id(head.bias), ""))
    if weight is None or not bool(weight.any()):
        return ()
    found = _broken_marks(head, update, weight, bias, num_examples)
    # A cause that can be named takes the place of what it broke.
    return (ADAM,) if found and looks_like_adam(update.tensors) else found


def _broken_marks(
    head: nn.Linear, update: SharedUpdate, weight: Tensor, bias: Tensor | None, num_examples: int | None
) -> tuple[str, ...]:
    changed = CHANGED if find_decay(weight, head.weight) is None else DECAY
    if bias is None:
        return (changed,) if _imbalance(weight) > 5 * _ROUNDING else ()
    if _imbalance(bias, _last_digits(update, bias, head.bias)) > _ROUNDING:
        return (changed,)
    # Signs as those of a gradient; the length matters only where it is known.
    factor = 1.0 if update.kind == "gradient" else -1.0
    return _of_bias(head, update, weight.double() * factor, bias.double() * factor, num_examples)


def contradictions(notes: Iterable[str]) -> tuple[str, ...]:
    """Those of `suspicions` that speak of a wrong declaration; noise makes the others as well."""
    return tuple(note for note in notes if note not in (CHANGED, ADAM, DECAY, TOO_LARGE, TOO_MANY))


def is_reversal(note: str) -> bool:
    """Whether a note of `suspicions` says that the signs are reversed."""
    return note.startswith(REVERSED.partition("{")[0])


def is_suspicion(note: str) -> bool:
    """Whether a note of an observation says that the update is not what it was declared to be."""
    reversals = [REVERSED.format(kind=kind, other=other) for kind, other in _KINDS]
    return note in (CHANGED, ADAM, DECAY, TOO_LARGE, TOO_MANY, ANOTHER_MODEL, *reversals)


def _of_bias(
    head: nn.Linear, update: SharedUpdate, weight: Tensor, bias: Tensor, num_examples: int | None
) -> tuple[str, ...]:
    if not bool(bias.any()):
        return ()
    features = (bias @ weight) / bias.square().sum()
    residual = float((weight - torch.outer(bias, features)).norm() / weight.norm())
    prediction = (head.weight.detach().double() @ features + head.bias.detach().double()).softmax(0)
    alone = residual < (_ONE_EXAMPLE if num_examples == 1 else _ONE_EXAMPLE / 10) and num_examples in (None, 1)
    if _is_reversed(bias, prediction if alone else None, num_examples):
        other = "delta" if update.kind == "gradient" else "gradient"
        return (REVERSED.format(kind=update.kind, other=other),)
    if num_examples is not None and int((bias < -_ROUNDING * bias.abs().max()).sum()) > num_examples:
        return (TOO_MANY,)
    if update.kind == "delta":
        if update.local is None or not update.local.is_one_step(num_examples):
            return ()
        bias = bias / update.local.total_rate(1)
    if float(bias.abs().sum()) > 2 * (1 + _ROUNDING):
        return (TOO_LARGE,)
    # The distance from rank one tells how many digits the shared numbers have.
    foreign = float((prediction - bias).min()) < -max(1e-3, 100 * residual)
    return (ANOTHER_MODEL,) if residual < _ONE_EXAMPLE and foreign else ()


def _is_reversed(bias: Tensor, prediction: Tensor | None, num_examples: int | None) -> bool:
    """Whether −`bias` could be the gradient of so few examples, and `bias` could not."""
    if prediction is not None and _fits_one(-bias, prediction) > 0.99 and _fits_one(bias, prediction) < 0.9:
        return True
    size = _ROUNDING * bias.abs().max()
    negative, positive = int((bias < -size).sum()), int((bias > size).sum())
    return num_examples is not None and positive <= num_examples < negative


def _fits_one(bias: Tensor, prediction: Tensor) -> float:
    """Cosine with p − e_y for the likeliest label y."""
    expected = prediction.clone()
    expected[bias.argmin()] -= 1
    return float(torch.cosine_similarity(bias, expected, dim=0))


def _imbalance(gradient: Tensor, slack: float = 0.0) -> float:
    """How far the rows of a gradient [classes, …] are from cancelling out, relative to their size."""
    rows = gradient.double().reshape(len(gradient), -1)
    rest = float(rows.sum(0).norm()) - slack
    return rest / max(float(rows.norm(dim=1).sum()), 1e-300)


def _last_digits(update: SharedUpdate, bias: Tensor, parameter: Tensor) -> float:
    """Rounding error of the sum: entries are differences of numbers of size one, or of two weights."""
    size = float(len(bias)) if update.kind == "gradient" else float(parameter.detach().abs().sum())
    return 4 * torch.finfo(bias.dtype).eps * size
