"""Run the plain loop on one victim, in the project's environment but without leakscope.

The clock starts when the update has been shared, as in the other workers. Usage:

    python plain_worker.py victim.npz result.json --steps 60 --rate 0.12 --tv 2e-4 --start grey --schedule linear
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read once, when torch is first imported

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

import measure
import plain_loop
import sharing
import victim as victims


class Normalised(nn.Module):
    """The victim's network behind its normalisation, so that the loop moves pixels."""

    def __init__(self, network: nn.Module, normalise: Callable[[Tensor], Tensor]) -> None:
        """Keep both; the parameters are the network's own, in its order."""
        super().__init__()
        self.network, self.normalise = network, normalise

    def forward(self, images: Tensor) -> Tensor:
        """Return logits of images in [0, 1]."""
        return self.network(self.normalise(images))


def share(victim: victims.Victim, local: victims.Local | None) -> list[Tensor]:
    """Return what the client sends: one gradient, or the change of its weights."""
    model, images = victim.network(), victim.normalise(victim.images)
    if local is None:
        return sharing.gradient(model, images, victim.labels)
    return sharing.change(model, images, victim, local)


def prepare(
    model: nn.Module, victim: victims.Victim, shared: list[Tensor], *, local: victims.Local | None, replay: str
) -> tuple[plain_loop.Predict, list[Tensor]]:
    """Return what is matched, as a function of the images, and what it is to equal in direction."""
    if local is not None and replay == "simulate":
        return plain_loop.local_steps(model, victim.labels, local), shared
    # A change of the weights points down the gradient.
    target = shared if local is None else [-part for part in shared]
    return plain_loop.one_gradient(model, victim.labels), target


def attack(args: argparse.Namespace) -> None:
    """Run the loop on the victim file and write the result."""
    victim, local = victims.load(args.victim), victims.local_training(args)
    model = Normalised(victim.network(), victim.normalise)
    shared = share(victim, local)
    norm = float(torch.stack([part.double().square().sum() for part in shared]).sum().sqrt())
    settings = plain_loop.Settings(args.rate, args.tv, args.start, args.schedule)
    recorder = measure.Recorder(every=args.every)
    predict, target = prepare(model, victim, shared, local=local, replay=args.replay)
    start = plain_loop.begin(args.start, victim.images.shape, seed=args.seed)
    made, distances = start, []
    search = plain_loop.search(predict, target, start, settings=settings, steps=args.steps)
    for made, distance in search:
        distances.append(distance)
        recorder.snapshot(len(distances), made)
    wall, cpu = recorder.elapsed()
    peak = measure.peak_mb()  # before judging, which needs memory of its own
    measure.write(
        args.result,
        tool="plain",
        architecture=victim.architecture,
        batch=len(victim.images),
        iterations=args.steps,
        wall=wall,
        cpu=cpu,
        psnr=measure.psnr(made, victim.images),
        trajectory=recorder.trajectory(victim.images, lambda iterate: iterate),
        peak_mb=peak,
        gradient_norm=norm,
        evaluations=args.steps,
        loss=distances[-1],
        # What a blind guess is worth here: a mark below it would be no recovery.
        grey=measure.psnr(torch.full_like(victim.images, 0.5), victim.images),
    )


def main() -> None:
    """Run one attack."""
    usual = plain_loop.Settings()
    parser = argparse.ArgumentParser(description="The plain loop on one victim.")
    parser.add_argument("victim", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rate", type=float, default=usual.rate)
    parser.add_argument("--tv", type=float, default=usual.tv)
    parser.add_argument("--start", choices=plain_loop.STARTS, default=usual.start)
    parser.add_argument("--schedule", choices=plain_loop.SCHEDULES, default=usual.schedule)
    parser.add_argument("--replay", choices=plain_loop.REPLAYS, default="one-gradient", help="of a change of weights")
    victims.add_local(parser)
    parser.add_argument("--seed", type=int, default=0, help="of the starting point")
    parser.add_argument("--every", type=int, default=5, help="steps between snapshots")
    args = parser.parse_args()
    measure.single_thread()
    attack(args)


if __name__ == "__main__":
    main()
