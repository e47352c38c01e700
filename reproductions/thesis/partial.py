"""Attacks on a part of the gradient: chapter 6."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import leakscope as ls
from leakscope.metrics import guess_baseline
from leakscope.observation import restrict
from leakscope.registry import attack_from_spec
from leakscope.reproduction import CallValues
from leakscope.reproduction.networks import build_network
from leakscope.types import Status


def rebuild_from_part(
    *,
    names: Sequence[str],
    model: Mapping[str, Any],
    data: str,
    indices: Sequence[Sequence[int]],
    attack: str,
    size: int | None = None,
    seed: int = 0,
    pictures: bool = False,
) -> CallValues:
    """The server sees only the tensors that match `names`; nothing for all of them.

    One number per victim: `psnr`, `ssim`, `mse`, `label_correct`, `is_ok`, `baseline_psnr` of a blind guess, and
    `shared`, the share of the gradient's numbers that it sees.
    """
    values: dict[str, list[float]] = {}
    kept = {}
    for place, rows in enumerate(indices):
        batch = ls.data.load(data, indices=list(rows), size=size)
        network = build_network(model, data, batch)
        whole = ls.share(network, batch)
        assert isinstance(whole, ls.SharedUpdate)
        part = restrict(whole, list(names)) if names else whole
        seen = ls.observe(network, part, scenario="C", truth=batch)
        found = attack_from_spec(attack).reconstruct(seen, seed + place, diagnosing=False)
        scores = ls.score(found, batch)
        told = {name: float(scores.metrics[name].mean()) for name in ("psnr", "ssim", "mse")}
        told["label_correct"] = float(scores.label_correct.float().mean())
        told["is_ok"] = float(found.status is Status.OK)
        told["baseline_psnr"] = float(guess_baseline(batch).mean())
        told["shared"] = count(part.tensors) / count(whole.tensors)
        for name, value in told.items():
            values.setdefault(name, []).append(value)
        if pictures and not kept:
            kept = {
                "truth": batch.inputs,
                "reconstruction": found.inputs[scores.assignment].clamp(0, 1).nan_to_num(0.0),
            }
    return CallValues(values, kept)


def count(tensors: Mapping[str, Any]) -> int:
    """Numbers in some tensors."""
    return sum(value.numel() for value in tensors.values())
