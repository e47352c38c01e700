"""What every policy is scored on: the same pictures and the same two networks, in every worker."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from torch import Tensor, nn

from leakscope import rng as random
from leakscope.defences.transforms.accuracy_score import accuracy_batches, accuracy_score, distinct_labels
from leakscope.defences.transforms.privacy_score import BINS, Variant, check_variant, privacy_scores
from leakscope.defences.transforms.score_store import Key
from leakscope.errors import UsageError
from leakscope.models import load_network
from leakscope.types import Batch, Tensors
from leakscope.user_code import is_code
from leakscope.version import __version__

PRIVACY, ACCURACY = "privacy", "accuracy"
_COARSE = "privacy, every "
# Ten pictures, and no gradient in weights.
_ACCURACY_COST = 5


@dataclass(frozen=True)
class NetworkSource:
    """How a worker builds the network: arguments of `load_network`."""

    name: str
    shape: tuple[int, ...]
    classes: int | None = None
    normalise: str | None = None

    def build(self, seed: int) -> nn.Module:
        """The untrained network of a seed; one of the user's own is as its function returns it."""
        own = is_code(self.name)
        return load_network(
            self.name,
            shape=self.shape,
            classes=None if own else self.classes,
            normalise=self.normalise,
            seed=None if own else seed,
            allow_code=True,
        )


@dataclass(frozen=True)
class ScoreBench:
    """Pictures and networks; pickled once for every worker.

    Attributes:
        pictures: those of S_pri, with labels.
        batches: those of S_acc, one picture for each class.
        network: how the networks are built.
        weights: state of the trained network.
        variant: how scores are computed.
        seed: of noise, coins and the untrained network.
    """

    pictures: Batch
    batches: tuple[Tensor, ...]
    network: NetworkSource
    weights: Tensors
    variant: Variant = "released"
    seed: int = 0

    def __post_init__(self) -> None:
        check_variant(self.variant)

    @cached_property
    def trained(self) -> nn.Module:
        """The network whose gradients are compared."""
        model = self.network.build(self.seed)
        model.load_state_dict(dict(self.weights))
        return model.eval()

    def identity(self) -> dict[str, Any]:
        """What scores depend on, beside policy and picture."""
        digest = hashlib.sha256()
        # A file gives tensors back in another order.
        state = [self.weights[name] for name in sorted(self.weights)]
        for value in (self.pictures.inputs, self.pictures.targets, *self.batches, *state):
            digest.update(value.detach().cpu().contiguous().numpy().tobytes())
        return {
            "network": self.network.name,
            "normalise": self.network.normalise,
            "pictures": len(self.pictures.inputs),
            "scores": self.variant,
            "seed": self.seed,
            "version": __version__,
            "content": digest.hexdigest()[:16],
        }


def privacy_kind(every: int = 1) -> str:
    """What S_pri by every so-manyth point is stored as: coarse scores never stand in for full ones."""
    return PRIVACY if every == 1 else f"{_COARSE}{every}"


def cost_of(kind: str) -> int:
    """About how many gradients of one picture a score takes; the time left is estimated by it."""
    if kind == ACCURACY:
        return _ACCURACY_COST
    return BINS // _every(kind) + 1 if kind.startswith(PRIVACY) else BINS + 1


def _every(kind: str) -> int:
    return 1 if kind == PRIVACY else int(kind.removeprefix(_COARSE))


def measure_key(bench: ScoreBench, key: Key) -> float:
    """One score: S_pri of a picture, full or coarse, or S_acc of a batch."""
    # Other draws are other random numbers, of the untrained network, too.
    seed = bench.seed if key.draw == 0 else random.child_seed(bench.seed, "search", "draw", key.draw)
    if key.kind != ACCURACY:
        one = slice(key.place, key.place + 1)
        batch = Batch(bench.pictures.inputs[one], bench.pictures.targets[one])
        found = privacy_scores(
            key.policy,
            batch,
            model=bench.trained,
            variant=bench.variant,
            seed=seed,
            places=[key.place],
            every=_every(key.kind),
        )
        return float(found[0])
    return accuracy_score(
        key.policy,
        bench.batches[key.place],
        model=_untrained(bench.network, seed),
        variant=bench.variant,
        seed=seed,
        place=key.place,
    )


def score_positions(length: int, count: int) -> list[int]:
    """Positions of the pictures of S_pri in the test set: 200, 205, … as released, spread out in a smaller set."""
    if not 1 <= count <= length:
        raise UsageError(f"images must be a whole number from 1 to {length}, the pictures that are there, got {count}")
    if 200 + 5 * (count - 1) < length:
        return [200 + 5 * number for number in range(count)]
    return [number * length // count for number in range(count)]


def batch_positions(targets: Tensor) -> list[list[int]]:
    """Positions of the batches of S_acc in the test set."""
    batches = accuracy_batches(len(targets))
    return [[batch[place] for place in distinct_labels(targets[list(batch)])] for batch in batches]


@lru_cache(maxsize=2)
def _untrained(network: NetworkSource, seed: int) -> nn.Module:
    return network.build(seed)
