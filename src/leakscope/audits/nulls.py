"""What is reached without the update: the null baselines beside every score.

Three of them, and leakage is what exceeds the best, example by example:

- *blind guess*: the better of mid-grey and noise.
- *prior alone*: the same attack at the same effort and seed on the update of something else, with the same labels. What
  it shares with the private examples comes from its prior, its box and the labels, not from their update.
- *nearest public picture*: the nearest of a number of other pictures of the same kind. Nobody without the update knows
  which one that is, so this is more than a guesser can do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from leakscope import rng as random
from leakscope.errors import BadInputError, LeakscopeError, UnsuitableError
from leakscope.metrics import guess_baseline, guess_tokens, mse_matrix, psnr, score
from leakscope.metrics.pairs import compute_dtype, to_unit_range
from leakscope.results import GUESS as GUESS  # callers know these three from here
from leakscope.results import PRIOR as PRIOR
from leakscope.results import PUBLIC as PUBLIC
from leakscope.results import RANDOM_TOKENS
from leakscope.types import Batch, Reconstruction, limits_of

# The nearest of more pictures is nearer, without end; this many stand for "a picture of the same kind".
PUBLIC_PICTURES = 64
# 30 dB: hard to tell from the original. Such a picture is a copy of the victim's, and no null.
_COPY_MSE = 1e-3
# Side of the grid that smooth pictures are drawn on.
_COARSE = 4


@dataclass(frozen=True)
class Nulls:
    """What is reached without the update, by name with one value per example, and what must be said of it."""

    baselines: Mapping[str, Tensor]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Attacked:
    """One attacked update: what came back, what was behind it, and the place of its client."""

    found: Reconstruction
    victim: Batch
    place: int = 0


# Attacks the update of something else; given are the public examples that are no copies of private ones.
AttackUnrelated = Callable[[Batch | None], Reconstruction]


def measure_nulls(
    rows: Sequence[Attacked], *, seed: int, public: Batch | None = None, attack_unrelated: AttackUnrelated | None = None
) -> Nulls:
    """Every null that can be measured of these examples; of texts, what random tokens reach."""
    words = next((row.found.vocabulary for row in rows if row.found.vocabulary is not None), None)
    if words is not None:
        return Nulls({RANDOM_TOKENS: torch.cat([guess_tokens(row.victim, words) for row in rows])})
    found = {GUESS: [guess_baseline(row.victim, seed=random.child_seed(seed, "guess", row.place)) for row in rows]}
    others, notes = None if public is None else drop_copies(public, [row.victim for row in rows]), []
    if others is not None:
        found[PUBLIC] = [find_nearest(row.victim, others) for row in rows]
    if attack_unrelated is not None:
        try:
            wrong = attack_unrelated(others)
            found[PRIOR] = [score(wrong, row.victim, metrics=("psnr",)).psnr for row in rows]
        except LeakscopeError as reason:
            notes.append(f"what the attack reaches on an unrelated update could not be measured: {reason}")
    return Nulls({name: torch.cat(values) for name, values in found.items()}, tuple(notes))


def take_best(baselines: Mapping[str, Tensor]) -> Tensor:
    """The highest PSNR [n] of all baselines, example by example."""
    return torch.stack(list(baselines.values())).amax(0)


def drop_copies(public: Batch, victims: Sequence[Batch]) -> Batch | None:
    """The public examples that are no copies of private ones; None where none is left."""
    kept = torch.ones(len(public), dtype=torch.bool)
    for victim in victims:
        if public.inputs.shape[1:] != victim.inputs.shape[1:]:
            raise BadInputError(
                f"public examples must have the shape of the private ones, {list(victim.inputs.shape[1:])}, got "
                f"{list(public.inputs.shape[1:])}; bring them to that size, or leave them out"
            )
        kept &= (_errors(victim, public) > _COPY_MSE).all(0).cpu()
    return Batch(public.inputs[kept], public.targets[kept], public.bounds) if bool(kept.any()) else None


@torch.no_grad()
def find_nearest(victim: Batch, public: Batch) -> Tensor:
    """PSNR [n] of the public example that is nearest to each private one."""
    nearest = public.inputs.to(victim.inputs)[_errors(victim, public).argmin(1)]
    return psnr(*(to_unit_range(inputs.to(compute_dtype(inputs)), victim) for inputs in (nearest, victim.inputs)))


def draw_unrelated(like: Batch, public: Batch | None, *, seed: int) -> Batch:
    """As many examples as `like` has, with its labels and nothing else of it: public ones, else smooth noise.

    Public examples make the harder null, since an attack then rebuilds a picture of the right kind.
    """
    if not like.inputs.is_floating_point():
        raise UnsuitableError("inputs are no floating-point numbers, so there is nothing to draw at random")
    if public is not None:
        order = torch.randperm(len(public), generator=random.generator(seed, "unrelated"))
        chosen = order[torch.arange(len(like)) % len(public)]
        return Batch(public.inputs.to(like.inputs)[chosen.to(like.inputs.device)], like.targets, like.bounds)
    low, high = limits_of(like.bounds, like.inputs)
    return Batch(low + (high - low) * _draw_smooth(like.inputs, seed=seed), like.targets, like.bounds)


def _draw_smooth(like: Tensor, *, seed: int) -> Tensor:
    """Values in [0, 1]: smooth pictures, and plain noise where inputs are no pictures."""
    rng = random.generator(seed, "unrelated")
    if like.ndim != 4:
        return random.uniform(tuple(like.shape), rng, like=like)
    coarse = random.uniform((*like.shape[:2], _COARSE, _COARSE), rng, like=like)
    return functional.interpolate(coarse, size=tuple(like.shape[2:]), mode="bilinear", align_corners=False)


def _errors(victim: Batch, public: Batch) -> Tensor:
    """Mean squared error of every private example (row) with every public one (column)."""
    others = public.inputs.to(victim.inputs)
    return mse_matrix(to_unit_range(others, victim), to_unit_range(victim.inputs, victim))
