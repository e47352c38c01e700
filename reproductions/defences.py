"""One table: what every defence leaves to an attacker who does not know it and to one who does, and what it costs.

    LEAKSCOPE_DATA=… python -m reproductions.defences                        # all of it; hours on two cores
    python -m reproductions.defences --parts lenet5 --data cifar10           # one network, one data set
    python -m reproductions.defences --print-only                            # the table of what is finished

Every network with every data set is an ordinary audit in a folder of its own below `--out`: killed, the same command
continues. What a finished one came to is kept in `reproductions/results/defences`, so that the table can be made in
parts and on several machines; it is printed from there where the audit is not at hand. All defences meet the same
victims, which the audit draws by its seed. PSNR is against the picture that the person lost, and in brackets against
the one that was trained on, where a defence changes pictures. A cell whose attack is no evidence says so. Accuracy is
that of a short training, over seeds, with its 95 % interval.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

import leakscope as ls
from leakscope.audits import parse_config, run_campaign
from leakscope.federated import train_with
from leakscope.files import write_atomic
from leakscope.registry import defence_from_spec
from leakscope.report.schema import CellRecord, Summary, parse_summary
from reproductions.victims import narrow_convnet

DATA = ("fashion-mnist", "cifar10")
RESULTS = Path(__file__).resolve().parent / "results" / "defences"
# How LeNet-5 is trained; what DP-SGD claims below is of this training. Its rate was chosen on other pictures and other
# seeds than the table's: at 0.1 training is unstable with or without a defence, at 0.05 with key-lock.
TRAINING: dict[str, Any] = {"how": "central", "rounds": 600, "batch_size": 32, "lr": 0.01, "seeds": (0, 1, 2)}
# Of the narrow ConvNet, whose steps take forty times as long as LeNet-5's.
NARROW: dict[str, Any] = {**TRAINING, "rounds": 100, "seeds": (0, 1)}
# A step of Soteria differentiates every feature of every example apart: 438 plain steps long on the narrow ConvNet.
NOT_TRAINED = ("soteria",)
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

    def settings(self, data: str) -> dict[str, Any]:
        """The audit of one data set."""
        normalise = {"normalise": "cifar10"} if data == "cifar10" else {}
        return {
            "title": f"Defences: {self.network}, {data}",
            "models": [self.network],
            "model_options": {self.network: {**self.options, **normalise}},
            "data": [data],
            "victims": 4,
            "attacks": [self.attack],
            "defences": list(DEFENCES),
            "scenarios": ["B"],
            "utility": {**TRAINING, "examples": EXAMPLES} if self.trains else None,
            "planned": {"left_out": self.left_out(data)} if self.no_time_for else None,
            "show_images": False,
        }

    def left_out(self, data: str) -> list[str]:
        """The cells there is no time for, by label."""
        against = [(attack, defence) for attack, defences in self.no_time_for.items() for defence in defences]
        return [f"{self.network} on {data}: {attack} against {one} knowing it, B, seed 0" for attack, one in against]


PARTS = {
    # With its own sigmoids it does not learn in so short a training: accuracy is that of the next one.
    "lenet5": Part("lenet5", "inverting-gradients:steps=300", trains=False),
    "lenet5-relu": Part("lenet5", "inverting-gradients:steps=300", trains=True, options={"activation": "relu"}),
    # Accuracy is that of the same network at a quarter of its width: its own would take days on two cores. 200 steps
    # are the attack's own least on this network; with fewer, every cell would be "unfinished" and no evidence.
    # Four starts that search for a lock, too, through double backward would take as long as all other cells.
    "convnet": Part(
        "convnet",
        "inverting-gradients:steps=200",
        trains=False,
        no_time_for={"inverting-gradients:restarts=4": ("key-lock", "key-lock:activation=relu")},
    ),
}


@dataclass(frozen=True)
class DefenceCell:
    """What one attack came to under one defence: PSNR of every picture, and against those that were trained on."""

    attack: str
    defence: str
    adaptive: bool
    status: str
    psnr: tuple[float, ...]
    trained: tuple[float, ...] = ()

    @classmethod
    def of(cls, cell: CellRecord) -> DefenceCell:
        """The part of an audit's cell that the table shows."""
        scores = numbers(cell.scores), numbers(cell.trained_scores)
        return cls(cell.attack, cell.defence, cell.adaptive, str(cell.status), *scores)


@dataclass(frozen=True)
class Accuracy:
    """What a training under a defence came to, in percent."""

    mean: float
    low: float
    high: float
    at_chance: bool

    def __str__(self) -> str:
        """For a cell of the table."""
        told = f"{self.mean:.1f} [{self.low:.1f}, {self.high:.1f}]"
        return f"{told}, chance" if self.at_chance else told


@dataclass(frozen=True)
class Measured:
    """One network on one data set: every cell, and accuracy by defence."""

    part: str
    data: str
    cells: tuple[DefenceCell, ...]
    costs: dict[str, Accuracy]

    @property
    def file(self) -> Path:
        """Where it is kept."""
        return RESULTS / f"{self.part}-{self.data}.json"

    def store(self) -> None:
        """Keep it, as small JSON."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(self.file, (json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n").encode())
        # A file of the checkout, readable as all others there.
        self.file.chmod(0o644)

    def load(self) -> Measured | None:
        """What is kept under the same name."""
        if not self.file.exists():
            return None
        told = json.loads(self.file.read_text(encoding="utf-8"))
        cells = [
            DefenceCell(**{**one, "psnr": tuple(one["psnr"]), "trained": tuple(one["trained"])})
            for one in told["cells"]
        ]
        return replace(self, cells=tuple(cells), costs={spec: Accuracy(**one) for spec, one in told["costs"].items()})


def main() -> None:
    """Run what is missing of the chosen parts, then print their tables."""
    args = parse()
    torch.set_num_threads(1)
    for part in args.parts:
        for data in args.data:
            folder = args.out / part / data
            if not args.print_only:
                ran = run_campaign(parse_config({**PARTS[part].settings(data), "workers": args.workers}), folder)
                if ran.sweep.interrupted:
                    # Stopped means stopped: the trainings below would go on for minutes.
                    raise SystemExit(ran.exit_code)
            found = read_run(part, data, args.out, known_only=args.print_only) or Measured(part, data, (), {}).load()
            if found is not None:
                print("\n".join(table(found)), flush=True)


def read_run(part: str, data: str, out: Path, *, known_only: bool) -> Measured | None:
    """What the audit below `out` came to, with its trainings, if there is one; kept unless `known_only`."""
    file = out / part / data / "summary.json"
    if not file.exists():
        return None
    summary = parse_summary(json.loads(file.read_text(encoding="utf-8")))
    costs = trained_costs(summary) if PARTS[part].trains else {}
    if part == "convnet":
        costs = narrow_costs(data, out / "narrow" / data, known_only=known_only)
    found = Measured(part, data, tuple(map(DefenceCell.of, summary.cells)), costs)
    if not known_only:
        found.store()
    return found


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Measure every defence beside the others.")
    parser.add_argument("--parts", nargs="+", choices=tuple(PARTS), default=tuple(PARTS))
    parser.add_argument("--data", nargs="+", choices=DATA, default=DATA)
    parser.add_argument("--out", type=Path, default=Path("runs/defence-table"))
    parser.add_argument("--workers", type=int, default=2, help="cells at a time")
    parser.add_argument("--print-only", action="store_true", help="the tables of what is finished")
    return parser.parse_args()


def trained_costs(summary: Summary) -> dict[str, Accuracy]:
    """Accuracy by defence, of an audit that trains its own network."""
    return {
        cost.name: Accuracy(100 * cost.accuracy, 100 * (cost.ci[0] or 0), 100 * (cost.ci[1] or 0), cost.at_chance)
        for cost in summary.defences
        if cost.accuracy is not None and cost.ci is not None
    }


def narrow_costs(data: str, cache: Path, *, known_only: bool) -> dict[str, Accuracy]:
    """Accuracy by defence of the narrow ConvNet; trainings are kept, and finished ones read back."""
    told = cache / "accuracies.json"
    costs = {spec: Accuracy(**one) for spec, one in json.loads(told.read_text()).items()} if told.exists() else {}
    if known_only:
        return costs
    train = ls.data.load(data, split="train", count=EXAMPLES, seed=0)
    test = ls.data.load(data, split="test", count=TESTED, seed=0)
    network = narrow_convnet(*train.inputs.shape[1:3])
    for spec in DEFENCES:
        if spec in NOT_TRAINED:
            continue
        found = train_with(
            defence_from_spec(narrow_spec(spec)),
            network,
            train,
            test,
            **NARROW,
            freeze_batch_norm="dp-sgd" in spec,
            cache=cache,
        )
        low, high = found.interval
        costs[spec] = Accuracy(100 * found.accuracy, 100 * low, 100 * high, found.at_chance)
        write_atomic(told, json.dumps({name: asdict(one) for name, one in costs.items()}, indent=1).encode())
    return costs


def narrow_spec(spec: str) -> str:
    """The same claim of privacy for the narrow network's training, which has fewer steps and so needs less noise."""
    return spec.replace(f"steps={TRAINING['rounds']}", f"steps={NARROW['rounds']}")


def table(found: Measured) -> Iterator[str]:
    """A Markdown table of one audit: a line a defence, in the order they were asked for."""
    attack = PARTS[found.part].attack
    pictures = max((len(cell.psnr) for cell in found.cells), default=0)
    yield f"\n**{found.part}, {found.data}** ({attack}, {pictures} pictures)\n"
    yield "| defence | unaware: median, worst dB | knows it: median, worst dB | strongest | accuracy % |"
    yield "|---|---|---|---|---|"
    for spec in DEFENCES:
        cells = [cell for cell in found.cells if cell.defence == spec]
        own = [cell for cell in cells if cell.attack == attack]
        unaware = [cell for cell in own if not cell.adaptive]
        knowing = [cell for cell in own if cell.adaptive]
        yield f"| {spec} | {told(unaware)} | {told(knowing)} | {strongest(cells)} | {found.costs.get(spec, '–')} |"


def told(cells: Sequence[DefenceCell]) -> str:
    """Median and worst PSNR of a cell, both truths, and its status where it is no evidence."""
    if not cells:
        return "–"
    (cell,) = cells
    if not cell.psnr:
        return cell.status
    text = f"{median(cell.psnr):.1f}, {max(cell.psnr):.1f}"
    if cell.trained:
        text += f" ({median(cell.trained):.1f}, {max(cell.trained):.1f})"
    return text if cell.status == "ok" else f"{text} {cell.status}"


def strongest(cells: Sequence[DefenceCell]) -> str:
    """The attack whose worst picture came back best, whatever its status: a leak needs no verdict."""
    found = [cell for cell in cells if cell.psnr]
    if not found:
        return "–"
    cell = max(found, key=lambda one: max(one.psnr))
    name = cell.attack.split(":")[0] + (" knowing it" if cell.adaptive else "")
    return f"{max(cell.psnr):.1f} ({name})"


def numbers(scores: dict[str, list[Any]]) -> tuple[float, ...]:
    """The PSNR values that were computed."""
    return tuple(float(value) for value in scores.get("psnr", ()) if value is not None)


if __name__ == "__main__":
    main()
