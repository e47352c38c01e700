"""What a detector is: a base class whose `look` is final; a detector writes `measure` and its words."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, final

from leakscope.inspection.finding import Finding, Measured, Severity
from leakscope.inspection.received import Received
from leakscope.inspection.thresholds import stored_limits


@dataclass(frozen=True)
class Detector(ABC):
    """Looks for one kind of craft in a received model.

    Attributes:
        thresholds: limit by figure; a value above it is a finding. Those stored with the package unless given.
    """

    name: ClassVar[str]
    # Plain language: what a value above the limit means, and what to do about it.
    meaning: ClassVar[str]
    advice: ClassVar[str]
    severity: ClassVar[Severity] = Severity.CRITICAL
    thresholds: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "thresholds", {**stored_limits(self.name), **self.thresholds})

    @abstractmethod
    def measure(self, received: Received) -> list[Measured]:
        """Every figure of this detector, for every tensor it applies to."""

    def lacks(self, received: Received) -> str:
        """What must be given for this detector to look, or why it cannot; empty where it can."""
        return ""

    @final
    def look(self, received: Received) -> list[Finding]:
        """One finding for each figure that exceeds its limit somewhere."""
        return [] if self.lacks(received) else self.judge(self.measure(received))

    @final
    def judge(self, measured: list[Measured]) -> list[Finding]:
        """The findings among what was measured."""
        above = [one for one in measured if one.value > self.thresholds[one.figure]]
        return [
            Finding(
                self.name,
                self.severity,
                figure,
                self.thresholds[figure],
                tuple(sorted((one for one in above if one.figure == figure), key=lambda one: -one.value)),
                self.meaning,
                self.advice,
            )
            for figure in dict.fromkeys(one.figure for one in above)
        ]
