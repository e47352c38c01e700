"""How much of an update a result explains, and how much inputs explain that know nothing of it.

With u the shared update and û the one that the declared client makes of the result, both over all shared tensors,

    cosine = ⟨u, û⟩ / (‖u‖ ‖û‖),    explained = 1 − min_s ‖u − s·û‖² / ‖u‖²,    s ≥ 0,

which is cosine² where the cosine is positive, and 0 elsewhere. The length of û is left open because attacks that match
directions leave it open; whether the best s can be what was declared is a question of its own: see `diagnosis`.

An attacker who knows a defence compares less than all tensors, or compares what the defence would have made of û: see
`MatchedPart`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from leakscope import rng as random
from leakscope.explanation.description import replays
from leakscope.explanation.unrelated import unrelated_inputs
from leakscope.types import Observation, Reconstruction, Tensors

# Orders that are tried for what an unknown one costs.
_ORDERS = 4

# Takes a replayed update and the shared one, and returns the replayed one as it is compared.
View = Callable[[Tensors, Tensors], Tensors]


def unchanged(replayed: Tensors, update: Tensors) -> Tensors:
    """Compare a replayed update as it is."""
    return replayed


@dataclass(frozen=True)
class MatchedPart:
    """What of an update a result has to explain.

    Attributes:
        seen: the observation with the tensors that are compared; one that a defence changed may be missing.
        view: what is done to a replayed update first: someone who knows of pruning compares what was shared.
    """

    seen: Observation
    view: View = unchanged

    def count(self) -> int:
        """How many numbers of the update are compared, of all rounds together."""
        update = self.seen.update.tensors
        ones = {name: torch.ones_like(value) for name, value in update.items()}
        kept = self.view(ones, update)
        return (1 + len(self.seen.earlier)) * sum(int((kept[name] != 0).sum()) for name in update)


@dataclass(frozen=True)
class UpdateMatch:
    """How an update u and a replayed û compare.

    Attributes:
        explained: 1 − min_s ‖u − s·û‖²/‖u‖² over s ≥ 0.
        cosine: of u and û.
        scale: the best s, whatever its sign: how much longer u is than the description says.
        as_declared: 1 − ‖u − û‖²/‖u‖², with the length that the description gives.
    """

    explained: float
    cosine: float
    scale: float
    as_declared: float


def compare(update: Tensors, replayed: Tensors) -> UpdateMatch:
    """Compare two updates over all tensors of the first."""
    u = torch.cat([value.detach().reshape(-1).double() for value in update.values()])
    v = torch.cat([replayed[name].detach().reshape(-1).double() for name in update])
    energy, length, product = float(u @ u), float(v @ v), float(u @ v)
    if not (math.isfinite(length) and math.isfinite(product)) or energy == 0:
        return UpdateMatch(0.0, 0.0, 0.0, -math.inf)
    if length == 0:
        return UpdateMatch(0.0, 0.0, 0.0, 0.0)
    cosine = max(-1.0, min(1.0, product / math.sqrt(energy * length)))
    declared = 1 - float((u - v).square().sum()) / energy
    return UpdateMatch(max(cosine, 0.0) ** 2, cosine, product / length, declared)


def best_match(seen: Observation, inputs: Tensor, targets: Tensor, *, view: View = unchanged) -> UpdateMatch:
    """The best that the declared ways to replay make of these examples."""
    update = seen.update.tensors
    matches = [compare(update, view(way(inputs, targets), update)) for way in replays(seen, len(inputs))]
    return max(matches, key=lambda match: match.explained)


def explained_by(seen: Observation, inputs: Tensor, targets: Tensor, *, view: View = unchanged) -> tuple[float, float]:
    """(explained, cosine) of the update that `inputs` and `targets` would have caused, by what was declared.

    Example:
        >>> explained, cosine = explained_by(seen, batch.inputs, batch.targets)          # doctest: +SKIP
    """
    match = best_match(seen, inputs.to(device=seen.device, dtype=seen.dtype), targets.to(seen.device), view=view)
    return match.explained, match.cosine


def unrelated_share(seen: Observation, targets: Tensor, *, view: View = unchanged) -> float:
    """The most that pictures drawn without the update explain of it with the same targets."""
    draws = unrelated_inputs(seen, len(targets))
    return max(best_match(seen, inputs, targets, view=view).explained for inputs in draws)


def attainable_share(seen: Observation, inputs: Tensor, targets: Tensor) -> float:
    """What even the true examples may explain where the order of the steps is not known; 1 where it is.

    The given examples are trained on in other orders, and replayed in the one that stands for the unknown order.
    """
    ways = replays(seen, len(inputs))
    if len(ways) == 1 or seen.local is None:
        return 1.0
    shares: list[float] = []
    for draw in range(_ORDERS):
        order = replace(seen.local, shuffle=True).order(len(inputs), random.generator(0, "order", draw))
        made = replace(ways[0], seen=replace(seen, order=order))(inputs, targets)
        shares.append(max(compare(made, way(inputs, targets)).explained for way in ways))
    return sum(shares) / len(shares)


def measurable_targets(found: Reconstruction) -> Tensor | None:
    """The targets to replay a reconstruction with; None where it has no fit.

    It has none without targets, and where it is not finite. Of several updates at once the latest one is meant.
    """
    targets = used_targets(found)
    if targets is None or not found.inputs.is_floating_point():
        return None
    if not bool(torch.isfinite(found.inputs).all()) or len(targets) != len(found.inputs):
        return None
    return targets


def used_targets(found: Reconstruction) -> Tensor | None:
    """What the loss was computed with: soft labels where they were optimised."""
    return found.targets if found.target_probabilities is None else found.target_probabilities
