"""Whom recognisers see in rebuilt faces: top-1, top-3 and top-5 of two networks, Tables 3.14 and 3.15."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

import leakscope as ls
from leakscope.registry import attack_from_spec
from leakscope.reproduction import CallValues
from leakscope.reproduction.networks import build_network
from leakscope.types import Status

# Imported here so that the key of a cell covers the source of the recogniser that it names.
from reproductions.thesis.recognisers import small_densenet as small_densenet

TOP = (1, 3, 5)


def reidentify(
    *,
    model: Mapping[str, Any],
    recognisers: Mapping[str, Mapping[str, Any]],
    data: str,
    indices: Sequence[Sequence[int]],
    attack: str,
    size: int | None = None,
    seed: int = 0,
    pictures: bool = False,
) -> CallValues:
    """Attack faces of the test part; recognisers know the people from other pictures, those of the training part.

    One number per victim, shares of its faces: `res18_top1` of rebuilt and `res18_true_top1` of true faces, likewise
    for 3 and 5 and for every recogniser; `res18_confidence` is the probability of the likeliest person. Beside them
    `psnr`, `ssim`, `label_correct`, `is_ok`.
    """
    values: dict[str, list[float]] = {}
    kept: dict[str, Tensor] = {}
    for place, rows in enumerate(indices):
        batch = ls.data.load(data, indices=list(rows), size=size)
        network = build_network({**model, "seed": model["seed"] + place}, data, batch)
        seen = ls.observe(network, ls.share(network, batch), scenario="C", truth=batch)
        found = attack_from_spec(attack).reconstruct(seen, seed + place, diagnosing=False)
        scores = ls.score(found, batch)
        rebuilt = found.inputs[scores.assignment].clamp(0, 1).nan_to_num(0.0)
        told = {name: float(scores.metrics[name].mean()) for name in ("psnr", "ssim")}
        told["label_correct"] = float(scores.label_correct.float().mean())
        told["is_ok"] = float(found.status is Status.OK)
        for name, spec in recognisers.items():
            judge = build_network(spec, data, batch)
            for kind, faces in (("", rebuilt), ("true_", batch.inputs)):
                told |= {f"{name}_{kind}top{k}": value for k, value in top_shares(judge, faces, batch.targets).items()}
                told[f"{name}_{kind}confidence"] = mean_confidence(judge, faces)
        for name, value in told.items():
            values.setdefault(name, []).append(value)
        if pictures and not kept:
            kept = {"truth": batch.inputs, "reconstruction": rebuilt}
    return CallValues(values, kept)


@torch.no_grad()
def top_shares(recogniser: nn.Module, faces: Tensor, people: Tensor) -> dict[int, float]:
    """Share of faces whose person is among the 1, 3 and 5 likeliest."""
    scores = recogniser(faces)
    order = scores.topk(min(max(TOP), scores.shape[1]), dim=1).indices
    hits = order == people[:, None]
    return {k: float(hits[:, :k].any(1).float().mean()) for k in TOP}


@torch.no_grad()
def mean_confidence(recogniser: nn.Module, faces: Tensor) -> float:
    """Probability of the likeliest person, in the mean of the faces."""
    return float(recogniser(faces).softmax(1).amax(1).mean())
