"""From a fit to a status: whether a result is evidence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from leakscope.types import Fit, Status

# Of what unrelated inputs leave unexplained, a result must explain this share to be more than they are.
MARGIN = 0.1
# Without the truth, a result must explain this share of it. Right declarations of gradients and SGD reached 0.7 to 0.99
# on the networks measured; another model, dropout and Adam taken for SGD 0.14 to 0.30.
CONVINCING = 0.5
# Beyond this share nothing is left that another description could explain.
SOLVED = 0.9
# Of what unrelated inputs leave, a result may explain this share less than the truth and still be as good as the truth.
TOLERANCE = 0.05
# Signal over noise for each private number below which a defence has hidden it: the noise has ten times the energy.
HIDDEN = 0.1
# A run of too few steps counts only where it fits the update this well: it then needed no more.
FITTED = 0.99
# Where unrelated inputs explain this much, the labels alone make the update, and of the little that is left a few steps
# explain nearly all: on a sigmoid LeNet-5 20 steps gained 0.995 at 14.9 dB, 300 steps 1.000 at 18.3 dB. Only a result
# that is exact to rounding counts there.
TELLING = 0.9
EXACT = 0.99999
# A distance that falls by this share of itself from one fifth of a run to the last one is still falling. Medians, for
# signed steps make a small distance go up and down by as much.
FIFTHS = 5
FALLING = 0.3


def gain(explained: float, unrelated: float) -> float:
    """The share that is explained of what unrelated inputs leave unexplained: 1 − residual / their residual."""
    left = max(1 - unrelated, 1e-12)
    return 1 - (1 - explained) / left


def is_poor(explained: float, unrelated: float, *, attainable: float = 1.0) -> bool:
    """Whether a share is too little to be evidence, of what even the truth may explain."""
    return gain(explained, unrelated) < CONVINCING * max(gain(attainable, unrelated), 2 * MARGIN)


def settle_status(status: Status, fit: Fit | None, *, attainable: float = 1.0) -> Status:
    """The status of a result whose truth is not known; what failed for another reason stays so.

    `attainable` is what even the truth may explain where the order of local steps is not known.
    """
    if fit is None or status is not Status.OK:
        return status
    poor = is_poor(fit.explained, fit.unrelated, attainable=attainable)
    return Status.UNEXPLAINED if poor or fit.diagnosis else Status.OK


def judge_with_truth(status: Status, fit: Fit | None, *, redundancy: float) -> Status:
    """The status of a result in an audit, where `fit.truth` is known and the description is right by construction.

    A result is measured by what the truth explains, which a defence may leave to be little, or nothing: one that
    explains as much is the best there is, however its run ended. No diagnosis counts against it. `redundancy` is the
    number of shared numbers over that of private ones: see `is_hidden`.
    """
    if fit is None or fit.truth is None:
        return status
    as_good = explains_as_truth(fit, redundancy=redundancy)
    if status in (Status.DIVERGED, Status.UNFINISHED):
        return Status.OK if as_good else status
    if status not in (Status.OK, Status.UNEXPLAINED):
        return status
    return Status.OK if as_good or _explains_enough(fit, redundancy=redundancy) else Status.UNEXPLAINED


def explains_as_truth(fit: Fit, *, redundancy: float) -> bool:
    """Whether nothing is left for a better result: it explains what the truth explains beyond unrelated inputs."""
    assert fit.truth is not None
    if is_hidden(fit, redundancy=redundancy):
        return fit.explained >= fit.truth - TOLERANCE * (1 - fit.unrelated)
    return gain(fit.explained, fit.unrelated) > SOLVED * gain(fit.truth, fit.unrelated)


def is_hidden(fit: Fit, *, redundancy: float) -> bool:
    """Whether a defence drowned what tells the truth from unrelated inputs: even the truth leaves too much unexplained.

    What the truth explains beyond them is spread over the private numbers, what it leaves over the shared ones, so that

        ratio = (truth − unrelated) / (1 − truth) · shared numbers / private numbers

    is signal over noise for each private number. A small share of a large update may still show a picture: of 820,000
    numbers 9 % beyond unrelated inputs gave 25 dB (a ratio of 25).
    """
    assert fit.truth is not None
    return (fit.truth - fit.unrelated) * redundancy <= HIDDEN * max(1 - fit.truth, 1e-12)


def _explains_enough(fit: Fit, *, redundancy: float) -> bool:
    """Whether a result is more than unrelated inputs are; of a truth that explains little itself, half of that."""
    assert fit.truth is not None
    if is_hidden(fit, redundancy=redundancy):
        return False
    own, most = gain(fit.explained, fit.unrelated), gain(fit.truth, fit.unrelated)
    return own > min(MARGIN, CONVINCING * most)


def is_unfinished(history: Sequence[float], fit: Fit | None, *, steps: int | None, least: int) -> bool:
    """Whether a run ended before it was evidence: fewer steps than the least, or a distance that still fell.

    A result that explains the update is finished however it came about. `history` holds the distances of the run.
    """
    if steps is None:
        return False
    if steps < least:
        return fit is None or gain(fit.explained, fit.unrelated) <= _fitted(fit.unrelated)
    if fit is not None and gain(fit.explained, fit.unrelated) > SOLVED:
        return False
    known = [value for value in history if math.isfinite(value)]
    if len(known) < least:
        # It stopped by its own rule.
        return False
    last = max(1, len(known) // FIFTHS)
    return median(known[-last:]) < (1 - FALLING) * median(known[-2 * last : -last] or known)


def _fitted(unrelated: float) -> float:
    """The gain beyond which a run of too few steps needed no more."""
    return FITTED if unrelated < TELLING else EXACT
