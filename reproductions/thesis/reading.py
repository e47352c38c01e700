"""Federations that learn to read, and what the model reads afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn

from leakscope import data
from leakscope.data import RenderedWords
from leakscope.federated import Client, SealedAggregator, Training, keygen, train_federated
from leakscope.federated.central import centralise
from leakscope.models.crnn import ColumnSequence
from leakscope.reproduction import CallValues
from leakscope.reproduction.networks import build_network
from leakscope.reproduction.trainings import make_experiment
from leakscope.rng import child_seed
from leakscope.tasks import CTCText
from leakscope.types import Batch

TASK = CTCText()
# The named sets, which the warm start reads, have seed 0: no client has a word of theirs.
_FIRST_SEED = 1_000
_CHUNK = 256


def federate(
    *,
    model: Mapping[str, Any],
    how: Mapping[str, Any],
    styles: Sequence[str],
    tested: int,
    real: bool,
    seal: Mapping[str, Any] | None = None,
) -> CallValues:
    """Train with one client for each style; `accuracy` is the share of words that are read without a mistake.

    The test words are those of IIIT 5K where `real`, else `tested` held-out rendered ones of each style; `held_out` is
    the accuracy on these in either case. `seal` are the options of `keygen`.
    """
    clients = [
        Client.of(number, draw_words(style, how["examples"], seed=_FIRST_SEED + 10 * how["seed"] + number))
        for number, style in enumerate(styles)
    ]
    held_out = join([RenderedWords(style, held_out=True).batch(range(tested)) for style in dict.fromkeys(styles)])
    test = data.load("iiit5k", split="test") if real else held_out
    network = build_network(model, "words-plain", test)
    experiment = make_experiment(how, task=TASK)
    if seal is not None:
        experiment = replace(experiment, aggregator=SealedAggregator.of(keygen(**seal), range(len(clients))))
    if how.get("central", False):
        clients, experiment = centralise(clients, experiment)
    done = train_federated(network, clients, test, experiment)
    texts = read_texts(done.model, test.inputs)
    values: dict[str, float | list[float]] = {
        "start": share_read(read_texts(network, test.inputs), test.targets),
        "accuracy": share_read(texts, test.targets),
        "accuracies": list(done.accuracies),
        "held_out": share_read(read_texts(done.model, held_out.inputs), held_out.targets),
        "character_errors": character_errors(texts, test.targets),
        "first_weight": mean_weight(done),
    }
    pictures = {"texts": texts.to(torch.uint8), "targets": test.targets.to(torch.uint8)}
    return CallValues(values, pictures)


@lru_cache(maxsize=4)
def draw_words(style: str, count: int, *, seed: int) -> Batch:
    """Words that a client has; kept, because all strategies of a seed have the same."""
    return RenderedWords(style, seed=seed).batch(range(count))


def mean_weight(done: Training) -> float:
    """How much the first client counted, mean over the rounds; NaN where there was one client only."""
    if len(done.clients) < 2:
        return float("nan")
    return fmean(one.weights.get(0, 0.0) for one in done.rounds)


@torch.no_grad()
def read_texts(model: nn.Module, inputs: Tensor) -> Tensor:
    """What a recogniser reads: classes [n, steps], 0 behind the text."""
    model.eval()
    return torch.cat([TASK.decode(model(part)) for part in inputs.split(_CHUNK)])


def share_read(texts: Tensor, targets: Tensor) -> float:
    """Share of the texts that are right from the first character to the last."""
    said, meant = spell(texts), spell(targets)
    return sum(one == other for one, other in zip(said, meant, strict=True)) / len(meant)


def character_errors(texts: Tensor, targets: Tensor) -> float:
    """Edit distance over the length of the text, both summed over all words: 0 is perfect, 1 as bad as nothing."""
    said, meant = spell(texts), spell(targets)
    errors = sum(edit_distance(one, other) for one, other in zip(said, meant, strict=True))
    return errors / sum(map(len, meant))


def spell(texts: Tensor) -> list[tuple[int, ...]]:
    """The characters of every text, without what fills it up."""
    return [tuple(character for character in row if character) for row in texts.tolist()]


def edit_distance(one: Sequence[int], other: Sequence[int]) -> int:
    """Fewest characters to insert, take out or replace (Levenshtein)."""
    row = list(range(len(other) + 1))
    for before, left in enumerate(one):
        last, row[0] = row[0], before + 1
        for place, right in enumerate(other, start=1):
            last, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, last + (left != right))
    return row[-1]


def join(batches: Sequence[Batch]) -> Batch:
    """Words of several styles as one batch."""
    return Batch(torch.cat([one.inputs for one in batches]), torch.cat([one.targets for one in batches]))


def tiny_reader(*, seed: int, channels: int, side: int, classes: int) -> nn.Module:
    """A recogniser of two layers for the smoke scale: columns of four pixels, each on its own."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(child_seed(seed, "tiny reader"))
        columns = nn.Conv2d(channels, 2, (32, 4), stride=(32, 4))
        return nn.Sequential(columns, nn.ReLU(), ColumnSequence(), nn.Linear(2, classes)).eval()
