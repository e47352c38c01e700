"""Honest checkpoints for the calibration of `leakscope inspect`: trained here, and what people do to them later."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from leakscope import data, get_defence, models, share
from leakscope.rng import child_seed, generator
from leakscope.types import Batch, SharedUpdate

# Examples of each set that the client trains on, and how many it inspects with.
EXAMPLES, INSPECTED = 600, 64
_SIZES = {"digits": 16, "faces": 25, "sample-photos": 32, "fashion-mnist": 28, "cifar10": 32, "olivetti": 32}
_LIGHT = ("mlp", "fcn3", "lenet-dlg", "lenet-grnn", "lenet5", "cnn6", "lstm", "vit")
_INITS = ("paper", "default", "uniform")
# Trainings from other seeds, with other choices. Rates must come from models that nobody looked at before the detectors
# were as they are: the figures of generation 0 were seen while they were made.
GENERATIONS = (1, 2, 3)
_AFTERWARDS = ("pruned-0.5", "pruned-0.9", "quantised-8", "quantised-4", "fine-tuned", "key-locked", "half")


@dataclass(frozen=True)
class Run:
    """One training: what is trained on what, from where, for how long."""

    arch: str
    data: str
    init: str = "paper"
    activation: str | None = None
    optimiser: str = "sgd"
    steps: tuple[int, ...] = (0, 40, 200)
    private: bool = False
    weights: str | None = None
    afterwards: tuple[str, ...] = ()
    seed: int = 0

    @property
    def name(self) -> str:
        """What the halves are chosen by: all checkpoints of one run are in the same."""
        how = f"{self.init}-{self.activation or 'own'}-{self.optimiser}{'-dp' if self.private else ''}"
        return f"{self.arch}/{self.data}/{how}{'-published' if self.weights else ''}/{self.seed}"


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """One honest model with what a client would hold beside it."""

    run: str
    name: str
    model: nn.Module
    batch: Batch
    previous: nn.Module | None = None
    pruned: float = 0.0


def runs(weights: Path | None = None, *, generations: tuple[int, ...] = GENERATIONS) -> list[Run]:
    """Every training of the bag, the last generation first; with the folder of published weights those, too.

    Earlier generations had been measured when the detectors were last changed: a run that is stopped early has then
    measured what nobody has looked at.
    """
    *first, last = generations
    found = _light(last)
    for arch in ("resnet20", "resnet32"):
        path = None if weights is None else weights / f"cifar10_{arch}.safetensors"
        if path is not None and path.exists():
            after = tuple(what for what in _AFTERWARDS if what != "key-locked")
            seed = 1000 * last + 105
            found.append(Run(arch, "cifar10", steps=(0, 10), weights=str(path), afterwards=after, seed=seed))
    # At the end what makes rates more exact and adds nothing else.
    return found + _heavy(last) + [run for generation in first for run in _light(generation)]


def _light(generation: int) -> list[Run]:
    """Small architectures on every set."""
    found = []
    for number, (arch, name) in enumerate((arch, name) for arch in _LIGHT for name in _SIZES):
        # By a hash, so that no choice goes with an architecture or a set.
        dice = hashlib.sha256(f"{arch} {name}{f' {generation}' if generation else ''}".encode()).digest()
        # Gradients of single examples cost time, most of all those of recurrent layers and of the widest network.
        private = dice[3] % 5 == 0 and arch not in ("lstm", "vit", "fcn3")
        found.append(
            Run(
                arch,
                name,
                init=_INITS[dice[0] % (2 if arch in ("vit", "lstm") else 3)],
                activation="relu" if arch.startswith("lenet") and dice[1] % 2 else None,
                optimiser=("sgd", "adam")[dice[2] % 2],
                steps=(0, 20, 60) if private else (0, 40, 200),
                private=private,
                afterwards=tuple(
                    _AFTERWARDS[(2 * number + 3 * generation + shift) % len(_AFTERWARDS)] for shift in range(2)
                ),
                seed=1000 * generation + number,
            )
        )
    # Shuffled: what a stopped run has measured is then a cross-section of all; recurrent ones, which are slow, last.
    return sorted(found, key=lambda run: (run.arch == "lstm", hashlib.sha256(f"order {run.name}".encode()).digest()))


def _heavy(generation: int) -> list[Run]:
    """Large architectures, a few of each."""
    first = 1000 * generation + 100
    return [
        Run("resnet20", "cifar10", steps=(0, 15, 40), afterwards=("pruned-0.5", "quantised-8"), seed=first),
        Run("resnet20", "fashion-mnist", steps=(0, 15), optimiser="adam", afterwards=("key-locked",), seed=first + 1),
        Run("convnet", "sample-photos", steps=(0, 6), optimiser="adam", afterwards=("quantised-4",), seed=first + 2),
        Run("vgg16", "cifar10", steps=(0, 6), optimiser="adam", afterwards=("quantised-8",), seed=first + 3),
        Run("vgg16", "sample-photos", init="default", steps=(0, 4), optimiser="adam", seed=first + 4),
    ]


@cache
def examples(name: str) -> Batch:
    """The client's examples of a set."""
    found = data.load(name, split="train", size=_SIZES[name])
    places = torch.randperm(len(found), generator=generator(0, "bag", name))[:EXAMPLES]
    return Batch(found.inputs[places], found.targets[places])


def classes(name: str) -> int:
    """Classes of a set."""
    return data.info(name).num_classes


def start(run: Run) -> nn.Module:
    """The network before training."""
    batch = examples(run.data)
    options: dict[str, Any] = {} if run.weights is None else {"normalise": run.data}
    model = models.build(
        run.arch,
        num_classes=classes(run.data),
        in_channels=batch.inputs.shape[1],
        image_size=batch.inputs.shape[-1],
        seed=run.seed,
        init=run.init,
        activation=run.activation,
        **options,
    )
    return model if run.weights is None else models.load_weights(model, run.weights)


def checkpoints(run: Run) -> Iterator[Checkpoint]:
    """The run's checkpoints, and what was made of the last one."""
    model, batch = start(run), examples(run.data)
    shown = Batch(batch.inputs[:INSPECTED], batch.targets[:INSPECTED])
    previous: nn.Module | None = None
    done = 0
    for steps in run.steps:
        before = copy.deepcopy(model)
        train(model, batch, run, steps=steps - done, first=done)
        previous, done = (before if steps else None), steps
        yield Checkpoint(run.name, f"step-{steps}", copy.deepcopy(model), shown, previous)
    for what in run.afterwards:
        changed = afterwards(what, model, run)
        pruned = float(what.removeprefix("pruned-")) if what.startswith("pruned") else 0.0
        yield Checkpoint(run.name, what, changed, shown, None if what == "key-locked" else model, pruned)


def train(model: nn.Module, batch: Batch, run: Run, *, steps: int, first: int = 0) -> None:
    """Train in place; batch normalisation uses the statistics of each batch, as training does."""
    if run.private:
        _train_privately(model, batch, run, steps=steps, first=first)
        return
    rate = {"sgd": 0.05, "adam": 1e-3}[run.optimiser]
    optimiser = (
        torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
        if run.optimiser == "sgd"
        else torch.optim.Adam(model.parameters(), lr=rate)
    )
    model.train()
    for step in range(first, first + steps):
        inputs, targets = _draw(batch, run, step)
        optimiser.zero_grad()
        functional.cross_entropy(model(inputs), targets).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimiser.step()
    model.eval()


def _train_privately(model: nn.Module, batch: Batch, run: Run, *, steps: int, first: int) -> None:
    defence = get_defence("dp-sgd", norm=1.0, noise_multiplier=1.0)
    for step in range(first, first + steps):
        inputs, targets = _draw(batch, run, step)
        update = share(model, Batch(inputs, targets), defence=defence, seed=child_seed(run.seed, step))
        assert isinstance(update, SharedUpdate)
        with torch.no_grad():
            for name, value in model.named_parameters():
                value.sub_(0.2 * update.tensors[name])


def _draw(batch: Batch, run: Run, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    size = 16 if run.arch in ("vgg16", "convnet") else 32
    places = torch.randint(len(batch), (size,), generator=generator(run.seed, "step", step))
    return batch.inputs[places], batch.targets[places]


def afterwards(what: str, trained: nn.Module, run: Run) -> nn.Module:
    """What people do to a trained model before they hand it on."""
    model, (kind, _, amount) = copy.deepcopy(trained), what.partition("-")
    if kind == "pruned":
        _change_weights(model, lambda value: _prune(value, float(amount)))
    elif kind == "quantised":
        _change_weights(model, lambda value: _quantise(value, int(amount)))
    elif kind == "half":
        _change_weights(model, lambda value: value.half().float())
    elif kind == "fine":
        _fine_tune(model, run)
    elif kind == "key":
        try:
            model = get_defence("key-lock", key_length=64).harden(model, seed=run.seed).client
        except Exception:  # networks without a place for a lock stay as they are
            return model
        train(model, examples(run.data), replace(run, private=False), steps=10)
    return model


def _change_weights(model: nn.Module, change) -> None:
    with torch.no_grad():
        for value in model.parameters():
            if value.ndim > 1:
                value.copy_(change(value))


def _prune(value: torch.Tensor, share_of_zeros: float) -> torch.Tensor:
    count = int(share_of_zeros * value.numel())
    limit = value.abs().flatten().kthvalue(count).values if count else -1.0
    return torch.where(value.abs() > limit, value, torch.zeros_like(value))


def _quantise(value: torch.Tensor, bits: int) -> torch.Tensor:
    scale = value.abs().max().clamp_min(1e-30) / (2 ** (bits - 1) - 1)
    return (value / scale).round() * scale


def _fine_tune(model: nn.Module, run: Run) -> None:
    """Other examples, the body held, a fresh head."""
    linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
    with torch.no_grad():
        bound = linear[-1].in_features ** -0.5
        linear[-1].weight.uniform_(-bound, bound, generator=generator(run.seed, "head"))
    for value in model.parameters():
        value.requires_grad_(False)
    linear[-1].weight.requires_grad_(True)
    train(model, examples(run.data), replace(run, private=False, optimiser="sgd"), steps=40, first=10_000)
    model.requires_grad_(True)
