"""Rows about attacks: what each brings back from undefended updates."""

from __future__ import annotations

import time
from statistics import mean, median

import torch

import leakscope as ls
from leakscope.types import Batch
from reproductions.rows import Measured, Row, Say, at_least, median_at_least
from reproductions.victims import (
    FIRST,
    above_chance,
    cifar10,
    named,
    policy_3_1_7,
    psnr_of,
    public_prior,
    seen_by,
    small_convnet,
    trained_on,
)

torch.set_num_threads(1)


def fc_inversion(say: Say) -> Measured:
    """Ten networks, ten images."""
    values = []
    for victim in range(10):
        private = cifar10(FIRST + victim)
        seen = seen_by(named("mlp", normalise="cifar10")(victim), private)
        values.append(psnr_of(ls.get_attack("fc-inversion"), seen, private, seed=victim))
    return at_least(values, 80.0)


def rgap(say: Say) -> Measured:
    """FCN3 with one logit: relative error of the picture."""
    values = []
    for victim in range(8):
        private = cifar10(FIRST + victim)
        binary = Batch(private.inputs, (private.targets % 2).float())
        model = ls.models.build("fcn3", num_classes=1, in_channels=3, image_size=32, seed=victim)
        update = ls.share(model, binary, loss=one_logit)
        seen = ls.observe(model, update, scenario="C", truth=binary, loss=one_logit)
        found = ls.get_attack("rgap").reconstruct(seen, victim)
        values.append(float((found.inputs - private.inputs).norm() / private.inputs.norm()))
    return Measured(tuple(values), max(values) < 1e-4, unit="relative error")


def one_logit(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Logistic loss of a single logit."""
    return torch.nn.functional.binary_cross_entropy_with_logits(output[:, 0], target)


def deep_leakage(name: str):
    """Share of ten seeds above 30 dB on the sigmoid LeNet."""

    def measure(say: Say) -> Measured:
        values = []
        for victim in range(10):
            private = cifar10(victim)
            seen = seen_by(named("lenet-dlg")(victim), private)
            values.append(psnr_of(ls.get_attack(name), seen, private, seed=victim))
            say(f"    seed {victim}: {values[-1]:.1f} dB")
        share = mean(value > 30 for value in values)
        return Measured(tuple(values), share >= 0.6, note=f"{share:.0%} above 30 dB")

    return measure


def grnn(name: str):
    """CIFAR-100 behind GRNN's LeNet: every label, and a median of 30 dB."""

    def measure(say: Say) -> Measured:
        values, right = [], []
        for victim in range(8):
            private = ls.data.load("cifar100", split="test", indices=[victim])
            model = ls.models.build("lenet-grnn", num_classes=100, in_channels=3, image_size=32, seed=victim)
            found = ls.get_attack(name).reconstruct(seen_by(model, private), victim)
            scores = ls.score(found, private)
            values.append(float(scores.psnr[0]))
            right.append(bool(scores.label_correct[0]))
            say(f"    image {victim}: {values[-1]:.1f} dB, label {'right' if right[-1] else 'wrong'}")
        found = median_at_least(values, 30.0, note=f"{sum(right)} of {len(right)} labels right")
        return Measured(found.values, found.holds and all(right), found.note)

    return measure


def labels(size: int, *, bar: float):
    """Share of label multisets' entries that are right, over untrained networks and random batches."""

    def measure(say: Say) -> Measured:
        values = []
        for name in ("lenet-dlg", "convnet", "resnet20-4"):
            rng = torch.Generator().manual_seed(size)
            for trial in range(8):
                # With repeats: indices are drawn again, and batches of 8 out of 10 classes repeat by themselves.
                indices = torch.randint(0, 800, (size,), generator=rng).tolist()
                private = cifar10(*indices)
                guess = ls.infer_labels(seen_by(named(name)(trial), private)).labels
                true = torch.bincount(private.targets, minlength=10)
                found = torch.bincount(guess, minlength=10)
                values.append(float(torch.minimum(true, found).sum() / size))
            say(f"    {name}: {mean(values[-8:]):.1%}")
        return Measured(tuple(values), mean(values) >= bar, note=f"mean {mean(values):.1%}", unit="share")

    return measure


def agic_fedavg(say: Say) -> Measured:
    """AGIC beside the simulation of 4 local steps of 1 image, at equal steps."""
    gains, ratios = [], []
    for victim in range(4):
        private = cifar10(*range(FIRST + 4 * victim, FIRST + 4 * victim + 4))
        local = ls.LocalTraining(lr=1e-4, steps=4, batch_size=1)
        seen = seen_by(named("convnet", normalise="cifar10")(victim), private, scenario="A", local=local)
        quality, seconds = [], []
        for attack in (
            ls.get_attack("agic", steps=60),
            ls.get_attack("inverting-gradients", steps=60, replay="simulate"),
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


def agic_epochs(say: Say) -> Measured:
    """Gain of two updates over the better one alone."""
    gains = []
    for victim in range(8):
        private = cifar10(FIRST + 2 * victim, FIRST + 2 * victim + 1)
        swapped = Batch(private.inputs.flip(0), private.targets.flip(0))
        first = small_convnet(victim)
        seen = [seen_by(first, private), seen_by(trained_on(first, range(400, 780)), swapped)]
        attack = ls.get_attack("agic", steps=300)
        both = attack.reconstruct_epochs(seen, victim).joint  # type: ignore[attr-defined]
        alone = [psnr_of(attack, one, private, seed=victim) for one in seen]
        gains.append(float(ls.score(both, private).psnr.mean()) - max(alone))
        say(f"    victim {victim}: one {max(alone):.1f} dB, two {max(alone) + gains[-1]:.1f} dB")
    return Measured(tuple(gains), median(gains) > 0, note="values are the gain over the better update alone")


def policy_aware(say: Say) -> Measured:
    """Gain of the attacker who knows policy 3-1-7 but not its signs, at equal steps."""
    gains, naive, aware = [], [], []
    for victim in range(8):
        clean = cifar10(FIRST + victim)
        private = Batch(policy_3_1_7(clean.inputs[0])[None], clean.targets)
        seen = seen_by(named("convnet", normalise="cifar10")(0), private, scenario="B")
        # Contrast is left to the picture, which absorbs it: learning it too makes the landscape worse.
        aware_attack = ls.get_attack("policy-aware", policy="shift-x=0.453+shift-y=0.101", steps=80, probe=25)
        naive.append(psnr_of(ls.get_attack("inverting-gradients", steps=80), seen, private, seed=victim))
        aware.append(psnr_of(aware_attack, seen, private, seed=victim))
        gains.append(aware[-1] - naive[-1])
        say(f"    image {victim}: naive {naive[-1]:.1f} dB, aware {aware[-1]:.1f} dB")
    note = f"naive median {median(naive):.1f} dB, aware {median(aware):.1f} dB"
    return Measured(tuple(gains), median(gains) >= 2.0, note)


def _with_prior(name: str, **options: object):
    return lambda: ls.get_attack(name, prior=public_prior(), **options)


def _short(name: str, **options: object):
    return lambda: ls.get_attack(name, **options)


_CHANCE = "median ≥ blind guess + 3 dB"
ROWS: tuple[Row, ...] = (
    Row("fc-inversion", "MLP, CIFAR-10, batch 1", "every image ≥ 80 dB", fc_inversion),
    Row("rgap", "FCN3, CIFAR-10, batch 1", "relative error < 1e-4", rgap),
    Row("labels-1", "LeNet, ConvNet, ResNet20-4, untrained, batch 1", "all right", labels(1, bar=1.0)),
    Row("labels-8", "LeNet, ConvNet, ResNet20-4, untrained, batch 8 with repeats", "≥ 95 %", labels(8, bar=0.95)),
    Row("dlg", "sigmoid LeNet, CIFAR-10, 10 seeds", "≥ 60 % above 30 dB", deep_leakage("dlg")),
    Row("idlg", "sigmoid LeNet, CIFAR-10, 10 seeds", "≥ 60 % above 30 dB", deep_leakage("idlg")),
    Row("cpl", "sigmoid LeNet, CIFAR-10", _CHANCE, above_chance(_short("cpl"), named("lenet-dlg"))),
    Row("grnn", "GRNN's LeNet, CIFAR-100, batch 1", "median ≥ 30 dB, every label", grnn("grnn")),
    Row("grnn-refined", "GRNN's LeNet, CIFAR-100, batch 1", "median ≥ 30 dB, every label", grnn("grnn-refined")),
    Row(
        "inverting-gradients",
        "ConvNet, CIFAR-10, 100 steps",
        _CHANCE,
        above_chance(_short("inverting-gradients", steps=100), named("convnet", normalise="cifar10"), scenario="C"),
    ),
    # These need hours behind a convolutional network; shorter runs end below a blind guess there.
    *(
        Row(
            name,
            "MLP, CIFAR-10",
            _CHANCE,
            above_chance(_short(name, **options), named("mlp", normalise="cifar10"), scenario="A"),
        )
        for name, options in (
            ("adam-cosine", {"steps": 600}),
            ("adam-l1", {"steps": 600}),
            ("adam-l2", {"steps": 600}),
            ("sgd-cosine", {"steps": 1200}),
            ("lbfgs-cosine", {"steps": 50, "restarts": 2}),
            ("lbfgs-l2", {}),
            ("dlg-adam", {"steps": 1000}),
        )
    ),
    Row(
        "gradinversion",
        "small ConvNet, CIFAR-10, batch 2",
        _CHANCE,
        above_chance(_short("gradinversion", steps=300), small_convnet, batch=2, scenario="C"),
    ),
    Row(
        "geng",
        "sigmoid LeNet, CIFAR-10, 4 full-batch steps",
        _CHANCE,
        above_chance(
            _short("geng", steps=100),
            named("lenet-dlg"),
            scenario="C",
            local=lambda: ls.LocalTraining(lr=1e-3, steps=4, batch_size=1),
        ),
    ),
    Row(
        "gias",
        "sigmoid LeNet, CIFAR-10, trained prior",
        _CHANCE,
        above_chance(_with_prior("gias", latent_steps=100, weight_steps=200), named("lenet-dlg"), scenario="C"),
    ),
    Row(
        "ggl",
        "sigmoid LeNet, CIFAR-10, trained prior, 150 generations of 20",
        _CHANCE,
        above_chance(_with_prior("ggl", steps=150, population=20), named("lenet-dlg"), scenario="C"),
    ),
    Row(
        "agic",
        "small ConvNet, CIFAR-10, 4 steps of 1",
        _CHANCE,
        above_chance(
            _short("agic"),
            small_convnet,
            batch=4,
            scenario="B",
            local=lambda: ls.LocalTraining(lr=1e-4, steps=4, batch_size=1),
        ),
    ),
    Row(
        "agic-fedavg",
        "ConvNet, 4 steps of 1, rate 1e-4, 60 steps, 4 batches",
        "within 0.5 dB of the simulation, ≥ 3× faster",
        agic_fedavg,
    ),
    Row("agic-epochs", "small ConvNet, 2 images, two rounds", "two updates better than one", agic_epochs),
    Row("policy-aware", "ConvNet, policy 3-1-7, 80 steps", "≥ naive + 2 dB", policy_aware),
)
