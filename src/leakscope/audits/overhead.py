"""What a run takes besides its cells: starting, checking itself, starting processes, writing its report."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from leakscope.audits.durations import duration

# Summary and page of a small run; neither can be measured before there are results. A cell adds a few milliseconds.
REPORT_SECONDS, REPORT_SECONDS_PER_CELL = 1.0, 0.005


@dataclass(frozen=True)
class Overhead:
    """Seconds of wall time.

    Attributes:
        start: importing, reading the data and building the networks, as this estimate itself took.
        check: the self-check, as this estimate itself took.
        workers: until the processes had started, as it took for the sample runs.
        report: summary and page, assumed.
    """

    start: float = 0.0
    check: float = 0.0
    workers: float = 0.0
    report: float = 0.0

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.start + self.check + self.workers + self.report

    def to_dict(self) -> dict[str, float]:
        """As plain JSON."""
        return {**asdict(self), "seconds": self.seconds}

    def __str__(self) -> str:
        return (
            f"starting {duration(self.start)}, self-check {duration(self.check)}, starting workers "
            f"{duration(self.workers)}, report {duration(self.report)} (assumed)"
        )


def report_seconds(cells: int) -> float:
    """What writing the summary and the page of so many cells is assumed to take."""
    return REPORT_SECONDS + REPORT_SECONDS_PER_CELL * cells
