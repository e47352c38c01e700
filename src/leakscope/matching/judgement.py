"""From what a run found to a reconstruction, and whether it is evidence.

A run is judged because an attack that failed for a reason of its own shows no protection.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from leakscope.errors import UnsuitableError
from leakscope.matching.candidates import Variables
from leakscope.matching.candidates.pixels import unknowns_of
from leakscope.matching.engine import Outcome
from leakscope.matching.labels.last_layer import last_layer, likeliest
from leakscope.types import Observation, Reconstruction, Status

# A run on an update that contradicts what is assumed of it is believed where it explains the update this well.
_EXPLAINED = 0.1
# Evaluations; an optimiser that gives up earlier has hardly left its start.
_A_FEW = 20
_ENDINGS = {
    Status.DIVERGED: ("the distance did not end below where it began: no evidence",),
    Status.NAN: ("no finite distance was ever reached: no evidence",),
}
# A share of the largest entry; rounding and a little noise stay below.
_NOTICEABLE = 0.02


@dataclass(frozen=True)
class Found:
    """A reconstruction and the variables of the group it was decoded from, without a group axis."""

    reconstruction: Reconstruction
    variables: Variables

    def ending(self, status: Status, *remarks: str) -> Found:
        """The same with this status and more notes."""
        notes = (*self.reconstruction.notes, *remarks)
        return replace(self, reconstruction=replace(self.reconstruction, status=status, notes=notes))


def better_of(first: Found, second: Found) -> Found:
    """The attempt that is evidence, or has the lower distance; evaluations of both are counted."""
    chosen = min(first, second, key=_rank)
    spent = first.reconstruction.evaluations + second.reconstruction.evaluations
    return replace(chosen, reconstruction=replace(chosen.reconstruction, evaluations=spent))


def _rank(found: Found) -> tuple[bool, float]:
    loss = found.reconstruction.loss
    return found.reconstruction.status is not Status.OK, loss if loss == loss else math.inf


def best_group(outcome: Outcome, groups: Sequence[int], said: tuple[str, ...]) -> Found:
    """The best of one victim's groups, by observables only: evidence first, then the lowest distance."""
    distances = outcome.distance.nan_to_num(torch.inf, torch.inf, torch.inf)
    chosen = min(groups, key=lambda group: (outcome.status[group] is not Status.OK, float(distances[group])))
    targets = outcome.targets[chosen]
    soft = targets if targets.is_floating_point() else None
    variables = {name: value[chosen].clone() for name, value in outcome.variables.items()}
    found = Reconstruction(
        inputs=outcome.images[chosen].clone(),
        targets=likeliest(targets) if soft is not None else targets.clone(),
        loss=float(outcome.distance[chosen]),
        status=outcome.status[chosen] if bool(torch.isfinite(outcome.distance[chosen])) else Status.NAN,
        history=tuple(outcome.history[:, chosen].tolist()),
        target_probabilities=soft,
        evaluations=outcome.evaluations,
        notes=(*said, *outcome.routes, *outcome.notes[chosen]),
        originals=None if outcome.originals is None else outcome.originals[chosen].detach().clone(),
        unknowns=unknowns_of(variables),
    )
    return Found(found, variables)


def judge(seen: Observation, found: Reconstruction, *, assumed: int, nothing: float) -> tuple[Status, tuple[str, ...]]:
    """The status of a run, and the notes that explain it.

    `assumed` is the number of examples the run rebuilt, `nothing` the distance at an update of zeros.
    """
    contradictions = (*seen.contradictions, *_contradict_count(seen, assumed))
    added = tuple(one for one in contradictions if one not in seen.notes)
    if found.status is not Status.OK:
        return found.status, (*added, *_ENDINGS.get(found.status, ()))
    if found.loss >= nothing and len(found.history) < _A_FEW:
        # A long run that ends there may have been stopped by a defence; a short one never began.
        reason = f"stopped after {len(found.history)} evaluations, no closer than an update of zeros: no evidence"
        return Status.DIVERGED, (*added, reason)
    if contradictions and found.loss > _EXPLAINED * found.history[0]:
        reason = "does not explain an update that contradicts what was declared or assumed of it: no evidence"
        return Status.UNEXPLAINED, (*added, reason)
    return Status.OK, added


def _contradict_count(seen: Observation, assumed: int) -> tuple[str, ...]:
    """A note where the number of examples is only assumed, and the update shows labels of more."""
    if seen.num_examples is not None:
        return ()
    try:
        _weight, bias = last_layer(seen)
    except UnsuitableError:
        return ()
    # Sums over a weight's rows take the bias's place only where no feature is negative: not certain enough here.
    least = 0 if bias is None else int((bias < -_NOTICEABLE * bias.abs().max()).sum())
    if least <= assumed:
        return ()
    return (
        f"rebuilt {assumed}, but the last layer's gradient shows labels of at least {least} examples, or noise; "
        "use an attack that rebuilds several, or a scenario that grants the number",
    )
