"""How single rows about attacks are measured; those of GRNN are in `generators`."""

from __future__ import annotations

import time
from statistics import mean, median

import torch

import leakscope as ls
from leakscope.types import Batch
from reproductions.rows import Measure, Measured, Say, at_least
from reproductions.victims import (
    FIRST,
    cifar10,
    named,
    policy_3_1_7,
    psnr_of,
    seen_by,
    small_convnet,
    trained_on,
)

# Chosen before the row was run; the schedule was chosen on image 700.
AGIC_IMAGES = (710,)


def fc_inversion(scenario: str, say: Say) -> Measured:
    """Ten networks, ten images."""
    values = []
    for victim in range(10):
        private = cifar10(FIRST + victim)
        seen = seen_by(named("mlp", normalise="cifar10")(victim), private, scenario=scenario)
        values.append(psnr_of(ls.get_attack("fc-inversion"), seen, private, seed=victim))
    return at_least(values, 80.0)


def rgap(scenario: str, say: Say) -> Measured:
    """FCN3 with one logit: relative error of the picture."""
    values = []
    for victim in range(8):
        private = cifar10(FIRST + victim)
        binary = Batch(private.inputs, (private.targets % 2).float())
        model = ls.models.build("fcn3", num_classes=1, in_channels=3, image_size=32, seed=victim)
        update = ls.share(model, binary, loss=one_logit)
        seen = ls.observe(model, update, scenario=scenario, truth=binary, loss=one_logit)
        found = ls.get_attack("rgap").reconstruct(seen, victim)
        values.append(float((found.inputs - private.inputs).norm() / private.inputs.norm()))
    return Measured(tuple(values), max(values) < 1e-4, unit="relative error")


def one_logit(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Logistic loss of a single logit."""
    return torch.nn.functional.binary_cross_entropy_with_logits(output[:, 0], target)


def deep_leakage(name: str) -> Measure:
    """Share of ten seeds above 30 dB on the sigmoid LeNet."""

    def measure(scenario: str, say: Say) -> Measured:
        values = []
        for victim in range(10):
            private = cifar10(victim)
            seen = seen_by(named("lenet-dlg")(victim), private, scenario=scenario)
            values.append(psnr_of(ls.get_attack(name), seen, private, seed=victim))
            say(f"    seed {victim}: {values[-1]:.1f} dB")
        share = mean(value > 30 for value in values)
        return Measured(tuple(values), share >= 0.6, note=f"{share:.0%} above 30 dB")

    return measure


def labels(size: int, *, bar: float) -> Measure:
    """Share of label multisets' entries that are right, over untrained networks and random batches."""

    def measure(scenario: str, say: Say) -> Measured:
        values = []
        for name in ("lenet-dlg", "convnet", "resnet20-4"):
            rng = torch.Generator().manual_seed(size)
            for trial in range(8):
                # With repeats: indices are drawn again, and batches of 8 out of 10 classes repeat by themselves.
                indices = torch.randint(0, 800, (size,), generator=rng).tolist()
                private = cifar10(*indices)
                guess = ls.infer_labels(seen_by(named(name)(trial), private, scenario=scenario)).labels
                true = torch.bincount(private.targets, minlength=10)
                found = torch.bincount(guess, minlength=10)
                values.append(float(torch.minimum(true, found).sum() / size))
            say(f"    {name}: {mean(values[-8:]):.1%}")
        return Measured(tuple(values), mean(values) >= bar, note=f"mean {mean(values):.1%}", unit="share")

    return measure


def agic_fedavg(scenario: str, say: Say) -> Measured:
    """AGIC beside the simulation of 4 local steps of 1 image, at equal steps."""
    gains, ratios = [], []
    for victim in range(4):
        private = cifar10(*range(FIRST + 4 * victim, FIRST + 4 * victim + 4))
        local = ls.LocalTraining(lr=1e-4, steps=4, batch_size=1)
        seen = seen_by(named("convnet", normalise="cifar10")(victim), private, scenario=scenario, local=local)
        quality, seconds = [], []
        for attack in (
            ls.get_attack("agic", steps=60),
            ls.get_attack("inverting-gradients", steps=60, replay="simulate", layers="all"),
        ):
            began = time.process_time()
            quality.append(psnr_of(attack, seen, private, seed=victim))
            seconds.append(time.process_time() - began)
        gains.append(quality[0] - quality[1])
        ratios.append(seconds[1] / seconds[0])
        say(
            f"    batch {victim}: agic {quality[0]:.1f} dB {seconds[0]:.0f} s, simulated {quality[1]:.1f} dB "
            f"{seconds[1]:.0f} s"
        )
    holds = median(gains) >= -0.5 and median(ratios) >= 3
    note = "values are AGIC minus simulation; faster by " + ", ".join(f"{ratio:.1f}×" for ratio in ratios)
    return Measured(tuple(gains), holds, note)


def agic_epochs(scenario: str, say: Say) -> Measured:
    """Gain of two updates over the better one alone."""
    gains = []
    for victim in range(8):
        private = cifar10(FIRST + 2 * victim, FIRST + 2 * victim + 1)
        swapped = Batch(private.inputs.flip(0), private.targets.flip(0))
        first = small_convnet(victim)
        models, batches = (first, trained_on(first, range(400, 780))), (private, swapped)
        seen = [seen_by(model, batch, scenario=scenario) for model, batch in zip(models, batches, strict=True)]
        attack = ls.get_attack("agic", steps=300)
        both = attack.reconstruct_epochs(seen, victim).joint  # type: ignore[attr-defined]
        alone = [psnr_of(attack, one, private, seed=victim) for one in seen]
        gains.append(float(ls.score(both, private).psnr.mean()) - max(alone))
        say(f"    victim {victim}: one {max(alone):.1f} dB, two {max(alone) + gains[-1]:.1f} dB")
    return Measured(tuple(gains), median(gains) > 0, note="values are the gain over the better update alone")


def agic_weights(scenario: str, say: Say) -> Measured:
    """What AGIC's layer weights add on a residual network with stored statistics: β = 50 over the plain cosine."""
    gains, found = [], []
    for image in AGIC_IMAGES:
        private = cifar10(image)
        seen = seen_by(named("resnet20-4", normalise="cifar10")(0), private, scenario=scenario)
        weighed, plain = (
            psnr_of(ls.get_attack("agic", schedule="held", **options), seen, private, seed=0)
            for options in ({}, {"beta": 1.0, "relu_modifier": False})
        )
        gains.append(weighed - plain)
        found.append(f"image {image}: {plain:.1f} → {weighed:.1f} dB")
        say(f"    {found[-1]}")
    return Measured(tuple(gains), median(gains) >= 3.0, f"values are the gain; {'; '.join(found)}")


def policy_aware(scenario: str, say: Say) -> Measured:
    """Gain of the attacker who knows policy 3-1-7 but not its signs, at equal steps."""
    gains, naive, aware = [], [], []
    for victim in range(8):
        clean = cifar10(FIRST + victim)
        private = Batch(policy_3_1_7(clean.inputs[0])[None], clean.targets)
        seen = seen_by(named("convnet", normalise="cifar10")(0), private, scenario=scenario)
        # Contrast is left to the picture, which absorbs it: learning it too makes the landscape worse.
        aware_attack = ls.get_attack("policy-aware", policy="shift-x=0.453+shift-y=0.101", steps=80, probe=25)
        naive.append(psnr_of(ls.get_attack("inverting-gradients", steps=80), seen, private, seed=victim))
        aware.append(psnr_of(aware_attack, seen, private, seed=victim))
        gains.append(aware[-1] - naive[-1])
        say(f"    image {victim}: naive {naive[-1]:.1f} dB, aware {aware[-1]:.1f} dB")
    note = f"naive median {median(naive):.1f} dB, aware {median(aware):.1f} dB"
    return Measured(tuple(gains), median(gains) >= 2.0, note)
