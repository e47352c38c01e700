"""The key-lock module inside federated rounds: accuracy with each client's key, a random key, and untrained locks.

    python benchmarks/key_lock_rounds.py --out runs/key-lock [--seeds 0 1 2] [--rounds 10] [--examples 3000]

In the manner of Tables 5.1 and 5.3 of Ren's thesis: three clients with equal parts of Fashion-MNIST, LeNet-5 with
ReLU, batches of 64, SGD at 0.01 with Nesterov momentum 0.9 and weight decay 5e-4, one local epoch a round. The lock is
compared with the bare network and with the same batch normalisation that has a trained scale and shift, or none. Every
finished round is kept: the same command continues.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

import leakscope as ls
from leakscope.data import load, partition
from leakscope.federated import Client, Experiment, train_federated
from leakscope.federated.keys import evaluate_keys
from leakscope.files import write_atomic
from leakscope.models import build
from leakscope.types import Batch, LocalTraining

LOCAL = LocalTraining(0.01, epochs=1, batch_size=64, momentum=0.9, nesterov=True, weight_decay=5e-4, shuffle=True)
NETWORKS: dict[str, dict[str, str] | None] = {
    "bare": None,
    "normalised, scale and shift trained": {"scaling": "affine"},
    "normalised, neither": {"scaling": "none"},
    "key-lock": {"activation": "none"},
    "key-lock, ReLU": {"activation": "relu"},
}
# How a model is tested, as the columns of the table.
TESTS = ("own", "random_key", "initial_locks", "random_and_initial")


def make_clients(seed: int, told: argparse.Namespace) -> tuple[list[Client], Batch]:
    """Three clients with equal parts, and what models are tested on."""
    train = load("fashion-mnist", split="train", count=told.examples, seed=seed)
    test = load("fashion-mnist", split="test", count=told.test_examples, seed=seed)
    dealt = partition(train.targets, clients=3, scheme="iid", seed=seed)
    parts = [Batch(train.inputs[rows], train.targets[rows]) for rows in dealt]
    return [Client.of(number, part) for number, part in enumerate(parts)], test


def run(name: str, seed: int, told: argparse.Namespace) -> dict[str, Any]:
    """One training, and its global model behind different keys and locks."""
    options = NETWORKS[name]
    defence = None if options is None else ls.get_defence("key-lock", **options)
    clients, test = make_clients(seed, told)
    model = build("lenet5", in_channels=1, image_size=28, num_classes=10, activation="relu", seed=seed)
    experiment = Experiment(told.rounds, LOCAL, defence=defence, seed=seed)
    folder = told.out / name.replace(", ", "-").replace(" ", "-") / str(seed)
    found = train_federated(model, clients, test, experiment, directory=folder)
    row: dict[str, Any] = {"network": name, "seed": seed, "accuracy": found.accuracies}
    if found.network.private:
        keys = evaluate_keys(found, model, test)
        row |= {**asdict(keys), "clients": list(keys.own.values()), "own": keys.mean}
    else:
        row["own"] = found.accuracies[-1]
    print(
        f"{name}, seed {seed}: " + ", ".join(f"{key} {100 * row[key]:.1f} %" for key in TESTS if key in row), flush=True
    )
    return row


def tabulate(rows: list[dict[str, Any]]) -> str:
    """Markdown: mean over the seeds, the lowest and the highest in brackets."""
    lines = ["| network | own key and lock | random key | untrained lock | both |", "|---|---|---|---|---|"]
    for name in NETWORKS:
        mine = [row for row in rows if row["network"] == name]
        cells = [spread([100 * row[key] for row in mine if key in row]) for key in TESTS]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def spread(values: list[float]) -> str:
    """Mean and range; a dash where nothing was measured."""
    return f"{fmean(values):.1f} [{min(values):.1f}, {max(values):.1f}]" if values else "–"


def main() -> None:
    """Train all, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/key-lock"))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--examples", type=int, default=3_000)
    parser.add_argument("--test-examples", type=int, default=1_000)
    told = parser.parse_args()
    rows = [run(name, seed, told) for name in NETWORKS for seed in told.seeds]
    print(tabulate(rows))
    write_atomic(told.out / "result.json", json.dumps(rows, indent=1).encode())


if __name__ == "__main__":
    main()
