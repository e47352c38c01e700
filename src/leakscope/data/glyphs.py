"""Characters and words as ink, in typefaces made from the fonts that Pillow carries inside.

Fonts of the machine would make other pictures on every machine. What Pillow carries is a scalable sans-serif and a
small typewriter bitmap; weights, slabs and scaling make seven typefaces of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from leakscope.errors import MissingExtraError

TYPEFACES = ("regular", "bold", "heavy", "light", "slab", "slab-bold", "typewriter")

_SIZE, _HEIGHT, _BASELINE = 40, 56, 42
# Room on both sides of a character for what its stroke or its slabs add.
_ROOM = 5
_STROKES = {"regular": 0, "bold": 1, "heavy": 2, "light": 0, "slab": 0, "slab-bold": 1}
_SLAB_ROWS, _SLAB_REACH = 3, 4
_BITMAP_SCALE = 4


def write_word(characters: Sequence[str], typeface: str, *, spacing: int) -> np.ndarray:
    """The ink of a word, uint8 [height, width], cut to where there is any; `spacing` is added between characters."""
    glyphs = [draw_glyph(typeface, character) for character in characters]
    line = np.zeros((_HEIGHT, sum(glyph.shape[1] + spacing for glyph in glyphs) + 2 * _ROOM), dtype=np.uint8)
    left = 0
    for glyph in glyphs:
        place = line[:, left : left + glyph.shape[1]]
        np.maximum(place, glyph, out=place)
        left += glyph.shape[1] - 2 * _ROOM + spacing
    return _cut(line)


@cache
def draw_glyph(typeface: str, character: str) -> np.ndarray:
    """One character with room on both sides, uint8 [height, width]."""
    if typeface == "typewriter":
        return _draw_bitmap(character)
    font, stroke = _scalable_font(), _STROKES[typeface]
    width = round(font.getlength(character)) + stroke + 2 * _ROOM
    picture = Image.new("L", (width, _HEIGHT))
    pen = ImageDraw.Draw(picture)
    pen.text((_ROOM + stroke // 2, _BASELINE), character, fill=255, font=font, anchor="ls", stroke_width=stroke)
    if typeface == "light":
        picture = Image.blend(picture, picture.filter(ImageFilter.MinFilter(3)), 0.6)
    ink = np.asarray(picture)
    return _add_slabs(ink) if typeface.startswith("slab") else ink


def _add_slabs(ink: np.ndarray) -> np.ndarray:
    """Strokes that end at the top or at the bottom of a character end in a bar."""
    rows = np.flatnonzero(ink.max(1) > 127)
    found = ink.copy()
    for part in (slice(rows[0], rows[0] + _SLAB_ROWS), slice(rows[-1] + 1 - _SLAB_ROWS, rows[-1] + 1)):
        for reach in range(1, _SLAB_REACH + 1):
            found[part, reach:] = np.maximum(found[part, reach:], ink[part, :-reach])
            found[part, :-reach] = np.maximum(found[part, :-reach], ink[part, reach:])
    return found


def _draw_bitmap(character: str) -> np.ndarray:
    font = ImageFont.load_default_imagefont()
    left, top, right, bottom = font.getbbox(character)
    small = Image.new("L", (int(right - left), int(bottom - top)))
    ImageDraw.Draw(small).text((-left, -top), character, fill=255, font=font)
    large = small.resize((small.width * _BITMAP_SCALE, small.height * _BITMAP_SCALE), Image.Resampling.BICUBIC)
    ink = np.zeros((_HEIGHT, large.width + 2 * _ROOM), dtype=np.uint8)
    ink[: large.height, _ROOM:-_ROOM] = np.asarray(large)[:_HEIGHT]
    return ink


@lru_cache(maxsize=1)
def _scalable_font() -> ImageFont.FreeTypeFont:
    font = ImageFont.load_default(_SIZE)
    if not isinstance(font, ImageFont.FreeTypeFont):
        raise MissingExtraError(
            "rendered words need a Pillow that was built with FreeType, as its wheels are: pip install pillow"
        )
    return font


def _cut(line: np.ndarray) -> np.ndarray:
    marked = line > 32
    rows, columns = np.flatnonzero(marked.any(1)), np.flatnonzero(marked.any(0))
    return line[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
