"""Run one attack of breaching 0.1.2 on one victim, inside breaching's own environment.

Its attack classes and its configuration are used unchanged; only the number of iterations
and, when asked, the TV weight are set. Usage (see setup.sh for the environment):

    python breaching_worker.py victim.npz result.json --iterations 500
"""

from __future__ import annotations

import argparse
import importlib
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read once, when torch is first imported

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import measure
import victim as victims
from sharing import change, gradient

# The declarations of `load_breaching` last as long as their library object does.
_DECLARATIONS: list[torch.library.Library] = []


def load_breaching() -> Any:
    """Import breaching beside a CPU torch, whose torchvision lacks its compiled operators.

    torchvision registers shape rules for `nms` and `qnms` when it is imported and fails where
    these do not exist; declaring their signatures is enough, no attack calls them.
    """
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _DECLARATIONS.append(library)
    return importlib.import_module("breaching")


class CountedCrossEntropy(nn.CrossEntropyLoss):
    """Mean cross-entropy that counts its calls: L-BFGS evaluates many times per iteration."""

    calls = 0

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss and count it."""
        self.calls += 1
        return super().forward(input, target)


def configure(breaching: Any, args: argparse.Namespace) -> Any:
    """Return breaching's own configuration of the attack with our number of iterations."""
    overrides = [f"optim.max_iterations={args.iterations}"]
    if args.tv is not None:
        overrides.append(f"regularization.total_variation.scale={args.tv}")
    return breaching.get_attack_config(args.attack, overrides=overrides)


def constants(victim: victims.Victim) -> tuple[Tensor, Tensor]:
    """Mean and deviation of the pixels, shaped to act on images."""
    mean, std = victim.constants
    return torch.tensor(mean)[None, :, None, None], torch.tensor(std)[None, :, None, None]


def exchange(
    victim: victims.Victim, *, give_labels: bool, local: victims.Local | None
) -> tuple[list[dict], list[dict]]:
    """Return what the server sent and what the client answered, in breaching's own layout."""
    mean, std = constants(victim)
    model = victim.network()
    images = victim.normalise(victim.images)
    gradients = gradient(model, images, victim.labels) if local is None else change(model, images, victim, local)
    config = importlib.import_module("omegaconf").OmegaConf
    metadata = config.create(
        {
            "modality": "vision",
            "task": "classification",
            "classes": 10,
            "shape": list(victim.images.shape[1:]),
            "mean": mean.flatten().tolist(),
            "std": std.flatten().tolist(),
        }
    )
    payload = {"parameters": list(model.parameters()), "buffers": list(model.buffers()), "metadata": metadata}
    known = {
        "num_data_points": len(victim.images),
        "labels": victim.labels if give_labels else None,
        "local_hyperparams": None if local is None else hyperparameters(victim, local),
    }
    return [payload], [{"gradients": gradients, "buffers": None, "metadata": known}]


def hyperparameters(victim: victims.Victim, local: victims.Local) -> dict[str, Any]:
    """Return what breaching's client of several steps tells its server: also the labels of every step."""
    return {
        "lr": local.lr,
        "steps": local.steps,
        "data_per_step": local.batch,
        "labels": [victim.labels[chosen].sort()[0] for chosen in local.order()],
    }


def watch(attacker: Any, recorder: measure.Recorder, *, per_evaluation: int) -> None:
    """Copy the iterate after optimiser steps, through torch's own step hook."""
    make_optimiser = attacker._init_optimizer

    def observed(candidate: list[Tensor]) -> tuple[Any, Any]:
        optimiser, scheduler = make_optimiser(candidate)
        optimiser.register_step_post_hook(
            lambda *_: recorder.snapshot(attacker.loss_fn.calls // per_evaluation, candidate[0])
        )
        return optimiser, scheduler

    attacker._init_optimizer = observed


def attack(breaching: Any, args: argparse.Namespace) -> None:
    """Run the attack on the victim file and write the result."""
    victim = victims.load(args.victim)
    config = configure(breaching, args)
    local = victims.local_training(args)
    payload, shared = exchange(victim, give_labels=config.attack_type == "optimization", local=local)
    per_evaluation = 1 if local is None else local.steps  # a simulation asks for one loss a step
    norm = float(torch.stack([g.double().square().sum() for g in shared[0]["gradients"]]).sum().sqrt())
    breaching.utils.set_random_seed(args.seed)
    recorder = measure.Recorder(every=args.every)
    attacker = breaching.attacks.prepare_attack(victim.network(), CountedCrossEntropy(), config)
    watch(attacker, recorder, per_evaluation=per_evaluation)
    # An empty map for the secrets: breaching 0.1.2 fails on its own default None.
    made, stats = attacker.reconstruct(payload, shared, {})
    wall, cpu = recorder.elapsed()
    peak = measure.peak_mb()  # before judging, which needs memory of its own
    report(
        *(args, victim, recorder),
        made=made["data"],
        total=(wall, cpu),
        peak_mb=peak,
        gradient_norm=norm,
        evaluations=attacker.loss_fn.calls // per_evaluation - 1,  # the last one scores the returned image
        # Not its "opt_value": the joint attack computes that with labels it did not optimise.
        loss=min(stats["Trial_0_Val"], default=float("nan")),
    )


def report(
    args: argparse.Namespace,
    victim: victims.Victim,
    recorder: measure.Recorder,
    *,
    made: Tensor,
    total: tuple[float, float],
    **extra: object,
) -> None:
    """Judge the snapshots and the returned image, and write everything."""
    mean, std = constants(victim)
    measure.write(
        args.result,
        tool="breaching",
        attack=args.attack,
        tv=args.tv,
        architecture=victim.architecture,
        batch=len(victim.images),
        iterations=args.iterations,
        wall=total[0],
        cpu=total[1],
        psnr=measure.psnr(made * std + mean, victim.images),
        trajectory=recorder.trajectory(victim.images, lambda iterate: iterate * std + mean),
        **extra,
    )


def main() -> None:
    """Run one attack, or only check that breaching can be imported."""
    parser = argparse.ArgumentParser(description="One attack of breaching on one victim.")
    parser.add_argument("victim", type=Path, nargs="?")
    parser.add_argument("result", type=Path, nargs="?")
    parser.add_argument("--attack", default="invertinggradients", help="a configuration of breaching")
    parser.add_argument("--iterations", type=int, default=500)
    parser.add_argument("--tv", type=float, help="weight of its total variation; its own default when absent")
    parser.add_argument("--seed", type=int, default=0, help="of the starting point")
    parser.add_argument("--every", type=int, default=5, help="steps between snapshots")
    victims.add_local(parser)
    parser.add_argument("--check", action="store_true", help="only check the environment")
    args = parser.parse_args()
    measure.single_thread()
    breaching = load_breaching()
    if args.check:
        print(f"breaching environment works with torch {torch.__version__}")
        return
    if args.victim is None or args.result is None:
        parser.error("expected the victim's file and the result's file")
    attack(breaching, args)


if __name__ == "__main__":
    main()
