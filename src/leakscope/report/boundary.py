"""Where a network in the plane decides for which class, as a picture that stands by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from markupsafe import Markup
from torch import Tensor, nn

from leakscope.errors import UsageError
from leakscope.report.svg import join, tag

SIDE = 420
_CELLS = 120
_MARGIN = 1.08
_MOST_POINTS = 400
# Two classes told apart by lightness, too.
_FILLS = ("#dbe4ff", "#ffd9c2", "#d3f0e0", "#f3dff5")
_POINTS = ("#1c3faa", "#a03c00", "#0b6b3f", "#7a2a86")


def draw_boundary(model: nn.Module, inputs: Tensor, targets: Tensor, *, title: str) -> str:
    """A drawing (SVG) of the class that `model` gives every point of the plane, and of some of the examples.

    Args:
        model: Takes points [n, 2], returns scores [n, classes]; it is run in eval mode and left as it was.
        inputs: Examples [n, 2]; they set the limits of the drawing, and at most 400 are drawn.
        targets: Their classes [n], at most four.
        title: What the drawing is called, in it and for those who cannot see it.
    """
    if inputs.ndim != 2 or inputs.shape[1] != 2 or int(targets.max()) >= len(_FILLS):
        raise UsageError(
            f"a boundary is drawn of points [n, 2] in at most {len(_FILLS)} classes, got {list(inputs.shape)} and "
            f"class {int(targets.max())}"
        )
    middle = (inputs.amax(0) + inputs.amin(0)) / 2
    half = float((inputs.amax(0) - inputs.amin(0)).max()) / 2 * _MARGIN

    def place(point: Tensor) -> tuple[float, float]:
        across, up = ((point - middle) / half).tolist()
        return (across + 1) / 2 * SIDE, (1 - up) / 2 * SIDE

    decided = _decide(model, middle, half)
    parts = [
        tag("title", title),
        tag("rect", width=SIDE, height=SIDE, fill=_FILLS[0]),
        *_draw_areas(decided),
        *_draw_points(inputs[:_MOST_POINTS], targets[:_MOST_POINTS], place),
        tag("text", title, x=10, y=22, font_family="sans-serif", font_size=15, fill="#17202e"),
    ]
    return str(tag("svg", join(parts), xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {SIDE} {SIDE}", role="img"))


@torch.no_grad()
def _decide(model: nn.Module, middle: Tensor, half: float) -> list[list[int]]:
    """The class of every cell, row by row from the top."""
    centres = (torch.arange(_CELLS) + 0.5) / _CELLS * 2 - 1
    across = middle[0] + half * centres
    up = middle[1] - half * centres
    grid = torch.stack([across.repeat(_CELLS), up.repeat_interleave(_CELLS)], 1)
    was_training = model.training
    try:
        return model.eval()(grid.to(middle)).argmax(1).reshape(_CELLS, _CELLS).tolist()
    finally:
        model.train(was_training)


def _draw_areas(decided: Sequence[Sequence[int]]) -> list[Markup]:
    """One rectangle for every run of equal cells in a row; class 0 is the ground they lie on."""
    size, parts = SIDE / _CELLS, list[Markup]()
    for row, classes in enumerate(decided):
        start = 0
        for end in range(1, _CELLS + 1):
            if end < _CELLS and classes[end] == classes[start]:
                continue
            if classes[start]:
                # Half a unit more, so that no line shows between rows.
                parts.append(
                    tag(
                        "rect",
                        x=f"{start * size:g}",
                        y=f"{row * size:g}",
                        width=f"{(end - start) * size:g}",
                        height=f"{size + 0.5:g}",
                        fill=_FILLS[classes[start] % len(_FILLS)],
                    )
                )
            start = end
    return parts


def _draw_points(inputs: Tensor, targets: Tensor, place: Callable[[Tensor], tuple[float, float]]) -> list[Markup]:
    parts = []
    for point, target in zip(inputs, targets.tolist(), strict=True):
        across, down = place(point)
        colour = _POINTS[target]
        if target:
            shape = tag("rect", x=f"{across - 2:.1f}", y=f"{down - 2:.1f}", width=4, height=4, fill=colour)
        else:
            shape = tag("circle", cx=f"{across:.1f}", cy=f"{down:.1f}", r=2.2, fill=colour)
        parts.append(shape)
    return parts
