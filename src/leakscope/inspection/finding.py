"""What an inspection reports: a figure that was measured, and a finding where one exceeds its limit."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

# A ratio to nothing: files and pages hold no infinity.
LARGEST = 1e6
_SHOWN_PLACES = 8


class Severity(str, enum.Enum):
    """How much it says: `CRITICAL` is a construction that hands examples over, `WARNING` needs an explanation."""

    CRITICAL = "critical"
    WARNING = "warning"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Measured:
    """One number that a detector read off a model.

    Attributes:
        figure: what was measured; the detector's thresholds have a limit by this name.
        value: the number, from −1e6 to 1e6; what is not a number counts as the largest.
        tensor: where, as the model names it; empty for the model as a whole.
        places: rows, channels, neurons or examples that stand out, from 0.
        detail: what a number cannot say.
    """

    figure: str
    value: float
    tensor: str = ""
    places: tuple[int, ...] = ()
    detail: str = ""

    def __post_init__(self) -> None:
        # What overflows is no number of an honest model: it must not pass because no comparison with it is true.
        value = LARGEST if math.isnan(self.value) else max(-LARGEST, min(LARGEST, self.value))
        object.__setattr__(self, "value", value)

    def __str__(self) -> str:
        where = f"{self.tensor}: " if self.tensor else ""
        shown = ", ".join(map(str, self.places[:_SHOWN_PLACES])) + (", …" if len(self.places) > _SHOWN_PLACES else "")
        told = "; ".join(part for part in (self.detail, f"at {shown}" if shown else "") if part)
        return f"{where}{self.figure.replace('_', ' ')} {self.value:.4g}{f' ({told})' if told else ''}"


@dataclass(frozen=True)
class Finding:
    """A figure above its limit, what that means, and what to do.

    Attributes:
        detector: name of the detector.
        severity: how much it says.
        figure: what was measured.
        limit: the most that an honest model may have.
        evidence: where it was exceeded, the largest value first.
        meaning: what it means, in plain language.
        advice: what to do.
    """

    detector: str
    severity: Severity
    figure: str
    limit: float
    evidence: tuple[Measured, ...]
    meaning: str
    advice: str

    @property
    def worst(self) -> Measured:
        """The largest value."""
        return self.evidence[0]

    def __str__(self) -> str:
        more = f" and {len(self.evidence) - 1} more" if len(self.evidence) > 1 else ""
        return f"{self.severity}: {self.detector}: {self.worst}{more}; limit {self.limit:.4g}"
