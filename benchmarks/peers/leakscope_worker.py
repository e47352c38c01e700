"""Run one attack of leakscope on one victim, in the project's environment.

The clock starts before the attack is built, so planning and compiling are inside it. Usage:

    python leakscope_worker.py victim.npz result.json --attack inverting-gradients --steps 250
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read once, when torch is first imported

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

import leakscope as ls
import measure
import victim as victims
from leakscope.catalogue import parse_spec


def rebuild(victim: victims.Victim) -> nn.Module:
    """Return leakscope's own network with the victim's weights, which both hold in the same order."""
    model = ls.models.build(victim.architecture, num_classes=10, normalise=victim.constants)
    # The normalisation constants are leakscope's first layer, not part of the victim's state.
    statistics = [value for name, value in model.named_buffers() if not name.endswith((".mean", ".std"))]
    with torch.no_grad():
        for mine, theirs in zip(model.parameters(), victim.parameters.values(), strict=True):
            _copy(mine, theirs)
        for mine, theirs in zip(statistics, victim.buffers.values(), strict=True):
            _copy(mine, theirs)
    return model.eval()


def _copy(mine: Tensor, theirs: Tensor) -> None:
    if mine.shape != theirs.shape:
        raise SystemExit(f"the networks differ: {list(mine.shape)} here, {list(theirs.shape)} in the victim's file")
    mine.copy_(theirs)


def watching(recorder: measure.Recorder) -> Callable[[int, Tensor, Tensor], None]:
    """Return the callback that keeps the only victim's iterate; it is called once per evaluation."""
    return lambda step, images, distances: recorder.snapshot(recorder.seen + 1, images[0])


def attack(args: argparse.Namespace) -> None:
    """Run the attack on the victim file and write the result."""
    victim = victims.load(args.victim)
    model, batch = rebuild(victim), ls.Batch(victim.images, victim.labels)
    local = victims.local_training(args)
    training = None if local is None else ls.LocalTraining(local.lr, steps=local.steps, batch_size=local.batch)
    update = ls.share(model, batch, local=training, seed=args.seed)
    if not isinstance(update, ls.SharedUpdate):
        raise SystemExit(f"expected a readable update without a defence, got {type(update).__name__}")
    norm = float(torch.stack([g.double().square().sum() for g in update.tensors.values()]).sum().sqrt())
    seen = ls.observe(model, update, scenario=args.scenario, truth=batch)
    recorder = measure.Recorder(every=args.every)
    name, options = parse_spec(args.attack)
    if args.replay is not None:
        options["replay"] = args.replay
    method = ls.get_attack(name, steps=args.steps, **options)
    if method.effort.evaluations is None:
        raise SystemExit(f"{args.attack} takes no steps that could be watched; name an optimisation attack")
    made = method.reconstruct(seen, args.seed, watch=watching(recorder), diagnosing=args.diagnosing == "yes")
    wall, cpu = recorder.elapsed()
    peak = measure.peak_mb()  # before judging, which needs memory of its own
    measure.write(
        args.result,
        tool="leakscope",
        attack=args.attack,
        architecture=victim.architecture,
        batch=len(victim.images),
        iterations=args.steps,
        wall=wall,
        cpu=cpu,
        psnr=measure.psnr(made.inputs, victim.images),
        trajectory=recorder.trajectory(victim.images, lambda iterate: iterate),
        peak_mb=peak,
        gradient_norm=norm,
        evaluations=made.evaluations,
        loss=made.loss,
        notes=made.notes,
    )


def main() -> None:
    """Run one attack."""
    parser = argparse.ArgumentParser(description="One attack of leakscope on one victim.")
    parser.add_argument("victim", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument("--attack", default="inverting-gradients", help="also with options: agic:schedule=held")
    parser.add_argument("--scenario", default="B", help="what the attacker knows; B gives the labels")
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--replay", help="how local steps are compared; the attack decides when absent")
    parser.add_argument(
        "--diagnosing",
        choices=("yes", "no"),
        default="yes",
        help="whether an update that is not explained is tried with other descriptions, after the picture is found",
    )
    victims.add_local(parser)
    parser.add_argument("--seed", type=int, default=0, help="of the starting point")
    parser.add_argument("--every", type=int, default=5, help="steps between snapshots")
    args = parser.parse_args()
    measure.single_thread()
    attack(args)


if __name__ == "__main__":
    main()
