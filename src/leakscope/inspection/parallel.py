"""Which rows of a matrix are parallel to another one, without comparing all of their entries."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from leakscope import rng as random

# Two rows count as parallel from this cosine on; training brings honest rows up to 0.96.
PARALLEL = 0.999
# Two directions drawn at random in k dimensions are that parallel with probability I(1 − 0.999²; (k − 1)/2, 1/2), the
# regularised incomplete beta function: 2.8 % for k = 2, 4·10⁻¹² for k = 9. Among as many rows as are compared at most,
# nine dimensions leave 6·10⁻⁴ pairs to chance.
LEAST_ENTRIES = 9
# Equal: parallel, and as long up to this part.
EQUAL_LENGTH = 1e-2
# A sketch of parallel rows is parallel itself; nearly parallel ones stay above this.
_CANDIDATE = 0.995
_SKETCH = 512
_BLOCK = 1024
_MOST_ROWS = 16_384


@dataclass(frozen=True)
class ParallelRows:
    """Rows that have a partner.

    Attributes:
        places: rows with |cosine| ≥ 0.999 to another row.
        equal: the largest set of rows that are equal to one of them, itself included.
    """

    places: tuple[int, ...]
    equal: tuple[int, ...]


def find_parallel(rows: Tensor, *, least: int = 1) -> ParallelRows:
    """Rows that are parallel to another one, in either direction, by at least `least` weights that neither has at zero.

    Long rows are compared by a linear sketch first, sums of groups of their entries under random signs: what is
    parallel stays so, whatever the groups. Candidates are then compared entry by entry. Of more than 16,384 rows those
    are compared.
    """
    rows = rows[:_MOST_ROWS]
    lengths = torch.linalg.vector_norm(rows, dim=1)
    enough = lengths > 0 if least <= 1 else (lengths > 0) & ((rows != 0).sum(1) >= least)
    kept = torch.nonzero(enough).flatten()
    if len(kept) < 2:
        return ParallelRows((), ())
    sketch = _sketch(rows[kept]) if len(kept) < len(rows) else _sketch(rows)
    best, partner, same = _compare(sketch, lengths[kept])
    wanted = torch.nonzero(best > _CANDIDATE).flatten()
    exact, common = _compare_exactly(rows, kept[wanted], kept[partner[wanted]], lengths)
    places = kept[wanted[(exact.abs() >= PARALLEL) & (common >= least)]]
    return ParallelRows(tuple(places.tolist()), tuple(kept[same].tolist()) if len(places) else ())


def _sketch(rows: Tensor) -> Tensor:
    """Rows of length 1 with at most 512 entries."""
    if rows.shape[1] > _SKETCH:
        rng = random.generator(0, "sketch", rows.shape[1])
        signs = torch.randint(2, (rows.shape[1],), generator=rng).mul(2).sub(1).to(rows)
        sums = rows.new_zeros(len(rows), _SKETCH)
        for part, sign in zip(rows.split(_SKETCH, dim=1), signs.split(_SKETCH), strict=True):
            sums[:, : len(sign)].addcmul_(part, sign)
        rows = sums
    return rows / torch.linalg.vector_norm(rows, dim=1, keepdim=True).clamp_min(1e-30)


def _compare(sketch: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The nearest other row of each, how near, and the largest set of equal rows."""
    best, partner, sizes = [], [], []
    for start in range(0, len(sketch), _BLOCK):
        cosines = sketch[start : start + _BLOCK] @ sketch.T
        own = torch.arange(len(cosines)), torch.arange(start, start + len(cosines))
        diagonal = cosines[own]
        cosines[own] = 0.0
        values, places = cosines.abs().max(1)
        best.append(values)
        partner.append(places)
        cosines[own] = diagonal
        # Where nothing is near, every row is equal to itself alone.
        near = bool((values > PARALLEL).any())
        sizes.append(_equal_to(cosines, lengths[start : start + _BLOCK], lengths).sum(1) if near else places * 0 + 1)
    central = int(torch.cat(sizes).argmax())
    same = _equal_to((sketch[central] @ sketch.T)[None], lengths[central][None], lengths)[0]
    return torch.cat(best), torch.cat(partner), torch.nonzero(same).flatten()


def _equal_to(cosines: Tensor, own: Tensor, lengths: Tensor) -> Tensor:
    alike = (own[:, None] - lengths).abs() <= EQUAL_LENGTH * own[:, None]
    return alike & (cosines > PARALLEL)


def _compare_exactly(rows: Tensor, one: Tensor, other: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """The cosine of each row and its partner, and how many weights both have."""
    cosines, common = [rows.new_zeros(0)], [one.new_zeros(0)]
    for start in range(0, len(one), _BLOCK):
        left, right = one[start : start + _BLOCK], other[start : start + _BLOCK]
        products = rows[left] * rows[right]
        cosines.append(products.sum(1) / (lengths[left] * lengths[right]))
        common.append(((rows[left] != 0) & (rows[right] != 0)).sum(1))
    return torch.cat(cosines), torch.cat(common)
