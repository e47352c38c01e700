"""Crafted models for the calibration of `leakscope inspect`: constructions of the papers, each at several strengths.

Those of leakscope's own malicious attacks are made by the attacks; the others are in `inspection_constructions`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from inspection_constructions import CONSTRUCTIONS
from leakscope import get_attack
from leakscope.attack import CraftContext
from leakscope.catalogue import ATTACKS
from leakscope.errors import LeakscopeError
from leakscope.types import Batch


@dataclass(frozen=True, eq=False)
class CraftedModel:
    """One crafted model, the honest one it was made of, and the client's examples."""

    name: str
    strength: str
    model: nn.Module
    agreed: nn.Module
    batch: Batch


def craft_all(agreed: nn.Module, batch: Batch, *, seed: int) -> Iterator[CraftedModel]:
    """Every construction that this network allows, at every strength."""
    for name, (change, strengths) in CONSTRUCTIONS.items():
        for strength in strengths:
            model = change(copy.deepcopy(agreed), batch, strength)
            if model is not None:
                yield CraftedModel(name, f"{strength:g}", model, agreed, batch)
    shape, outputs = tuple(batch.inputs.shape[1:]), agreed(batch.inputs[:2]).shape[1]
    context = CraftContext(seed=seed, input_shape=shape, num_classes=outputs)
    for spec, options in ATTACK_STRENGTHS:
        if spec in ATTACKS:
            try:
                model = get_attack(spec, **options).craft(agreed, context=context).model
            except LeakscopeError:
                # The attack says itself on which networks it works.
                continue
            told = ",".join(f"{key}={value}" for key, value in options.items()) or "default"
            form = options.get("form")
            yield CraftedModel(f"{spec}{f' {form}' if form else ''}", told, model, agreed, batch)


ATTACK_STRENGTHS: tuple[tuple[str, dict[str, object]], ...] = (
    *(("mkor", {"form": "naive", "loss": loss}) for loss in ("raw-nll", "cross-entropy")),
    *(("mkor", {"form": "inconspicuous", "alpha": alpha}) for alpha in (-1.0, -0.5)),
    *(("mkor", {"form": "inconspicuous", "noise": noise}) for noise in (1e-7, 1e-6)),
    *(("class-fishing", {"target": 0, "lift": lift}) for lift in (100.0, 1000.0)),
    *(("robbing-the-fed", {"bins": bins}) for bins in (32, 64, 128)),
    *(("trap-weights", {"scale": scale}) for scale in (None, 1.1, 1.3)),
    ("trap-weights", {"share": 0.5}),
)
