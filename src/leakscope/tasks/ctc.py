"""The loss of connectionist temporal classification, in plain tensor operations.

Graves, Fernández, Gomez, Schmidhuber: Connectionist Temporal Classification, ICML 2006. With a text spelled as states
blank, s₁, blank, s₂, …, blank, the probability of all alignments that have reached state s by step t follows from

    α_t(s) = p_t(s) · (α_{t−1}(s) + α_{t−1}(s−1) + [s may be reached from s−2] α_{t−1}(s−2)),

computed in logarithms. PyTorch's kernels for the same sum have no second derivative, which gradient matching needs.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from leakscope.errors import BadInputError

# The logarithm of no probability. Finite: the derivative of a sum of such terms is then 0 and not NaN.
_NEVER = -1e30


def negative_log_likelihood(scores: Tensor, texts: Tensor, *, blank: int, padding: int) -> Tensor:
    """−log p(text) of every example, [n]; derivatives of any order.

    Args:
        scores: [T, n, classes], as a network returns them.
        texts: symbols [n, L], filled up behind the text with `padding`.
        blank: the class that stands for no symbol.
        padding: what fills `texts` up; it may be the blank.

    Raises:
        BadInputError: A text that no alignment of T steps spells; its loss would be infinite.

    Example:
        >>> even = torch.zeros(2, 1, 3)
        >>> float(negative_log_likelihood(even, torch.tensor([[1]]), blank=0, padding=0).exp())  # 3 of 9 paths spell it
        3.0
    """
    written = texts != padding
    lengths = written.sum(1)
    symbols = texts.masked_fill(~written, blank)
    check_possible(symbols, lengths, steps=len(scores), blank=blank)
    states = symbols.new_full((len(symbols), 2 * symbols.shape[1] + 1), blank)
    states[:, 1::2] = symbols
    # Half precision would lose the sum over many alignments.
    odds = scores.log_softmax(2, dtype=torch.promote_types(scores.dtype, torch.float32))
    reached = _advance(odds.gather(2, states.expand(len(scores), -1, -1)), _may_skip(states, blank))
    # A text ends in its last symbol or in the blank behind it; an empty one in the only blank there is.
    ends = torch.stack([2 * lengths, (2 * lengths - 1).clamp_min(0)], 1)
    last = reached.gather(1, ends)
    last = torch.cat([last[:, :1], last[:, 1:].masked_fill(lengths[:, None] == 0, _NEVER)], 1)
    return -last.logsumexp(1)


def _advance(odds: Tensor, may_skip: Tensor) -> Tensor:
    """log α of the last step, [n, states], from log-probabilities [T, n, states]."""
    barrier = torch.zeros(3, *may_skip.shape, device=odds.device, dtype=odds.dtype)
    barrier[2].masked_fill_(~may_skip, _NEVER)
    begins = torch.arange(odds.shape[2], device=odds.device) < 2
    reached = odds[0].masked_fill(~begins, _NEVER)
    for now in odds[1:]:
        before = functional.pad(reached, (2, 0), value=_NEVER)
        sources = torch.stack([before[:, 2:], before[:, 1:-1], before[:, :-2]])
        reached = now + (sources + barrier).logsumexp(0)
    return reached


def _may_skip(states: Tensor, blank: int) -> Tensor:
    """Whether a state may be reached from the last but one: between different symbols no blank is needed."""
    before = functional.pad(states, (2, 0), value=blank)[:, : states.shape[1]]
    return (states != blank) & (states != before)


def check_possible(symbols: Tensor, lengths: Tensor, *, steps: int, blank: int) -> None:
    """Refuse a text for which `steps` are too few: one a symbol, and one more between two that are the same."""
    repeats = ((symbols[:, 1:] == symbols[:, :-1]) & (symbols[:, 1:] != blank)).sum(1)
    needed = lengths + repeats
    if bool((needed > steps).any()):
        place = int(needed.argmax())
        raise BadInputError(
            f"a text of {int(lengths[place])} symbols, {int(repeats[place])} of them repeating the one before, needs "
            f"{int(needed[place])} steps (text {place} of the batch), but the network returns {steps}: no alignment "
            "spells it and its loss is infinite; leave such texts out, or give the network wider pictures"
        )
