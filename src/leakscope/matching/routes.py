"""How the matching distance of one part is differentiated: by layer rules where they can be trusted, else plainly.

The structured route needs no second-order graph and is faster than the plain one, but covers only networks it can take
apart. It is compared with the plain route at the start, at the end and at a few steps between (`trust`). Where they
disagree the next of differences, exact tangents and plain double backward takes its place.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from leakscope.client import trainable
from leakscope.fastgrad import LocalProgram, Program, Unsupported, compile_network, compile_tail
from leakscope.fastgrad.compile import Mode
from leakscope.matching.distances import Distance
from leakscope.matching.distances.distance import Grouped
from leakscope.matching.problem import Match, PlainRoute, count_parameters, groups_at_once
from leakscope.matching.replays import Replay, describe_optimiser, simulate
from leakscope.matching.trust import START_ERROR, CheckPoint, Referee, harmless_error, later_limit
from leakscope.networks import norm_layers
from leakscope.types import Observation

MODES: tuple[Mode, ...] = ("differences", "tangents")
# With fewer parameters one group's local steps are faster by double backward: LeNet 0.70×, ResNet-20 (270,000) 1.31×.
FEWEST_FOR_LOCAL_STEPS = 100_000


class Route(Protocol):
    """(images [groups, n, …], targets) → Match."""

    def __call__(self, images: Tensor, targets: Tensor, target: Grouped, given: Grouped | None = None) -> Match:
        """Evaluate all groups at `images`, `targets` and unknown tensors `given` against the observed `target`."""
        ...

    def measure(self, images: Tensor, targets: Tensor, target: Grouped, given: Grouped | None = None) -> Tensor:
        """The distances alone, at a fraction of the cost."""
        ...


class Compiled(Protocol):
    """Layer rules of a network: of one gradient (`Program`), or of local training (`LocalProgram`)."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters with gradients."""
        ...

    def gradients(self, inputs: Tensor, targets: Tensor) -> Any:
        """A first pass, whose `gradients` are what is compared."""
        ...

    def pullback(self, first: Any, direction: Grouped) -> tuple[Tensor, Tensor | None]:
        """Pull a direction in them back to inputs and soft targets."""
        ...


@dataclass(frozen=True)
class StructuredRoute:
    """Layer rules instead of a second-order graph; all groups in one pass, or so many at a time as are `together`."""

    network: Compiled
    distance: Distance
    mode: Mode = "differences"
    together: int | None = None

    def __call__(self, images: Tensor, targets: Tensor, target: Grouped, given: Grouped | None = None) -> Match:
        """Evaluate all groups; a network with unknown tensors takes the plain route."""
        rows = [self._match(*each) for each in self._turns(images, targets, target)]
        if len(rows) == 1:
            return rows[0]
        by_target = [row.targets for row in rows if row.targets is not None]
        parts = (torch.cat([row.distance for row in rows]), torch.cat([row.images for row in rows]))
        return Match(*parts, torch.cat(by_target) if by_target else None)

    def measure(self, images: Tensor, targets: Tensor, target: Grouped, given: Grouped | None = None) -> Tensor:
        """The same without the pullback."""
        with torch.no_grad():
            turns = self._turns(images, targets, target)
            return torch.cat(
                [self.distance.value(self.network.gradients(x, y).gradients, goal) for x, y, goal in turns]
            )

    def _match(self, images: Tensor, targets: Tensor, target: Grouped) -> Match:
        with torch.no_grad():
            first = self.network.gradients(images, targets)
            value, direction = self.distance.value_and_cotangent(first.gradients, target)
            pulled = self.network.pullback(first, direction)
        return Match(value, *pulled)

    def _turns(self, images: Tensor, targets: Tensor, target: Grouped) -> Iterator[tuple[Tensor, Tensor, Grouped]]:
        size = self.together or len(images)
        for start in range(0, len(images), size):
            turn = slice(start, start + size)
            yield images[turn], targets[turn], {name: value[turn] for name, value in target.items()}


class Guard:
    """The route of one part, and what its checks found.

    Attributes:
        route: what to evaluate with.
        notes: which route is taken and why; where one was given up, that too.
    """

    def __init__(self, seen: Observation, replay: Replay, distance: Distance, *, seed: int = 0) -> None:
        self._seen, self._replay = seen, replay
        self._plain = PlainRoute(seen, replay, distance)
        self._local = replay.local(seen)
        # Later steps depend on the examples of earlier ones.
        whole = self._local is not None or _mixes_examples(seen.model)
        self._referee = Referee(self._plain, whole, seed)
        self.route: Route = self._plain
        self._reason = ""
        self._given_up: list[str] = []
        self._errors: list[float] = []
        self._ties = False
        # Norm of every group's derivative where the route was chosen.
        self._start: list[float] = []

    @property
    def is_fast(self) -> bool:
        """Whether there is anything to check."""
        return isinstance(self.route, StructuredRoute)

    @property
    def note(self) -> str:
        """The route, why it was taken, and how well it was found to agree."""
        told = self._given_up if self._local is None else ["local steps are simulated", *self._given_up]
        if not isinstance(self.route, StructuredRoute):
            return "; ".join([f"plain double backward: {self._reason}", *told])
        checks = f"within {max(self._errors):.0e} of double backward in {_count(len(self._errors))}"
        ties = ["ties between equal pixels were broken by noise for it"] if self._ties else []
        return "; ".join([f"structured, {self.route.mode}: {checks}", *ties, *told])

    def choose(self, place: CheckPoint, groups: Sequence[int], *, modes: Sequence[Mode] = MODES) -> None:
        """Take the fastest route that agrees with double backward at `place`."""
        self._errors, self._ties = [], False
        self.route, self._reason = self._plain, self._refuse(place)
        # Steps are kept until they are gone through backwards; of one gradient the engine has seen to the room.
        count = place.images.shape[1]
        together = None if self._local is None else groups_at_once(self._seen, count, self._replay)
        for mode in () if self._reason else modes:
            try:
                network = self._compile(place, mode)
            except Unsupported as reason:
                self._reason = str(reason)
                return
            self.route = StructuredRoute(network, self._plain.distance, mode, together)
            if self.check(place, groups, starts=True):
                return
            self.route, self._reason = self._plain, "the structured route disagreed with it"
            self._errors, self._ties = [], False

    def check(
        self, place: CheckPoint, groups: Sequence[int], *, found: Match | None = None, starts: bool = False
    ) -> bool:
        """Whether the route agrees with double backward there, in these groups.

        `found` is what the route gave for all groups at `place`, where that is known; `starts`: the run begins there.
        """
        if not self.is_fast:
            return True
        sampled = self._referee.sample(place)
        result = found if found is not None and sampled is place else sampled.evaluate(self.route)
        sizes = result.images.flatten(1).norm(dim=1).tolist()
        self._start = sizes if starts else self._start
        for group in [one for one in groups if one < place.groups]:
            limit = START_ERROR if starts else self._later_limit(sampled, group, result, sizes[group])
            agreement = self._referee.compare(self.route, sampled, group, limit=limit, found=result)
            if not agreement.agrees:
                return False
            self._errors.append(agreement.error)
            self._ties |= agreement.ties
        return True

    def _later_limit(self, place: CheckPoint, group: int, found: Match, size: float) -> float:
        usual = later_limit(self._start[group], size)
        if found.targets is not None:
            # How far soft targets can move has no bound of its own.
            return usual
        return max(usual, harmless_error(float(found.distance[group]), size, place.reach(group, self._seen.bounds)))

    def fall_back(self, place: CheckPoint, groups: Sequence[int], *, when: str) -> None:
        """Give the route up for the next one."""
        assert isinstance(self.route, StructuredRoute)  # only a fast route is ever refused
        mode = self.route.mode
        self._given_up.append(f"structured, {mode}, was given up {when}, where it disagreed with double backward")
        self.choose(place, groups, modes=MODES[MODES.index(mode) + 1 :])
        self._reason = self._reason or "no faster route is left"

    def _refuse(self, place: CheckPoint) -> str:
        """Why no layer rules are used, before anything is compiled; empty where they may."""
        extra = "" if self._local is None else describe_optimiser(self._local)
        if extra:
            return f"local training with {extra} has no rules"
        # Not timed: the same seed must take the same route on every machine.
        small = place.groups == 1 and count_parameters(self._seen) < FEWEST_FOR_LOCAL_STEPS
        return "as fast on so small a network" if small and self._local is not None else ""

    def _compile(self, place: CheckPoint, mode: Mode) -> Compiled:
        # Compiling runs the network, which in training mode would move its running statistics.
        live = any(module.training for module in self._seen.model.modules())
        model = copy.deepcopy(self._seen.model) if live else self._seen.model
        simulation = simulate(self._replay, self._seen, place.images.shape[1])
        # What one pass works on: the examples of one step.
        example = place.images[0] if simulation is None else place.images[0, list(simulation.order[0])]
        told = {"loss": self._seen.loss, "example": example, "mode": mode}
        if simulation is None and place.target.keys() < trainable(model).keys():
            network = compile_tail(model, place.target, **told)
        else:
            # Of local training every gradient counts: it moves the weights of the next step.
            network = compile_network(model, **told)
        outside = [name for name in place.target if name not in network.names]
        if outside:
            raise Unsupported(f"no layer uses parameter {outside[0]}")
        if simulation is None:
            return network
        assert isinstance(network, Program)  # of local training nothing is cut off
        return LocalProgram(network, simulation.order, simulation.rates, simulation.factor)

    def stay_plain(self, reason: str) -> None:
        """Take the plain route."""
        self.route, self._reason = self._plain, reason


def choose_route(
    seen: Observation,
    replay: Replay,
    distance: Distance,
    *,
    images: Tensor,
    targets: Tensor,
    target: Grouped,
    unknown: bool = False,
) -> tuple[Route, str]:
    """The fastest route that agrees with plain double backward in every group here; and why."""
    guard, place = Guard(seen, replay, distance), CheckPoint(images, targets, target)
    if unknown:
        guard.stay_plain("unknown tensors of the network are searched for, too")
    else:
        guard.choose(place, range(place.groups))
    return guard.route, guard.note


def _mixes_examples(model: nn.Module) -> bool:
    """Whether batch normalisation makes every output depend on every example."""
    return any(layer.training or layer.running_mean is None for layer in norm_layers(model).values())


def _count(checks: int) -> str:
    return "one check" if checks == 1 else f"{checks} checks"
