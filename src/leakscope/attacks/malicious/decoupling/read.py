"""What every class sent to the first linear layer, read off the gradient of a decoupled classifier.

With E_c = [row, bias] of the first layer's gradient for class c, over its gain, z_k the features of example k and p_k
its softmax, the mean over K examples is

    E_c = 1/K Σ_k (p_k(c) − [y_k = c]) (z_k, 1).

Raw NLL has no softmax, and a dump class takes all of it: −E_c is then the sum over the examples of class c (Eq. 9).
Otherwise, where all scores are equal, the first term is the same for all classes and an absent class a shows it alone:
E_a − E_c is that sum. Where scores differ, what they add is computed from the features found so far, until it stays.
If every class occurs nothing tells the first term: p_k sums to 1 over the classes, and so only differences are seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from leakscope.attacks.closed.linear.layer_inputs import parameter_names
from leakscope.attacks.malicious.decoupling.paths import ClassPaths
from leakscope.errors import UnsuitableError
from leakscope.matching.replays import scale_known
from leakscope.matching.replays.replay import gradient_factor
from leakscope.networks import noise_inputs, run
from leakscope.types import Observation

# Of one example's share of a bias gradient, what is less than this is no example.
_HALF = 0.5
# Where the number of examples is not known: relative to the largest share.
_LEAST = 0.05
# A bias gradient below this is rounding: nothing to divide by.
_NOTHING = 1e-7
_ITERATIONS, _SETTLED = 60, 1e-7

NO_ABSENT_CLASS = (
    "cross-entropy without an absent class: {present} of {classes} classes occur in the batch, so that the features of "
    "all examples together cannot be told from those of one class; loss='raw-nll' and variant='dump-class' do not need "
    "an absent class"
)
NOTHING_TO_DIVIDE = "the bias gradients of the first linear layer are zero: there is nothing to divide by"
NOT_SETTLED = (
    "the scores of the classes differ so much that the absent-class correction does not settle; use form='naive' or "
    "variant='dump-class'"
)


class UnreadableError(UnsuitableError):
    """The update holds no reading that would be more than garbage; the message says why."""


@dataclass(frozen=True, eq=False)
class ClassReading:
    """Mean features of examples of one class, and how many examples they are of; None where that is not known."""

    label: int
    features: Tensor
    members: int | None


@dataclass(frozen=True, eq=False)
class _Shared:
    """The gradient as a server reads it: entries [classes, rows, features + 1] over their gains, in doubles."""

    entries: Tensor
    scores: Tensor
    examples: int | None


def read_classes(seen: Observation, paths: ClassPaths, *, has_softmax: bool) -> tuple[list[ClassReading], list[str]]:
    """All classes that can be read, in order, and notes.

    Args:
        seen: the update.
        paths: what the server remembers of its linear layers.
        has_softmax: whether the loss has one and no dump class takes it.

    Raises:
        UnreadableError: nothing can be read, for a reason that is named.
    """
    shared = _take(seen, paths)
    shares = _count_shares(seen, shared, paths, has_softmax=has_softmax)
    counts = _count_examples(seen, shares)
    if not has_softmax:
        return _read_apart(shared, paths, shares, counts)
    sums = _subtract_absent(seen, shared, paths, shares, counts)
    found = [
        ClassReading(label, row[:-1] / row[-1], counts[label])
        for label, row in sums.items()
        if abs(float(row[-1])) > _NOTHING
    ]
    if not found:
        raise UnreadableError(NOTHING_TO_DIVIDE)
    return found, []


def _take(seen: Observation, paths: ClassPaths) -> _Shared:
    tensors = seen.update.tensors
    first, last = paths.layers[0].name, paths.layers[-1].name
    names = (*parameter_names(first), parameter_names(last)[1])
    absent = [name for name in names if name not in tensors]
    if absent:
        raise UnsuitableError(f"mkor needs the gradient of {absent[0]!r}, which was not shared; share that layer")
    rows = torch.tensor(paths.rows, device=seen.device)
    factor = float(gradient_factor(seen))
    gains = torch.tensor(paths.gains, dtype=torch.float64, device=seen.device)
    weight = tensors[names[0]][rows].double()
    entries = torch.cat([weight, tensors[names[1]][rows].double()[..., None]], -1)
    entries *= (factor / gains)[..., None]
    return _Shared(entries, factor * tensors[names[2]].double(), seen.num_examples)


def _count_shares(seen: Observation, shared: _Shared, paths: ClassPaths, *, has_softmax: bool) -> Tensor:
    """The share of every class in the batch, as the last bias gradient tells it: p̄(c) − ∂L/∂b_c."""
    if seen.targets is not None and not seen.targets.is_floating_point():
        found = torch.bincount(seen.targets, minlength=seen.num_classes).double()
        return found.to(seen.device) / found.sum()
    if not has_softmax:
        shares = -shared.scores
        if paths.dump is not None:
            shares[paths.dump] = 0.0
        # The rate of a delta may be unknown; the shares of all classes but the dumped one sum to 1, or to nearly that.
        return shares if scale_known(seen) else shares / shares.clamp_min(0).sum().clamp_min(1e-300)
    expected = _expected_probabilities(seen, paths)
    if scale_known(seen):
        return expected - shared.scores
    # The class with the largest gradient is taken to be absent, which gives the unknown rate.
    scale = (shared.scores / expected).max().clamp_min(1e-300)
    return expected - shared.scores / scale


def _expected_probabilities(seen: Observation, paths: ClassPaths) -> Tensor:
    """Softmax of the crafted network for pictures of noise; exact for any picture where all scores are equal."""
    classes = seen.num_classes
    if paths.equal_scores:
        return torch.full((classes,), 1 / classes, dtype=torch.float64, device=seen.device)
    with torch.no_grad():
        scores = seen.task.check_output(run(seen.model, noise_inputs(seen.model, seen.input_shape, count=4)))
    return scores.double().softmax(1).mean(0)


def _count_examples(seen: Observation, shares: Tensor) -> list[int | None]:
    """Examples of every class: 0 for none, None for some where the size of the batch is not known."""
    if seen.num_examples is not None:
        return [max(0, round(float(share) * seen.num_examples)) for share in shares]
    least = _LEAST * float(shares.max())
    return [None if float(share) > least else 0 for share in shares]


def _read_apart(
    shared: _Shared, paths: ClassPaths, shares: Tensor, counts: list[int | None]
) -> tuple[list[ClassReading], list[str]]:
    """Each class by itself, and where a pair tells examples apart, each row of it."""
    least = _HALF / shared.examples if shared.examples else _LEAST * float(shares.max())
    found: list[ClassReading] = []
    closed = 0
    for label, count in enumerate(counts):
        if count == 0 or label == paths.dump:
            continue
        # Of a pair every example opens one row: two examples of a class may be told apart by it.
        rows = -shared.entries[label] if paths.exclusive else -shared.entries[label].sum(0, keepdim=True)
        opened = [row for row in rows if float(row[-1]) > (least if paths.exclusive else _NOTHING)]
        closed += not opened
        for row in opened:
            members = None if shared.examples is None else round(float(row[-1]) * shared.examples)
            found.append(ClassReading(label, row[:-1] / row[-1], members if paths.exclusive else count))
    if not found:
        raise UnreadableError(NOTHING_TO_DIVIDE)
    notes = [f"{closed} classes occur whose way through the linear layers was closed: nothing was read of them"]
    return found, notes if closed else []


def _subtract_absent(
    seen: Observation, shared: _Shared, paths: ClassPaths, shares: Tensor, counts: list[int | None]
) -> dict[int, Tensor]:
    """Sums of (z, 1) over the examples of every class that occurs, up to one common factor."""
    entries = shared.entries.sum(1)
    absent = [label for label, count in enumerate(counts) if count == 0]
    present = [label for label, count in enumerate(counts) if count != 0]
    if not absent or float(shared.scores.abs().max()) < _NOTHING:
        raise UnreadableError(NO_ABSENT_CLASS.format(present=len(present), classes=len(counts)))
    if not present:
        raise UnreadableError(NOTHING_TO_DIVIDE)
    base = entries[absent].mean(0) - entries[present]
    if paths.equal_scores:
        return dict(zip(present, base, strict=True))
    sums = base
    for _ in range(_ITERATIONS):
        means = sums[:, :-1] / sums[:, -1:].clamp_min(_NOTHING)
        with torch.no_grad():
            chances = _classify(seen.model, paths, means).softmax(1)
        extra = chances[:, present] - chances[:, absent].mean(1, keepdim=True)
        moved = base + extra.T @ sums
        change = float((moved - sums).norm() / moved.norm().clamp_min(1e-300))
        sums = moved
        if change < _SETTLED:
            return dict(zip(present, sums, strict=True))
    raise UnreadableError(NOT_SETTLED)


def _classify(model: nn.Module, paths: ClassPaths, features: Tensor) -> Tensor:
    """Scores of features [n, …]: the linear part of the network, in its own precision."""
    values = features
    for stage in paths.layers:
        layer = model.get_submodule(stage.name)
        values = layer(values.to(next(layer.parameters())))
        if stage is not paths.layers[-1]:
            values = values.sigmoid() if stage.response == "sigmoid" else functional.leaky_relu(values, stage.slope)
    return values.double()
