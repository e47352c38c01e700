"""A wrong formula: one place of the source, what stands there, and what a mistake would have written."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """`old` occurs once in `file` (below src/leakscope); with `new` in its place one of `tests` must fail.

    Attributes:
        name: what is wrong, in a few words.
        file: path below src/leakscope.
        old: text that occurs exactly once there.
        new: what takes its place.
        tests: files or single tests below tests/, those that fail first to be named first.
        survives: why no test can notice it, where that is so; empty where one must.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    survives: str = ""
