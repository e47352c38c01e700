"""Words cut from photographs: a folder of pictures with a table labels.csv of file name and text, as IIIT 5K-Words.

Which words count is as in the tests of FedBoosting: letters and digits only, in either case; 3 to 25 of them, no more
than a quarter of the width that the picture has at height 32, which must be 100 at least.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from PIL import Image
from torch import Tensor

from leakscope.data.pictures import decode, read_size
from leakscope.data.source import Source
from leakscope.data.word_styles import HEIGHT, WIDTH
from leakscope.data.word_texts import CHARACTERS, SHORTEST, encode_texts
from leakscope.data.words import as_inputs
from leakscope.errors import BadInputError, MissingDataError
from leakscope.picture_size import PictureSize, height_width
from leakscope.regular_files import read_file

LABELS = "labels.csv"
# A recogniser has a step for every four columns of a picture.
COLUMNS_PER_STEP = 4
_LONGEST = WIDTH // COLUMNS_PER_STEP
_LARGEST_TABLE = 50_000_000


def holds_words(folder: Path) -> bool:
    """Whether a folder has a table of texts."""
    return (folder / LABELS).is_file()


def open_labelled(folder: Path, split: str, *, size: PictureSize | None = None, least_width: int = WIDTH) -> Source:
    """The words of a folder that count, all for testing; squeezed or stretched to 32×100 unless `size` is given.

    `least_width` is the width at height 32 below which a word does not count.
    """
    if split == "train":
        raise MissingDataError(f"{folder.name} holds words for testing only; use split='test'")
    rows = [(folder / file, text.upper()) for file, text in _read_table(folder)]
    kept = [(file, text) for file, text in rows if _counts(text) and _fits(file, text, least_width)]
    if not kept:
        raise BadInputError(
            f"{folder.name}: none of {len(rows)} words counts; expected 3 to {_LONGEST} letters or digits in pictures "
            f"that are at least {least_width} wide at height {HEIGHT}"
        )
    files = [file for file, _ in kept]
    side = height_width(size or (HEIGHT, WIDTH))
    return Source(encode_texts([text for _, text in kept]), lambda chosen: _read([files[i] for i in chosen], side))


def _read_table(folder: Path) -> list[tuple[str, str]]:
    text = read_file(folder / LABELS, most=_LARGEST_TABLE).decode("utf-8", "replace")
    try:
        rows = [row for row in csv.reader(io.StringIO(text)) if row]
    except csv.Error as error:
        raise BadInputError(f"{folder.name}/{LABELS}: not a readable table ({error})") from None
    for number, row in enumerate(rows, start=1):
        if len(row) != 2 or Path(row[0]).name != row[0] or "\0" in row[0]:
            raise BadInputError(
                f"{folder.name}/{LABELS}, line {number}: expected the name of a picture in this folder and its text, "
                f"separated by a comma, got {','.join(row)[:80]!r}"
            )
    return [(row[0], row[1]) for row in rows]


def _counts(text: str) -> bool:
    return SHORTEST <= len(text) <= _LONGEST and all(character in CHARACTERS for character in text)


def _fits(file: Path, text: str, least_width: int) -> bool:
    """Whether a text has enough columns at height 32; a text that no alignment spells has not."""
    height, width = read_size(file)
    scaled = width * HEIGHT // height
    repeats = sum(one == other for one, other in pairwise(text))
    return scaled >= least_width and len(text) + repeats <= _LONGEST and len(text) <= scaled // COLUMNS_PER_STEP


def _read(files: Sequence[Path], side: tuple[int, int]) -> Tensor:
    height, width = side
    pictures = [Image.fromarray(decode(file)).resize((width, height), Image.Resampling.BILINEAR) for file in files]
    return as_inputs(np.stack([np.asarray(picture) for picture in pictures]))
