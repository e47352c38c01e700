"""One table: what every defence leaves to an attacker who does not know it and to one who does, and what it costs.

    LEAKSCOPE_DATA=… python -m reproductions.defences                        # all of it; hours on two cores
    python -m reproductions.defences --parts lenet5 --data cifar10           # one network, one data set
    python -m reproductions.defences --parts convnet --defences none soteria # some lines of it
    python -m reproductions.defences --parts convnet --accuracies            # no attacks
    python -m reproductions.defences --print-only                            # the table of what is finished

Every network with every data set is an ordinary audit in a folder of its own below `--out`: killed, the same command
continues. What its cells came to is kept in `reproductions/results/defences`, also where it was stopped before its end,
and added to what is there: so the table can be made in parts and on several machines. All defences meet the same
victims, which the audit draws by its seed. PSNR is against the picture that the person lost, and in brackets against
the one that was trained on, where a defence changes pictures. A cell whose attack is no evidence says so. Accuracy is
that of a short training, over seeds, with its 95 % interval.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

import leakscope as ls
from leakscope.audits import parse_config, run_campaign
from leakscope.federated import train_with
from leakscope.registry import defence_from_spec
from leakscope.report.checks import NOT_RUN
from leakscope.report.schema import Summary
from reproductions.defence_table import Accuracy, DefenceCell, Measured, table
from reproductions.victims import narrow_convnet

DATA = ("fashion-mnist", "cifar10")
# How LeNet-5 is trained; what DP-SGD claims below is of this training. Its rate was chosen on other pictures and other
# seeds than the table's: at 0.1 training is unstable with or without a defence, at 0.05 with key-lock.
TRAINING: dict[str, Any] = {"how": "central", "rounds": 600, "batch_size": 32, "lr": 0.01, "seeds": (0, 1, 2)}
# Of the narrow ConvNet, whose steps take about fifteen times as long as LeNet-5's. At twice this width there was time
# for two seeds, and their interval told nothing: 33 % of CIFAR-10 without a defence, 0 to 67.
NARROW: dict[str, Any] = {**TRAINING, "rounds": 100}
NARROW_WIDTH = 8
# A step of Soteria differentiates every feature of every example apart, 170 plain steps long on the narrow ConvNet.
TRAINED_ONCE = ("soteria",)
EXAMPLES = 2_000
TESTED = 800
_PRIVACY = f"dp-sgd:norm=1.0,steps={TRAINING['rounds']},sampling_rate={TRAINING['batch_size'] / EXAMPLES},epsilon="
DEFENCES = (
    "none",
    "gaussian-noise:sigma=0.001",
    "gaussian-noise:sigma=0.01",
    "prune:fraction=0.7",
    "prune:fraction=0.95",
    "prune:fraction=0.99",
    "top-k:share=0.01",
    f"{_PRIVACY}50",
    f"{_PRIVACY}8",
    "soteria",
    "precode",
    # The fair comparison for a lock: the same normalisation with and without a scale of its own.
    "key-lock:scaling=affine",
    "key-lock:scaling=none",
    "key-lock",
    "key-lock:activation=relu",
    "transforms:policy=3-1-7+43-18-18",
)


@dataclass(frozen=True)
class Part:
    """One network of the table: how it is attacked, and whether its own training tells the cost.

    `no_time_for` are attacks that other parts run besides, each with the defences it is strong under.
    """

    network: str
    attack: str
    trains: bool
    options: dict[str, Any] = field(default_factory=dict)
    no_time_for: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def settings(self, data: str, defences: Sequence[str] = DEFENCES) -> dict[str, Any]:
        """The audit of one data set."""
        normalise = {"normalise": "cifar10"} if data == "cifar10" else {}
        return {
            "title": f"Defences: {self.network}, {data}",
            "models": [self.network],
            "model_options": {self.network: {**self.options, **normalise}},
            "data": [data],
            "victims": 4,
            "attacks": [self.attack],
            "defences": list(defences),
            "scenarios": ["B"],
            "utility": {**TRAINING, "examples": EXAMPLES} if self.trains else None,
            "planned": {"left_out": self.left_out(data, defences)} if self.no_time_for else None,
            "show_images": False,
        }

    def left_out(self, data: str, defences: Sequence[str] = DEFENCES) -> list[str]:
        """The cells there is no time for, by label."""
        against = [(attack, one) for attack, strong in self.no_time_for.items() for one in strong if one in defences]
        return [f"{self.network} on {data}: {attack} against {one} knowing it, B, seed 0" for attack, one in against]


PARTS = {
    # With its own sigmoids it does not learn in so short a training: accuracy is that of the next one.
    "lenet5": Part("lenet5", "inverting-gradients:steps=300", trains=False),
    "lenet5-relu": Part("lenet5", "inverting-gradients:steps=300", trains=True, options={"activation": "relu"}),
    # Accuracy is that of the same network at an eighth of its width: its own would take days on two cores. 200 steps
    # are the attack's own least on this network; with fewer, every cell would be "unfinished" and no evidence.
    # Four starts that search for a lock, too, through double backward would take as long as all other cells.
    "convnet": Part(
        "convnet",
        "inverting-gradients:steps=200",
        trains=False,
        no_time_for={"inverting-gradients:restarts=4": ("key-lock", "key-lock:activation=relu")},
    ),
}


def main() -> None:
    """Run what is missing of the chosen parts, then print their tables."""
    args = parse()
    torch.set_num_threads(1)
    for part in args.parts:
        for data in args.data:
            kept = Measured(part, data, (), {}).load()
            if not args.print_only:
                kept = measure(part, data, args).added_to(kept)
                kept.store()
            if kept is not None:
                print("\n".join(table(kept, attack=PARTS[part].attack, defences=DEFENCES)), flush=True)


def measure(part: str, data: str, args: argparse.Namespace) -> Measured:
    """Run the audit of some defences, or what is left of it, and their trainings."""
    narrow = args.out / "narrow" / data
    if args.accuracies:
        return Measured(part, data, (), narrow_costs(data, narrow, args.defences))
    folder = args.out / part / data / ("all" if args.defences == DEFENCES else digest(args.defences))
    settings = {**PARTS[part].settings(data, args.defences), "workers": args.workers}
    ran = run_campaign(parse_config(settings), folder)
    costs = trained_costs(ran.summary) if PARTS[part].trains else {}
    cells = tuple(DefenceCell.of(cell) for cell in ran.summary.cells if cell.status != NOT_RUN)
    found = Measured(part, data, cells, costs)
    if ran.sweep.interrupted:
        # Stopped means stopped: the trainings below would go on for minutes.
        found.added_to(found.load()).store()
        raise SystemExit(ran.exit_code)
    if part == "convnet":
        return replace(found, costs=narrow_costs(data, narrow, args.defences))
    return found


def digest(defences: Sequence[str]) -> str:
    """A folder's name for these."""
    return hashlib.sha256("\n".join(defences).encode()).hexdigest()[:12]


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Measure every defence beside the others.")
    parser.add_argument("--parts", nargs="+", choices=tuple(PARTS), default=tuple(PARTS))
    parser.add_argument("--data", nargs="+", choices=DATA, default=DATA)
    parser.add_argument("--defences", nargs="+", choices=DEFENCES, default=DEFENCES, metavar="SPEC")
    parser.add_argument("--out", type=Path, default=Path("runs/defence-table"))
    parser.add_argument("--workers", type=int, default=2, help="cells at a time")
    parser.add_argument("--accuracies", action="store_true", help="no attacks; of the ConvNet, which is trained apart")
    parser.add_argument("--print-only", action="store_true", help="the tables of what is finished")
    args = parser.parse_args()
    if args.accuracies and tuple(args.parts) != ("convnet",):
        parser.error("--accuracies is for --parts convnet alone: the other parts' audits train their own networks")
    # In one order, so that the same lines are the same audit.
    args.defences = tuple(spec for spec in DEFENCES if spec in args.defences)
    return args


def trained_costs(summary: Summary) -> dict[str, Accuracy]:
    """Accuracy by defence, of an audit that trains its own network."""
    return {
        cost.name: Accuracy(100 * cost.accuracy, 100 * (cost.ci[0] or 0), 100 * (cost.ci[1] or 0), cost.at_chance)
        for cost in summary.defences
        if cost.accuracy is not None and cost.ci is not None
    }


def narrow_costs(data: str, cache: Path, defences: Sequence[str] = DEFENCES) -> dict[str, Accuracy]:
    """Accuracy by defence of the narrow ConvNet; trainings are kept, and finished ones read back."""
    costs: dict[str, Accuracy] = {}
    train = ls.data.load(data, split="train", count=EXAMPLES, seed=0)
    test = ls.data.load(data, split="test", count=TESTED, seed=0)
    network = narrow_convnet(*train.inputs.shape[1:3], width=NARROW_WIDTH)
    for spec in defences:
        seeds = NARROW["seeds"][:1] if spec in TRAINED_ONCE else NARROW["seeds"]
        found = train_with(
            defence_from_spec(narrow_spec(spec)),
            network,
            train,
            test,
            **{**NARROW, "seeds": seeds},
            freeze_batch_norm="dp-sgd" in spec,
            cache=cache,
        )
        low, high = found.interval
        costs[spec] = Accuracy(100 * found.accuracy, 100 * low, 100 * high, found.at_chance, seeds=len(seeds))
    return costs


def narrow_spec(spec: str) -> str:
    """The same claim of privacy for the narrow network's training, which has fewer steps and so needs less noise."""
    return spec.replace(f"steps={TRAINING['rounds']}", f"steps={NARROW['rounds']}")


if __name__ == "__main__":
    main()
