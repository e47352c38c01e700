"""Which examples are attacked: a function of the recipe, its scale and a seed, so that nobody picks them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from leakscope.errors import UsageError
from leakscope.rng import generator

# Test images that schedules and attacks were developed on; what was tuned on them is shown on others.
TUNED_ON: dict[str, frozenset[int]] = {
    "cifar10": frozenset({*range(101, 108), 700}),
    "cifar100": frozenset(range(40)),
}


def draw_victims(
    recipe: str,
    scale: str,
    *,
    count: int,
    among: int,
    data: str,
    batch_size: int = 1,
    seed: int = 0,
    labels: Sequence[int] | None = None,
    avoid: Iterable[int] = (),
) -> list[list[int]]:
    """Draw `count` private batches, no example twice, from the first `among` test examples of `data`.

    The draw depends on the arguments alone. Examples that something was tuned on are left out.

    Args:
        recipe: name of the recipe.
        scale: name of its scale.
        count: how many batches.
        among: how many examples there are to draw from; a number and not the size of what lies on this machine.
        data: name of the set, for what was tuned on it.
        batch_size: examples of a batch.
        seed: of the draw.
        labels: classes of these examples, where a batch must not hold one class twice.
        avoid: further examples to leave out.
    """
    left_out = TUNED_ON.get(data, frozenset()) | set(avoid)
    order = torch.randperm(among, generator=generator(seed, "victims", recipe, scale, data)).tolist()
    free = [place for place in order if place not in left_out]
    found: list[list[int]] = []
    while len(found) < count:
        batch = _take(free, batch_size, labels)
        if batch is None:
            raise UsageError(
                f"{recipe} draws {count} batches of {batch_size} among {among} examples of {data}, and there are too "
                "few; draw fewer"
            )
        # Without labels a batch is the beginning of what is free; to look at all of it takes long among 10,000.
        free = free[batch_size:] if labels is None else [place for place in free if place not in batch]
        found.append(batch)
    return found


def _take(free: Sequence[int], size: int, labels: Sequence[int] | None) -> list[int] | None:
    if labels is None:
        return list(free[:size]) if len(free) >= size else None
    batch: list[int] = []
    for place in free:
        if all(labels[place] != labels[other] for other in batch):
            batch.append(place)
        if len(batch) == size:
            return batch
    return None
