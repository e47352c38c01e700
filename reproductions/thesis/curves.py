"""Lines over the share of a run, of what `traces` measured at its marks."""

from __future__ import annotations

from collections.abc import Mapping

from leakscope.reproduction import Results
from leakscope.reproduction.drawing import Drawing, draw_lines
from leakscope.reproduction.recipe import Tag
from reproductions.thesis.traces import MARKS
from reproductions.thesis.verdicts import means_over


def draw_runs(
    results: Results, groups: Mapping[str, Mapping[str, Tag]], metric: str, *, title: str, label: str, name: str
) -> Drawing:
    """The mean of a metric over each group of cells, at every mark."""
    metrics = [f"{metric}@{mark}" for mark in MARKS]
    lines = {
        group: list(zip(map(float, MARKS), means_over(results, metrics, **tags), strict=False))
        for group, tags in groups.items()
    }
    return draw_lines(lines, title=title, x_label="share of the iterations (%)", y_label=label, name=name)
