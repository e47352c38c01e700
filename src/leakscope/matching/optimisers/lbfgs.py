"""L-BFGS for groups in lockstep, with the conventions of the DLG family: no line search.

Each group has its own history and curvature. The two-loop recursion is solved as two
triangular systems in the Gram matrix S·Yᵀ: the same numbers as the loop, in a handful of
batched products instead of 2·history small steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from leakscope.matching.candidates.pixels import Variables
from leakscope.matching.optimisers.first_order import Evaluate, Evaluation, Optimiser, Project, State
from leakscope.networks import NetworkKind

# Steps of 20 evaluations on a dense, a convolutional and a deep network.
_LEAST = (5, 10, 25)


@dataclass(frozen=True)
class LBFGS(Optimiser):
    """Limited-memory BFGS; `steps` counts outer iterations of `inner` evaluations each.

    A group stops when its gradient or its step is too small, or is not finite.
    """

    lr: float = 1.0
    history: int = 100
    inner: int = 20
    signed: bool = False
    tolerance_grad: float = 1e-7
    tolerance_change: float = 1e-9

    def evaluations(self, steps: int) -> int:
        """`inner` evaluations a step."""
        return steps * self.inner

    def least_steps(self, kind: NetworkKind) -> int:
        """Few, of `inner` evaluations each: it learns the curvature, or it diverges."""
        return kind.choose(*_LEAST)

    def states(self, evaluate: Evaluate, start: Variables, *, steps: int, project: Project) -> Iterator[State]:
        """Run until every group has stopped or `steps` are used up."""
        variables = start
        memory: _Memory | None = None
        active = torch.ones(len(next(iter(start.values()))), dtype=torch.bool, device=_device(start))
        for step in range(self.evaluations(steps)):
            found = evaluate(variables)
            gradient = self._flat(found)
            active = active & torch.isfinite(found.distance) & torch.isfinite(gradient).all(1)
            active = active & (gradient.abs().amax(1) > self.tolerance_grad)
            yield State(step, variables, found, active)
            if not bool(active.any()):
                return
            gradient = torch.where(active[:, None], gradient, torch.zeros_like(gradient))
            if memory is None:
                memory = _Memory.empty(gradient, self.history)
                rate = self.lr * (1.0 / gradient.abs().sum(1).clamp_min(1e-30)).clamp_max(1.0)
            else:
                memory.learn(gradient)
                rate = torch.full_like(found.distance, self.lr)
            move = -memory.apply(gradient) * rate[:, None]
            # A direction that no longer descends, or a step too small to matter, ends a group.
            slope = (gradient * move).sum(1) / rate
            active = active & (slope < -self.tolerance_change) & (move.abs().amax(1) > self.tolerance_change)
            move = torch.where(active[:, None], move, torch.zeros_like(move))
            memory.remember(gradient, move)
            variables = project(_move(variables, move))

    def _flat(self, found: Evaluation) -> Tensor:
        gradient = torch.cat([value.flatten(1) for value in found.gradient.values()], dim=1)
        return gradient.sign() if self.signed else gradient


class _Memory:
    """Ring of past steps s and gradient changes y, per group."""

    def __init__(self, steps: Tensor, changes: Tensor, gram: Tensor, scale: Tensor) -> None:
        self.steps, self.changes, self.gram, self.scale = steps, changes, gram, scale
        self.used = 0
        self.last: tuple[Tensor, Tensor] | None = None

    @classmethod
    def empty(cls, gradient: Tensor, size: int) -> _Memory:
        groups, numbers = gradient.shape
        ring = gradient.new_zeros(groups, size, numbers)
        gram = torch.eye(size, device=gradient.device, dtype=gradient.dtype).repeat(groups, 1, 1)
        return cls(ring, ring.clone(), gram, gradient.new_ones(groups))

    def remember(self, gradient: Tensor, move: Tensor) -> None:
        self.last = (gradient, move)

    def learn(self, gradient: Tensor) -> None:
        """Store the pair of the last move; a group whose curvature is not positive stores zeros."""
        assert self.last is not None
        change, step = gradient - self.last[0], self.last[1]
        curvature = (change * step).sum(1)
        valid = curvature > 1e-10
        change, step = (torch.where(valid[:, None], value, torch.zeros_like(value)) for value in (change, step))
        slot = self.used % self.steps.shape[1]
        self.steps[:, slot], self.changes[:, slot] = step, change
        self.gram[:, slot, :] = torch.bmm(self.changes, step[:, :, None]).squeeze(2)
        self.gram[:, :, slot] = torch.bmm(self.steps, change[:, :, None]).squeeze(2)
        # An empty pair must not make the triangular system singular.
        self.gram[:, slot, slot] = torch.where(valid, curvature, torch.ones_like(curvature))
        squares = change.square().sum(1).clamp_min(1e-30)
        self.scale = torch.where(valid, curvature / squares, self.scale)
        self.used += 1

    def apply(self, gradient: Tensor) -> Tensor:
        """Inverse-Hessian times gradient.

        With R the upper triangle of S·Yᵀ in order of time: R·a = S·g, q = γ(g − Yᵀa),
        Rᵀ·c = diag(R)·a − Y·q, and the result is q + Sᵀc.
        """
        size = self.steps.shape[1]
        kept = min(self.used, size)
        if kept == 0:
            return gradient
        order = [(self.used - kept + i) % size for i in range(kept)]
        # In order of time the ring needs no gathering while it has not wrapped round.
        steps, changes = (self.steps[:, :kept], self.changes[:, :kept])
        upper = self.gram[:, order][:, :, order].triu() if self.used > size else self.gram[:, :kept, :kept].triu()
        along = torch.bmm(steps, gradient[:, :, None])[:, order]
        first = torch.linalg.solve_triangular(upper, along, upper=True)
        scattered = torch.empty_like(first)
        scattered[:, order] = first
        base = (gradient - torch.bmm(scattered.mT, changes).squeeze(1)) * self.scale[:, None]
        right = upper.diagonal(dim1=1, dim2=2)[:, :, None] * first - torch.bmm(changes, base[:, :, None])[:, order]
        second = torch.linalg.solve_triangular(upper.mT, right, upper=False)
        scattered = torch.empty_like(second)
        scattered[:, order] = second
        return base + torch.bmm(scattered.mT, steps).squeeze(1)


def _move(variables: Variables, move: Tensor) -> Variables:
    moved: Variables = {}
    place = 0
    for name, value in variables.items():
        size = value[0].numel()
        moved[name] = value + move[:, place : place + size].reshape(value.shape)
        place += size
    return moved


def _device(variables: Variables) -> torch.device:
    return next(iter(variables.values())).device
