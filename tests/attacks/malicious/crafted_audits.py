"""What tests of malicious servers share: made-up pictures, and one round by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch.nn import functional

import leakscope as ls
from leakscope.attack import CraftContext
from leakscope.rng import generator, uniform
from leakscope.tasks import Classification

RAW = Classification(loss=functional.nll_loss)


def named(name: str, **options: Any) -> Any:
    """An attack with what it has beyond the base class."""
    return ls.get_attack(name, **options)


def pictures(labels: list[int], *, shape: tuple[int, ...] = (3, 16, 16), seed: int = 0) -> ls.Batch:
    """Smooth pictures, each another one."""
    coarse = uniform((len(labels), shape[0], 4, 4), generator(seed, "pictures"))
    return ls.Batch(functional.interpolate(coarse, size=shape[1:], mode="bilinear").clamp(0, 1), torch.tensor(labels))


def play(attack: Any, model: Any, batch: ls.Batch, *, task: Any = None, scenario: str = "C", seed: int = 0) -> Any:
    """What the server sees of the last of its rounds; the agreed model stays where it is."""
    played: list[ls.Observation] = []
    for number in range(attack.rounds):
        context = CraftContext(
            seed=seed, input_shape=tuple(batch.inputs.shape[1:]), round=number, history=tuple(played)
        )
        crafted = attack.craft(model, context=context)
        update = ls.share(crafted.model, batch, seed=1, task=task)
        assert isinstance(update, ls.SharedUpdate)
        seen = ls.observe(crafted.model, update, scenario=scenario, truth=batch, task=task)
        played.append(replace(seen, earlier=tuple(played), secret=crafted.secret))
    return played[-1]


def by_label(batch: ls.Batch) -> torch.Tensor:
    """Inputs in the order of their labels."""
    return batch.inputs[batch.targets.argsort()]
