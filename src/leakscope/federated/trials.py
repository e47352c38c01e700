"""Train a task under a defence, once per seed: what it still learns, how sure one can be, and what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import Literal

from torch import nn

from leakscope.defence import Defence
from leakscope.errors import UsageError
from leakscope.federated.cache import remember, training_key
from leakscope.federated.training import Share, choose_local, measure_utility
from leakscope.federated.utility import StepRatio, Utility, seeds_interval, wilson_of_share
from leakscope.tasks import Task
from leakscope.types import Batch, LocalTraining, Loss

How = Literal["federated", "central"]
USUAL_CLIENTS = 4


@dataclass(frozen=True)
class Trained:
    """Trainings under one defence, one per seed.

    Attributes:
        runs: What each seed came to, in the order of `seeds`.
        seeds: They decide shards, mini-batches and the randomness of clients and defence, not the weights that training
            starts from.
        tested: Number of test examples.
        chance: Accuracy of always naming the most frequent class, where an example has one class.
        classes: Number of classes among the test examples, likewise.
    """

    runs: tuple[Utility, ...]
    seeds: tuple[int, ...]
    tested: int
    chance: float | None = None
    classes: int | None = None

    @property
    def accuracies(self) -> tuple[float, ...]:
        """Accuracy of each seed."""
        return tuple(run.accuracy for run in self.runs)

    @property
    def accuracy(self) -> float:
        """Mean over the seeds."""
        return fmean(self.accuracies)

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of `accuracy`: of one seed Wilson's, of several over seeds too; see `seeds_interval`."""
        return seeds_interval(self.accuracies, self.tested)

    @property
    def at_chance(self) -> bool:
        """Whether so many test examples cannot tell the mean accuracy from guessing.

        Not by `interval`: two seeds make that so wide that a network which learns would seem to guess.
        """
        return self.chance is not None and wilson_of_share(self.accuracy, self.tested)[0] <= self.chance

    @property
    def final_loss(self) -> float:
        """Mean test loss."""
        return fmean(run.final_loss for run in self.runs)

    @property
    def step_seconds(self) -> float:
        """Median time of a client step."""
        return median(run.step_seconds for run in self.runs)

    @property
    def step_ratio(self) -> StepRatio | None:
        """How many times as long as without the defence a client step takes; measured with the first seed."""
        return self.runs[0].step_ratio

    @property
    def bytes_sent(self) -> float:
        """Median bytes per client and round on the wire."""
        return median(run.bytes_sent for run in self.runs)

    @property
    def nonzero_fraction(self) -> float:
        """Mean share of the parameters for which a client sends a value other than 0."""
        return fmean(run.nonzero_fraction for run in self.runs)

    @property
    def rounds(self) -> int:
        """Rounds that every seed completed."""
        return min(run.rounds for run in self.runs)

    @property
    def diverged(self) -> bool:
        """Whether the training of any seed diverged."""
        return any(run.diverged for run in self.runs)

    def __str__(self) -> str:
        """One line for people."""
        low, high = self.interval
        seeds = "1 seed" if len(self.seeds) == 1 else f"{len(self.seeds)} seeds"
        told = f"accuracy {100 * self.accuracy:.1f} % [{100 * low:.1f}, {100 * high:.1f}], {seeds}"
        if self.at_chance and self.chance is not None:
            told += f": no better than guessing ({100 * self.chance:.0f} %)"
        told += (
            f"; {1_000 * self.step_seconds:.1f} ms per client step, {self.bytes_sent:,.0f} bytes per client and round"
        )
        return told + ("; training diverged" if self.diverged else "")


def train_with(
    defence: Defence | None,
    model: nn.Module,
    train: Batch,
    test: Batch,
    *,
    how: How = "federated",
    share: Share = "gradient",
    local: LocalTraining | None = None,
    clients: int | None = None,
    rounds: int = 150,
    batch_size: int = 32,
    lr: float = 0.1,
    seeds: Sequence[int] = (0, 1, 2),
    loss: Loss | None = None,
    task: Task | None = None,
    freeze_batch_norm: bool = False,
    cache: Path | str | None = None,
) -> Trained:
    """Train a copy of `model` under `defence` once per seed, and test it; every training is one of `measure_utility`.

    Args:
        defence: What the clients do against leakage; None for nothing.
        model: The network as it is without the defence; its weights are where training starts.
        train: Examples of all clients together.
        test: Examples that accuracy and loss are taken on.
        how: "federated" deals the examples to clients; "central" trains on all of them in one place, under the same
            defence, `batch_size` at a time.
        share: What a client sends: its gradient, or the change of the weights after local training.
        local: Training on a round's mini-batch before a delta is shared.
        clients: Number of clients, by default 4; centrally there is one.
        rounds: Server steps.
        batch_size: Examples per client and round, at most its shard.
        lr: Learning rate: the server's, or that of the usual local training.
        seeds: One training each.
        loss: What clients train with unless the defence brings its own, and what the test loss is measured with; by
            default the task's.
        task: How answers are told right from wrong; by default classification.
        freeze_batch_norm: Keep batch-norm layers on their stored statistics.
        cache: Folder of finished trainings; one with the same content is read instead of computed again, its times too.

    Example:
        >>> import torch
        >>> inputs = torch.tensor([[0.0], [1.0]]).repeat(20, 1)
        >>> batch = Batch(inputs, inputs[:, 0].long())
        >>> found = train_with(None, nn.Linear(1, 2), batch, batch, clients=2, rounds=40, seeds=(0, 1))
        >>> found.accuracy, found.at_chance
        (1.0, False)
    """
    if not seeds or len(set(seeds)) < len(seeds):
        raise UsageError(f"train_with needs at least one seed and each once, got {list(seeds)}")
    settings = {
        "clients": _clients(how, clients),
        "rounds": rounds,
        "batch_size": batch_size,
        "lr": lr,
        "task": task,
        "freeze_batch_norm": freeze_batch_norm,
        "share": share,
    }
    trained = choose_local(share, local, batch_size=batch_size, lr=lr)
    runs = []
    for place, seed in enumerate(seeds):
        one = {**settings, "seed": seed, "timed": place == 0}
        key = partial(training_key, model, train, test, defence=defence, loss=loss, local=trained, settings=one)
        train_once = partial(measure_utility, model, train, test, defence=defence, loss=loss, local=local, **one)
        runs.append(remember(cache, key, train_once))
    return Trained(tuple(runs), tuple(seeds), len(test), *_chance(test))


def _clients(how: How, clients: int | None) -> int:
    if how not in ("federated", "central"):
        raise UsageError(f"how must be 'federated' or 'central', got {how!r}")
    if how == "central" and clients not in (None, 1):
        raise UsageError(f"central training has one client, got clients={clients}; leave it out, or how='federated'")
    return 1 if how == "central" else USUAL_CLIENTS if clients is None else clients


def _chance(test: Batch) -> tuple[float | None, int | None]:
    """What always naming the most frequent class would get, and the number of classes, where an example has one."""
    if test.targets.ndim != 1 or test.targets.is_floating_point():
        return None, None
    counts = test.targets.unique(return_counts=True)[1]
    return float(counts.max()) / len(test), len(counts)
