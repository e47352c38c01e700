from __future__ import annotations

import math
from xml.etree import ElementTree

import pytest
from report_summaries import cell, records, summary

from leakscope.report import DefenceCost
from leakscope.report.figures import convergence, success
from leakscope.report.svg import nice_step, x_axis, y_axis
from leakscope.report.tradeoff import tradeoffs

SUMMARY = summary()
CELLS = records(*SUMMARY["cells"])
COSTS = [DefenceCost.model_validate(row) for row in SUMMARY["defences"]]


def test_every_figure_is_well_formed_titled_and_described():
    figures = [*convergence(CELLS), success(CELLS, 18.0), *tradeoffs(CELLS, COSTS, 18.0)]
    assert len(figures) == 5
    for figure in figures:
        tree = ElementTree.fromstring(str(figure.svg))
        named = tree.attrib["aria-labelledby"].split()
        assert [child.attrib.get("id") for child in tree[:2]] == named
        assert all(child.text for child in tree[:2])


def test_one_convergence_chart_per_attack_with_a_line_per_defence():
    first = convergence(CELLS)[0]
    assert first.title == "inverting-gradients"
    assert str(first.svg).count("<polyline") == len(first.legend) == 7


def test_curves_without_positive_numbers_are_not_drawn():
    cells = records(cell(history=[math.nan, None, -1.0, 0.0, 2.0]))
    assert convergence(cells) == []


def test_long_histories_stay_small():
    cells = records(cell(history=[1 / (1 + step) for step in range(100_000)]))
    assert len(str(convergence(cells)[0].svg)) < 6_000


def test_success_counts_the_strongest_attack_on_each_image():
    cells = records(cell("dlg", psnr=[10.0, 30.0]), cell("agic", psnr=[25.0, 12.0]))
    assert "2 of 2 images above 18 dB" in str(success(cells, 18.0).svg)


def test_a_perfect_copy_is_drawn():
    cells = records(cell(psnr=[math.inf, 20.0]))
    assert "inf" not in str(success(cells, 18.0).svg)
    assert "nan" not in str(success(cells, 18.0).svg)


def test_nothing_to_draw():
    failed = records(cell(status="nan"))
    assert success(failed, 18.0) is None
    assert tradeoffs(CELLS, [], 18.0) == []


@pytest.mark.parametrize(("rough", "step"), [(0.7, 1), (1.1, 2), (3, 5), (6, 10), (0.04, 0.05), (0, 1), (math.nan, 1)])
def test_nice_steps(rough, step):
    assert nice_step(rough) == pytest.approx(step)


def test_axes_map_ends_and_keep_outliers_inside():
    x = x_axis(0, 10, label="x")
    assert (x(0), x(10), x(99)) == (x.start, x.end, x.end)
    y = y_axis(1e-4, 1, label="y", log=True)
    assert y(1e-2) == pytest.approx((y.start + y.end) / 2)
    assert y.ticks() == pytest.approx([1e-4, 1e-3, 1e-2, 1e-1, 1])
    assert y_axis(0.02, 1.1, label="y", log=True).ticks() == pytest.approx([0.02, 0.05, 0.1, 0.2, 0.5, 1])
