"""A candidate seen through one of several chains of transformations; which one, is learnt with the picture."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import product

import torch
from torch import Generator, Tensor

from leakscope.errors import UnsuitableError
from leakscope.matching.candidates.pixels import Candidate, Pixels, Variables
from leakscope.matching.candidates.transforms import TRANSFORMS, Transform
from leakscope.operations.library import Entry
from leakscope.operations.policy import Policy
from leakscope.types import Observation

WEIGHTS = "policy.weights"
PARAMETERS = "policy.parameters"
# A unit of a variable moves its parameter by so much of its range, as in the policy-aware attack.
_PACE = 0.02
# The sign of a recolouring is found by going there; a shift by half a picture is not.
_RECOLOURING = ("brightness", "contrast", "colour", "sharpness")
_BEYOND = 1.1
_NAMES = {"rotate": "rotate-grey"}

Chain = tuple[Transform, ...]


def known_chains(policy: Policy) -> tuple[Chain, ...]:
    """What a policy can have done to one picture: a chain for every part and every sign of its shifts and shears.

    Magnitudes are known, so nothing of them is learnt, but for recolourings: those go from one sign to the other.
    """
    found: list[Chain] = []
    for entries in policy.canonical().entries:
        found += product(*(_choices(entry) for entry in entries))
    return tuple(dict.fromkeys(found))


def _choices(entry: Entry) -> list[Transform]:
    transform = TRANSFORMS[_NAMES.get(entry.name, entry.name)]
    if entry.is_identity:
        return [_fixed(TRANSFORMS["flip"], 0.0)]
    if not transform.start:
        return [transform]
    if entry.name in _RECOLOURING:
        reach = _BEYOND * entry.amount
        return [replace(transform, low=(-reach,), high=(reach,), signed=False)]
    # A threshold is a level of 255, and to invert is to do so wholly.
    amount = {"solarise": entry.amount / 255, "invert": 1.0}.get(entry.name, entry.amount)
    both = (amount, -amount) if entry.signed else (amount,)
    return [replace(_fixed(transform, one), signed=entry.signed) for one in both]


def _fixed(transform: Transform, amount: float) -> Transform:
    return replace(transform, start=(amount,), low=(amount,), high=(amount,), signed=False)


@dataclass(frozen=True)
class Alternatives(Candidate):
    """Σ_k w_k · T_k(x): each example is a mixture of what the chains make of it, with weights of its own.

    The weights are a softmax that begins even and stays soft for long, or the first steps would decide; the chain that
    explains the update best takes over. All happens in one run, so that the attack costs no more steps. What is
    returned is what the model saw.
    """

    chains: tuple[Chain, ...]
    base: Candidate = field(default_factory=lambda: Pixels(begin="normal", normalised=True))

    def start(self, seen: Observation, count: int, rng: Generator) -> Variables:
        """The base's start, all chains alike, and every parameter where it starts."""
        _check(seen)
        begin = self.base.start(seen, count, rng)
        like = torch.empty(0, device=seen.device, dtype=seen.dtype)
        if len(self.chains) > 1:
            begin[WEIGHTS] = like.new_zeros(count, len(self.chains))
        if width := sum(len(item.start) for item in self._free()):
            begin[PARAMETERS] = like.new_zeros(count, width)
        return begin

    def decode(self, seen: Observation, variables: Variables) -> Tensor:
        """Decode, send through every chain, and mix."""
        images = self.base.decode(seen, variables)
        flat = images.flatten(0, 1)
        steps = variables[PARAMETERS].flatten(0, 1) if PARAMETERS in variables else flat.new_zeros(len(flat), 0)
        found, place = [], 0
        for chain in self.chains:
            one = flat
            for item in chain:
                own = steps[:, place : place + len(item.start)] if _is_free(item) else None
                place += 0 if own is None else len(item.start)
                one = item.apply(one, _parameters(item, own, like=one))
            found.append(one)
        mixed = found[0]
        if WEIGHTS in variables:
            weights = variables[WEIGHTS].flatten(0, 1).softmax(1).reshape(len(flat), -1, 1, 1, 1)
            mixed = (weights * torch.stack(found, dim=1)).sum(1)
        return mixed.unflatten(0, images.shape[:2])

    def around(self, base: Candidate) -> Candidate:
        """`base` through the same transformations."""
        return replace(self, base=base)

    def original(self, seen: Observation, variables: Variables) -> Tensor | None:
        """The picture before the policy."""
        return self.base.decode(seen, variables)

    def project(self, seen: Observation, variables: Variables) -> Variables:
        """Keep the base where it must stay, and the parameters in their ranges."""
        moved = dict(self.base.project(seen, variables))
        if PARAMETERS in moved:
            value = moved[PARAMETERS]
            low, high = (
                value.new_tensor([edge for item in self._free() for edge in _edges(item, bound)]) for bound in (0, 1)
            )
            moved[PARAMETERS] = torch.minimum(torch.maximum(value, low), high)
        return moved

    @property
    def generates_labels(self) -> bool:
        """As the base."""
        return self.base.generates_labels

    def soft_labels(self, seen: Observation, variables: Variables) -> Tensor:
        """As the base."""
        return self.base.soft_labels(seen, variables)

    def describe(self, seen: Observation, variables: Variables) -> tuple[str, ...]:
        """The chain that every example came to."""
        said = self.base.describe(seen, variables)
        if WEIGHTS not in variables:
            return said
        shares, chosen = variables[WEIGHTS].softmax(1).max(1)
        rows = [
            f"{_describe_chain(self.chains[number])} ({share:.0%})"
            for number, share in zip(chosen.tolist(), shares.tolist(), strict=True)
        ]
        return (*said, "likeliest transformation: " + "; ".join(rows))

    def _free(self) -> list[Transform]:
        return [item for chain in self.chains for item in chain if _is_free(item)]


def _is_free(item: Transform) -> bool:
    return item.low != item.high


def _parameters(item: Transform, steps: Tensor | None, *, like: Tensor) -> Tensor:
    start = like.new_tensor(item.start).expand(len(like), len(item.start))
    return start if steps is None else start + steps * like.new_tensor(_units(item))


def _units(item: Transform) -> list[float]:
    return [_PACE * (high - low) for low, high in zip(item.low, item.high, strict=True)]


def _edges(item: Transform, bound: int) -> list[float]:
    """The lower or upper ends of the variables of one transformation."""
    ends = (item.low, item.high)[bound]
    return [(end - start) / unit for end, start, unit in zip(ends, item.start, _units(item), strict=True)]


def _describe_chain(chain: Chain) -> str:
    return " ".join(f"{item.name} {item.start[0]:+.3g}" if item.signed and item.start else item.name for item in chain)


def _check(seen: Observation) -> None:
    if len(seen.input_shape) != 3 or seen.bounds != (0.0, 1.0):
        raise UnsuitableError(
            "an attacker who knows a policy of transformations needs pictures [channels, height, width] in [0, 1], got "
            f"inputs {list(seen.input_shape)} with bounds {seen.bounds}"
        )
