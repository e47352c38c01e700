"""GGL behind networks with and without a key-lock: a prior trained on public pictures, then one search per victim."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch

import leakscope as ls
from leakscope.audits.cell import run_cell
from leakscope.metrics.legacy import psnr_root_mse_8bit
from leakscope.priors import Prior, Trainer, TrainingSettings
from leakscope.registry import defence_from_spec
from leakscope.reproduction import CallValues
from leakscope.reproduction.networks import build_network
from leakscope.types import AuditResult, Batch, Status


def rebuild(
    *,
    model: Mapping[str, Any],
    data: str,
    indices: Sequence[Sequence[int]],
    size: int | None,
    prior: Mapping[str, int] | None,
    attack: Mapping[str, Any],
    defence: str,
    adaptive: bool,
    lpips: bool,
) -> CallValues:
    """One number per victim; `ended_well` is PSNR again, and NaN where the search is no evidence of protection."""
    chosen = ls.get_attack("ggl", prior="smooth" if prior is None else train_prior(data, size, **prior), **attack)
    columns: dict[str, list[float]] = {}
    pictures: list[torch.Tensor] = []
    for victim, batch in enumerate(indices):
        private = ls.data.load(data, split="test", indices=batch, size=size)
        found = run_cell(
            build_network({**model, "seed": victim}, data, private),
            private,
            chosen,
            defence=defence_from_spec(defence),
            adaptive=adaptive,
            scenario="C",
            seed=victim,
            with_lpips=lpips,
            prior_alone=False,
        )
        for name, value in describe(found, private).items():
            columns.setdefault(name, []).append(value)
        if victim == 0 and found.reconstruction is not None:
            pictures = [private.inputs, found.reconstruction.clamp(0, 1)]
    return CallValues(columns, dict(zip(("truth", "reconstruction"), pictures, strict=False)))


def describe(found: AuditResult, private: Batch) -> dict[str, float]:
    """What a search came to; NaN where it brought nothing back."""
    if found.scores is None or found.reconstruction is None:
        return dict.fromkeys(("psnr", "ssim", "label_correct", "baseline_psnr", "legacy", "ended_well"), math.nan)
    values = {name: float(column.mean()) for name, column in found.scores.metrics.items()}
    values["label_correct"] = float(found.scores.label_correct.float().mean())
    values["legacy"] = float(psnr_root_mse_8bit(found.reconstruction, private.inputs).mean())
    values["baseline_psnr"] = math.nan if found.baseline_psnr is None else float(found.baseline_psnr.mean())
    values["ended_well"] = values["psnr"] if found.status is Status.OK else math.nan
    return values


@lru_cache(maxsize=2)
def train_prior(data: str, size: int | None, *, examples: int, epochs: int) -> Prior:
    """A generator trained on public pictures: the training part, never the victims; once in a process."""
    images = ls.data.load(data, split="train", count=examples, seed=0, size=size).inputs
    trainer = Trainer(images, TrainingSettings(latent=64, epochs=epochs))
    for _ in trainer.run():
        pass
    return trainer.prior(f"{examples} training pictures of {data}")
