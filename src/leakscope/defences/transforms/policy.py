"""What a policy makes of pictures: every picture draws a part and its signs; grey levels are as Pillow has them."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from leakscope import rng as random
from leakscope.errors import BadInputError
from leakscope.operations import eight_bit
from leakscope.operations.library import NUMBER_OF_OPERATIONS as NUMBER_OF_OPERATIONS
from leakscope.operations.library import Entry
from leakscope.operations.policy import Policy as Policy


def apply(policy: str | Policy, images: Tensor, *, seed: int = 0, rng: Generator | None = None) -> Tensor:
    """Transform pictures [n, c, h, w] in [0, 1]; each flips coins of its own.

    What is drawn does not depend on the policy: with one seed, or a generator in one state, every policy gives
    picture i the same sign in its k-th operation that does anything. `rng` is used instead of `seed` where both are
    given. Pixels are rounded to 256 levels, as the pictures of a data set are, and computed on the CPU, so that every
    device gets the same; a policy that does nothing returns the pictures as they are.
    """
    reduced = Policy.parse(policy).canonical()
    check_pictures(images)
    if reduced.is_identity:
        return images.clone()
    drawing = random.generator(seed, "transforms") if rng is None else rng
    levels = eight_bit.quantise(images)
    share = random.uniform((len(levels),), drawing, like=levels.double())
    chosen = (share * len(reduced.parts)).long()
    for slot in range(max(map(len, reduced.parts))):
        signs = 2.0 * (random.uniform((len(levels),), drawing, like=levels.double()) < 0.5).double() - 1
        levels = _apply_slot(reduced, slot, levels=levels, chosen=chosen, signs=signs)
    return (levels.to(torch.float64) / 255).to(device=images.device, dtype=images.dtype)


def check_pictures(images: Tensor) -> None:
    """Insist on pictures [n, c, h, w] in [0, 1]."""
    if images.ndim != 4 or not images.is_floating_point():
        raise BadInputError(
            "a policy transforms pictures [examples, channels, height, width] of floating-point pixels in [0, 1], got "
            f"{images.dtype} {list(images.shape)}; use a defence that acts on the update"
        )
    # Rounding on the way to [0, 1] is no mistake.
    if images.numel() and not bool(((images >= -1e-4) & (images <= 1 + 1e-4)).all()):
        raise BadInputError(
            f"a policy transforms pixels in [0, 1], got {float(images.min()):g} to {float(images.max()):g}; "
            "pass pictures before normalisation and let the model normalise"
        )


def _apply_slot(policy: Policy, slot: int, *, levels: Tensor, chosen: Tensor, signs: Tensor) -> Tensor:
    """Apply the operation at `slot` of the part that every picture has drawn, where that part has one."""
    found = levels.clone()
    for number, entries in enumerate(policy.entries):
        rows = (chosen == number).nonzero()[:, 0]
        if len(rows) and slot < len(entries):
            found[rows] = _apply_entry(entries[slot], levels[rows], signs[rows])
    return found


def _apply_entry(entry: Entry, levels: Tensor, signs: Tensor) -> Tensor:
    if entry.is_identity:
        return levels
    amounts = entry.amount * (signs if entry.signed else torch.ones_like(signs))
    return eight_bit.OPERATIONS[entry.name](levels, amounts)
