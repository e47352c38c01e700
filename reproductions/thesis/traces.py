"""An attack watched on its way: how far picture and gradient are from the truth after every tenth of the run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

import leakscope as ls
from leakscope.attack import Attack
from leakscope.matching.distances import SquaredPlusNorm
from leakscope.matching.gradient_matching import GradientMatching
from leakscope.metrics.assign import assign
from leakscope.registry import attack_from_spec, defence_from_spec
from leakscope.reproduction import CallValues
from leakscope.reproduction.networks import build_network
from leakscope.types import Batch, Status

# Per cent of the planned evaluations.
MARKS = (0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100)
# Blocks on a side, for what a picture looks like from afar.
COARSE = 4


@dataclass
class Trace:
    """One attempt: pictures and matching distances at the marks it came to, and the last of all."""

    planned: int
    pictures: dict[int, Tensor] = field(default_factory=dict)
    distances: dict[int, float] = field(default_factory=dict)
    last: tuple[Tensor, float] | None = None

    def see(self, step: int, images: Tensor, distances: Tensor) -> None:
        """Keep an iterate; where it is at a mark, for good."""
        picture, distance = images[0].detach().clone(), float(distances[0])
        if self.last is None or (math.isfinite(distance) and bool(picture.isfinite().all())):
            self.last = (picture, distance)
        for mark in MARKS:
            if step == round(mark / 100 * (self.planned - 1)):
                self.pictures[mark], self.distances[mark] = self.last

    def at(self, mark: int) -> tuple[Tensor, float]:
        """The iterate at a mark; a run that stopped by itself stays at its last finite one."""
        assert self.last is not None
        return (self.pictures[mark], self.distances[mark]) if mark in self.pictures else self.last


def watch_attack(
    *,
    model: Mapping[str, Any],
    data: str,
    indices: Sequence[Sequence[int]],
    attack: str,
    size: int | None = None,
    defence: str = "none",
    scenario: str = "C",
    seed: int = 0,
    pictures: bool = False,
) -> CallValues:
    """Attack one victim after the other, and measure at every tenth of the run, one number per victim.

    `mse@10`, `mae@10`, `norm@10` (the release's "WD"), `coarse@10`, `psnr@10` of pictures after assignment, and
    `gradient@10`, the mean squared error of the gradient; `mse`, `psnr`, `ssim`, `label_correct` of what the attack
    returns, and `is_ok`, whether it ended well. Of several attempts the one that ended nearest is told. With
    `pictures`, the first example of the first victim from the last mark back to the first.
    """
    values: dict[str, list[float]] = {}
    kept: dict[str, Tensor] = {}
    for place, rows in enumerate(indices):
        batch = ls.data.load(data, indices=list(rows), size=size)
        network = build_network(model, data, batch)
        update = ls.share(network, batch, defence=defence_from_spec(defence), seed=seed + place)
        seen = ls.observe(network, update, scenario=scenario, truth=batch)
        chosen, attempts = attack_from_spec(attack), list[Trace]()
        planned = chosen.effort.evaluations or 1

        def watch(step: int, images: Tensor, distances: Tensor, *, runs: list[Trace] = attempts) -> None:
            if step == 0:
                runs.append(Trace(planned))  # noqa: B023 - the same for every victim
            runs[-1].see(step, images, distances)

        found = chosen.reconstruct(seen, seed + place, watch=watch, diagnosing=False)
        trace = min(attempts, key=lambda one: one.at(100)[1])
        parameters = sum(value.numel() for value in seen.update.tensors.values())
        told = {f"{name}@{mark}": value for mark in MARKS for name, value in compare(*trace.at(mark), batch).items()}
        told |= {f"gradient@{mark}": squared_norm(trace.at(mark)[1], chosen) / parameters for mark in MARKS}
        scores = ls.score(found, batch)
        told |= {name: float(scores.metrics[name].mean()) for name in ("mse", "psnr", "ssim")}
        told["label_correct"] = float(scores.label_correct.float().mean())
        told["is_ok"] = float(found.status is Status.OK)
        for name, value in told.items():
            values.setdefault(name, []).append(value)
        if pictures and not kept:
            kept = _side_by_side(trace, batch)
    return CallValues(values, kept)


def compare(images: Tensor, distance: float, truth: Batch) -> dict[str, float]:
    """Errors of pictures in [0, 1] against the truth, each with its own partner, as means over the batch.

    mse = mean d², mae = mean |d| (the release logs it as "mse"), norm = ‖d‖₂ (the release logs it as "wd"),
    coarse = mse of means over 4 × 4 blocks, psnr = 10·log10(1/mse) picture by picture.
    """
    inside = images.clamp(0, 1).nan_to_num(0.0)
    gaps = inside[assign(inside, truth.inputs)] - truth.inputs
    each = gaps.square().flatten(1).mean(1).clamp_min(1e-15)
    blocks = functional.adaptive_avg_pool2d(gaps, COARSE)
    return {
        "mse": float(each.mean()),
        "mae": float(gaps.abs().mean()),
        "norm": float(gaps.flatten(1).norm(dim=1).mean()),
        "coarse": float(blocks.square().mean()),
        "psnr": float((-10 * each.log10()).mean()),
    }


def squared_norm(distance: float, attack: Attack) -> float:
    """‖d‖² from the distance that an attack minimises: ‖d‖² + ‖d‖ = D gives ‖d‖ = (√(1 + 4D) − 1) / 2."""
    if isinstance(attack, GradientMatching) and isinstance(attack.recipe.distance, SquaredPlusNorm):
        return ((math.sqrt(1 + 4 * distance) - 1) / 2) ** 2
    return distance


def _side_by_side(trace: Trace, batch: Batch) -> dict[str, Tensor]:
    """The first example as it came about, the end first: the page's caption is that of the end."""
    rows = []
    for mark in reversed(MARKS):
        images = trace.at(mark)[0].clamp(0, 1).nan_to_num(0.0)
        rows.append(images[assign(images, batch.inputs)[0]])
    return {"truth": batch.inputs[:1].repeat(len(MARKS), 1, 1, 1), "reconstruction": torch.stack(rows)}
