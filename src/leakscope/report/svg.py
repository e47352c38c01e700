"""A line chart in plain SVG: axes, grid, lines, points. Text is escaped, colour comes from CSS."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

WIDTH, HEIGHT = 560, 320
LEFT, RIGHT, TOP, BOTTOM = 58, 16, 16, 46

Point = tuple[float, float]
# Half sizes in drawing units: a dot, and a letter of the 12.5 px label font.
_DOT = 12.0
_LETTER = 6.6
Box = tuple[float, float, float, float]


def tag(name: str, content: object = "", **attributes: object) -> Markup:
    """One element; values and text content are escaped, `Markup` content is kept.

    A trailing underscore is dropped and inner ones become hyphens: `class_`, `stroke_width`.
    """
    pairs = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items())
    return Markup(f"<{name}{pairs}>{escape(content)}</{name}>")


def join(parts: Sequence[Markup]) -> Markup:
    """Concatenate markup."""
    return Markup("").join(parts)


@dataclass(frozen=True)
class Axis:
    """Maps data to pixels; `log` spaces decades evenly."""

    low: float
    high: float
    start: float
    end: float
    label: str
    log: bool = False
    format: Callable[[float], str] = "{:g}".format

    def __call__(self, value: float) -> float:
        """Pixel position of `value`, kept inside the axis."""
        low, high, at = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        share = 0.5 if high == low else (at - low) / (high - low)
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round values along the axis."""
        if self.log:
            return self._log_ticks()
        step = nice_step((self.high - self.low) / 5)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [index * step for index in range(first, last + 1)]

    def _log_ticks(self) -> list[float]:
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        # Within two decades powers of ten alone would leave the axis nearly empty.
        factors = (1, 2, 5) if math.log10(self.high / self.low) < 2 else (1,)
        stride = max(1, math.ceil((last - first) / 6))
        values = [factor * 10.0**power for power in range(first, last + 1, stride) for factor in factors]
        return [value for value in values if self.low * 0.999 <= value <= self.high * 1.001]


def nice_step(rough: float) -> float:
    """The smallest of 1, 2, 5 × a power of ten that is not below `rough`."""
    if not (math.isfinite(rough) and rough > 0):
        return 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))


def x_axis(low: float, high: float, *, label: str, form: Callable[[float], str] = "{:g}".format) -> Axis:
    """Horizontal axis of the standard frame."""
    return Axis(low, high, LEFT, WIDTH - RIGHT, label, format=form)


def y_axis(
    low: float,
    high: float,
    *,
    label: str,
    log: bool = False,
    form: Callable[[float], str] = "{:g}".format,
) -> Axis:
    """Vertical axis of the standard frame."""
    return Axis(low, high, HEIGHT - BOTTOM, TOP, label, log, form)


def frame(x: Axis, y: Axis) -> Markup:
    """Grid, tick labels and axis names."""
    below = HEIGHT - BOTTOM + 18
    parts = [tag("text", x.format(value), x=f"{x(value):.1f}", y=below, class_="tick mid") for value in x.ticks()]
    for value in y.ticks():
        at = f"{y(value):.1f}"
        parts.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=at, y2=at, class_="grid"))
        parts.append(tag("text", y.format(value), x=LEFT - 8, y=at, dy="0.32em", class_="tick end"))
    base = HEIGHT - BOTTOM
    parts.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=base, y2=base, class_="axis"))
    parts.append(tag("text", x.label, x=(LEFT + WIDTH - RIGHT) / 2, y=HEIGHT - 8, class_="label mid"))
    middle = (TOP + base) / 2
    turn = f"rotate(-90 14 {middle})"
    parts.append(tag("text", y.label, x=14, y=middle, transform=turn, class_="label mid"))
    return join(parts)


def polyline(points: Sequence[Point], x: Axis, y: Axis, *, series: int) -> Markup:
    """One line; colour and dash pattern follow from `series`, so colour is never alone."""
    return path(points, x, y, style=f"line {series_class(series)}")


def path(points: Sequence[Point], x: Axis, y: Axis, *, style: str) -> Markup:
    """One line in a style of its own."""
    return tag("polyline", points=" ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in points), class_=style)


def level(value: float, y: Axis, *, label: str) -> Markup:
    """A horizontal mark with a name at its right end."""
    at = y(value)
    text = tag("text", label, x=WIDTH - RIGHT - 2, y=f"{at - 5:.1f}", class_="note end")
    return join([tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=f"{at:.1f}", y2=f"{at:.1f}", class_="rule"), text])


def rule(value: float, x: Axis, *, label: str) -> Markup:
    """A vertical mark with a name."""
    at = f"{x(value):.1f}"
    near_end = x(value) > WIDTH - 150
    text = tag(
        "text",
        label,
        x=f"{x(value) + (-5 if near_end else 5):.1f}",
        y=TOP + 26,
        class_="note end" if near_end else "note",
    )
    return join([tag("line", x1=at, x2=at, y1=TOP, y2=HEIGHT - BOTTOM, class_="rule"), text])


def series_class(series: int) -> str:
    """CSS class of the n-th series: eight colours, then the dash pattern changes."""
    return f"s{series % 8} d{series // 2 % 4}"


def chart(body: Markup, *, title: str, description: str, name: str) -> Markup:
    """The complete figure, named and described for those who cannot see it."""
    head = join([tag("title", title, id=f"{name}-t"), tag("desc", description, id=f"{name}-d")])
    return tag(
        "svg",
        head + body,
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_labelledby=f"{name}-t {name}-d",
        class_="chart",
    )


_FILE_STYLE = (
    "text{font:12.5px sans-serif;fill:#5a6578}.mid{text-anchor:middle}.end{text-anchor:end}.grid{stroke:#dde1e9}"
    ".axis{stroke:#5a6578}.line{fill:none;stroke-width:2.4;stroke-linejoin:round}"
    ".s0{stroke:#17202e}.s1{stroke:#3550c8}.s2{stroke:#c0341d}.s3{stroke:#0f7b6c}.s4{stroke:#9a4bb5}.s5{stroke:#b4540a}"
    ".s6{stroke:#3d7ea6}.s7{stroke:#7a6a00}.d1{stroke-dasharray:8 4}.d2{stroke-dasharray:2 4}"
    ".d3{stroke-dasharray:10 3 2 3}"
)


def draw_file(body: Markup, *, title: str, description: str, legend: Sequence[str] = ()) -> str:
    """A figure as a file that stands by itself, with its own colours and the names of its lines below."""
    names = []
    for place, name in enumerate(legend):
        down = HEIGHT + 18 * place + 12
        names.append(tag("line", x1=LEFT, x2=LEFT + 28, y1=down, y2=down, class_=f"line {series_class(place)}"))
        names.append(tag("text", name, x=LEFT + 38, y=down, dy="0.35em"))
    height = HEIGHT + 18 * len(legend) + 12
    ground = tag("rect", width=WIDTH, height=height, fill="#fff")
    head = join([tag("title", title), tag("desc", description), tag("style", Markup(_FILE_STYLE)), ground])
    return str(
        tag(
            "svg",
            head + body + join(names),
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {WIDTH} {height}",
            role="img",
        )
    )


def place_names(dots: Sequence[tuple[float, float, str]]) -> Markup:
    """Write each name right of, left of, above or below its dot: the first place that is free."""
    taken: list[Box] = [(x - _DOT, y - _DOT, x + _DOT, y + _DOT) for x, y, _ in dots]
    written = []
    for x, y, name in dots:
        width = len(name) * _LETTER
        options = [
            (x + 16, y, "note", (x + 16, y - 7, x + 16 + width, y + 7)),
            (x - 16, y, "note end", (x - 16 - width, y - 7, x - 16, y + 7)),
            (x, y - 20, "note mid", (x - width / 2, y - 27, x + width / 2, y - 13)),
            (x, y + 22, "note mid", (x - width / 2, y + 15, x + width / 2, y + 29)),
        ]
        free = [option for option in options if _inside(option[3]) and not any(_meet(option[3], box) for box in taken)]
        across, down, style, box = (free or options)[0]
        taken.append(box)
        written.append(tag("text", name, x=f"{across:.1f}", y=f"{down:.1f}", dy="0.35em", class_=style))
    return join(written)


def _inside(box: Box) -> bool:
    return box[0] >= LEFT and box[2] <= WIDTH - RIGHT and box[1] >= 0 and box[3] <= HEIGHT


def _meet(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
