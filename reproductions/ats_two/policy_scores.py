"""S_pri and S_acc of policies, and what an audit trains on: measures of figures that need no attack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

import leakscope as ls
from leakscope.audits.rounds import Federation, play
from leakscope.defences.transforms.accuracy_score import accuracy_score, distinct_labels
from leakscope.defences.transforms.privacy_score import Variant, privacy_scores
from leakscope.observation.scenario import get_scenario
from leakscope.registry import attack_from_spec, defence_from_spec
from leakscope.reproduction import CallValues
from leakscope.reproduction.networks import build_network
from leakscope.types import Batch
from reproductions.networks import small_convnet


def privacy(
    *,
    policies: Sequence[str],
    data: str,
    indices: Sequence[Sequence[int]],
    model: Mapping[str, Any],
    size: int | None = None,
    seeds: Sequence[int] | None = None,
    variant: Variant = "released",
    every: int = 1,
) -> CallValues:
    """S_pri of every policy, one number per picture; all meet the same noise and coins unless each has a seed."""
    batch = load_pictures(data, indices, size)
    network = build_network(model, data, batch)
    own = [0] * len(policies) if seeds is None else seeds
    found: Any = [
        privacy_scores(policy, batch, model=network, variant=variant, seed=seed, every=every).tolist()
        for policy, seed in zip(policies, own, strict=True)
    ]
    return CallValues({"privacy": found})


def accuracy(
    *, policies: Sequence[str], data: str, indices: Sequence[Sequence[int]], model: Mapping[str, Any]
) -> CallValues:
    """S_acc of every policy on an untrained network; of the pictures the first of each class, as released."""
    batch = load_pictures(data, indices, None)
    network = build_network(model, data, batch)
    kept = batch.inputs[distinct_labels(batch.targets)]
    found = [accuracy_score(policy, kept, model=network) for policy in policies]
    return CallValues({"accuracy_score": found, "kept": float(len(kept))})


def trained_pictures(*, data: str, indices: Sequence[Sequence[int]], defence: str, seed: int) -> CallValues:
    """The pictures of one victim and what an audit with this seed trains on instead, side by side."""
    batch = load_pictures(data, indices, None)
    network = small_convnet(
        seed=0,
        channels=batch.inputs.shape[1],
        side=batch.inputs.shape[-1],
        classes=ls.data.info(data).num_classes,
    )
    federation = Federation(network, (batch,), defence_from_spec(defence), None, get_scenario("B"), seed)
    run = play(federation, attack_from_spec("inverting-gradients"))[-1].runs[0]
    seen = run.trained[0].inputs if run.trained else batch.inputs
    changed = (seen - batch.inputs).square().mean((1, 2, 3))
    psnr = torch.where(changed > 0, -10 * changed.clamp(min=1e-12).log10(), torch.inf)
    return CallValues({"psnr": psnr.tolist()}, pictures={"truth": batch.inputs, "reconstruction": seen})


def load_pictures(data: str, indices: Sequence[Sequence[int]], size: int | None) -> Batch:
    """The test pictures at these places, in this order."""
    return ls.data.load(data, split="test", indices=[place for one in indices for place in one], size=size)
