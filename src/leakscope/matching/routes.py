"""Ways to the gradient of the matching objective: plain double backward, or structured.

Plain works for every network, loss and replay. The structured route needs no second-order
graph and is faster, but covers only networks it can take apart; it is compared with the
plain route on the first step and dropped, with a note, where they disagree.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from leakscope.client import second_derivative, trainable
from leakscope.fastgrad import Program, Unsupported, compile_network
from leakscope.matching.distances.distance import Distance, Grouped
from leakscope.matching.replays.replay import Replay, predict
from leakscope.types import Observation

# A wrong layer rule is off by far more; float32 differences are off by less.
AGREEMENT_COSINE = 0.999
AGREEMENT_DISTANCE = 1e-3


@dataclass(frozen=True)
class Match:
    """Distance per group and its derivative in the images and, where soft, in the targets."""

    distance: Tensor
    images: Tensor
    targets: Tensor | None


class Route(Protocol):
    """(images [groups, n, …], targets) → Match."""

    def __call__(self, images: Tensor, targets: Tensor, target: Grouped) -> Match:
        """Evaluate all groups at `images` and `targets` against the observed `target`."""
        ...

    def measure(self, images: Tensor, targets: Tensor, target: Grouped) -> Tensor:
        """The distances alone, at a fraction of the cost."""
        ...


@dataclass(frozen=True)
class PlainRoute:
    """Differentiate the replayed update with a second-order graph, group by group."""

    seen: Observation
    replay: Replay
    distance: Distance

    def __call__(self, images: Tensor, targets: Tensor, target: Grouped) -> Match:
        """Evaluate every group."""
        rows = [self._match_one(images[g], targets[g], _select(target, g)) for g in range(len(images))]
        soft = targets.is_floating_point()
        return Match(
            torch.stack([row[0] for row in rows]),
            torch.stack([row[1] for row in rows]),
            torch.stack([row[2] for row in rows if row[2] is not None]) if soft else None,
        )

    def measure(self, images: Tensor, targets: Tensor, target: Grouped) -> Tensor:
        """Replay every group without a second-order graph."""
        rows = [
            self.distance_at(images[g], targets[g], _select(target, g), create_graph=False)[0].detach()
            for g in range(len(images))
        ]
        return torch.stack(rows)

    def _match_one(self, images: Tensor, targets: Tensor, target: Grouped) -> tuple[Tensor, Tensor, Tensor | None]:
        with torch.enable_grad(), second_derivative():
            value, leaves = self.distance_at(images, targets, target, create_graph=True)
            grads = torch.autograd.grad(value, leaves, allow_unused=True, materialize_grads=True)
        return value.detach(), grads[0], grads[1] if len(grads) > 1 else None

    def distance_at(
        self, images: Tensor, targets: Tensor, target: Grouped, *, create_graph: bool
    ) -> tuple[Tensor, list[Tensor]]:
        """Distance of one group, and the leaves it can be differentiated by."""
        parameters = {k: v.detach().requires_grad_() for k, v in trainable(self.seen.model).items()}
        leaves = [images.detach().requires_grad_(create_graph)]
        if targets.is_floating_point():
            leaves.append(targets.detach().requires_grad_(create_graph))
        labels = leaves[1] if len(leaves) > 1 else targets
        found = predict(self.replay, self.seen, parameters, leaves[0], labels, create_graph=create_graph)
        return self.distance.value({name: found[name][None] for name in target}, target)[0], leaves


@dataclass(frozen=True)
class StructuredRoute:
    """Layer rules instead of a second-order graph; all groups in one pass."""

    network: Program
    distance: Distance

    def __call__(self, images: Tensor, targets: Tensor, target: Grouped) -> Match:
        """Evaluate all groups together."""
        with torch.no_grad():
            first = self.network.gradients(images, targets)
            value, direction = self.distance.value_and_cotangent(first.gradients, target)
            pulled = self.network.pullback(first, direction)
        return Match(value, *pulled)

    def measure(self, images: Tensor, targets: Tensor, target: Grouped) -> Tensor:
        """One pass for all groups, without the pullback."""
        with torch.no_grad():
            return self.distance.value(self.network.gradients(images, targets).gradients, target)


def choose_route(
    seen: Observation, replay: Replay, distance: Distance, *, images: Tensor, targets: Tensor, target: Grouped
) -> tuple[Route, str]:
    """The fastest route that agrees with plain double backward at the first example; and why."""
    plain = PlainRoute(seen, replay, distance)
    if replay.local(seen) is not None:
        return plain, "plain double backward: local steps are simulated"
    # Compiling runs the network, which in training mode would move its running statistics.
    live = any(module.training for module in seen.model.modules())
    model = copy.deepcopy(seen.model) if live else seen.model
    # One example of one group proves the layer rules at the least memory.
    sample, labels = images[:1, :1], targets[:1, :1]
    goal = _select(target, 0)
    reference: Match | None = None
    for mode in ("differences", "tangents"):
        try:
            network = compile_network(model, loss=seen.loss, example=images[0], mode=mode)
        except Unsupported as reason:
            return plain, f"plain double backward: {reason}"
        route = StructuredRoute(network, distance)
        reference = plain(sample, labels, goal) if reference is None else reference
        if _agree(route(sample, labels, goal), reference):
            return route, f"structured, {mode}: agrees with double backward on the first step"
    return plain, "plain double backward: the structured route disagreed with it on the first step"


def _select(target: Grouped, group: int) -> dict[str, Tensor]:
    """One group's tensors, still with an axis of groups."""
    return {name: value[group : group + 1] for name, value in target.items()}


def _agree(found: Match, reference: Match) -> bool:
    gap = (found.distance - reference.distance).abs() / reference.distance.abs().clamp_min(1e-12)
    left, right = found.images.flatten().double(), reference.images.flatten().double()
    cosine = torch.dot(left, right) / (left.norm() * right.norm()).clamp_min(1e-300)
    length = left.norm() / right.norm().clamp_min(1e-300)
    close = bool((gap < AGREEMENT_DISTANCE).all()) and float(cosine) > AGREEMENT_COSINE
    return close and abs(float(length) - 1) < 0.02
