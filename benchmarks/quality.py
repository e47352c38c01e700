"""What the first attacks bring back, on real CIFAR-10 images: one row per attack.

    LEAKSCOPE_DATA=<folder> python benchmarks/quality.py

Prints PSNR per victim, the share above a bar, and whether the stored loss is the one at the
returned image.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence

import torch

import leakscope as ls
from leakscope.attack import Attack
from leakscope.types import Batch, Observation, Reconstruction


def victim(name: str, index: int, *, seed: int, normalise: str | None) -> tuple[Observation, Batch]:
    """One CIFAR-10 test image behind one gradient of an untrained network."""
    model = ls.models.build(name, num_classes=10, normalise=normalise, seed=seed)
    batch = ls.data.load("cifar10", indices=[index])
    update = ls.share(model, batch, seed=seed)
    return ls.observe(model, update, scenario="C", truth=batch), batch


def attack_all(
    attack: Attack, pairs: Sequence[tuple[Observation, Batch]]
) -> tuple[list[float], list[Reconstruction], bool]:
    """PSNR of every victim, the reconstructions, and whether each stored loss is its iterate's own."""
    found = [attack.reconstruct(seen, seed) for seed, (seen, _) in enumerate(pairs)]
    psnr = [float(ls.score(one, batch).psnr[0]) for one, (_, batch) in zip(found, pairs, strict=True)]
    evaluate = attack.evaluate
    own = all(evaluate(seen, one) == one.loss for one, (seen, _) in zip(found, pairs, strict=True))
    return psnr, found, own


def row(title: str, attack: Attack, pairs: Sequence[tuple[Observation, Batch]], bar: float) -> None:
    """Print what one attack reached."""
    began = time.perf_counter()
    psnr, found, own = attack_all(attack, pairs)
    above = sum(value > bar for value in psnr)
    print(
        f"{title}: median {statistics.median(psnr):.1f} dB, {above} of {len(psnr)} above {bar:g} dB, "
        f"losses are their iterates' own: {own}, {time.perf_counter() - began:.0f} s"
    )
    print(
        "   ", " ".join(f"{value:.1f}" for value in psnr), "|", " ".join(str(one.status) for one in found), flush=True
    )


def main() -> None:
    """Run all rows, or the chosen ones."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("rows", nargs="*", default=["fc-inversion", "dlg", "idlg", "inverting-gradients"])
    chosen = parser.parse_args().rows
    torch.set_num_threads(1)
    if "fc-inversion" in chosen:
        pairs = [victim("mlp", i, seed=i, normalise="cifar10") for i in range(10)]
        row("fc-inversion, MLP, 10 images", ls.get_attack("fc-inversion"), pairs, 80)
    for name in ("dlg", "idlg"):
        if name in chosen:
            pairs = [victim("lenet-dlg", i, seed=i, normalise=None) for i in range(10)]
            row(f"{name}, sigmoid LeNet, 10 seeds", ls.get_attack(name), pairs, 30)
    if "inverting-gradients" in chosen:
        pairs = [victim("convnet", i, seed=0, normalise="cifar10") for i in range(4)]
        row(
            "inverting-gradients, ConvNet, 4 images, 300 steps",
            ls.get_attack("inverting-gradients", steps=300),
            pairs,
            20,
        )


if __name__ == "__main__":
    main()
