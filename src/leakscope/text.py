"""Text from files and users on its way to a terminal, a page or a table.

A name may hold an escape sequence that moves the cursor, renames the window or hides what follows, a character that
turns the direction of reading, or a hundred thousand letters. None of them may reach whoever reads a result.
"""

from __future__ import annotations

LONGEST = 2_000
_REPLACEMENT = "�"
_KEPT = frozenset("\n\t")


def printable(text: object, *, most: int = LONGEST) -> str:
    r"""One line without control characters, direction marks and other invisible characters, cut to `most` characters.

    Example:
        >>> printable("a\x1b[31mb\u202ec\r\n")
        'a�[31mb�c��'
    """
    cut = _cut(str(text), most)
    return cut if cut.isprintable() else "".join(mark if mark.isprintable() else _REPLACEMENT for mark in cut)


def printable_lines(text: object, *, most: int = 10 * LONGEST) -> str:
    """As `printable`, for text of several lines; all but the first are indented, so that none passes for another's."""
    first, *others = _cut(str(text), most).split("\n")
    lines = [printable(first, most=most), *(printable(line, most=most) for line in others)]
    return "\n".join([lines[0], *(line if not line or line.startswith(" ") else f"  {line}" for line in lines[1:])])


def without_controls(text: str, *, most: int = LONGEST) -> str:
    """As `printable`, but the ends of lines stay as they are: for pages and files, which a line cannot deceive."""
    cut = _cut(text, most)
    if cut.isprintable():
        return cut
    return "".join(mark if mark in _KEPT or mark.isprintable() else _REPLACEMENT for mark in cut)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
