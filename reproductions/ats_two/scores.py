"""Measures of policies: S_pri and what an attack rebuilds, on the same pictures with the same coins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

import leakscope as ls
from leakscope.defences.transforms import apply
from leakscope.defences.transforms.candidates import draw_candidates
from leakscope.defences.transforms.privacy_score import Variant, privacy_scores
from leakscope.registry import attack_from_spec
from leakscope.reproduction import CallValues
from leakscope.reproduction.networks import build_network
from leakscope.rng import child_seed, generator
from leakscope.types import Batch


def draw_policies(recipe: str, scale: str, *, count: int) -> list[str]:
    """Different random policies, as the search draws them, by the names of recipe and scale."""
    seed = child_seed(0, "policies", recipe, scale) % 2**31
    # Some of those drawn are equal to others.
    return [str(policy) for policy in draw_candidates(3 * count, seed=seed)[:count]]


def privacy_and_psnr(
    *,
    policy: str,
    data: str,
    indices: Sequence[Sequence[int]],
    model: Mapping[str, Any],
    attack: str,
    seed: int = 0,
    variant: Variant = "released",
) -> CallValues:
    """S_pri of a policy, and PSNR against the transformed picture with labels known; one unit."""
    batch = ls.data.load(data, split="test", indices=[place for one in indices for place in one])
    network = build_network(model, data, batch)
    privacy = privacy_scores(policy, batch, model=network, variant=variant, seed=seed).tolist()
    psnr = []
    for place in range(len(batch)):
        # The coins that S_pri flipped for this picture.
        coins = generator(seed, "search", "coins", place)
        picture = apply(policy, batch.inputs[place : place + 1], rng=coins)
        private = Batch(picture, batch.targets[place : place + 1])
        seen = ls.observe(network, ls.share(network, private), scenario="B", truth=private)
        rebuilt = attack_from_spec(attack).reconstruct(seen, seed=seed + place)
        psnr.append(float(torch.as_tensor(ls.score(rebuilt, private).psnr).mean()))
    # One policy is one unit, however many pictures it was tried on: all policies meet the same ones.
    return CallValues({"privacy": [privacy], "psnr": [psnr]})
