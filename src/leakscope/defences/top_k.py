"""Top-k with error feedback: send the largest entries, keep the rest for the next round."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Generator, Tensor

from leakscope.attack import Attack
from leakscope.defence import ClientHooks, Defence
from leakscope.defences.prune import keep_largest
from leakscope.errors import BadInputError, UsageError
from leakscope.types import SharedUpdate, Tensors

PAPER = (
    "Stich, Cordonnier, Jaggi: Sparsified SGD with Memory, NeurIPS 2018; "
    "Lin et al.: Deep Gradient Compression, ICLR 2018"
)


@dataclass(frozen=True)
class TopK(Defence):
    """The `share` of all entries that is largest in magnitude; with `feedback` the rest is added in the next round.

    Round t sends top_k(u_t + m_t) and keeps m_{t+1} = u_t + m_t − top_k(u_t + m_t), with m_0 = 0.
    """

    share: float
    feedback: bool = True
    name: str = "top-k"
    paper: str = PAPER

    def __post_init__(self) -> None:
        if not 0.0 < self.share <= 1.0:
            raise UsageError(f"top-k needs 0 < share ≤ 1, got {self.share}; 0.01 sends one entry in a hundred")

    def hooks(self) -> ClientHooks:
        """Act on the finished update, with a memory or without."""
        return ClientHooks(feedback=self._remember) if self.feedback else ClientHooks(update=self._forget)

    def adapt(self, attack: Attack) -> Attack:
        """The attacker reads the mask off the zeros."""
        if self.share == 1:
            return attack
        return attack.revised(lambda recipe: replace(recipe, distance=recipe.distance.masked()))

    def _remember(
        self, update: SharedUpdate, held_back: Tensors, rng: Generator
    ) -> tuple[SharedUpdate, dict[str, Tensor]]:
        if self.share == 1:
            return update, {}
        total = {name: value + _fitting(held_back, name, value) for name, value in update.tensors.items()}
        sent = keep_largest(total, self._count(total))
        return replace(update, tensors=sent), {name: value - sent[name] for name, value in total.items()}

    def _forget(self, update: SharedUpdate, rng: Generator) -> SharedUpdate:
        return replace(update, tensors=keep_largest(update.tensors, self._count(update.tensors)))

    def _count(self, tensors: Tensors) -> int:
        # At least one: an update without entries would tell the server that the client is gone.
        return max(1, round(self.share * sum(value.numel() for value in tensors.values())))


def top_k(share: float = 0.01, *, feedback: bool = True) -> TopK:
    """Send only the `share` of all entries that is largest in magnitude, and the rest later."""
    return TopK(share, feedback)


def _fitting(held_back: Tensors, name: str, value: Tensor) -> Tensor | float:
    """What was held back of this tensor; nothing in the first round."""
    if name not in held_back:
        return 0.0
    kept = held_back[name]
    if kept.shape != value.shape:
        raise BadInputError(
            f"top-k held back {name!r} of shape {list(kept.shape)}, but this round's has {list(value.shape)}; "
            "pass what the same client's last round returned, or nothing"
        )
    return kept
