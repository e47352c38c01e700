"""The 50 numbered operations of the automatic transformation search, which are 28 different ones.

They were taken from AutoAugment, with its ten levels of magnitude. AutoAugment's probabilities play no part: an
operation that is named is applied. The numbers begin at 0.
"""

from __future__ import annotations

from dataclasses import dataclass

NUMBER_OF_OPERATIONS = 50

# The largest magnitude of each, at level 9; a shift in shares of the side, a turn in degrees.
_LARGEST = {
    "translate-x": 150 / 331,
    "translate-y": 150 / 331,
    "shear-y": 0.3,
    "rotate": 30.0,
    "brightness": 0.5,
    "contrast": 0.5,
    "colour": 0.5,
    "sharpness": 0.5,
}
_BITS = (8, 8, 7, 7, 6, 6, 5, 5, 4, 4)
_WITHOUT_SIGN = ("rotate", "invert", "autocontrast", "equalise", "solarise", "posterise")


@dataclass(frozen=True)
class Entry:
    """One operation with its magnitude.

    Attributes:
        name: what it does, by a name that `eight_bit` and the attacker's transformations share.
        amount: its magnitude; 0 where it has none.
        signed: whether every picture flips a coin for the sign.
    """

    name: str
    amount: float = 0.0
    signed: bool = False

    @property
    def is_identity(self) -> bool:
        """Whether it leaves every picture alone."""
        return (self.signed and self.amount == 0) or (self.name == "solarise" and self.amount > 255)


def _entry(name: str, level: int | None = None) -> Entry:
    if level is None:
        return Entry(name)
    if name == "solarise":
        return Entry(name, 256 * (9 - level) / 9)
    if name == "posterise":
        return Entry(name, _BITS[level])
    return Entry(name, _LARGEST[name] * level / 9, name not in _WITHOUT_SIGN)


_NUMBERED: tuple[tuple[str, int | None], ...] = (
    # 0 … 9
    *(("invert", None), ("contrast", 6), ("rotate", 2), ("translate-x", 9), ("sharpness", 1)),
    *(("sharpness", 3), ("shear-y", 2), ("translate-y", 2), ("autocontrast", None), ("equalise", None)),
    # 10 … 19
    *(("shear-y", 5), ("posterise", 5), ("colour", 3), ("brightness", 5), ("sharpness", 9)),
    *(("brightness", 9), ("equalise", None), ("equalise", None), ("contrast", 7), ("sharpness", 5)),
    # 20 … 29
    *(("colour", 5), ("translate-x", 5), ("equalise", None), ("autocontrast", None), ("translate-y", 3)),
    *(("sharpness", 6), ("brightness", 6), ("colour", 8), ("solarise", 0), ("invert", None)),
    # 30 … 39
    *(("equalise", None), ("autocontrast", None), ("equalise", None), ("equalise", None), ("colour", 5)),
    *(("equalise", None), ("autocontrast", None), ("solarise", 4), ("brightness", 3), ("colour", 0)),
    # 40 … 49
    *(("solarise", 1), ("autocontrast", None), ("translate-y", 3), ("translate-y", 3), ("autocontrast", None)),
    *(("solarise", 1), ("equalise", None), ("invert", None), ("translate-y", 3), ("autocontrast", None)),
)

LIBRARY: tuple[Entry, ...] = tuple(_entry(*numbered) for numbered in _NUMBERED)
# The two that do nothing count as one, written with the lower number.
IDENTITY = next(index for index, entry in enumerate(LIBRARY) if entry.is_identity)


def first_equal(index: int) -> int:
    """The lowest number of the operation that `index` stands for."""
    return IDENTITY if LIBRARY[index].is_identity else LIBRARY.index(LIBRARY[index])
