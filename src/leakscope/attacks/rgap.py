"""R-GAP: the input of a whole network in closed form, layer by layer from the output.

∂L/∂W = k xᵀ at each layer, where k = ∂L/∂z follows from the layer above it. Where gradient and
weights leave no unknown free the input is exact; where they do, the rank says how many.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from leakscope import rng as random
from leakscope.attack import Attack, Watch
from leakscope.attacks.closed.recursive.descent import Descent, descend
from leakscope.attacks.closed.recursive.layer_chain import SolvableChain, take_apart
from leakscope.attacks.closed.recursive.ranks import LayerRank, RankReport, choose_top, count_equations, rank_report
from leakscope.attacks.closed.recursive.start import Start, binary_targets, from_bias, from_loss
from leakscope.client import trainable
from leakscope.errors import UnsuitableError
from leakscope.matching.labels import infer_labels
from leakscope.matching.replays import OneGradient, predict, scale_known
from leakscope.types import Bounds, Observation, Reconstruction, Status, Tensors, limits_of

__all__ = ["PAPER", "RGAP", "LayerRank", "RankReport", "rank_report", "rgap"]

PAPER = "Zhu, Blaschko: R-GAP: Recursive Gradient Attack on Privacy, ICLR 2021"

# A result must fit this much better than a guess: two misfits near one differ by accident.
CLEARLY = 0.9
# Starts that fit this many times worse than the best are not its equals.
TWINS = 10.0


@dataclass(frozen=True)
class _Found:
    """One way down, put back into the network."""

    start: Start
    descent: Descent
    inputs: Tensor
    targets: Tensor
    loss: float

    def preference(self, best: float, bounds: Bounds | None) -> tuple[bool, float, float]:
        """Fits as well as the best, then stays in the box, then has the smallest input."""
        outside = 0.0
        if bounds is not None:
            outside = float((self.inputs - _clamp(self.inputs, bounds)).abs().mean())
        # Rounding leaves the box by a hair; that says nothing.
        return self.loss > TWINS * best, round(outside, 4), float(self.inputs.norm())


@dataclass(frozen=True)
class RGAP(Attack):
    """Goes back from the output to the input, solving each layer by least squares.

    For one example behind the update and a chain of linear layers and convolutions with invertible activations;
    anything else is refused. The loss is the relative distance ‖g(x̂) − g‖/‖g‖ of the replayed gradient.
    """

    name: str = "rgap"
    paper: str = PAPER

    def _reconstruct(self, seen: Observation, seed: int, watch: Watch | None) -> Reconstruction:
        """Recover the input; `seed` draws the guess the result must beat to count."""
        _check_single(seen)
        chain = take_apart(seen.model, seen.input_shape)
        top = choose_top(chain, shared=seen.update.tensors.keys())
        _check_scale(seen, chain, top)
        tensors = {name: value.double() for name, value in OneGradient().target(seen).items()}
        starts = _starts(seen, chain, tensors, top)
        if not starts:
            return _fail(seen, "no input of the last layer explains its gradient: it was changed before sharing")
        found = [_way_down(seen, chain, tensors, start, top) for start in _promising(chain, tensors, starts, top)]
        best = min(one.loss if one.loss == one.loss else float("inf") for one in found)
        chosen = min(found, key=lambda one: one.preference(best, seen.bounds))
        notes = (*seen.notes, *_rank_notes(chosen, chain, top), *_twin_notes(chosen, found, best))
        status = _status(seen, chosen, seed)
        return Reconstruction(
            chosen.inputs, chosen.targets, chosen.loss, status, (chosen.loss,), None, len(found), notes
        )

    def evaluate(self, seen: Observation, reconstruction: Reconstruction) -> float:
        """Relative distance of the replayed gradient from the observed one, computed again."""
        targets = reconstruction.targets
        if targets is None:
            return float("nan")
        return _misfit(seen, reconstruction.inputs, targets)


def rgap() -> RGAP:
    """Recursive closed form, as published except for the root finder and the start at a bias."""
    return RGAP()


def _check_single(seen: Observation) -> None:
    if seen.num_examples is not None and seen.num_examples > 1:
        raise UnsuitableError(
            f"rgap solves for one example, got {seen.num_examples} behind the update; use inverting-gradients or, "
            "with a linear first layer, fc-inversion"
        )


def _check_scale(seen: Observation, chain: SolvableChain, top: int) -> None:
    """Without a shared bias the length of the gradient matters, and a delta of unknown rate has none."""
    if _scaleless(seen) and f"{chain.blocks[top].name}.bias" not in seen.update.tensors:
        raise UnsuitableError(
            "rgap needs the length of the gradient where no linear layer has a bias, and this delta comes without its "
            "learning rate; use scenario A, B or C"
        )


def _scaleless(seen: Observation) -> bool:
    return not scale_known(seen)


def _starts(seen: Observation, chain: SolvableChain, tensors: Tensors, top: int) -> list[Start]:
    block = chain.blocks[top]
    weight, bias = tensors[f"{block.name}.weight"], tensors.get(f"{block.name}.bias")
    if not bool(weight.any()):
        return []
    if bias is None:
        return from_loss(seen, block, weight)
    return [from_bias(weight, bias)] if bool(bias.any()) else []


def _promising(chain: SolvableChain, tensors: Tensors, starts: list[Start], top: int) -> list[Start]:
    """Starts whose first layer on the way down fits; a wrong sign or label shows there at once."""
    if len(starts) == 1 or top == 0:
        return starts
    fits = [descend(chain, tensors, start, top=top, layers=1).residual for start in starts]
    # Equals are told apart below by the whole gradient: rounding alone makes no difference.
    limit = TWINS * max(min(fits), 1e-6)
    return [start for start, fit in zip(starts, fits, strict=True) if fit <= limit]


def _way_down(seen: Observation, chain: SolvableChain, tensors: Tensors, start: Start, top: int) -> _Found:
    descent = descend(chain, tensors, start, top=top)
    inputs = descent.values.reshape(1, *seen.input_shape).to(seen.dtype)
    options = [start.target] if start.target is not None else _targets(seen)
    losses = [_misfit(seen, inputs, target) for target in options]
    place = min(range(len(options)), key=lambda i: losses[i] if losses[i] == losses[i] else float("inf"))
    return _Found(start, descent, inputs, options[place], losses[place])


def _targets(seen: Observation) -> list[Tensor]:
    """Targets under which the gradient may be replayed: granted, inferred, or all there are."""
    if seen.targets is not None:
        return [seen.targets[:1]]
    if seen.num_classes == 1:
        return binary_targets(seen)
    try:
        return [infer_labels(seen, count=1).labels]
    except UnsuitableError:
        return [torch.tensor([label], device=seen.device) for label in range(seen.num_classes)]


def _misfit(seen: Observation, inputs: Tensor, targets: Tensor) -> float:
    """‖g(x) − g‖/‖g‖ over the shared tensors; between directions where the length of g is unknown."""
    parameters = {name: value.detach().requires_grad_() for name, value in trainable(seen.model).items()}
    found = predict(OneGradient(), seen, parameters, inputs, targets, create_graph=False)
    wanted = OneGradient().target(seen)
    ours, theirs = _norm(found, wanted), _norm(wanted, wanted)
    factor = theirs / ours if _scaleless(seen) and ours > 0 else 1.0
    gap = {name: factor * found[name].detach() - value for name, value in wanted.items()}
    return _norm(gap, wanted) / max(theirs, 1e-300)


def _norm(tensors: Tensors, names: Tensors) -> float:
    """Norm of the named tensors; squares are summed in double precision, so that tiny gradients count."""
    return sum(float(tensors[name].double().square().sum()) for name in names) ** 0.5


def _status(seen: Observation, found: _Found, seed: int) -> Status:
    if found.loss != found.loss or not bool(torch.isfinite(found.inputs).all()):
        return Status.NAN
    low, high = limits_of(seen.bounds, found.inputs)
    guess = random.uniform(tuple(found.inputs.shape), random.generator(seed, "rgap", "guess"), like=found.inputs)
    chance = _misfit(seen, low + (high - low) * guess, found.targets)
    # Valid data is what anyone would look at: a scaled gradient fits an input far outside it.
    valid = found.inputs if seen.bounds is None else _clamp(found.inputs, seen.bounds)
    worst = max(found.loss, _misfit(seen, valid, found.targets))
    return Status.OK if worst < CLEARLY * chance else Status.DIVERGED


def _rank_notes(found: _Found, chain: SolvableChain, top: int) -> tuple[str, ...]:
    report = RankReport(tuple(count_equations(block, solved.rank) for block, solved in found.descent.layers))
    begun = f"closed form from {chain.blocks[top].name!r} down"
    short = [layer for layer in report.layers if layer.verdict == "deficient"]
    ranks = (
        tuple(f"least-norm solution at {layer}" for layer in short)
        if short
        else ("rank analysis: every layer is determined",)
    )
    return (begun, *ranks, *(note for _block, solved in found.descent.layers for note in solved.notes))


def _twin_notes(chosen: _Found, found: list[_Found], best: float) -> tuple[str, ...]:
    """The same gradient may belong to a second input: the equation for the logit has two roots."""
    others = [one for one in found if one is not chosen and one.loss <= TWINS * max(best, 1e-6)]
    if not others:
        return ()
    scales = ", ".join(f"{float(one.start.inputs.norm() / chosen.start.inputs.norm()):.4g}" for one in others)
    return (f"the gradient does not tell this input from one with last features {scales} times as large",)


def _clamp(inputs: Tensor, bounds: Bounds) -> Tensor:
    low, high = (
        torch.as_tensor(limit, device=inputs.device, dtype=inputs.dtype) for limit in limits_of(bounds, inputs)
    )
    return torch.minimum(torch.maximum(inputs, low), high)


def _fail(seen: Observation, reason: str) -> Reconstruction:
    half = torch.full((1, *seen.input_shape), 0.5, device=seen.device, dtype=seen.dtype)
    low, high = limits_of(seen.bounds, half)
    grey = low + (high - low) * half
    return Reconstruction(grey, None, float("nan"), Status.DIVERGED, notes=(*seen.notes, reason))
