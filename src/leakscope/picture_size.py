"""How large a picture is: one side or two."""

from __future__ import annotations

from leakscope.errors import UsageError

# Side of a square picture, or (height, width).
PictureSize = int | tuple[int, int]
# Side of the largest that data are brought to, and that a reference network takes.
LARGEST_SIDE = 4096


def height_width(size: PictureSize, *, label: str = "size", largest: int | None = None) -> tuple[int, int]:
    """Height and width of a picture: one number is the side of a square.

    Example:
        >>> height_width(32), height_width((32, 100))
        ((32, 32), (32, 100))
    """
    pair = tuple(size) if isinstance(size, (tuple, list)) else (size, size)
    whole = all(isinstance(side, int) and not isinstance(side, bool) and side >= 1 for side in pair)
    if len(pair) != 2 or not whole or (largest is not None and max(pair) > largest):
        limit = "≥ 1" if largest is None else f"from 1 to {largest}"
        raise UsageError(f"{label} must be a whole number {limit}, or a pair (height, width) of them, got {size!r}")
    return pair[0], pair[1]
