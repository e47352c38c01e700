"""Time and memory of one evaluation of a matching objective and its gradient in the images.

    python benchmarks/evaluation.py [--cases convnet:1 convnet:8 resnet20-4:1 lenet-dlg:1] [--rounds 9]
    python benchmarks/evaluation.py --cases convnet:4:train convnet:8:train resnet20-4:4:train resnet20-4:8:train
    python benchmarks/evaluation.py --cases convnet:4:steps4 convnet:8:steps2

Three ways, one thread, runs interleaved, medians of processor time (a busy machine stretches
the wall clock, hardly the processor time): plain double backward (forward, gradient with a
graph, cosine distance, backward to the images), structured tangents, structured differences.
Peak memory is that of a fresh process which runs only that way. A case is a network and its number of images; with
`train`, batch norm uses the statistics of the batch; with `steps4`, the images are dealt to 4 local steps of plain SGD,
which are simulated.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from leakscope.fastgrad import LocalProgram, Program, compile_network
from leakscope.models import build
from leakscope.rng import generator

WAYS = ("plain", "tangents", "differences")
CASES = ("convnet:1", "convnet:8", "resnet20-4:1", "lenet-dlg:1")
# Of local steps, as on the page of speeds.
RATE = 1e-4

Order = tuple[tuple[int, ...], ...]


def train(model: nn.Module, images: Tensor, labels: Tensor, order: Order, *, graph: bool) -> list[Tensor]:
    """The mean gradient of the local steps in `order`; of one step the gradient."""
    weights = {name: value.detach().requires_grad_() for name, value in model.named_parameters()}
    start = weights
    for chosen in order:
        logits = functional_call(model, weights, (images[list(chosen)],))
        loss = functional.cross_entropy(logits, labels[list(chosen)])
        found = torch.autograd.grad(loss, list(weights.values()), create_graph=graph)
        if len(order) == 1:
            return list(found)
        weights = {name: weight - RATE * g for (name, weight), g in zip(weights.items(), found, strict=True)}
        weights = weights if graph else {name: value.detach().requires_grad_() for name, value in weights.items()}
    return [(start[name] - weights[name]) / (RATE * len(order)) for name in start]


def plain(model: nn.Module, images: Tensor, labels: Tensor, goal: dict[str, Tensor], order: Order) -> Tensor:
    """Gradient of 1 − cosine in the images, through a second-order graph."""
    leaf = images.detach().requires_grad_()
    found = train(model, leaf, labels, order, graph=True)
    pairs = list(zip(found, goal.values(), strict=True))
    dot = torch.stack([(g * t[0]).sum() for g, t in pairs]).sum()
    squares = [torch.stack([part.pow(2).sum() for part in side]).sum() for side in zip(*pairs, strict=True)]
    return torch.autograd.grad(1 - dot / (squares[0].sqrt() * squares[1].sqrt()), leaf)[0]


@torch.no_grad()
def structured(network: Program | LocalProgram, images: Tensor, labels: Tensor, goal: dict[str, Tensor]) -> Tensor:
    """The same gradient from layer rules; one group."""
    first = network.gradients(images[None], labels[None])
    found = first.gradients
    dot = torch.stack([torch.dot(found[name].reshape(-1), goal[name].reshape(-1)) for name in network.names]).sum()
    length, other = (
        torch.stack([torch.linalg.vector_norm(side[name]) for name in network.names]).norm() for side in (found, goal)
    )
    near, far = dot / (length**3 * other), -1 / (length * other)
    direction = {name: (goal[name] * far).addcmul_(found[name], near) for name in network.names}
    return network.pullback(first, direction)[0][0]  # pyright: ignore[reportArgumentType]


def evaluation(case: str, way: str) -> Callable[[], Tensor]:
    """One evaluation on random images towards the gradient of other random images."""
    name, count, *options = case.split(":")
    model = build(name, num_classes=10, in_channels=3, image_size=32, seed=0).train("train" in options)
    images, truth = (torch.rand(int(count), 3, 32, 32, generator=generator(seed, "images")) for seed in (0, 1))
    labels, order = torch.arange(int(count)) % 10, deal(int(count), options)
    gradients = train(model, truth, labels, order, graph=False)
    goal = {key: value.detach()[None] for (key, _), value in zip(model.named_parameters(), gradients, strict=True)}
    if way == "plain":
        return lambda: plain(model, images, labels, goal, order)
    mode = "tangents" if way == "tangents" else "differences"
    network = compile_network(model, loss=functional.cross_entropy, example=images[list(order[0])], mode=mode)
    if len(order) == 1:
        return lambda: structured(network, images, labels, goal)
    local = LocalProgram(network, order, (RATE,) * len(order), -1 / (RATE * len(order)))
    return lambda: structured(local, images, labels, goal)


def deal(count: int, options: Sequence[str]) -> Order:
    """The images of every local step; all of them in one where a case names no steps."""
    steps = next((int(option.removeprefix("steps")) for option in options if option.startswith("steps")), 1)
    size, rest = divmod(count, steps)
    if rest:
        raise SystemExit(f"{count} images cannot be dealt to {steps} steps of equal size")
    return tuple(tuple(range(step * size, (step + 1) * size)) for step in range(steps))


def milliseconds(case: str, rounds: int) -> dict[str, float]:
    """Median processor time of each way, runs interleaved; the first round warms up."""
    runs = {way: evaluation(case, way) for way in WAYS}
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(rounds + 1):
        for way, run in runs.items():
            start = time.thread_time()
            run()
            times[way].append(1e3 * (time.thread_time() - start))
    return {way: statistics.median(values[1:]) for way, values in times.items()}


def peak_megabytes(case: str, way: str) -> float:
    """Peak resident memory of a process that evaluates three times."""
    command = [sys.executable, __file__, "--memory", case, way]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    """Print one line for each case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=CASES)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--memory", nargs=2, metavar=("CASE", "WAY"))
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    if chosen.memory:
        run = evaluation(*chosen.memory)
        for _ in range(3):
            run()
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        return
    # First of all: a child inherits the peak of its parent, so the parent must still be small.
    peaks = {(case, way): peak_megabytes(case, way) for case in chosen.cases for way in WAYS}
    for case in chosen.cases:
        times = milliseconds(case, chosen.rounds)
        columns = [
            f"{way} {times[way]:8.1f} ms {times['plain'] / times[way]:5.2f}× {peaks[case, way]:5.0f} MB" for way in WAYS
        ]
        print(f"{case:16s} " + "   ".join(columns), flush=True)


if __name__ == "__main__":
    main()
