"""The frontier between stealth and theft: inconspicuous MKOR under more and more noise, what it takes and who notices.

    python benchmarks/inspection_frontier.py            # table and figure, both in docs/explanation/inspection.md
    python benchmarks/inspection_frontier.py --quick    # one network, three strengths, nothing written

For every strength of noise on the crafted weights: PSNR and SSIM of what comes back, and the suspicion, which is the
largest figure of the inspection over its limit; above 1 the client refuses. Once with the weights alone, once with the
client's own examples, the agreed network and the last round as well.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from page_part import replace_part
from torch import nn

from leakscope import audit, data, get_attack, models
from leakscope.attack import CraftContext
from leakscope.errors import LeakscopeError
from leakscope.files import write_atomic
from leakscope.inspection import examine
from leakscope.report.svg import HEIGHT, WIDTH, Axis, frame, join, path, rule, tag, x_axis, y_axis
from leakscope.types import Batch

FIGURE = Path(__file__).resolve().parents[1] / "docs" / "images" / "inspection-frontier.svg"
KEPT = Path(__file__).resolve().parent / "results" / "inspection-frontier.json"
HEAD = (
    "| network | σ | PSNR (dB) | SSIM | guess (dB) | suspicion, weights | suspicion, all | seen in the weights by |",
    "|---|---|---|---|---|---|---|---|",
)
NOISES = (0.0, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1)
# Network, data, and labels of the batch: one of each but the last, so that cross-entropy has an absent class.
SUBJECTS = (("mkor-strided", "cifar10"), ("lenet5", "fashion-mnist"))
_STYLE = (
    "text{font:12.5px system-ui,sans-serif;fill:#5a6578}.mid{text-anchor:middle}.end{text-anchor:end}"
    ".grid{stroke:#dde1e9}.axis{stroke:#5a6578}.rule{stroke:#17202e;stroke-dasharray:2 4}"
    ".line{fill:none;stroke-width:2.4}.a{stroke:#3550c8}.b{stroke:#c0341d}.note{fill:#17202e}svg{background:#fff}"
)


@dataclass(frozen=True)
class Point:
    """One strength of noise on one network."""

    network: str
    noise: float
    psnr: float
    ssim: float
    guess: float
    by_weights: float
    by_everything: float
    seen_by: str


def subject(network: str, name: str) -> tuple[nn.Module, Batch]:
    """The agreed network, and a batch with every class but the last once."""
    everything = data.load(name, split="test")
    classes = int(everything.targets.max()) + 1
    places = [int((everything.targets == label).nonzero()[0]) for label in range(classes - 1)]
    batch = Batch(everything.inputs[places], everything.targets[places])
    shape = batch.inputs.shape
    return models.build(network, num_classes=classes, in_channels=shape[1], image_size=shape[-1], seed=0), batch


def measure(network: str, name: str, noises: tuple[float, ...]) -> Iterator[Point]:
    """Attack and inspection at every strength."""
    agreed, batch = subject(network, name)
    own = data.load(name, split="train", count=64, seed=0)
    context = CraftContext(seed=0, input_shape=tuple(batch.inputs.shape[1:]), num_classes=len(batch) + 1)
    for noise in noises:
        attack = get_attack("mkor", form="inconspicuous", noise=noise)
        sent = attack.craft(agreed, context=context).model
        weights = examine(sent)
        everything = examine(sent, reference=agreed, batch=own, previous=agreed)
        try:
            scores = audit(agreed, batch, attack, scenario="A", prior_alone=False)
        except LeakscopeError as reason:
            print(f"{network} at {noise:g}: {reason}")
            continue
        found = scores.scores
        guess = float(scores.baseline_psnr.mean()) if scores.baseline_psnr is not None else float("nan")
        yield Point(
            network,
            noise,
            float(found.psnr.clamp_max(150).mean()) if found is not None else 0.0,
            float(found.ssim.mean()) if found is not None else 0.0,
            guess,
            weights.suspicion,
            everything.suspicion,
            ", ".join(dict.fromkeys(one.detector for one in weights.findings)) or "nobody",
        )


def describe(point: Point) -> str:
    """One line of the table."""
    took = f"{point.psnr:.1f} | {point.ssim:.2f} | {point.guess:.1f}"
    seen = f"{point.by_weights:.3g} | {point.by_everything:.3g} | {point.seen_by}"
    return f"| {point.network} | {point.noise:g} | {took} | {seen} |"


def draw(points: list[Point]) -> str:
    """PSNR against noise, with the strength from which the weights alone show nothing."""
    kept = [point for point in points if point.noise > 0]
    x = Axis(
        min(p.noise for p in kept),
        max(p.noise for p in kept),
        x_axis(0, 1, label="").start,
        x_axis(0, 1, label="").end,
        "noise σ on the crafted weights",
        log=True,
    )
    y = y_axis(0, 10 * (1 + max(point.psnr for point in kept) // 10), label="mean PSNR of what comes back (dB)")
    parts = [frame(x, y)]
    for place, network in enumerate(dict.fromkeys(point.network for point in kept)):
        own = [point for point in kept if point.network == network]
        parts.append(path([(p.noise, p.psnr) for p in own], x, y, style=f"line {'ab'[place % 2]}"))
        parts.append(tag("text", network, x=f"{x(own[0].noise) + 6:.1f}", y=f"{y(own[0].psnr) - 8:.1f}", class_="note"))
        silent = [point.noise for point in own if point.by_weights <= 1]
        if silent:
            parts.append(rule(min(silent), x, label=f"{network}: weights look honest from here"))
    head = tag("title", "What inconspicuous MKOR takes under noise") + tag("style", _STYLE)
    return str(tag("svg", head + join(parts), xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {WIDTH} {HEIGHT}"))


def main() -> None:
    """Print a table, and draw it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    points, lines = [], list[str](HEAD)
    print("\n".join(HEAD))
    for network, name in SUBJECTS[:1] if options.quick else SUBJECTS:
        for point in measure(network, name, (0.0, 1e-4, 1e-1) if options.quick else NOISES):
            points.append(point)
            lines.append(describe(point))
            print(lines[-1], flush=True)
    if not options.quick:
        write_atomic(KEPT, (json.dumps([asdict(one) for one in points], indent=1) + "\n").encode())
        write_atomic(FIGURE, draw(points).encode())
        replace_part("explanation/inspection.md", "frontier", "\n".join(lines))


if __name__ == "__main__":
    main()
