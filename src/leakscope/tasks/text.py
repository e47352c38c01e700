"""Text read off a sequence of scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor
from torch.nn import functional

from leakscope.errors import BadInputError
from leakscope.tasks.ctc import negative_log_likelihood
from leakscope.tasks.task import Task, describe, unwrap

_DRAWN_LENGTH = 5


@dataclass(frozen=True)
class CTCText(Task):
    """Text of any length read off a sequence of scores (Graves et al., ICML 2006).

    Attributes:
        time_first: whether the network returns [T, n, classes], as torch's CTC loss takes it, or [n, T, classes].
        blank: the class that stands for no symbol.
        padding: the number that fills targets [n, L] up behind their text; None takes `blank`.
    """

    time_first: bool = True
    blank: int = 0
    padding: int | None = None
    name: ClassVar[str] = "ctc-text"

    @property
    def is_cross_entropy(self) -> bool:
        """No: many alignments share one text."""
        return False

    def loss(self, output: Any, targets: Tensor, /) -> Tensor:
        """−log p(text), divided by the length of the text, mean over the examples; it has derivatives of any order."""
        each = negative_log_likelihood(self._by_time(output), targets, blank=self.blank, padding=self._filler)
        return (each / (targets != self._filler).sum(1).clamp_min(1)).mean()

    @property
    def why_no_labels(self) -> str | None:
        """Every alignment of a text has a part in the gradient of the last layer."""
        return (
            "task CTCText has a text for each example, and the gradient of the last layer is a sum over all steps and "
            "all alignments of all texts"
        )

    def draw_targets(self, count: int, outputs: int, rng: Generator) -> Tensor:
        """Texts of five symbols, no two neighbours the same."""
        symbols = [symbol for symbol in range(outputs) if symbol not in (self.blank, self._filler)]
        steps = torch.randint(1, max(2, len(symbols)), (count, _DRAWN_LENGTH), generator=rng)
        return torch.tensor(symbols)[steps.cumsum(1) % len(symbols)]

    def check_output(self, output: Any) -> Tensor:
        """Scores with three axes."""
        scores = unwrap(output)
        if not isinstance(scores, Tensor) or scores.ndim != 3:
            form = "[T, n, classes]" if self.time_first else "[n, T, classes]"
            raise BadInputError(
                f"task CTCText needs scores {form}, got {describe(scores)}; wrap the network accordingly"
            )
        return scores

    def check_targets(self, targets: Tensor, outputs: int) -> None:
        """Symbols [n, L], filled up behind the text and nowhere else."""
        if targets.is_floating_point() or targets.ndim != 2:
            raise BadInputError(
                f"task CTCText needs whole numbers [n, L] as targets, got {targets.dtype} of shape "
                f"{list(targets.shape)}; fill shorter texts up with {self._filler}"
            )
        text = targets != self._filler
        symbols = targets[text]
        if bool((text[:, 1:] & ~text[:, :-1]).any()) or not bool(text.any(1).all()):
            raise BadInputError(
                f"a text must have a symbol, and {self._filler} may stand behind it only, not inside it"
            )
        if int(symbols.min()) < 0 or int(symbols.max()) >= outputs or bool((symbols == self.blank).any()):
            raise BadInputError(
                f"symbols must lie in 0…{outputs - 1} without the blank {self.blank}, got {int(symbols.min())}…"
                f"{int(symbols.max())}; map the symbols, or declare blank= and padding="
            )

    def decode(self, output: Any) -> Tensor:
        """The likeliest class of every step, repeats and blanks left out: [n, T], filled up with the padding."""
        best = self._by_time(output).argmax(2).T
        kept = best != self.blank
        kept[:, 1:] &= best[:, 1:] != best[:, :-1]
        texts = torch.full_like(best, self._filler)
        places = kept.cumsum(1) - 1
        row = torch.arange(len(best), device=best.device)[:, None].expand_as(best)
        texts[row[kept], places[kept]] = best[kept]
        return texts

    def count_correct(self, output: Any, targets: Tensor) -> int:
        """How many texts are right from the first symbol to the last."""
        said = self.decode(output)
        width = max(said.shape[1], targets.shape[1])
        left, right = (functional.pad(one, (0, width - one.shape[1]), value=self._filler) for one in (said, targets))
        return int((left == right).all(1).sum())

    @property
    def _filler(self) -> int:
        return self.blank if self.padding is None else self.padding

    def _by_time(self, output: Any) -> Tensor:
        scores = self.check_output(output)
        return scores if self.time_first else scores.transpose(0, 1)
