"""A token predicted at every place of a text: how language models are trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from leakscope.errors import BadInputError
from leakscope.tasks.task import Task, describe, unwrap


@dataclass(frozen=True)
class NextToken(Task):
    """A word of the vocabulary at every place; scores [n, length, words], targets [n, length].

    Networks that take tokens and return such scores are taken for this task where none is declared.

    Attributes:
        shift: whether targets are the inputs themselves, so that the scores of a place are for the target of the next
            one; without it the scores of a place are for its own target.
        ignored: the target of places that do not count, as torch's cross-entropy has it.

    Example:
        >>> NextToken().outputs(torch.zeros(2, 5, 30))
        30
    """

    shift: bool = False
    ignored: int = -100
    name: ClassVar[str] = "next-token"
    bounds: ClassVar[tuple[float, float] | None] = None

    @property
    def is_cross_entropy(self) -> bool:
        """No: there is one loss for every place, and no label of a text."""
        return False

    def loss(self, output: Any, targets: Tensor, /) -> Tensor:
        """The mean cross-entropy over all places that count."""
        scores, wanted = self._places(output, targets)
        return functional.cross_entropy(scores.flatten(0, 1), wanted.flatten(), ignore_index=self.ignored)

    def check_output(self, output: Any) -> Tensor:
        """Scores with three axes."""
        scores = unwrap(output)
        if not isinstance(scores, Tensor) or scores.ndim != 3:
            raise BadInputError(
                f"task NextToken needs scores [n, length, words], got {describe(scores)}; wrap the network accordingly"
            )
        return scores

    def check_targets(self, targets: Tensor, outputs: int) -> None:
        """Tokens [n, length], of which some count."""
        if targets.dtype != torch.long or targets.ndim != 2:
            raise BadInputError(
                f"task NextToken needs int64 tokens [n, length] as targets, one for every place, got {targets.dtype} "
                f"of shape {list(targets.shape)}; give the token to be predicted at each place, {self.ignored} for none"
            )
        kept = (targets[:, 1:] if self.shift else targets).flatten()
        kept = kept[kept != self.ignored]
        if not len(kept) or int(kept.min()) < 0 or int(kept.max()) >= outputs:
            got = f"{int(kept.min())}…{int(kept.max())}" if len(kept) else "none that counts"
            raise BadInputError(
                f"targets must be tokens from 0 to {outputs - 1}, or {self.ignored} where a place does not count, got "
                f"{got}; use the vocabulary of the network"
            )

    def decode(self, output: Any) -> Tensor:
        """The likeliest token of every place, [n, length]."""
        return self.check_output(output).argmax(2)

    def count_correct(self, output: Any, targets: Tensor) -> int:
        """How many texts are right at every place that counts."""
        scores, wanted = self._places(output, targets)
        return int(((scores.argmax(2) == wanted) | (wanted == self.ignored)).all(1).sum())

    def _places(self, output: Any, targets: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.check_output(output)
        if targets.shape != scores.shape[:2]:
            raise BadInputError(
                f"task NextToken needs one target for every place, {list(scores.shape[:2])}, got targets of shape "
                f"{list(targets.shape)}; where they are the inputs moved by one, fill the last place with "
                f"{self.ignored}, or give the inputs themselves and say shift=True"
            )
        return (scores[:, :-1], targets[:, 1:]) if self.shift else (scores, targets)
