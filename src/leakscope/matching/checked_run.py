"""When a run checks its routes, and how it goes on from the last evaluation that was found good.

An optimiser keeps a state of its own, so a run does not continue from an iterate: it begins again and is handed the
evaluations that it had, up to the last good check, which brings it back to the very state it was in there.
"""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor

from leakscope import rng as random
from leakscope.matching.optimisers import Evaluation
from leakscope.matching.routes import Guard
from leakscope.matching.trust import CheckPoint

# From so many steps on every group is checked at the start and at the end: 2 of 100 evaluations of each.
LONG_RUN = 100
# Steps for each check between start and end, and the most there are.
STEPS_PER_CHECK = 150
MOST_BETWEEN = 4
# Memory for evaluations that are kept; a run that has more of them begins again from its start.
KEPT_BYTES = 256 * 2**20

Result = TypeVar("Result", Evaluation, Tensor)


class RouteRefused(Exception):
    """A route disagreed with double backward in the middle of a run; never leaves `engine.run`."""

    def __init__(self, guard: Guard, place: CheckPoint, when: str) -> None:
        super().__init__(when)
        self.guard, self.place, self.when = guard, place, when


class CheckedRun:
    """Counts the evaluations of a run, says which of them are checked, and keeps those found so far."""

    def __init__(self, steps: int, groups: int, seed: int) -> None:
        self._groups, self._long = groups, steps >= LONG_RUN
        self._rng = random.generator(seed, "route checks")
        between = min(MOST_BETWEEN, steps // STEPS_PER_CHECK)
        drawn = torch.randperm(max(0, steps - 2), generator=self._rng)[:between]
        # Neither the first evaluation nor the last: they have checks of their own.
        self._due = frozenset(int(step) + 1 for step in drawn)
        self._kept: list[Evaluation | Tensor] = []
        self._bytes = 0
        self._good = 0
        self.calls = 0
        self.used_gradients = False

    def start_groups(self) -> range | list[int]:
        """Groups to check at the start."""
        return range(self._groups) if self._long else [0]

    def end_groups(self) -> range | list[int]:
        """Groups to check at the end."""
        return range(self._groups) if self._long else self.groups_between()

    def groups_between(self) -> list[int]:
        """One group, drawn."""
        return [int(torch.randint(self._groups, (1,), generator=self._rng))]

    def is_due(self) -> bool:
        """Whether the evaluation that is under way is one to check."""
        return self.calls in self._due

    def approve(self) -> None:
        """Everything up to and with the evaluation that is under way was found good."""
        self._good = self.calls + 1

    def recall(self, kind: type[Result]) -> Result | None:
        """The evaluation that the run had at this place before it began again; None where it is new."""
        if self.calls >= len(self._kept):
            return None
        known = self._kept[self.calls]
        assert isinstance(known, kind)  # the same run asks the same questions
        self.calls += 1
        return known

    def keep(self, found: Result, *, worth: bool) -> Result:
        """Count an evaluation, and keep it where the run may begin again."""
        if isinstance(found, Evaluation):
            self.used_gradients = True
        if worth and len(self._kept) == self.calls:
            self._bytes += _count_bytes(found)
            if self._bytes <= KEPT_BYTES:
                self._kept.append(found)
        self.calls += 1
        return found

    def begin_again(self) -> None:
        """Forget what came after the last good check; the next evaluations are handed out again from the first on."""
        self._kept = self._kept[: self._good] if len(self._kept) >= self._good else []
        self._good = len(self._kept)
        self._bytes = sum(_count_bytes(found) for found in self._kept)
        self.calls = 0


def _count_bytes(found: Evaluation | Tensor) -> int:
    tensors = [found] if isinstance(found, Tensor) else [found.distance, *found.gradient.values()]
    return sum(value.numel() * value.element_size() for value in tensors)
