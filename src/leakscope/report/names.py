"""Names beside dots, placed so that they cover neither dots nor each other where that is possible."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from leakscope.report.svg import HEIGHT, LEFT, RIGHT, WIDTH, join, tag

# Half sizes in drawing units: a dot, and a letter of the 12.5 px label font.
_DOT = 12.0
_LETTER = 6.6

Box = tuple[float, float, float, float]


def place_names(dots: Sequence[tuple[float, float, str]]) -> Markup:
    """Write each name right of, left of, above or below its dot: the first place that is free."""
    taken: list[Box] = [(x - _DOT, y - _DOT, x + _DOT, y + _DOT) for x, y, _ in dots]
    written = []
    for x, y, name in dots:
        width = len(name) * _LETTER
        options = [
            (x + 16, y, "note", (x + 16, y - 7, x + 16 + width, y + 7)),
            (x - 16, y, "note end", (x - 16 - width, y - 7, x - 16, y + 7)),
            (x, y - 20, "note mid", (x - width / 2, y - 27, x + width / 2, y - 13)),
            (x, y + 22, "note mid", (x - width / 2, y + 15, x + width / 2, y + 29)),
        ]
        free = [option for option in options if _inside(option[3]) and not any(_meet(option[3], box) for box in taken)]
        across, down, style, box = (free or options)[0]
        taken.append(box)
        written.append(tag("text", name, x=f"{across:.1f}", y=f"{down:.1f}", dy="0.35em", class_=style))
    return join(written)


def _inside(box: Box) -> bool:
    return box[0] >= LEFT and box[2] <= WIDTH - RIGHT and box[1] >= 0 and box[3] <= HEIGHT


def _meet(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
