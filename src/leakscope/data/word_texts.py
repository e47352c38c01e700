"""What words say: characters as classes, and texts drawn by number so that those for testing never occur in training.

Class 0 is the blank of connectionist temporal classification, 1 … 10 are digits, 11 … 36 the letters of either case.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor

from leakscope.data.common_words import COMMON_WORDS

CHARACTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
BLANK = 0
CLASSES = 1 + len(CHARACTERS)
SHORTEST, LONGEST = 3, 9
# A text is for testing where the numbers of its characters, from 0, sum to a multiple of this: every tenth text.
HELD_OUT_EVERY = 10

# Common words, letters at random, digits at random, both at random.
_SHARES = (0.35, 0.35, 0.1, 0.2)
_ALPHABETS = (range(10, 36), range(10), range(36))
# Numbers from 0 to 1 that one text takes.
NUMBERS = 2 + LONGEST


def encode_texts(texts: Sequence[str], *, length: int | None = None) -> Tensor:
    """Targets [n, length] of texts in `CHARACTERS`, filled up with the blank.

    Example:
        >>> encode_texts(["A1", "7"]).tolist()
        [[11, 2], [8, 0]]
    """
    length = max((len(text) for text in texts), default=0) if length is None else length
    targets = torch.zeros(len(texts), length, dtype=torch.int64)
    for row, text in enumerate(texts):
        targets[row, : len(text)] = torch.tensor([1 + CHARACTERS.index(character) for character in text])
    return targets


def decode_texts(targets: Tensor) -> list[str]:
    """The texts that targets [n, length] spell.

    Example:
        >>> decode_texts(torch.tensor([[11, 2], [8, 0]]))
        ['A1', '7']
    """
    return ["".join(CHARACTERS[symbol - 1] for symbol in row if symbol != BLANK) for row in targets.tolist()]


def draw_codes(numbers: np.ndarray, *, held_out: bool) -> np.ndarray:
    """Texts [n, 9] as numbers of characters from 0, −1 behind them, from numbers in [0, 1), [n, NUMBERS].

    A third are common English words, the others are letters, digits or both at random, 3 to 9 characters long.
    """
    kinds = np.searchsorted(np.cumsum(_SHARES), numbers[:, 0], side="right").clip(0, len(_SHARES) - 1)
    codes = np.full((len(numbers), LONGEST), -1, dtype=np.int64)
    is_word = kinds == 0
    words = _common_codes(held_out)
    codes[is_word] = words[_scale(numbers[is_word, 1], len(words))]
    for kind, alphabet in enumerate(_ALPHABETS, start=1):
        chosen = kinds == kind
        codes[chosen] = _draw_random(numbers[chosen], alphabet, held_out=held_out)
    return codes


def is_held_out(codes: np.ndarray) -> np.ndarray:
    """Whether texts [n, …] are for testing, [n]."""
    return np.where(codes < 0, 0, codes).sum(1) % HELD_OUT_EVERY == 0


def _draw_random(numbers: np.ndarray, alphabet: range, *, held_out: bool) -> np.ndarray:
    """Characters at random; the last one is drawn from those that put the text on its side of the split."""
    lengths = SHORTEST + _scale(numbers[:, 1], LONGEST - SHORTEST + 1)
    codes = alphabet.start + _scale(numbers[:, 2:], len(alphabet))
    places = np.arange(LONGEST)
    codes[places >= lengths[:, None] - 1] = 0
    sums = codes.sum(1) % HELD_OUT_EVERY
    options, counts = _last_characters(alphabet, held_out)
    rows = np.arange(len(codes))
    codes[rows, lengths - 1] = options[sums, _scale(numbers[rows, 1 + lengths], counts[sums])]
    codes[places >= lengths[:, None]] = -1
    return codes


@cache
def _last_characters(alphabet: range, held_out: bool) -> tuple[np.ndarray, np.ndarray]:
    """By the sum of the other characters: which last ones there are, and how many."""
    rows = [
        [code for code in alphabet if ((before + code) % HELD_OUT_EVERY == 0) == held_out]
        for before in range(HELD_OUT_EVERY)
    ]
    counts = np.array([len(row) for row in rows])
    return np.array([row + [0] * (counts.max() - len(row)) for row in rows]), counts


@cache
def _common_codes(held_out: bool) -> np.ndarray:
    codes = encode_texts([word.upper() for word in COMMON_WORDS], length=LONGEST).numpy() - 1
    return codes[is_held_out(codes) == held_out]


def _scale(numbers: np.ndarray, count: int | np.ndarray) -> np.ndarray:
    """Whole numbers below `count` from numbers in [0, 1)."""
    return (numbers * count).astype(np.int64)
