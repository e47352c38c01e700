"""Is a label right as often as its confidence says? Stated confidence against the observed share of right labels.

    python benchmarks/label_confidence.py [--part held-out] [--batches 24] [--cache FOLDER]

Clients with pictures of CIFAR-10 (halved to 16 × 16) share gradients and local training of several kinds; the server
reads the labels. A label counts as right if the batch holds its class at least as often as it was named so far. The
constants of `leakscope.matching.labels.confidence` were fitted on the part "calibration"; "held-out" has other
pictures, other weights, other training seeds and one more network.
"""

from __future__ import annotations

import argparse
import itertools
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from scipy.stats import beta
from torch import Tensor, nn
from torch.nn import functional

import leakscope as ls
from leakscope.errors import BadInputError
from leakscope.types import Batch, LocalTraining, SharedUpdate

CLASSES = 10
SIZES = (1, 4, 8)
TRAININGS: dict[str, LocalTraining | None] = {
    "gradient": None,
    "1 step": LocalTraining(0.1, steps=1, batch_size=8),
    "4 steps": LocalTraining(0.05, steps=4, batch_size=8),
    "8 steps of 2": LocalTraining(0.01, steps=8, batch_size=2),
    "2 epochs of 1": LocalTraining(0.05, epochs=2, batch_size=1),
    "5 epochs, momentum": LocalTraining(0.01, epochs=5, batch_size=4, momentum=0.9, weight_decay=5e-4, shuffle=True),
}
EDGES = (0.0, 0.2, 0.4, 0.6, 0.8, 0.95, 1.0)


@dataclass(frozen=True)
class Part:
    """Pictures, weight seeds and networks that belong together and to no other part."""

    pictures: range
    seeds: tuple[int, ...]
    networks: tuple[str, ...]


PARTS = {
    "calibration": Part(range(400), (0, 1), ("lenet", "convnet", "resnet")),
    "held-out": Part(range(400, 800), (10, 11), ("lenet", "convnet", "resnet", "leaky")),
}


@dataclass(frozen=True)
class Judged:
    """One label: what was stated of it, and whether it was right."""

    network: str
    trained: bool
    training: str
    size: int
    scenario: str
    stated: float
    right: bool


class SmallResidual(nn.Module):
    """Four residual blocks with batch normalisation, as in a ResNet20-4 of a quarter of its depth and width."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.blocks = nn.ModuleList(_block(16) for _ in range(4))
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [n, classes]."""
        x = self.stem(x)
        for block in self.blocks:
            x = functional.relu(x + block(x))
        return self.head(x.mean((2, 3)))


def _block(width: int) -> nn.Sequential:
    halves = [[nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)] for _ in range(2)]
    return nn.Sequential(*halves[0], nn.ReLU(), *halves[1])


def make_network(name: str, *, seed: int) -> nn.Module:
    """An untrained network."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if name == "resnet":
            return SmallResidual().eval()
        if name == "convnet":
            first = [nn.Conv2d(3, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2)]
            second = [nn.Conv2d(24, 48, 3, padding=1), nn.BatchNorm2d(48), nn.ReLU(), nn.MaxPool2d(2)]
            return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(48 * 16, CLASSES)).eval()
        bend = nn.Sigmoid if name == "lenet" else nn.LeakyReLU
        layers = [nn.Conv2d(3, 12, 5, 2, 2), bend(), nn.Conv2d(12, 12, 5, 2, 2), bend(), nn.Flatten()]
        return nn.Sequential(*layers, nn.Linear(192, CLASSES)).eval()


def train_network(name: str, *, seed: int, cache: Path | None) -> nn.Module:
    """The same network after a few epochs on the training pictures; kept in `cache`."""
    model = make_network(name, seed=seed)
    path = None if cache is None else cache / f"label-confidence-{name}-{seed}.pt"
    if path is not None and path.exists():
        model.load_state_dict(torch.load(path, weights_only=True))
        return model.eval()
    pictures, labels = load_pictures("train", range(5000))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        optimiser = torch.optim.Adam(model.parameters(), 2e-3)
        model.train()
        for _epoch in range(8):
            for rows in torch.randperm(len(labels)).split(50):
                optimiser.zero_grad()
                functional.cross_entropy(model(pictures[rows]), labels[rows]).backward()
                optimiser.step()
    if path is not None:
        torch.save(model.state_dict(), path)
    return model.eval()


def load_pictures(split: str, indices: range) -> tuple[Tensor, Tensor]:
    """Pictures [n, 3, 16, 16] and labels."""
    batch = ls.data.load("cifar10", split=split, indices=list(indices))
    return functional.avg_pool2d(batch.inputs, 2), batch.targets


def judge_part(part: Part, *, batches: int, cache: Path | None) -> Iterator[Judged]:
    """Every label of every cell of a part."""
    pictures, labels = load_pictures("test", part.pictures)
    for name in part.networks:
        for seed in part.seeds:
            for trained in (False, True):
                model = train_network(name, seed=seed, cache=cache) if trained else make_network(name, seed=seed)
                draw = random.Random(f"{name} {seed} {trained}")
                for number in range(batches):
                    training = list(TRAININGS)[number % len(TRAININGS)]
                    batch = draw_batch(pictures, labels, size=draw.choice(SIZES), draw=draw)
                    scenario = draw.choice("CCD")
                    for stated, right in judge_batch(model, batch, TRAININGS[training], scenario=scenario, seed=number):
                        yield Judged(name, trained, training, len(batch), scenario, stated, right)


def draw_batch(pictures: Tensor, labels: Tensor, *, size: int, draw: random.Random) -> Batch:
    """Labels evenly and with repeats out of a few or all classes, then a picture of each."""
    classes = draw.sample(range(CLASSES), draw.choice((2, 5, CLASSES)))
    wanted = [draw.choice(classes) for _ in range(size)]
    rows = [draw.choice((labels == label).nonzero().flatten().tolist()) for label in wanted]
    return Batch(pictures[rows], labels[rows])


def judge_batch(
    model: nn.Module, batch: Batch, training: LocalTraining | None, *, scenario: str, seed: int
) -> Iterator[tuple[float, bool]]:
    """What is stated of every inferred label, and whether it is right."""
    try:
        update = ls.share(model, batch, local=training, seed=seed)
    except BadInputError:
        # The client's own training went to infinity: nothing is shared.
        return
    assert isinstance(update, SharedUpdate)
    guess = ls.infer_labels(ls.observe(model, update, scenario=scenario, truth=batch))
    left = Counter(batch.targets.tolist())
    # The surest label of a class first: its j-th label is right if the class occurs j times.
    for label, stated in zip(guess.labels.tolist(), guess.confidence.tolist(), strict=True):
        left[label] -= 1
        yield stated, left[label] >= 0


def interval(right: int, total: int, *, level: float = 0.95) -> tuple[float, float]:
    """Clopper and Pearson's interval of a share."""
    tail = (1 - level) / 2
    low = float(beta.ppf(tail, right, total - right + 1)) if right else 0.0
    high = float(beta.ppf(1 - tail, right + 1, total - right)) if right < total else 1.0
    return low, high


def table(judged: list[Judged]) -> list[str]:
    """One Markdown row for each bin of stated confidence."""
    rows = ["| stated | labels | mean stated | right | 95 % interval |", "|---|---|---|---|---|"]
    for low, high in (*itertools.pairwise(EDGES), (1.0, 2.0)):
        inside = [one for one in judged if low <= one.stated < high]
        if inside:
            right = sum(one.right for one in inside)
            ends = interval(right, len(inside))
            name = "1" if low == 1 else f"{low:g} to {high:g}"
            stated = sum(one.stated for one in inside) / len(inside)
            share = f"{right / len(inside):.3f}"
            rows.append(f"| {name} | {len(inside)} | {stated:.3f} | {share} | {ends[0]:.3f} to {ends[1]:.3f} |")
    unknown = [one for one in judged if one.stated != one.stated]
    if unknown:
        rows.append(f"| unknown | {len(unknown)} | | {sum(one.right for one in unknown) / len(unknown):.3f} | |")
    return rows


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=PARTS, default="held-out")
    parser.add_argument("--batches", type=int, default=24, help="a network, seed and kind of weights")
    parser.add_argument("--cache", type=Path, help="folder for trained weights")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    judged = list(judge_part(PARTS[chosen.part], batches=chosen.batches, cache=chosen.cache))
    groups = {
        "all": judged,
        "untrained networks": [one for one in judged if not one.trained],
        "trained networks": [one for one in judged if one.trained],
        "several local steps": [one for one in judged if one.training not in ("gradient", "1 step")],
        "rate and steps unknown": [one for one in judged if one.scenario == "D"],
    }
    for name, rows in groups.items():
        print(f"\n{chosen.part}, {name}: {len(rows)} labels\n")
        print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
