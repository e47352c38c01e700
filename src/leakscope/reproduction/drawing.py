"""Figures of a reproduction: intervals, lines, points and planes; each for the page and as a file of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from leakscope.report.svg import (
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Axis,
    Point,
    chart,
    draw_file,
    frame,
    join,
    polyline,
    series_class,
    tag,
    x_axis,
    y_axis,
)
from leakscope.reproduction.recipe import Tag
from leakscope.reproduction.results import Results
from leakscope.reproduction.statistics import Estimate, mean_interval

_MARGIN = 0.06
# Between squares, and above one for its name.
_GAP, _CAPTION = 16, 26
_FILL = "#8fa2ea"


@dataclass(frozen=True)
class Drawing:
    """A figure by a name that is also its file's; `legend` names its series in order."""

    name: str
    title: str
    body: Markup
    description: str
    legend: tuple[str, ...] = ()

    def on_page(self) -> Markup:
        """For the page, which brings the colours."""
        return chart(self.body, title=self.title, description=self.description, name=self.name)

    def as_file(self) -> str:
        """With its own colours."""
        return draw_file(self.body, title=self.title, description=self.description, legend=self.legend)


def draw_lines(
    lines: Mapping[str, Sequence[Point]], *, title: str, x_label: str, y_label: str, name: str, log: bool = False
) -> Drawing:
    """One line per series."""
    shown = {key: list(points) for key, points in lines.items() if points}
    x, y = _axes([point for points in shown.values() for point in points], x_label, y_label, log=log)
    drawn = [polyline(points, x, y, series=place) for place, points in enumerate(shown.values())]
    said = "; ".join(f"{key}: from {points[0][1]:.3g} to {points[-1][1]:.3g}" for key, points in shown.items())
    return Drawing(name, title, frame(x, y) + join(drawn), f"{title}. {said}.", tuple(shown))


def draw_points(groups: Mapping[str, Sequence[Point]], *, title: str, x_label: str, y_label: str, name: str) -> Drawing:
    """A scatter plot, one colour per group."""
    x, y = _axes([point for points in groups.values() for point in points], x_label, y_label)
    dots = [
        tag("circle", cx=f"{x(across):.1f}", cy=f"{y(up):.1f}", r=3.2, class_=f"line {_colour(place)}")
        for place, points in enumerate(groups.values())
        for across, up in points
    ]
    said = "; ".join(f"{key}: {len(points)} points" for key, points in groups.items())
    return Drawing(name, title, frame(x, y) + join(dots), f"{title}. {said}.", tuple(groups) if len(groups) > 1 else ())


def draw_intervals(
    rows: Mapping[str, Estimate], *, title: str, label: str, name: str, printed: Mapping[str, float] | None = None
) -> Drawing:
    """One row per name: our estimate with its interval, and a stroke where the paper's number is."""
    known = printed or {}
    values = [value for row in rows.values() for value in (row.value, *(row.interval or ()))] + list(known.values())
    low, high = _room(values)
    x = x_axis(low, high, label=label)
    height = (HEIGHT - 46 - TOP) / max(1, len(rows))
    parts = [_base(x)]
    for place, (key, row) in enumerate(rows.items()):
        middle = TOP + height * (place + 0.68)
        parts.append(tag("text", key, x=LEFT - 40, y=f"{middle - height * 0.34:.1f}", dy="0.32em", class_="note"))
        parts.append(_interval(row, x, middle))
        if key in known:
            at = f"{x(known[key]):.1f}"
            ends = {"y1": f"{middle - height * 0.3:.1f}", "y2": f"{middle + height * 0.3:.1f}"}
            parts.append(tag("line", x1=at, x2=at, **ends, class_="line s1"))
    said = "; ".join(f"{key}: {show_estimate(row)}" for key, row in rows.items())
    legend = ("ours, with 95 % interval", "the paper's") if known else ()
    return Drawing(name, title, join(parts), f"{title}. {said}.", legend)


def compare_groups(
    results: Results,
    metric: str,
    *,
    group: str,
    title: str,
    label: str,
    name: str,
    printed: Mapping[str, float] | None = None,
    **tags: Tag,
) -> Drawing:
    """`draw_intervals` of one metric for every value of a tag, beside what the paper printed for it."""
    chosen = results.where(**tags)
    found = {str(one): chosen.units(metric, ended="any", **{group: one}) for one in chosen.tags(group)}
    rows = {key: mean_interval(values) for key, values in found.items() if values}
    known = {key: value for key, value in (printed or {}).items() if key in rows}
    return draw_intervals(rows, title=title, label=label, name=name, printed=known)


def draw_boundaries(panels: Mapping[str, Sequence[Sequence[int]]], *, title: str, name: str) -> Drawing:
    """What models in the plane decide, side by side: one square per model, class 1 filled."""
    across, side = _lay_out(len(panels))
    parts = []
    for place, (key, rows) in enumerate(panels.items()):
        left, top = _GAP + place % across * (side + _GAP), _CAPTION + place // across * (side + _CAPTION)
        size = side / len(rows)
        parts.append(tag("text", key, x=f"{left:.1f}", y=f"{top - 7:.1f}", class_="note"))
        for row, classes in enumerate(rows):
            for start, end in _runs(classes):
                box = {"x": f"{left + start * size:.1f}", "y": f"{top + row * size:.1f}"}
                # A little higher than a row, so that no line shows between two.
                parts.append(
                    tag("rect", **box, width=f"{(end - start) * size:.1f}", height=f"{size + 0.4:.1f}", fill=_FILL)
                )
        square = {"x": f"{left:.1f}", "y": f"{top:.1f}", "width": f"{side:.1f}", "height": f"{side:.1f}"}
        parts.append(tag("rect", **square, fill="none", class_="axis"))
    return Drawing(name, title, join(parts), f"{title}: {', '.join(panels)}.")


def _lay_out(panels: int) -> tuple[int, float]:
    """How many squares stand side by side, and their side: the largest that fits."""

    def side(across: int) -> float:
        down = -(-panels // across)
        return min((WIDTH - _GAP) / across - _GAP, (HEIGHT - _GAP) / down - _CAPTION)

    across = max(range(1, max(1, panels) + 1), key=side)
    return across, side(across)


def show_estimate(found: Estimate, unit: str = "") -> str:
    """The number with its interval and n, for people.

    Example:
        >>> show_estimate(Estimate(1.5, (1.0, 2.0), 4), "dB")
        '1.5 dB [1, 2], n = 4'
    """
    between = "" if found.interval is None else f" [{found.interval[0]:.4g}, {found.interval[1]:.4g}]"
    return f"{found.value:.4g}{f' {unit}' if unit else ''}{between}, n = {found.n}"


def _runs(classes: Sequence[int]) -> list[tuple[int, int]]:
    """Beginnings and ends of the runs of class 1."""
    found, start = [], None
    for place, one in enumerate([*classes, 0]):
        if one and start is None:
            start = place
        elif not one and start is not None:
            found.append((start, place))
            start = None
    return found


def _interval(row: Estimate, x: Axis, middle: float) -> Markup:
    at = f"{middle:.1f}"
    dot = tag("circle", cx=f"{x(row.value):.1f}", cy=at, r=3.6, class_="line s0")
    if row.interval is None:
        return dot
    low, high = (f"{x(bound):.1f}" for bound in row.interval)
    return tag("line", x1=low, x2=high, y1=at, y2=at, class_="line s0") + dot


def _base(x: Axis) -> Markup:
    base = HEIGHT - 46
    parts = [tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=base, y2=base, class_="axis")]
    for value in x.ticks():
        at = f"{x(value):.1f}"
        parts.append(tag("line", x1=at, x2=at, y1=TOP, y2=base, class_="grid"))
        parts.append(tag("text", x.format(value), x=at, y=base + 18, class_="tick mid"))
    parts.append(tag("text", x.label, x=(LEFT + WIDTH - RIGHT) / 2, y=HEIGHT - 8, class_="label mid"))
    return join(parts)


def _axes(points: Sequence[Point], x_label: str, y_label: str, *, log: bool = False) -> tuple[Axis, Axis]:
    across, up = ([point[place] for point in points] or [0.0, 1.0] for place in (0, 1))
    y_low, y_high = (min(up), max(up)) if log else _room(up)
    return x_axis(*_room(across), label=x_label), y_axis(y_low, y_high, label=y_label, log=log)


def _room(values: Sequence[float]) -> tuple[float, float]:
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    room = _MARGIN * (high - low) or 0.5
    return low - room, high + room


def _colour(series: int) -> str:
    # Without the dashes of lines, which would tear a small circle.
    return series_class(series).split()[0]
