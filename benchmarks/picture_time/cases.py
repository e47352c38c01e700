"""What is attacked: a network, with or without a normalising layer, and what its client shares.

A case is written network:layer:setting, as in `convnet:normalised:1`, `resnet18:plain:8` or `convnet:plain:fedavg`.

Tuning victims are training images of CIFAR-10 behind weights of seed 1. Held-out victims are test images that nothing
was tuned on and no other benchmark attacks, drawn here by a fixed seed and never picked, each behind weights of a seed
of its own. The same pictures stand behind every network, so that rows can be compared.

No torch here: a worker's peak memory would begin at that of the process that started it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

NETWORKS = ("convnet", "resnet20-4", "resnet18", "lenet-dlg")
RESIDUAL = ("resnet20-4", "resnet18")
LAYERS = ("normalised", "plain")
SETTINGS = ("1", "4", "8", "fedavg")
# Local steps of one image each, at a rate where one gradient is nearly the same thing.
LOCAL_STEPS, LOCAL_RATE = 4, 1e-4

TUNING_IMAGES = (4001, 4102, 4203, 4304)
TUNING_WEIGHTS = 1

HELD_OUT_MOST = 8
_FIRST_HELD_OUT_WEIGHTS = 101
_DRAW_SEED = 20261116
# Attacked by other benchmarks and by the rows of reproductions/ (300 to 331, with room), or used while schedules were
# chosen. Recipes of papers also draw some test images; they report on them and choose nothing by them.
USED_ELSEWHERE = frozenset({*range(300, 340), *range(600, 721)})
_POOL = range(300, 800)


@dataclass(frozen=True)
class Victim:
    """Images of one split of CIFAR-10 behind weights of one seed; `number` also seeds the attacks."""

    number: int
    split: str
    images: tuple[int, ...]
    weights: int

    @property
    def name(self) -> str:
        """A name for files: what the victim is made of."""
        return f"{self.split}{self.images[0]}-w{self.weights}"


@dataclass(frozen=True)
class Case:
    """One line of the contest."""

    network: str
    layer: str
    setting: str

    @property
    def name(self) -> str:
        """The case as it is written on the command line."""
        return f"{self.network}:{self.layer}:{self.setting}"

    @property
    def file_name(self) -> str:
        """The case as part of a file's name."""
        return f"{self.network}-{self.layer}-{self.setting}"

    @property
    def size(self) -> int:
        """Images behind one update."""
        return LOCAL_STEPS if self.is_local else int(self.setting)

    @property
    def is_local(self) -> bool:
        """Whether the client trains before it shares."""
        return self.setting == "fedavg"

    @property
    def is_residual(self) -> bool:
        """Whether the network has shortcuts."""
        return self.network in RESIDUAL

    def victim_options(self, victim: Victim) -> tuple[object, ...]:
        """What `victim.py` is told."""
        normalised = "yes" if self.layer == "normalised" else "no"
        place = ("--split", victim.split, "--indices", *victim.images, "--seed", victim.weights)
        return ("--architecture", self.network, "--normalised", normalised, *place)

    def local_options(self) -> tuple[object, ...]:
        """What every worker is told of local training."""
        if not self.is_local:
            return ()
        return ("--local-steps", LOCAL_STEPS, "--local-batch", 1, "--local-lr", LOCAL_RATE)

    def tuning_victims(self, count: int) -> list[Victim]:
        """The first `count` victims to tune on; a batch is consecutive images."""
        return [
            Victim(number, "train", tuple(range(first, first + self.size)), TUNING_WEIGHTS)
            for number, first in enumerate(TUNING_IMAGES[:count])
        ]

    def held_out_victims(self, count: int) -> list[Victim]:
        """The first `count` victims to measure on."""
        if not 1 <= count <= HELD_OUT_MOST:
            raise SystemExit(f"between 1 and {HELD_OUT_MOST} victims are held out, got {count}")
        batches = draw_held_out()[self.setting][:count]
        return [
            Victim(number, "test", images, _FIRST_HELD_OUT_WEIGHTS + number) for number, images in enumerate(batches)
        ]


def draw_held_out() -> dict[str, list[tuple[int, ...]]]:
    """The held-out batches of every setting, no image twice."""
    free = [image for image in _POOL if image not in USED_ELSEWHERE]
    order = iter(random.Random(_DRAW_SEED).sample(free, len(free)))
    sizes = {setting: Case("convnet", "plain", setting).size for setting in SETTINGS}
    return {
        setting: [tuple(next(order) for _ in range(size)) for _ in range(HELD_OUT_MOST)]
        for setting, size in sizes.items()
    }


def parse_case(text: str) -> Case:
    """Read network:layer:setting."""
    parts = text.split(":")
    allowed = (NETWORKS, LAYERS, SETTINGS)
    if len(parts) != 3 or any(part not in values for part, values in zip(parts, allowed, strict=True)):
        choices = ":".join("|".join(values) for values in allowed)
        raise SystemExit(f"a case is written {choices}, got {text!r}")
    return Case(*parts)


def all_cases() -> Iterator[Case]:
    """Every case there is."""
    for network in NETWORKS:
        for layer in LAYERS:
            for setting in SETTINGS:
                yield Case(network, layer, setting)
