"""FedAvg, FedBoosting in all its variants and training in one place: accuracy per round, with and without poison.

    python benchmarks/federated_strategies.py --out runs/strategies [--tasks plane fashion] [--seeds 0 1 2]

Two tasks: the two Gaussian clients in the plane, and Fashion-MNIST dealt by class to five clients (two runs of one
label each). Every training keeps its finished rounds below --out, so that the same command continues after a kill;
finished trainings are read. Printed and written are tables (table.md, table.json), curves and boundaries (SVG).

With poison, the last client trains on and validates with flipped labels. In the plane either data set is then dealt to
two clients: of two clients that contradict each other, nothing could tell which is the poisoned one.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

import torch
from torch import nn

from leakscope.data import load, partition
from leakscope.data.gaussians import two_gaussians
from leakscope.federated import Client, Experiment, FedAvg, FedBoosting, Poison, Strategy, Training, train_federated
from leakscope.federated.central import centralise
from leakscope.files import write_atomic
from leakscope.models import build
from leakscope.report.boundary import draw_boundary
from leakscope.report.svg import draw_file, frame, join, polyline, x_axis, y_axis
from leakscope.rng import child_seed
from leakscope.types import Batch, LocalTraining

CENTRAL = "centralised"
STRATEGIES: tuple[Strategy, ...] = (
    FedAvg(),
    FedBoosting("released"),
    FedBoosting("released", training_loss=False),
    FedBoosting("thesis"),
    FedBoosting("thesis", training_loss=False),
)


@dataclass(frozen=True)
class Subject:
    """What is trained: a network, the clients' examples, test examples, and how clients train."""

    model: nn.Module
    clients: list[Client]
    test: Batch
    local: LocalTraining


@dataclass(frozen=True)
class Case:
    """One row of the table: a task, with or without poison, under one strategy; one training per seed."""

    task: str
    poisoned: bool
    strategy: str
    trainings: tuple[Training, ...]

    @property
    def curve(self) -> list[tuple[float, float]]:
        """Mean and standard deviation over the seeds of the accuracy after every round."""
        rounds = zip(*(training.accuracies for training in self.trainings), strict=True)
        return [(fmean(one), stdev(one) if len(one) > 1 else 0.0) for one in rounds]

    @property
    def poisoned_weight(self) -> float | None:
        """How much the last client counted, mean over all rounds and seeds."""
        if self.strategy == CENTRAL:
            return None
        last = len(self.trainings[0].clients) - 1
        return fmean(record.weights[last] for training in self.trainings for record in training.rounds)

    @property
    def megabytes(self) -> float:
        """Sent in one training, both ways, mean over the seeds."""
        return fmean(training.bytes_sent for training in self.trainings) / 1e6


def plane(seed: int, *, poisoned: bool, args: argparse.Namespace) -> Subject:
    """The toy task of the thesis: 2-8-2 with sigmoids, Adam at 0.003, batches of 8, one epoch."""
    task = two_gaussians(args.samples, seed=seed)
    parts = list(task.train)
    if poisoned:
        parts = [half for part in parts for half in _halves(part)]
    with torch.random.fork_rng():
        torch.manual_seed(child_seed(seed, "plane"))
        model = nn.Sequential(nn.Linear(2, 8), nn.Sigmoid(), nn.Linear(8, 2))
    local = LocalTraining(0.003, optimiser="adam", epochs=1, batch_size=8, shuffle=True)
    return Subject(model, _clients(parts, classes=2, poisoned=poisoned), task.test, local)


def fashion(seed: int, *, poisoned: bool, args: argparse.Namespace) -> Subject:
    """Fashion-MNIST by class: each of five clients has two runs of examples sorted by label."""
    train = load("fashion-mnist", split="train", count=args.examples, seed=seed)
    test = load("fashion-mnist", split="test", count=args.test_examples, seed=seed)
    dealt = partition(train.targets, clients=5, scheme="by-class", shards=2, seed=seed)
    parts = [Batch(train.inputs[rows], train.targets[rows]) for rows in dealt]
    # Its own sigmoids need many more rounds.
    model = build("lenet5", in_channels=1, image_size=28, num_classes=10, activation="relu", seed=seed)
    local = LocalTraining(0.05, epochs=1, batch_size=32, momentum=0.9, shuffle=True)
    return Subject(model, _clients(parts, classes=10, poisoned=poisoned), test, local)


TASKS: dict[str, Callable[..., Subject]] = {"plane": plane, "fashion": fashion}


def _halves(batch: Batch) -> list[Batch]:
    middle = len(batch) // 2
    return [Batch(batch.inputs[rows], batch.targets[rows], None) for rows in (slice(middle), slice(middle, None))]


def _clients(parts: list[Batch], *, classes: int, poisoned: bool) -> list[Client]:
    bad = len(parts) - 1 if poisoned else None
    return [
        Client.of(number, part, poison=Poison(flip_labels=classes) if number == bad else None)
        for number, part in enumerate(parts)
    ]


def train_one(task: str, strategy: Strategy | None, seed: int, *, poisoned: bool, args: argparse.Namespace) -> Training:
    """One training, continued where it was stopped; without a strategy in one place."""
    subject = TASKS[task](seed, poisoned=poisoned, args=args)
    experiment = Experiment(args.rounds, subject.local, strategy=strategy or FedAvg(), seed=seed)
    clients = subject.clients
    if strategy is None:
        clients, experiment = centralise(clients, experiment)
    name = CENTRAL if strategy is None else strategy.name
    folder = Path(args.out) / task / ("poisoned" if poisoned else "honest") / name / str(seed)
    found = train_federated(subject.model, clients, subject.test, experiment, directory=folder)
    told = f"{task} {'poisoned' if poisoned else 'honest'} {name} seed {seed}"
    print(f"{told}: {100 * found.accuracies[-1]:.1f} % after {args.rounds} rounds", flush=True)
    return found


def run_cases(args: argparse.Namespace) -> list[Case]:
    """All trainings; the one in one place has no poison in it and is run once."""
    cases = []
    for task in args.tasks:
        for poisoned in (False, True):
            for strategy in (*STRATEGIES, *(() if poisoned else (None,))):
                trainings = tuple(train_one(task, strategy, seed, poisoned=poisoned, args=args) for seed in args.seeds)
                cases.append(Case(task, poisoned, CENTRAL if strategy is None else strategy.name, trainings))
    return cases


def tabulate(cases: list[Case]) -> str:
    """Markdown: accuracy after some rounds, mean ± standard deviation over the seeds."""
    lines = []
    for task, poisoned in dict.fromkeys((case.task, case.poisoned) for case in cases):
        rows = [case for case in cases if (case.task, case.poisoned) == (task, poisoned)]
        turns = _chosen_rounds(len(rows[0].curve))
        title = f"{task}, {'one client poisoned' if poisoned else 'all clients honest'}"
        extra = ["weight of the poisoned"] if poisoned else []
        head = ["strategy", *(f"round {turn + 1}" for turn in turns), *extra, "MB sent"]
        lines += [f"### {title}, {len(rows[0].trainings)} seeds", "", _row(head), _row(["---"] * len(head))]
        for case in rows:
            cells = [f"{100 * case.curve[turn][0]:.1f} ± {100 * case.curve[turn][1]:.1f}" for turn in turns]
            weight = [f"{case.poisoned_weight:.2f}" if case.poisoned_weight is not None else "–"] if poisoned else []
            lines.append(_row([case.strategy, *cells, *weight, f"{case.megabytes:.3g}"]))
        lines.append("")
    return "\n".join(lines)


def _chosen_rounds(count: int) -> list[int]:
    """At most ten of them, the first and the last among them."""
    return sorted({round(place * (count - 1) / 9) for place in range(10)})


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def draw_figures(cases: list[Case], args: argparse.Namespace) -> list[Path]:
    """Curves of every task, and the boundaries of the first seed in the plane."""
    out, written = Path(args.out), []
    for task, poisoned in dict.fromkeys((case.task, case.poisoned) for case in cases):
        rows = [case for case in cases if (case.task, case.poisoned) == (task, poisoned)]
        name = f"{task}-{'poisoned' if poisoned else 'honest'}"
        written.append(write_atomic(out / f"{name}.svg", _draw_curves(rows, title=name).encode()))
        for case in rows if task == "plane" else ():
            test = plane(args.seeds[0], poisoned=False, args=args).test
            drawing = draw_boundary(case.trainings[0].model, test.inputs, test.targets, title=case.strategy)
            written.append(write_atomic(out / f"boundary-{name}-{case.strategy}.svg", drawing.encode()))
    return written


def _draw_curves(rows: list[Case], *, title: str) -> str:
    x = x_axis(1, max(2, len(rows[0].curve)), label="round")
    y = y_axis(0, 1, label="test accuracy", form="{:.0%}".format)
    lines = [
        polyline([(turn + 1, mean) for turn, (mean, _) in enumerate(case.curve)], x, y, series=place)
        for place, case in enumerate(rows)
    ]
    story = "; ".join(f"{case.strategy} ends at {case.curve[-1][0]:.1%}" for case in rows)
    legend = [case.strategy for case in rows]
    return draw_file(frame(x, y) + join(lines), title=title, description=story, legend=legend)


def main() -> None:
    """Train, print the tables, write them and the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="runs/strategies")
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--samples", type=int, default=4_000, help="of each client in the plane; the thesis has 40,000")
    parser.add_argument("--examples", type=int, default=10_000, help="of Fashion-MNIST to train on")
    parser.add_argument("--test-examples", type=int, default=2_000)
    args = parser.parse_args()
    cases = run_cases(args)
    table = tabulate(cases)
    figures = draw_figures(cases, args)
    content = [
        {
            "task": case.task,
            "poisoned": case.poisoned,
            "strategy": case.strategy,
            "accuracy": case.curve,
            "mb": case.megabytes,
        }
        for case in cases
    ]
    write_atomic(Path(args.out) / "table.md", table.encode())
    write_atomic(Path(args.out) / "table.json", json.dumps(content, indent=1).encode())
    print(f"\n{table}\nfigures: {', '.join(path.name for path in figures)}")


if __name__ == "__main__":
    main()
