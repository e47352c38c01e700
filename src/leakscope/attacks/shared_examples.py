"""Which reconstructions from several updates show the same example: AGIC's comparison after pooling."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional


def pooled_errors(left: Tensor, right: Tensor) -> Tensor:
    """Mean squared error of every pair after 2 × 2 average pooling, [len(left), len(right)].

    Pooling takes away the noise that two reconstructions of one image do not share.
    """
    one, two = (_pool(side).flatten(1) for side in (left, right))
    return (one[:, None] - two[None]).square().mean(2)


def match_examples(
    left: Tensor, right: Tensor, *, labels: tuple[Tensor, Tensor], most: float = float("inf")
) -> list[tuple[int, int]]:
    """Greedy one-to-one pairs (i, j) of the same label, the most similar first, none above `most`."""
    errors = pooled_errors(left, right)
    possible = (labels[0][:, None] == labels[1][None]) & (errors <= most)
    errors = errors.masked_fill(~possible, torch.inf)
    pairs: list[tuple[int, int]] = []
    for place in errors.flatten().argsort(stable=True).tolist():
        i, j = divmod(place, errors.shape[1])
        if not bool(possible[i, j]):
            break
        if all(i != a and j != b for a, b in pairs):
            pairs.append((i, j))
    return pairs


def shared_examples(
    images: Sequence[Tensor], labels: Sequence[Tensor], *, most: float = float("inf")
) -> list[list[int]]:
    """Numbers of the examples in each epoch; an example recognised from an earlier epoch keeps its number.

    Every epoch is compared with the first sight of each example: the earliest model leaks most.
    """
    known, known_labels = images[0], labels[0]
    members = [list(range(len(known)))]
    for sight, marks in zip(images[1:], labels[1:], strict=True):
        again = {j: i for i, j in match_examples(known, sight, labels=(known_labels, marks), most=most)}
        fresh = [place for place in range(len(sight)) if place not in again]
        numbers = again | {place: len(known) + count for count, place in enumerate(fresh)}
        members.append([numbers[place] for place in range(len(sight))])
        known, known_labels = torch.cat([known, sight[fresh]]), torch.cat([known_labels, marks[fresh]])
    return members


def _pool(images: Tensor) -> Tensor:
    if images.ndim != 4 or min(images.shape[-2:]) < 2:
        return images
    return functional.avg_pool2d(images, 2, stride=2)
