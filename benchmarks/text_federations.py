"""FedAvg against FedBoosting on text recognition: one client reads plain words, the other words in scenes.

    python benchmarks/text_federations.py --out runs/text-federations [--words 4000] [--passes 8] [--threads 2]

Batch size and local epochs are varied at the same number of passes over the clients' words, so that more local epochs
mean fewer rounds. All trainings start from the same network, which was trained for a short while on other words of both
styles (`--warm-words`, 0 starts from random weights): from there every round counts, while a recogniser that was never
trained reads nothing for tens of thousands of words. "central" has the words of both clients in one place, "fedavg,
sealed" sends FedAvg's updates under CKKS, which needs the extra `he`. Every finished round is kept: the same command
continues, and a finished training is only printed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import torch
from torch import nn

from leakscope.data import RenderedWords
from leakscope.federated import (
    Client,
    Experiment,
    FedAvg,
    FedBoosting,
    PlainAggregator,
    SealedAggregator,
    Strategy,
    keygen,
    train_federated,
)
from leakscope.federated.central import centralise
from leakscope.federated.play import RoundRecord
from leakscope.files import write_atomic
from leakscope.types import Batch, LocalTraining
from text_recognition import STYLES, TASK, build_network, read_share, train

STRATEGIES: dict[str, Strategy] = {
    "fedavg": FedAvg(),
    "fedboosting": FedBoosting(),
    "fedboosting, as written": FedBoosting(formula="thesis"),
}
CENTRAL = "central"
SEALED = "fedavg, sealed"
# Words of the training whose beginning is the warm start.
WARM_CYCLE = 196_608
# Words that nobody else has: the warm start uses seed 0.
CLIENT_SEED = 1


@dataclass(frozen=True)
class TextSetting:
    """One training."""

    strategy: str
    batch_size: int
    epochs: int
    seed: int

    @property
    def name(self) -> str:
        """What its folder and its row are called."""
        return f"{self.strategy.replace(', ', '-').replace(' ', '-')}-b{self.batch_size}-e{self.epochs}-s{self.seed}"


def settings(told: argparse.Namespace) -> Iterator[TextSetting]:
    """All trainings, the strategies of one batch size and number of epochs beside each other."""
    for seed, size, epochs in product(told.seeds, told.batch_sizes, told.epochs):
        yield from (TextSetting(strategy, size, epochs, seed) for strategy in told.strategies)


def make_clients(words: int) -> list[Client]:
    """One client a style; each keeps a tenth of its words to try models on."""
    return [
        Client.of(number, RenderedWords(style, seed=CLIENT_SEED).batch(range(words)))
        for number, style in enumerate(STYLES)
    ]


def test_words(count: int) -> dict[str, Batch]:
    """Held-out words of each style."""
    return {style: RenderedWords(style, held_out=True).batch(range(count)) for style in STYLES}


def run(
    setting: TextSetting, model: nn.Module, clients: list[Client], tests: dict[str, Batch], told: argparse.Namespace
) -> dict[str, object]:
    """Train, or continue, and measure what was learnt of each style."""
    local = LocalTraining(told.lr, epochs=setting.epochs, batch_size=setting.batch_size, optimiser="adam", shuffle=True)
    experiment = Experiment(
        rounds=max(1, told.passes // setting.epochs),
        local=local,
        strategy=STRATEGIES.get(setting.strategy, FedAvg()),
        task=TASK,
        seed=setting.seed,
        aggregator=(
            SealedAggregator.of(keygen("ckks"), range(len(clients)))
            if setting.strategy == SEALED
            else PlainAggregator()
        ),
    )
    if setting.strategy == CENTRAL:
        clients, experiment = centralise(clients, experiment)
    both = Batch(torch.cat([one.inputs for one in tests.values()]), torch.cat([one.targets for one in tests.values()]))
    found = train_federated(
        model, clients, both, experiment, directory=told.out / setting.name, watch=lambda record: show(setting, record)
    )
    return {
        "setting": vars(setting),
        "accuracy": {style: read_share(found.model, test) for style, test in tests.items()},
        "both": found.accuracies,
        "weights": [record.weights for record in found.rounds],
        "megabytes": found.bytes_sent / 1e6,
    }


def show(setting: TextSetting, record: RoundRecord) -> None:
    """One line a round."""
    weights = " ".join(f"{weight:.2f}" for weight in record.weights.values())
    print(
        f"{setting.name}: round {record.round + 1}, {100 * record.accuracy:.1f} % of words, loss {record.loss:.3f}, "
        f"weights {weights}, {record.seconds:.0f} s",
        flush=True,
    )


def table(rows: list[dict]) -> str:
    """Word accuracy by setting, in Markdown."""
    lines = [
        "| strategy | batch | epochs | seed | plain % | scene % | both % | MB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        one, plain, scene = row["setting"], *(100 * row["accuracy"][style] for style in STYLES)
        lines.append(
            f"| {one['strategy']} | {one['batch_size']} | {one['epochs']} | {one['seed']} | {plain:.1f} | {scene:.1f} "
            f"| {(plain + scene) / 2:.1f} | {row['megabytes']:.0f} |"
        )
    return "\n".join(lines)


def warm_start(told: argparse.Namespace) -> nn.Module:
    """The network that all trainings start from."""
    model = build_network("crnn-small", seed=0)
    if told.warm_words:
        # The beginning of the recogniser's own training: a whole cycle of rates over so few words ends before the
        # network has read its first one (0.0 % after 32,768 words; the beginning of a longer cycle has 16 % by then).
        plan = argparse.Namespace(words=WARM_CYCLE, stop_at=told.warm_words, batch_size=64, lr=3e-3, seed=0, every=120)
        train(model, plan, told.out / "warm")
    return model.eval()


def main() -> None:
    """Run every setting and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of all trainings and of the table")
    parser.add_argument("--words", type=int, default=4_000, help="words of each client, validation included")
    parser.add_argument("--passes", type=int, default=8, help="passes of a training over the clients' words")
    parser.add_argument(
        "--strategies", nargs="+", choices=(*STRATEGIES, SEALED, CENTRAL), default=[*STRATEGIES, CENTRAL]
    )
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[32, 128])
    parser.add_argument("--epochs", type=int, nargs="+", default=[1, 4], help="local epochs")
    parser.add_argument("--lr", type=float, default=1e-3, help="of the clients' Adam")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--warm-words", type=int, default=40_960)
    parser.add_argument("--tested", type=int, default=500, help="held-out words of each style")
    parser.add_argument("--threads", type=int, default=2)
    told = parser.parse_args()
    torch.set_num_threads(told.threads)
    model, clients, tests = warm_start(told), make_clients(told.words), test_words(told.tested)
    start = ", ".join(f"{style} {100 * read_share(model, test):.1f} %" for style, test in tests.items())
    print(f"start: {start}", flush=True)
    rows = [run(setting, model, clients, tests, told) for setting in settings(told)]
    print(table(rows))
    write_atomic(told.out / "result.json", json.dumps({"start": start, "rows": rows}, indent=1).encode())


if __name__ == "__main__":
    main()
