"""Put the rates of the stored calibration into the page on inspection: `python benchmarks/inspection_table.py`."""

from __future__ import annotations

import json
from typing import Any

from page_part import replace_part

from leakscope.inspection.thresholds import FILE


def describe(stored: dict[str, Any]) -> str:
    """Rates, constructions and limits as Markdown."""
    held = stored["held_out"]
    alarms, found = _percent(held["false_alarm_interval"]), _percent(held["detection_interval"])
    lines = [
        f"Of {stored['models']} models, about half were held out. Of {held['honest']} honest ones there, "
        f"{held['false_alarms']} raised a false alarm ({alarms} at 95 %); of {held['crafted']} crafted ones "
        f"{held['detected']} were found ({found}). The area under the curve is {held['area_under_curve']:.4f}.",
        "",
        "| construction | models | found | by the weights alone | with own examples |",
        "|---|---|---|---|---|",
    ]
    for name, one in held["constructions"].items():
        means = one["by_weights_alone"], one["by_weights_and_examples"]
        lines.append(f"| {name} | {one['models']} | {one['detected']} | {means[0]} | {means[1]} |")
    if held["only_fitted"]:
        names = ", ".join(held["only_fitted"])
        lines += ["", f"**Without a rate**, because none is in the held-out half yet: {names}."]
    lines += ["", "The curve, with one factor on all limits:", "", "| factor | false alarms | found |", "|---|---|---|"]
    lines += [f"| {factor:g} | {100 * wrong:.1f} % | {100 * right:.1f} % |" for factor, wrong, right in held["curve"]]
    lines += ["", "| figure | largest of the fitted honest models | limit |", "|---|---|---|"]
    for detector, figures in stored["limits"].items():
        for figure, entry in figures.items():
            top = entry.get("honest_largest")
            name = figure.replace("_", " ")
            lines.append(f"| {detector}: {name} | {'–' if top is None else f'{top:.4g}'} | {entry['limit']:.4g} |")
    return "\n".join(lines)


def _percent(interval: list[float]) -> str:
    return " to ".join(f"{100 * value:.1f} %" for value in interval)


def write() -> None:
    """Replace what is between the two marks."""
    replace_part("explanation/inspection.md", "rates", describe(json.loads(FILE.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    write()
