"""Attacks that look for the truth where it must not be; each needed ten lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from leakscope import rng as random
from leakscope.attack import Attack, CraftContext, Crafted, Watch
from leakscope.attacks.fc_inversion import fc_inversion
from leakscope.types import Observation, Reconstruction, Status


@dataclass(frozen=True)
class _Cheat(Attack):
    name: str = "cheat"
    paper: str = "none"

    def evaluate(self, seen: Observation, reconstruction: Reconstruction) -> float:
        return 0.0

    def _reconstruct(self, seen: Observation, seed: int, watch: Watch | None) -> Reconstruction:
        return self.answer(self.look(seen), seen)

    def look(self, seen: Observation) -> Tensor | None:
        raise NotImplementedError

    def answer(self, found: Tensor | None, seen: Observation) -> Reconstruction:
        grey = torch.full((1, *seen.input_shape), 0.5, dtype=seen.dtype)
        usable = found is not None and found.shape[1:] == grey.shape[1:]
        return Reconstruction(found if usable and found is not None else grey, None, 0.0, Status.OK, (0.0,))


@dataclass(frozen=True)
class DrawsTheNoiseAgain(_Cheat):
    """Takes the client's noise off the update: it knows the audit's seed and how the client's is made of it."""

    sigma: float = 0.1

    def _reconstruct_several(self, seen: Sequence[Observation], seed: int, watch: Watch | None) -> list[Reconstruction]:
        return [self._denoise(one, seed, place) for place, one in enumerate(seen)]

    def _denoise(self, seen: Observation, seed: int, place: int) -> Reconstruction:
        tried = []
        for guess in (seed, *range(50)):
            rng = random.generator(random.child_seed(guess, "share", place), "client")
            torch.randint(2**62, (1,), generator=rng)
            clean = {name: v - self.sigma * random.normal_like(v, rng) for name, v in seen.update.tensors.items()}
            tried.append(fc_inversion().reconstruct(replace(seen, update=replace(seen.update, tensors=clean))))
        return min(tried, key=lambda found: found.loss)


@dataclass(frozen=True)
class ReadsTheModulesMemory(_Cheat):
    """Looks for a tensor that a module kept of its last forward pass."""

    def look(self, seen: Observation) -> Tensor | None:
        kept = [
            value for module in seen.model.modules() for value in vars(module).values() if isinstance(value, Tensor)
        ]
        return next((value for value in kept if value.ndim == 1 + len(seen.input_shape)), None)


@dataclass(frozen=True)
class HandsOutARecorder(_Cheat):
    """Hands out a model that writes down what it is fed, in one of several ways."""

    how: str = "hook"
    is_malicious = True

    def _craft(self, model: nn.Module, context: CraftContext) -> Crafted:
        records: list[Tensor] = []

        def record(_module: nn.Module, received: Any) -> None:
            records.append(received[0].detach().clone())

        if self.how == "hook":
            model.register_forward_pre_hook(record)
        elif self.how == "global hook":
            register_module_forward_pre_hook(record)
        elif self.how == "own forward":
            forward = model.forward
            model.forward = lambda x: (record(model, (x,)), forward(x))[1]
        elif self.how == "own class":
            model = Recorder(model, records)
        return Crafted(model, secret=records)

    def look(self, seen: Observation) -> Tensor | None:
        records: Any = seen.secret
        return next((value for value in records if value.ndim == 1 + len(seen.input_shape)), None)


@dataclass(frozen=True)
class HandsOutAnotherNetwork(HandsOutARecorder):
    """The same with an architecture of its own."""

    changes_architecture = True


class Recorder(nn.Module):
    """A layer of the attacker's own."""

    def __init__(self, inner: nn.Module, records: list[Tensor]) -> None:
        super().__init__()
        self.inner, self.records = inner, records

    def forward(self, x: Tensor) -> Tensor:
        self.records.append(x.detach().clone())
        return self.inner(x)
