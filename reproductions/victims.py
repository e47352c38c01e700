"""Victims that the rows share: networks, real images, and what a server sees of them."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain, pairwise
from pathlib import Path
from statistics import median

import numpy as np
import torch
from PIL import Image, ImageEnhance
from torch import Tensor, nn

import leakscope as ls
from leakscope.attack import Attack
from leakscope.matching.candidates import save_prior
from leakscope.metrics import guess_baseline
from leakscope.priors import Trainer, TrainingSettings
from leakscope.types import Batch, Observation
from reproductions.rows import Measure, Measured, Say, median_at_least

# Away from the images that schedules were tuned on (101–107).
FIRST = 300


def small_convnet(seed: int) -> nn.Module:
    """Three convolutions with ReLU, 32 × 32 in, 10 classes out: 22,000 weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = [[nn.Conv2d(i, o, 3, stride=2, padding=1), nn.ReLU()] for i, o in pairwise((3, 24, 32, 32))]
        return nn.Sequential(*chain(*layers), nn.Flatten(), nn.Linear(32 * 4 * 4, 10)).eval()


def narrow_convnet(channels: int, side: int, *, width: int = 16, classes: int = 10) -> nn.Module:
    """The reference ConvNet, by default at a quarter of its width: eight convolutions with batch norm, two poolings."""
    widths = (channels, width, *[2 * width] * 2, *[4 * width] * 5)
    layers: list[nn.Module] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for number, (before, behind) in enumerate(pairwise(widths), start=1):
            layers += [nn.Conv2d(before, behind, 3, padding=1), nn.BatchNorm2d(behind), nn.ReLU()]
            layers += [nn.MaxPool2d(3)] if number in (6, 8) else []
        positions = (side // 3 // 3) ** 2
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(4 * width * positions, classes)).eval()


def named(name: str, **options: object) -> Callable[[int], nn.Module]:
    """A reference network for CIFAR-10 as a function of its seed."""
    return lambda seed: ls.models.build(name, num_classes=10, seed=seed, **options).eval()  # type: ignore[arg-type]


def cifar10(*indices: int) -> Batch:
    """Test images of CIFAR-10."""
    return ls.data.load("cifar10", split="test", indices=list(indices))


def seen_by(model: nn.Module, batch: Batch, *, scenario: str, local: ls.LocalTraining | None = None) -> Observation:
    """What a server sees of an undefended client."""
    return ls.observe(model, ls.share(model, batch, local=local), scenario=scenario, truth=batch)


def psnr_of(attack: Attack, seen: Observation, batch: Batch, *, seed: int) -> float:
    """Mean PSNR over the batch, after assignment."""
    return float(ls.score(attack.reconstruct(seen, seed), batch).psnr.mean())


def above_chance(
    make: Callable[[], Attack],
    network: Callable[[int], nn.Module],
    *,
    victims: int = 8,
    batch: int = 1,
    margin: float = 3.0,
    local: Callable[[], ls.LocalTraining] | None = None,
) -> Measure:
    """Median PSNR over victims against the median blind guess."""

    def measure(scenario: str, say: Say) -> Measured:
        values, chance = [], []
        for victim in range(victims):
            private = cifar10(*range(FIRST + victim * batch, FIRST + (victim + 1) * batch))
            seen = seen_by(network(victim), private, scenario=scenario, local=local() if local else None)
            values.append(psnr_of(make(), seen, private, seed=victim))
            chance.append(float(guess_baseline(private).mean()))
            say(f"    victim {victim}: {values[-1]:.1f} dB, blind guess {chance[-1]:.1f} dB")
        guess = median(chance)
        return median_at_least(values, guess + margin, note=f"blind guess {guess:.1f} dB")

    return measure


@cache
def public_prior() -> Path:
    """A generator trained on the training part of CIFAR-10, as an attacker would; victims are test images."""
    images = ls.data.load("cifar10", split="train", count=5_000, seed=0).inputs
    trainer = Trainer(images, TrainingSettings(latent=64, epochs=8))
    for _ in trainer.run():
        pass
    path = Path(tempfile.mkdtemp(prefix="leakscope-")) / "prior.safetensors"
    save_prior(path, trainer.prior("5,000 training images of CIFAR-10"))
    return path


def trained_on(model: nn.Module, indices: Sequence[int]) -> nn.Module:
    """The next global model: thirty local steps of another client were added to it."""
    others = cifar10(*indices)
    update = ls.share(model, others, local=ls.LocalTraining(lr=0.05, steps=30, batch_size=16))
    assert isinstance(update, ls.SharedUpdate)
    later = copy.deepcopy(model)
    with torch.no_grad():
        for name, parameter in later.named_parameters():
            parameter.add_(update.tensors[name])
    return later


def policy_3_1_7(image: Tensor) -> Tensor:
    """Policy 3-1-7 on one picture [3, h, w], as Pillow does it: content left, more contrast, content up."""
    picture = Image.fromarray((image.permute(1, 2, 0).numpy() * 255).round().astype(np.uint8))
    width, height = picture.size
    affine = Image.Transform.AFFINE
    picture = picture.transform(picture.size, affine, (1, 0, 0.45317 * width, 0, 1, 0), fillcolor=(0, 0, 0))
    picture = ImageEnhance.Contrast(picture).enhance(1.3333)
    picture = picture.transform(picture.size, affine, (1, 0, 0, 0, 1, 0.10070 * height), fillcolor=(0, 0, 0))
    return torch.from_numpy(np.asarray(picture).copy()).permute(2, 0, 1).float() / 255
