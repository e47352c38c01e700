"""The comparison as a Markdown table, medians over victims."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from peers.pairs import Pair, middle, ms_per_evaluation

HEADINGS = (
    "network",
    "batch",
    "breaching's settings",
    "victims",
    "ms/evaluation breaching",
    "leakscope",
    "ratio",
    "PSNR breaching (dB)",
    "leakscope (dB)",
    "breaching's run (s)",
    "breaching's first reach (s)",
    "leakscope to that PSNR (s)",
    "ratio to run",
    "ratio to first reach",
    "reached",
    "peak MB breaching",
    "leakscope",
)

NOTES = """\
One thread each, runs alternating on the same victims with the same weights; medians over victims.
Ratios above 1 favour leakscope and are medians of each victim's own ratio. Times start before the
attack is built. "To that PSNR" is the first snapshot at least as good as the image breaching
returned, judged with the truth; "ratio to run" sets it against breaching's whole run. "First
reach" is stricter: when each side first came within 0.1 dB, since breaching spends most of its
run on a plateau. "Reached" counts the victims where leakscope got there; one that never does
counts as an infinite time. Victims on which breaching gained less
than 1 dB over its first iterate are left out of the times and counted in brackets."""


def row(label: tuple[str, int, str], pairs: Sequence[Pair]) -> list[str]:
    """Return one line of the table: `label` is network, batch and breaching's settings."""
    clock = pairs[0].clock
    timed = [pair for pair in pairs if pair.comparable]
    left_out = len(pairs) - len(timed)
    reached = f"{sum(math.isfinite(pair.ours) for pair in timed)}/{len(timed)}"
    return [
        *map(str, (*label, len(pairs))),
        _number(middle(pairs, lambda pair: ms_per_evaluation(pair.breaching, clock=clock))),
        _number(middle(pairs, lambda pair: ms_per_evaluation(pair.leakscope, clock=clock))),
        _ratio(middle(pairs, lambda pair: pair.evaluation_ratio)),
        _number(middle(pairs, lambda pair: pair.breaching["psnr"])),
        _number(middle(pairs, lambda pair: pair.leakscope["psnr"])),
        _number(middle(timed, lambda pair: pair.breaching[clock])),
        _number(middle(timed, lambda pair: pair.theirs)),
        _number(middle(timed, lambda pair: pair.ours)),
        _ratio(middle(timed, lambda pair: pair.run_ratio)),
        _ratio(middle(timed, lambda pair: pair.reach_ratio)),
        f"{reached} ({left_out})" if left_out else reached,
        _number(middle(pairs, lambda pair: pair.breaching["peak_mb"])),
        _number(middle(pairs, lambda pair: pair.leakscope["peak_mb"])),
    ]


def render(groups: Mapping[tuple[str, int, str], Sequence[Pair]]) -> str:
    """Return the whole table with the sentences that say how to read it."""
    lines = [HEADINGS, ["---"] * len(HEADINGS), *(row(label, pairs) for label, pairs in groups.items())]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n\n" + NOTES + "\n"


def _number(value: float) -> str:
    if math.isnan(value):
        return "none"
    if math.isinf(value):
        return "never"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _ratio(value: float) -> str:
    return "none" if math.isnan(value) else f"{value:.2f}×"
