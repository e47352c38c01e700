"""Words rendered by number: every index of a style is another picture of another text, the same on every call.

Nothing is stored: pictures are made when they are read. Texts of the test split never occur in the training split.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from leakscope.data import word_styles, word_texts
from leakscope.data.glyphs import TYPEFACES, write_word
from leakscope.data.source import Source
from leakscope.data.word_styles import HEIGHT, STYLES, WIDTH
from leakscope.data.word_texts import CHARACTERS, draw_codes
from leakscope.errors import UsageError, suggest
from leakscope.rng import child_seed
from leakscope.types import Batch

# How many of the endless pictures the named sets hold.
SPLIT_SIZES = {"train": 100_000, "test": 2_000}

# Shares of words in capitals, and with a capital first; the others are small letters.
_CAPITALS, _CAPITAL_FIRST = 0.6, 0.15
_OWN_NUMBERS = 3
_NUMBERS = word_texts.NUMBERS + _OWN_NUMBERS + word_styles.NUMBERS
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class RenderedWords:
    """Words of one style; `held_out` gives those for testing, whose texts never occur among the others.

    Attributes:
        style: "plain" or "scene".
        held_out: whether these are the words for testing.
        seed: another one gives other words; held-out texts stay apart whatever the seeds.

    Example:
        >>> batch = RenderedWords("plain").batch(range(2))
        >>> batch.inputs.shape, batch.targets.shape
        (torch.Size([2, 3, 32, 100]), torch.Size([2, 9]))
    """

    style: str
    held_out: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if self.style not in STYLES:
            raise UsageError(f"unknown style of words {self.style!r}.{suggest(self.style, STYLES)}")

    def targets(self, indices: Sequence[int]) -> Tensor:
        """Texts [n, 9] as classes 1 … 36, filled up with 0."""
        return torch.from_numpy(1 + self._codes(self._numbers(indices)))

    def pictures(self, indices: Sequence[int]) -> np.ndarray:
        """Pictures as bytes, [n, 32, 100, 3]."""
        numbers = self._numbers(indices)
        found = np.empty((len(numbers), HEIGHT, WIDTH, 3), dtype=np.uint8)
        for row, codes in enumerate(self._codes(numbers)):
            found[row] = self._draw([CHARACTERS[code] for code in codes if code >= 0], numbers[row])
        return found

    def batch(self, indices: Sequence[int]) -> Batch:
        """Pictures in [0, 1] and their texts."""
        return Batch(as_inputs(self.pictures(indices)), self.targets(indices))

    def _numbers(self, indices: Sequence[int]) -> np.ndarray:
        seed = child_seed(self.seed, "words", self.style, "held out" if self.held_out else "training")
        return numbers_at(seed, indices, count=_NUMBERS)

    def _codes(self, numbers: np.ndarray) -> np.ndarray:
        return draw_codes(numbers[:, : word_texts.NUMBERS], held_out=self.held_out)

    def _draw(self, characters: list[str], numbers: np.ndarray) -> np.ndarray:
        case, typeface, spacing = numbers[word_texts.NUMBERS : word_texts.NUMBERS + _OWN_NUMBERS]
        if case >= _CAPITALS:
            kept = 1 if case < _CAPITALS + _CAPITAL_FIRST else 0
            characters = [*characters[:kept], *(character.lower() for character in characters[kept:])]
        face = TYPEFACES[int(typeface * len(TYPEFACES))]
        ink = write_word(characters, face, spacing=int(spacing * 6))
        return STYLES[self.style](ink, iter(numbers[word_texts.NUMBERS + _OWN_NUMBERS :].tolist()))


def numbers_at(seed: int, indices: Sequence[int], *, count: int) -> np.ndarray:
    """Numbers in [0, 1), [n, count], of which every row depends on `seed` and its index alone (SplitMix64)."""
    if min(indices, default=0) < 0:
        raise UsageError(f"indices must be whole numbers ≥ 0, got {min(indices)}")
    places = np.asarray(indices, dtype=np.uint64)
    rows = _mix(np.uint64(seed) + (places + np.uint64(1)) * _GOLDEN)
    columns = (np.arange(count, dtype=np.uint64) + np.uint64(1)) * _GOLDEN
    return (_mix(rows[:, None] + columns) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(values: np.ndarray) -> np.ndarray:
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def as_inputs(pictures: np.ndarray) -> Tensor:
    """Bytes [n, height, width, 3] as inputs [n, 3, height, width] in [0, 1]."""
    return torch.from_numpy(np.ascontiguousarray(pictures.transpose(0, 3, 1, 2))).float() / 255


def open_rendered(style: str, split: str) -> Source:
    """One split of a named set of rendered words."""
    words = RenderedWords(style, held_out=split == "test")
    everything = range(SPLIT_SIZES[split])
    return Source(words.targets(everything), lambda chosen: as_inputs(words.pictures(chosen)))
