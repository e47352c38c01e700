"""A federated training as one inert page: curves, how much each client counted, what was sent, who failed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from leakscope.federated.keys import KeyAccuracies
from leakscope.federated.play import RoundRecord
from leakscope.report.figures import Figure
from leakscope.report.render import fill_page
from leakscope.report.svg import Point, chart, frame, join, polyline, series_class, x_axis, y_axis
from leakscope.text import printable
from leakscope.version import __version__

_MOST_LINES = 12
_MOST_FAILURES = 200
_MOST_POINTS = 400


@dataclass(frozen=True)
class TrainingCurve:
    """One training of the page, by a name."""

    name: str
    rounds: tuple[RoundRecord, ...]

    @property
    def last(self) -> RoundRecord:
        """Its last round."""
        return self.rounds[-1]

    @property
    def bytes_up(self) -> int:
        """All that the server received."""
        return sum(record.bytes_up for record in self.rounds)

    @property
    def bytes_down(self) -> int:
        """All that clients received."""
        return sum(record.bytes_down for record in self.rounds)

    @property
    def failures(self) -> int:
        """How often a client did not complete a round."""
        return sum(len(record.failures) for record in self.rounds)

    @property
    def seconds(self) -> float:
        """Time of all rounds."""
        return sum(record.seconds for record in self.rounds)


def render_training(
    curves: Sequence[TrainingCurve],
    *,
    title: str,
    settings: Mapping[str, object],
    keys: KeyAccuracies | None = None,
    drawings: Mapping[str, str] | None = None,
) -> str:
    """Return the page; the first curve is the training that it is about, others are drawn beside it.

    Args:
        curves: Finished rounds of one training or several.
        title: Heading.
        settings: What was asked for, by name.
        keys: What the model is worth without the clients' keys, where there are any.
        drawings: SVG by caption, as `draw_boundary` returns it; ours, and put into the page as it is.
    """
    main = curves[0]
    failures = [(record.round, failure) for record in main.rounds for failure in record.failures]
    context = {
        "version": __version__,
        "title": printable(title),
        "settings": {name: printable(value) for name, value in settings.items()},
        "main": main,
        "curves": curves,
        "figures": [figure for figure in _figures(curves) if figure is not None],
        "failures": failures[:_MOST_FAILURES],
        "left_out": max(0, len(failures) - _MOST_FAILURES),
        "keys": keys,
        "drawings": {name: Markup(text) for name, text in (drawings or {}).items()},
    }
    return fill_page("training.html.j2", context)


def _figures(curves: Sequence[TrainingCurve]) -> list[Figure | None]:
    main = curves[0]
    accuracies = {curve.name: [record.accuracy for record in curve.rounds] for curve in curves}
    losses = {curve.name: [record.loss for record in curve.rounds] for curve in curves}
    numbers = sorted({number for record in main.rounds for number in record.weights})
    weights = {
        f"client {number}": [record.weights.get(number, math.nan) for record in main.rounds] for number in numbers
    }
    return [
        _draw("Test accuracy", accuracies, label="accuracy", name="accuracy", percent=True),
        _draw("Test loss", losses, label="loss", name="loss"),
        _draw("How much each client counted", weights, label="weight", name="weights", percent=True),
    ]


def _draw(
    title: str, lines: Mapping[str, Sequence[float]], *, label: str, name: str, percent: bool = False
) -> Figure | None:
    """One line per series over the rounds; rounds without a finite value are passed over."""
    points = {key: _finite(values) for key, values in list(lines.items())[:_MOST_LINES]}
    shown = {key: found for key, found in points.items() if found}
    if not shown:
        return None
    values = [value for found in shown.values() for _, value in found]
    low, high = (0.0, 1.0) if percent else (min(0.0, *values), max(values) * 1.05 or 1.0)
    x = x_axis(1, max(2, *(len(one) for one in lines.values())), label="round", form=_whole)
    y = y_axis(low, high, label=label, form="{:.0%}".format if percent else "{:g}".format)
    drawn = join([polyline(found, x, y, series=place) for place, found in enumerate(shown.values())])
    form = "{:.1%}".format if percent else "{:.3g}".format
    story = "; ".join(f"{key}: from {form(found[0][1])} to {form(found[-1][1])}" for key, found in shown.items())
    svg = chart(frame(x, y) + drawn, title=title, description=f"{title} over the rounds. {story}.", name=name)
    legend = tuple((series_class(place), printable(key)) for place, key in enumerate(shown))
    return Figure(title, svg, legend, len(lines) - len(shown))


def _whole(value: float) -> str:
    """Rounds between rounds have no name."""
    return f"{value:g}" if value == int(value) else ""


def _finite(values: Sequence[float]) -> list[Point]:
    found = [(float(turn), value) for turn, value in enumerate(values, start=1) if math.isfinite(value)]
    stride = max(1, math.ceil(len(found) / _MOST_POINTS))
    return [*found[:-1:stride], *found[-1:]]
