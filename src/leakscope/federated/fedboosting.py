"""FedBoosting: clients count by how their models do on each other's held-out examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from leakscope.errors import UsageError, suggest
from leakscope.federated.strategy import Strategy

if TYPE_CHECKING:
    from leakscope.federated.client import Reply

Formula = Literal["released", "thesis"]
_FORMULAS = ("released", "thesis")
# A loss of 0 has no reciprocal.
_SMALLEST_LOSS = 1e-8


@dataclass(frozen=True)
class FedBoosting(Strategy):
    """Weights from the cross-validation matrix V and the training losses T.

    "released" is what the published code computes: pᵢ ∝ 1 / (mean of row i of V) · (1/Tᵢ) / Σⱼ (1/Tⱼ), which decreases
    in both losses. "thesis" is the formula as it is written: p = softmax(softmax(T) · Σⱼ Vᵢⱼ). It increases in both, so
    that the worse model counts more, against what the text says of it. Without training losses all Tᵢ are taken to be
    equal.

    Attributes:
        formula: "released" or "thesis".
        training_loss: whether training losses count.
        mixing: share of its own update in a client's model as others validate it, 0.9 in the release; the others'
            updates share the rest. This mixes models and is not differential privacy: nothing is drawn, and whoever has
            the mixed models of all clients can solve for their own. None sends models as they are.

    References:
        Ren et al., "FedBoosting: Federated learning with gradient protected boosting for text recognition",
        arXiv:2007.07296; chapter 4 of the first author's thesis, equations 4.2, 4.3 and 4.5.
    """

    formula: Formula = "released"
    training_loss: bool = True
    mixing: float | None = None
    needs_validation = True

    def __post_init__(self) -> None:
        if self.formula not in _FORMULAS:
            raise UsageError(f"fedboosting has no formula {self.formula!r}.{suggest(str(self.formula), _FORMULAS)}")
        if self.mixing is not None and not 0.5 < self.mixing <= 1:
            raise UsageError(
                f"fedboosting needs 0.5 < mixing ≤ 1, so that a client's own update is most of its model, got "
                f"{self.mixing}; the release uses 0.9"
            )

    @property
    def name(self) -> str:
        """One name per variant."""
        parts = ["fedboosting", self.formula]
        parts += [] if self.training_loss else ["no-training-loss"]
        return "-".join([*parts, *([] if self.mixing is None else ["mixing"])])

    def weigh(self, replies: Sequence[Reply], validation: Tensor | None) -> list[float]:
        """The weights of the chosen formula.

        Example:
            >>> validation = torch.tensor([[0.5, 0.5], [2.0, 2.0]])
            >>> [round(p, 2) for p in boosting_weights(validation, None, formula="released")]
            [0.8, 0.2]
            >>> [round(p, 2) for p in boosting_weights(validation, None, formula="thesis")]
            [0.18, 0.82]
        """
        if validation is None:
            raise UsageError("fedboosting weighs by validation losses, got none; give clients held-out examples")
        losses = torch.tensor([reply.train_loss for reply in replies], dtype=torch.float64)
        return boosting_weights(validation, losses if self.training_loss else None, formula=self.formula)


def boosting_weights(validation: Tensor, training: Tensor | None, *, formula: Formula) -> list[float]:
    """Weights from V [clients, validators] and T [clients]; T None takes all training losses to be equal."""
    losses = validation.double()
    fitness = torch.ones(len(losses), dtype=torch.float64) if training is None else training.double()
    if formula == "thesis":
        scores = torch.softmax(fitness, 0) * losses.sum(1)
        return torch.softmax(scores, 0).tolist()
    better = 1 / fitness.clamp_min(_SMALLEST_LOSS)
    raw = 1 / losses.mean(1).clamp_min(_SMALLEST_LOSS) * (better / better.sum())
    return (raw / raw.sum()).tolist()
