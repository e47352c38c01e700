"""Measures of updates from two epochs: what they give away together, and how often images are recognised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import leakscope as ls
from leakscope.attacks.agic import Agic, agic
from leakscope.attacks.agic_epochs import match_examples
from leakscope.metrics import score
from leakscope.reproduction import CallValues
from leakscope.reproduction.networks import build_network
from leakscope.rng import child_seed, generator
from leakscope.types import Batch, LocalTraining, Observation, Reconstruction

METRICS = ("psnr", "ssim", "lpips")


def rebuild_epochs(
    *,
    use: str,
    data: str,
    indices: Sequence[Sequence[int]],
    model: Mapping[str, Any],
    attack: Mapping[str, Any],
    local: Mapping[str, Any] | None = None,
    batch_size: int | None = None,
    scenario: str = "B",
    seed: int = 0,
    lpips: bool = False,
) -> CallValues:
    """Quality of AGIC from the updates of epoch "1", of epoch "2", or of both ("1,2"), one unit for all examples.

    The client sends one update for every `batch_size` examples, in another order in the second epoch. The first epoch
    begins with the untrained network, the second with the network that `model` describes.
    """
    batch = ls.data.load(data, split="test", indices=[place for one in indices for place in one])
    how = None if local is None else LocalTraining(**local)
    sent = send_epochs(batch, _networks(model, data, batch), size=batch_size, local=how, scenario=scenario, seed=seed)
    attacker = make_attack(attack)
    if use == "1,2":
        updates = [(one.seen, epoch) for epoch, own in enumerate(sent) for one in own]
        seen, epochs = zip(*updates, strict=True)
        found = attacker.reconstruct_epochs(seen, seed, epochs=epochs).joint
    else:
        found = _join(_rebuild(attacker, sent[int(use) - 1], seed=seed))
    scores = score(found, batch, with_lpips=lpips).metrics
    values = {name: [scores[name].tolist()] for name in METRICS if name in scores}
    pictures = {"truth": batch.inputs, "reconstruction": _in_order(found, batch)}
    return CallValues(values, pictures=pictures, notes=found.notes)


def match_epochs(
    *,
    data: str,
    indices: Sequence[Sequence[int]],
    model: Mapping[str, Any],
    attack: Mapping[str, Any],
    batch_size: int,
    scenario: str = "B",
    seed: int = 0,
) -> CallValues:
    """Share of images that are recognised in the second epoch, with and without labels, with and without pooling."""
    batch = ls.data.load(data, split="test", indices=[place for one in indices for place in one])
    sent = send_epochs(batch, _networks(model, data, batch), size=batch_size, scenario=scenario, seed=seed)
    attacker = make_attack(attack)
    found = [_rebuild(attacker, own, seed=child_seed(seed, "epoch", epoch)) for epoch, own in enumerate(sent)]
    owners = [
        torch.cat([find_owners(one, update, batch) for one, update in zip(mine, own, strict=True)])
        for mine, own in zip(found, sent, strict=True)
    ]
    sights = [_join(one) for one in found]
    return CallValues(
        {
            _name(labels, pooling): matching_rate(sights, owners, labels=labels, pooling=pooling)
            for labels, pooling in product((False, True), repeat=2)
        }
    )


def matching_rate(found: Sequence[Reconstruction], owners: Sequence[Tensor], *, labels: bool, pooling: bool) -> float:
    """Share of the first epoch's reconstructions whose partner in the second shows the same image."""
    marks = [_labels(one) if labels else torch.zeros(len(one.inputs), dtype=torch.long) for one in found]
    # Every pixel four times: pooling by 2 × 2 then gives the image back as it was.
    sights = [one.inputs if pooling else functional.interpolate(one.inputs, scale_factor=2) for one in found]
    pairs = match_examples(sights[0], sights[1], labels=(marks[0], marks[1]))
    right = sum(int(owners[0][i]) == int(owners[1][j]) for i, j in pairs)
    return right / len(sights[0])


@dataclass(frozen=True)
class Sent:
    """One update as the server sees it, and the places of its examples in the client's data."""

    seen: Observation
    places: Tensor


def send_epochs(
    batch: Batch,
    networks: Sequence[nn.Module],
    *,
    size: int | None = None,
    local: LocalTraining | None = None,
    scenario: str = "B",
    seed: int = 0,
) -> list[list[Sent]]:
    """The updates of every epoch, one for every `size` examples, dealt anew in later epochs."""
    sent = []
    for epoch, network in enumerate(networks):
        places = torch.arange(len(batch))
        order = places[torch.randperm(len(batch), generator=generator(seed, "epoch", epoch))] if epoch else places
        updates = []
        for own in order.split(size or len(batch)):
            part = _take(batch, own)
            update = ls.share(network, part, local=local, seed=seed)
            updates.append(Sent(ls.observe(network, update, scenario=scenario, truth=part), own))
        sent.append(updates)
    return sent


def find_owners(found: Reconstruction, update: Sent, batch: Batch) -> Tensor:
    """For every reconstruction of one update the place of its image: of the update's own with its label, the nearest.

    Each image has one owner at most; a reconstruction with a label that does not occur has none (−1).
    """
    owners = torch.full((len(found.inputs),), -1, dtype=torch.long)
    labels, truth = _labels(found), batch.targets[update.places]
    for label in labels.unique():
        mine, places = (labels == label).nonzero()[:, 0], update.places[truth == label]
        if len(places):
            alike = replace(found, inputs=found.inputs[mine], targets=labels[mine], fit=None, members=None)
            chosen = score(alike, _take(batch, places)).assignment
            owners[mine[chosen[chosen >= 0]]] = places[chosen >= 0]
    return owners


def make_attack(options: Mapping[str, Any]) -> Agic:
    """AGIC with options as JSON holds them."""
    gammas = options.get("gammas")
    return agic(**{**options, "gammas": None if gammas is None else tuple(gammas)})


def _networks(model: Mapping[str, Any], data: str, batch: Batch) -> tuple[nn.Module, nn.Module]:
    """The network before any training, and as `model` describes it."""
    fresh = {name: value for name, value in model.items() if name != "trained"}
    return build_network(fresh, data, batch), build_network(model, data, batch)


def _join(found: Sequence[Reconstruction]) -> Reconstruction:
    """Several updates' examples as one result."""
    first = found[0]
    notes = tuple(dict.fromkeys(note for one in found for note in one.notes))
    return replace(
        first,
        inputs=torch.cat([one.inputs for one in found]),
        targets=torch.cat([_labels(one) for one in found]),
        notes=notes,
        fit=None,
    )


def _rebuild(attacker: Agic, updates: Sequence[Sent], *, seed: int) -> list[Reconstruction]:
    """Every update by itself."""
    return [
        attacker.reconstruct(one.seen, child_seed(seed, "update", place), diagnosing=False)
        for place, one in enumerate(updates)
    ]


def _take(batch: Batch, places: Tensor) -> Batch:
    return Batch(batch.inputs[places], batch.targets[places], batch.bounds)


def _in_order(found: Reconstruction, batch: Batch) -> Tensor:
    order = score(found, batch).assignment.clamp_min(0)
    return found.inputs[order].clamp(0, 1)


def _labels(found: Reconstruction) -> Tensor:
    assert found.targets is not None
    return found.targets


def _name(labels: bool, pooling: bool) -> str:
    return " and ".join(name for name, used in (("labels", labels), ("pooling", pooling)) if used) or "neither"
