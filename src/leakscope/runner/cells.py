"""What a sweep runs and what comes out: cells, their keys, their outcomes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from leakscope.errors import UsageError
from leakscope.types import Status

JSON = bool | int | float | str | None | Sequence["JSON"] | Mapping[str, "JSON"]

_KEY = re.compile(r"[0-9a-f]{64}")


def canonical_json(value: object, *, finite: bool = True) -> str:
    """One text per value: sorted keys, no spaces, ASCII; equal values give equal bytes.

    Args:
        value: dicts with string keys, lists, tuples, strings, numbers, booleans and None.
        finite: refuse NaN and infinity. Outcomes may hold them, keys may not.

    Example:
        >>> canonical_json({"b": (1, 2), "a": None})
        '{"a":null,"b":[1,2]}'
    """
    _check_names(value)
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=not finite)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"expected plain JSON (and finite numbers in a spec), got a value that is not: {error}"
        ) from None


def _check_names(value: object) -> None:
    # json would turn the key 1 into "1" silently, and two different specs into one key.
    if isinstance(value, Mapping):
        odd = [name for name in value if not isinstance(name, str)]
        if odd:
            raise UsageError(f"expected names that are strings in plain JSON, got {odd[0]!r}; write it as text")
        for item in value.values():
            _check_names(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _check_names(item)


@dataclass(frozen=True)
class Cell:
    """One point of the grid. Two cells with the same `key` are the same work.

    `label` is what progress shows; it does not change the key. Keep private data out of it.
    """

    spec: Mapping[str, JSON] = field(compare=False)
    key: str
    label: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        # The key becomes a file name: anything but a digest could leave the directory.
        if not _KEY.fullmatch(self.key):
            raise UsageError(f"Cell.key must be 64 hexadecimal digits, got {self.key!r}; build cells with Cell.of")

    @classmethod
    def of(cls, spec: Mapping[str, JSON], *, code_version: str, label: str = "") -> Cell:
        """Build the cell of `spec`; its key is SHA-256 over the canonical JSON of spec and code version.

        Example:
            >>> Cell.of({"seed": 0}, code_version="1").key[:8]
            'dac10ea8'
        """
        text = canonical_json({"spec": dict(spec), "code": code_version})
        # Through JSON once, so that a fresh cell and one read back from disk hold the same values.
        plain = json.loads(text)["spec"]
        return cls(plain, hashlib.sha256(text.encode()).hexdigest(), label=label)

    @property
    def name(self) -> str:
        """What to call the cell on screen: its label, or the start of its key."""
        return self.label or self.key[:12]


@dataclass(frozen=True)
class CellOutcome:
    """How a cell ended.

    `record` (plain JSON; NaN and infinity allowed) and `tensors` must depend on the spec
    alone: their bytes are compared between runs. What differs from run to run belongs in
    `seconds` and `peak_mb`, which the worker measures where they are left at 0, and in
    `measured`: other numbers by name. These are kept in the journal.
    """

    status: Status
    record: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    seconds: float = 0.0
    peak_mb: float = 0.0
    measured: dict[str, float] = field(default_factory=dict)


Execute = Callable[[Mapping[str, Any]], CellOutcome]
