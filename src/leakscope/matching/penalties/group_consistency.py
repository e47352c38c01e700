"""Group consistency over seeds in lockstep: each is drawn to the average of all, after registration.

Yin et al. register with a learned flow. Here examples of one label are first put in the order of the first
seed, and each image is then moved by the whole-pixel shift of highest correlation with the plain average.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from leakscope.matching.labels.last_layer import likeliest
from leakscope.matching.penalties.penalty import Penalty, Trial


@dataclass(frozen=True)
class GroupConsistency(Penalty):
    """Mean squared distance of each seed's images from the registered average of a victim's seeds.

    `begin` is the share of the run after which the term acts: the average of noise is not a consensus. A share and
    not a number, so that a run cut short keeps its term. `reach` bounds the shift, as a share of the side.
    """

    weight: float
    relative: bool = False
    begin: float = 0.0
    reach: float = 0.125

    def value(self, trial: Trial) -> Tensor:
        """Return mean (x − consensus)² per group; zero for a victim with one seed."""
        x = trial.coordinates
        if trial.restarts < 2 or trial.step < int(self.begin * trial.steps):
            return 0 * x.flatten(1).sum(1)
        with torch.no_grad():
            seeds = x.detach().reshape(-1, trial.restarts, *x.shape[1:])
            targets = trial.targets if not trial.targets.is_floating_point() else likeliest(trial.targets, axes=2)
            labels = targets.reshape(-1, trial.restarts, x.shape[1])
            wanted = torch.stack(
                [consensus(one, labels[victim, 0], reach=self.reach) for victim, one in enumerate(seeds)]
            ).reshape(x.shape)
        return (x - wanted).square().flatten(1).mean(1)


def consensus(seeds: Tensor, labels: Tensor, *, reach: float = 0.125) -> Tensor:
    """The registered average of seeds [seeds, n, …], in the order of each seed's own examples."""
    orders = torch.stack([matching_order(seed, seeds[0], labels) for seed in seeds])
    rows = torch.arange(len(seeds), device=seeds.device)[:, None]
    ordered = seeds[rows, orders]
    middle = ordered.mean(0)
    if seeds.ndim == 5:
        ordered = torch.stack([register(seed, middle, reach=reach) for seed in ordered])
    average = ordered.mean(0)
    return average.expand_as(seeds)[rows, orders.argsort(1)]


def matching_order(seed: Tensor, reference: Tensor, labels: Tensor) -> Tensor:
    """Places of `seed`'s examples that come nearest to `reference`'s, one to one, within each label."""
    order = torch.arange(len(seed), device=seed.device)
    distance = torch.cdist(reference.flatten(1), seed.flatten(1))
    for label in labels.unique():
        places = (labels == label).nonzero()[:, 0]
        left = distance[places][:, places]
        for _ in range(len(places)):
            best = int(left.argmin())
            row, column = divmod(best, len(places))
            order[places[row]] = places[column]
            left[row], left[:, column] = torch.inf, torch.inf
    return order


def register(images: Tensor, reference: Tensor, *, reach: float) -> Tensor:
    """Each image moved, cyclically, by the shift within `reach` that correlates best with its reference."""
    height, width = images.shape[-2:]
    spectrum = torch.fft.rfft2(_centre(reference)) * torch.fft.rfft2(_centre(images)).conj()
    correlation = torch.fft.irfft2(spectrum, s=(height, width)).sum(1)
    allowed = _near(height, reach)[:, None] & _near(width, reach)[None]
    correlation = torch.where(allowed.to(images.device), correlation, torch.full_like(correlation, -torch.inf))
    moved = []
    for image, place in zip(images, correlation.flatten(1).argmax(1).tolist(), strict=True):
        moved.append(image.roll((place // width, place % width), dims=(-2, -1)))
    return torch.stack(moved)


def _near(side: int, reach: float) -> Tensor:
    shift = torch.arange(side)
    return torch.minimum(shift, side - shift) <= int(reach * side)


def _centre(images: Tensor) -> Tensor:
    return images - images.mean((-2, -1), keepdim=True)
