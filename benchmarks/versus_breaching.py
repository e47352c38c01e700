"""leakscope beside breaching 0.1.2 on the same victims, as ratios within one run.

    sh benchmarks/peers/setup.sh            # once: breaching's own environment
    python benchmarks/versus_breaching.py --networks convnet --victims 3

About 4 minutes per victim and setting on ConvNet at 500 iterations. Prints a table; `--write`
also stores it under benchmarks/results.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from peers.pairs import Pair, Result
from peers.table import render

HERE = Path(__file__).resolve().parent
PEERS = HERE / "peers"
BREACHING_PYTHON = HERE / ".peers" / "breaching-venv" / "bin" / "python"
TUNED_TV = 4e-4


@dataclass(frozen=True)
class Contest:
    """The two commands that face each other on one network, and breaching's settings to try."""

    breaching: tuple[str, ...]
    leakscope: tuple[str, ...]
    settings: Mapping[str, tuple[str, tuple[str, ...]]]


_INVERTING = Contest(
    breaching=("--attack", "invertinggradients"),
    leakscope=("--attack", "inverting-gradients", "--scenario", "B"),
    settings={
        "default": ("default (TV 0.2)", ()),
        "tuned": (f"TV tuned ({TUNED_TV:g})", ("--tv", str(TUNED_TV))),
    },
)
# Deep leakage finds the labels itself, so neither side is told them.
_DEEP_LEAKAGE = Contest(
    # An iteration of breaching's L-BFGS is 20 evaluations: the same distance between snapshots.
    breaching=("--attack", "deepleakage", "--every", "1"),
    leakscope=("--attack", "dlg", "--scenario", "C", "--every", "20"),
    settings={"default": ("default", ())},
)
# breaching is told the labels of every local step; only scenario A tells leakscope as much.
SIMULATED = ("--scenario", "A", "--replay", "simulate")
CONTESTS = {"convnet": _INVERTING, "resnet20-4": _INVERTING, "lenet-dlg": _DEEP_LEAKAGE}


def run(python: Path | str, script: str, *arguments: object) -> None:
    """Run one worker alone, on one thread, with an empty compiler cache so that set-up is counted."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "TORCHINDUCTOR_CACHE_DIR": cache,
            "PYTHONPATH": str(HERE.parent / "src"),
            "PYTHONWARNINGS": "ignore",  # breaching's configuration library warns on every load
        }
        command = [str(python), str(PEERS / script), *map(str, arguments)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{script} ended with code {done.returncode}:\n{done.stderr.strip()[-2000:]}")


def measured(python: Path | str, script: str, *arguments: object, victim: Path, result: Path) -> Result:
    """Run one attack and return what it wrote."""
    run(python, script, victim, result, *arguments)
    return json.loads(result.read_text(encoding="utf-8"))


def contest(network: str, *, number: int, args: argparse.Namespace, folder: Path) -> dict[str, Pair]:
    """Let both sides attack victim `number`, in turns; one pair per setting of breaching."""
    victim = folder / f"{network}-batch{args.batch}{'-local' if args.local_steps else ''}-victim{number}.npz"
    place = ("--index", number * args.batch, "--batch", args.batch, "--seed", number)
    run(sys.executable, "victim.py", victim, "--architecture", network, *place)
    sides, pairs = CONTESTS[network], {}
    for key in (setting for setting in args.settings if setting in sides.settings):
        name, setting = sides.settings[key]
        common = ("--seed", number, *local_options(args))
        theirs = ("--iterations", args.iterations, *sides.breaching, *setting, *common)
        # The later of two equal options counts, so a simulation overrides the contest's scenario.
        ours = ("--steps", args.steps, *sides.leakscope, *(SIMULATED if args.simulate else ()), *common)
        results = (victim.with_name(f"{victim.stem}-{key}-{tool}.json") for tool in ("breaching", "leakscope"))
        pairs[name] = Pair(
            measured(BREACHING_PYTHON, "breaching_worker.py", *theirs, victim=victim, result=next(results)),
            measured(sys.executable, "leakscope_worker.py", *ours, victim=victim, result=next(results)),
            clock=args.clock,
        )
        progress(network, number, name, pairs[name])
    return pairs


def local_options(args: argparse.Namespace) -> tuple[object, ...]:
    """Return what both workers are told about local training."""
    if args.local_steps is None:
        return ()
    return ("--local-steps", args.local_steps, "--local-batch", args.local_batch, "--local-lr", args.local_lr)


def label(network: str, args: argparse.Namespace) -> str:
    """Return the network's name in the table, with what the client did when it trained locally."""
    if args.local_steps is None:
        return network
    told = ", simulated on both sides" if args.simulate else ""
    return f"{network}, FedAvg {args.local_steps}×{args.local_batch} at {args.local_lr:g}{told}"


def progress(network: str, number: int, setting: str, pair: Pair) -> None:
    """Print one plain line per finished pair, so that a long run is seen to move."""
    ours = f"leakscope there after {pair.ours:.1f} s" if pair.comparable else "which is not a recovery"
    final = f"leakscope's own end {pair.leakscope['psnr']:.1f} dB"
    theirs = f"breaching {pair.target:.1f} dB in {pair.breaching[pair.clock]:.0f} s"
    print(f"{network} victim {number}, {setting}: {theirs}, {ours}; {final}", file=sys.stderr, flush=True)


def busy(groups: dict[tuple[str, int, str], list[Pair]]) -> str:
    """Say so when other programs took the processor away, which spoils wall-clock figures."""
    runs = [side for pairs in groups.values() for pair in pairs for side in (pair.breaching, pair.leakscope)]
    waited = max(side["wall"] / side["cpu"] for side in runs)
    return f"\nThe machine was busy: a run waited {waited:.2f}× its processor time.\n" if waited > 1.15 else ""


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Compare leakscope with breaching 0.1.2 on the same victims.")
    parser.add_argument("--networks", nargs="+", choices=sorted(CONTESTS), default=["convnet", "resnet20-4"])
    parser.add_argument("--settings", nargs="+", choices=("default", "tuned"), default=["default", "tuned"])
    parser.add_argument("--victims", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="number of the first victim")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--local-steps", type=int, help="steps of local SGD (FedAvg); one shared gradient when absent")
    parser.add_argument("--local-batch", type=int, default=1, help="images in one local step; each is used once")
    parser.add_argument("--local-lr", type=float, default=1e-4)
    parser.add_argument("--simulate", action="store_true", help="leakscope simulates the local steps too (scenario A)")
    parser.add_argument("--iterations", type=int, default=500, help="of breaching")
    parser.add_argument("--steps", type=int, default=250, help="of leakscope")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--keep", type=Path, help="folder in which victims and each run's own result stay")
    parser.add_argument("--write", action="store_true", help="also write benchmarks/results/versus_breaching.md")
    args = parser.parse_args()
    if not BREACHING_PYTHON.exists():
        parser.error("breaching's environment is missing; create it with: sh benchmarks/peers/setup.sh")
    if args.local_steps is not None:
        if "lenet-dlg" in args.networks:
            parser.error("local training is compared on convnet and resnet20-4; deep leakage attacks one gradient")
        args.batch = args.local_steps * args.local_batch
    return args


def main() -> None:
    """Run every contest and print the table."""
    args = parse()
    groups: dict[tuple[str, int, str], list[Pair]] = defaultdict(list)
    with ExitStack() as stack:
        folder = args.keep or stack.enter_context(tempfile.TemporaryDirectory())
        Path(folder).mkdir(parents=True, exist_ok=True)
        for network in args.networks:
            for number in range(args.first, args.first + args.victims):
                for setting, pair in contest(network, number=number, args=args, folder=Path(folder)).items():
                    groups[label(network, args), args.batch, setting].append(pair)
    text = render(groups) + busy(groups)
    print(text)
    if args.write:
        out = HERE / "results" / "versus_breaching.md"
        out.parent.mkdir(exist_ok=True)
        out.write_text("# leakscope beside breaching 0.1.2\n\n" + text, encoding="utf-8")


if __name__ == "__main__":
    main()
