"""The tokens of a text, read off the gradient of the embedding that looks them up.

An embedding copies one row of its weight for every token, so its gradient is zero in every row that no token chose:
the rows that are not zero *are* the private tokens. Texts of a batch, and of all local steps, are seen as one set.
Where the same weight serves as the output layer, all rows get a gradient Σᵢ (pᵢ − yᵢ) hᵢ as well; it lies in the space
that the few hidden states hᵢ span, and what is left outside that space is the embedding's own part. A network that
predicts a token at every place is trained on texts on both sides: where inputs and targets cannot be told apart there,
the rows that stand out are tokens of the text all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from leakscope.attack import Attack, Watch
from leakscope.errors import UnsuitableError
from leakscope.matching.labels import infer_labels
from leakscope.networks import TokenLayer, find_token_layer
from leakscope.tasks import NextToken
from leakscope.types import Observation, Reconstruction, Status

PAPER = "Melis et al.: Exploiting Unintended Feature Leakage in Collaborative Learning, IEEE S&P 2019"
# Rounding, as a share of the longest row.
_ROUNDING = 1e-5
# float32 keeps seven digits of a weight, and fewer of its decay: what is left of a row below this share is rounding.
_DECAYED = 0.02
# Under noise a row must stand out by this many deviations of the rows' lengths.
_DEVIATIONS = 8.0
# Rows on both sides of a gap differ by this factor at least.
_GAP = 1.5
# A row grows with how often its token occurs, up to so often.
_MOST_REPEATED = 100.0
_NEARLY_ALL = "the output layer moves rows of other tokens as well: rows above the widest gap in length were taken"
_NOISY = "rows that no token chose are not zero: only rows that stand out were taken"
PREDICTED = (
    "labels are the tokens to be predicted at every place, and none is inferred beside the set: target_recall says how "
    "many of them it holds"
)
_GRANTED = "the labels that this scenario grants are tokens of the texts themselves"
NOT_ORDERED = "the set of tokens of the whole update: neither their order nor which text holds which was rebuilt"


@dataclass(frozen=True)
class EmbeddingTokens(Attack):
    """Reads the set of private tokens, and the labels where the last layer tells them."""

    name: str = "embedding-tokens"
    paper: str = PAPER
    reads_tokens: ClassVar[bool] = True

    def _reconstruct(self, seen: Observation, seed: int, watch: Watch | None) -> Reconstruction:
        """The tokens whose rows were trained; the loss is the share of the rows' energy that they leave unexplained."""
        own = own_rows(seen)
        lengths = own.lengths
        limit, remark = _limit(lengths, tied=own.tied)
        tokens = (lengths > limit).nonzero().flatten()
        targets, said = _labels(seen)
        loss = _unexplained(lengths, tokens)
        notes = (*seen.notes, own.how, *remark, NOT_ORDERED, *said)
        found = len(tokens) > 0
        return Reconstruction(
            inputs=_listed(seen, tokens),
            targets=targets,
            loss=loss,
            status=Status.OK if found else Status.DIVERGED,
            history=(loss,),
            evaluations=1,
            notes=notes if found else (*notes, "no row stands out: no evidence"),
            tokens=tokens,
            vocabulary=seen.vocabulary,
        )

    def evaluate(self, seen: Observation, reconstruction: Reconstruction) -> float:
        """The loss at the stored tokens, computed again."""
        assert reconstruction.tokens is not None  # only this attack's own results come here
        return _unexplained(own_rows(seen).lengths, reconstruction.tokens)


def embedding_tokens() -> EmbeddingTokens:
    """The set of tokens behind an update, off the embedding's gradient."""
    return EmbeddingTokens()


@dataclass(frozen=True)
class OwnRows:
    """What the embedding itself contributed to its rows [tokens, width], and how it was told apart."""

    values: Tensor
    how: str
    tied: bool

    @property
    def lengths(self) -> Tensor:
        """Of every row."""
        return self.values.norm(dim=1)


def own_rows(seen: Observation) -> OwnRows:
    """What the embedding itself contributed to its rows.

    Raises:
        UnsuitableError: there is no embedding of tokens, it was not shared, or its part cannot be told apart.
    """
    found = find_token_layer(seen.model, seen.input_shape) if seen.vocabulary is not None else None
    if found is None:
        raise UnsuitableError(
            "embedding-tokens needs whole-number inputs that go to an nn.Embedding; this network takes numbers with a "
            "fraction: use inverting-gradients"
        )
    if found.name not in seen.update.tensors:
        raise UnsuitableError(
            f"the embedding's tensor {found.name!r} is not part of the update, and tokens are read off nothing else"
        )
    rows, weight = seen.update.tensors[found.name].double(), found.layer.weight.detach().double()
    values, how = _take_apart(rows, weight, found, seen)
    return OwnRows(values, how, found.tied)


def _take_apart(rows: Tensor, weight: Tensor, found: TokenLayer, seen: Observation) -> tuple[Tensor, str]:
    # A row of zeros, as that of padding, does not decay.
    if not found.tied and bool(((rows == 0).all(1) & (weight != 0).any(1)).any()):
        return rows, f"rows of {found.name!r} that are not zero"
    straight = _without_decay(rows, weight)
    if straight is not None:
        return straight, f"rows of {found.name!r} that moved other than by weight decay"
    outside = _outside_head(rows, digits=float(torch.finfo(seen.update.tensors[found.name].dtype).eps))
    if outside is not None:
        return outside, f"rows of {found.name!r} outside the space of the hidden states that the output layer adds"
    if not found.tied:
        return rows, f"rows of {found.name!r}: none is zero, so the update was changed (noise), or every token occurs"
    if isinstance(seen.task, NextToken) and _find_gap(rows.norm(dim=1)) is not None:
        return rows, f"rows of {found.name!r} that stand out: tokens that were put in, or had to be predicted"
    raise UnsuitableError(
        f"{found.name!r} is the output layer as well, and with so many hidden states their gradients fill all "
        f"{rows.shape[1]} directions of a row: tokens that were put in cannot be told from tokens that were "
        "predicted; fewer tokens in an update, or plain SGD instead of Adam, would let them be told apart"
    )


def _without_decay(rows: Tensor, weight: Tensor) -> Tensor | None:
    """Rows without their part along the weight, where that makes most of them zero; else None."""
    along = (rows * weight).sum(1, keepdim=True) / weight.square().sum(1, keepdim=True).clamp_min(1e-300)
    rest = rows - along * weight
    left = rest.norm(dim=1) / rows.norm(dim=1).clamp_min(1e-300)
    if float(left.median()) > _DECAYED / 10:
        return None
    return torch.where((left < _DECAYED)[:, None], torch.zeros_like(rest), rest)


def _outside_head(rows: Tensor, *, digits: float) -> Tensor | None:
    """Rows without what lies in the space of the shorter half of them; None where that space is the whole."""
    lengths = rows.norm(dim=1)
    shorter = rows[lengths.argsort()[: max(1, len(rows) // 2)]]
    # Each row counts the same: a row's length is how likely its token was predicted.
    shorter = shorter / shorter.norm(dim=1, keepdim=True).clamp_min(1e-300)
    _left, strengths, directions = torch.linalg.svd(shorter, full_matrices=False)
    rank = int((strengths > 100 * digits * strengths[0]).sum())
    if rank > 0.75 * rows.shape[1]:
        return None
    span = directions[:rank]
    rest = rows - rows @ span.T @ span
    # What is left of a row that lies inside is its rounding.
    inside = rest.norm(dim=1) < 1e3 * digits * lengths
    return torch.where(inside[:, None], torch.zeros_like(rest), rest)


def _limit(lengths: Tensor, *, tied: bool) -> tuple[float, tuple[str, ...]]:
    """How long a row must be to count, and a remark where something else than rounding sets the limit."""
    longest, middle = float(lengths.max()), float(lengths.median())
    gap = _find_gap(lengths) if tied else None
    if gap is not None:
        return gap, (_NEARLY_ALL,) if gap > _ROUNDING * longest else ()
    if middle <= _ROUNDING * longest or bool((lengths == 0).any()):
        return _ROUNDING * longest, ()
    spread = 1.4826 * float((lengths - middle).abs().median())
    return middle + _DEVIATIONS * spread, (_NOISY,)


def _find_gap(lengths: Tensor) -> float | None:
    """The longest row below the widest gap between long rows; None where no gap is wide.

    Words that a tied output layer thinks likely have rows as well, which only their length tells apart.
    """
    ordered = lengths.sort(descending=True).values
    long = ordered[:-1] >= ordered[0] / _MOST_REPEATED
    # No update holds nearly all words: a gap so low is one between words that were not used.
    long[2 * len(long) // 3 :] = False
    ratios = torch.where(long, ordered[:-1] / ordered[1:].clamp_min(_ROUNDING * float(ordered[0])), 0)
    widest = int(ratios.argmax())
    return float(ordered[widest + 1]) if float(ratios[widest]) > _GAP else None


def _unexplained(lengths: Tensor, tokens: Tensor) -> float:
    """Energy of all rows but those of `tokens`, as a share of all."""
    energy = lengths.square()
    return float(1 - energy[tokens].sum() / energy.sum().clamp_min(1e-300))


def _labels(seen: Observation) -> tuple[Tensor | None, tuple[str, ...]]:
    if seen.targets is not None:
        return seen.targets, (_GRANTED,) if isinstance(seen.task, NextToken) else ()
    if isinstance(seen.task, NextToken):
        return None, (PREDICTED,)
    try:
        guess = infer_labels(seen)
    except UnsuitableError as reason:
        return None, (f"no labels: {reason}",)
    return guess.labels, guess.notes


def _listed(seen: Observation, tokens: Tensor) -> Tensor:
    """The tokens one after the other in the shape of the inputs, −1 behind: a list, not a text."""
    shape = (seen.num_examples or 1, *seen.input_shape)
    listed = torch.full(shape, -1, dtype=torch.long, device=tokens.device)
    room = listed.numel()
    listed.view(-1)[: min(room, len(tokens))] = tokens[:room]
    return listed
