"""GRNN and its second stage behind the networks of the paper, on images of CIFAR-100."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from torch import nn

import leakscope as ls
from leakscope.attack import Attack
from leakscope.metrics import guess_baseline
from leakscope.types import Batch
from reproductions.rows import Measured, Say, median_at_least
from reproductions.victims import seen_by

# Chosen before any of these rows was run. `grnn-refined` was developed with test images 0 to 19 in view.
HELD_OUT = range(40, 72)


def cifar100(*indices: int) -> Batch:
    """Test images of CIFAR-100."""
    return ls.data.load("cifar100", split="test", indices=list(indices))


def build(name: str, seed: int) -> nn.Module:
    """A network for CIFAR-100; that of GRNN's ResNet-18 normalises with the statistics of the batch, as published."""
    model = ls.models.build(name, num_classes=100, in_channels=3, image_size=32, seed=seed)
    return model.train(name == "resnet18-grnn")


@dataclass(frozen=True)
class Reaches:
    """One image an update, behind a network seeded with its number: every label, and a median of `bar` dB."""

    attack: Attack
    network: str
    images: Sequence[int]
    bar: float = 30.0

    def __call__(self, scenario: str, say: Say) -> Measured:
        """Attack every image."""
        values, right = [], []
        for image in self.images:
            private = cifar100(image)
            seen = seen_by(build(self.network, image), private, scenario=scenario)
            scores = ls.score(self.attack.reconstruct(seen, image), private)
            values.append(float(scores.psnr[0]))
            right.append(bool(scores.label_correct[0]))
            say(f"    image {image}: {values[-1]:.1f} dB, label {'right' if right[-1] else 'wrong'}")
        each = ", ".join(f"{value:.1f}" for value in values)
        found = median_at_least(values, self.bar, note=f"{sum(right)} of {len(right)} labels right; {each} dB")
        return Measured(found.values, found.holds and all(right), found.note)


@dataclass(frozen=True)
class BeatsAGuess:
    """Each batch behind a network seeded with its first image: the median image against the median blind guess."""

    attack: Attack
    network: str
    batches: Sequence[Sequence[int]]
    margin: float = 3.0

    def __call__(self, scenario: str, say: Say) -> Measured:
        """Attack every batch."""
        values, chance, right = [], [], []
        for images in self.batches:
            private = cifar100(*images)
            seen = seen_by(build(self.network, images[0]), private, scenario=scenario)
            scores = ls.score(self.attack.reconstruct(seen, images[0]), private)
            values += scores.psnr.tolist()
            right += scores.label_correct.tolist()
            chance += guess_baseline(private).tolist()
            say(f"    images {images[0]} to {images[-1]}: median {median(scores.psnr.tolist()):.1f} dB")
        guess = median(chance)
        note = f"blind guess {guess:.1f} dB; {sum(right)} of {len(right)} labels right; best {max(values):.1f} dB"
        return median_at_least(values, guess + self.margin, note=note)
