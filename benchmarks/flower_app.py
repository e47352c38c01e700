"""The quick-start app of examples/flower-quickstart on Flower's simulation engine: captured, audited, defended, gated.

    LEAKSCOPE_DATA=<folder> python benchmarks/flower_app.py [piece …] [--out runs/flower-app] [--steps 1000]

Pieces, each kept in a file of the folder and not repeated once it is there:

- `captured`: PSNR of every client's update by round, with the local training given;
- `untold`: the same updates without it, and what the diagnosis says;
- `pruned`: the same app with the pruning mod, attacked unaware of it;
- `gated`: how many updates the gate mod keeps back, without a defence and with strong noise;
- `overhead`: processor time of a client's training with each mod over that without, in turn, and the mod's own time
  over that of a round, which says the same with less of the machine's noise;
- `agreement`: the same experiments in process and on Flower: largest difference of weights, and seconds.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "examples" / "flower-quickstart"))

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict  # noqa: E402
from flwr.clientapp import ClientApp  # noqa: E402
from flwr.serverapp import Grid, ServerApp  # noqa: E402
from flwr.serverapp.strategy import FedAvg  # noqa: E402
from flwr.supercore.task_identity import TaskIdentity  # noqa: E402
from quickstart import task  # noqa: E402

import leakscope as ls  # noqa: E402
from leakscope.federated import Client, Experiment, FedBoosting, flower, train_federated  # noqa: E402
from leakscope.models import load_weights  # noqa: E402

CLIENTS = 3
EPOCHS, LR, BATCH = 1, 0.01, 32
LOCAL = ls.LocalTraining(lr=LR, epochs=EPOCHS, batch_size=BATCH, momentum=task.MOMENTUM, shuffle=True)
MODS = {
    "prune": "prune:fraction=0.9",
    "gaussian-noise": "gaussian-noise:sigma=0.001",
    "laplacian-noise": "laplacian-noise:scale=0.001",
    "clip": "clip:norm=1",
    "top-k": "top-k:share=0.01",
    "sign": "sign",
    "quantise": "quantise",
    "dp-fedavg": "dp-fedavg",
}
# Of training with and without a mod, in turn; the first pair is dropped.
PAIRS = 15


def quick_start(mods: Sequence[Any]) -> ClientApp:
    """The app's client under some mods."""
    app = ClientApp(mods=list(mods))

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return train_once(message, task.pictures(int(context.node_config["partition-id"])))

    return app


def train_once(message: Message, batch: ls.Batch) -> Message:
    """What the app's train function does."""
    net = task.Net()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    loss = task.train(net, batch, epochs=EPOCHS, lr=LR, batch_size=BATCH)
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(batch)})
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=message)


def run(folder: Path, mods: Sequence[Any], told: argparse.Namespace, *, local: ls.LocalTraining | None) -> Any:
    """Simulate the app with every update captured and attacked; returns the log."""
    # What a killed run left.
    shutil.rmtree(folder, ignore_errors=True)
    audit = flower.RoundAudit(
        (3, 32, 32),
        attack=f"inverting-gradients:steps={told.steps}",
        sample=CLIENTS,
        seconds=told.seconds,
        truth="quickstart.task:pictures",
    )
    kept: dict[str, Any] = {}
    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        torch.manual_seed(0)
        strategy = flower.Capture(
            FedAvg(fraction_evaluate=0.0, min_train_nodes=CLIENTS, min_available_nodes=CLIENTS),
            folder,
            model="quickstart.task:normalised_net",
            local=local,
            audit=audit,
        )
        kept["log"] = strategy.log
        strategy.start(grid=grid, initial_arrays=ArrayRecord(task.Net().state_dict()), num_rounds=told.rounds)

    flower.simulate_apps(server, quick_start([flower.partition_mod, *mods]), clients=CLIENTS)
    return kept["log"]


def audit_rows(log: Any) -> list[dict[str, Any]]:
    """What the audit found, and what it did not get to."""
    for counts in log.counts:
        print(
            f"round {counts.round}: {counts.captured} of {counts.replies} replies captured, {counts.audited} attacked, "
            f"{counts.skipped} skipped, {len(counts.failed)} without an update"
        )
    for row in log.rows:
        print(f"round {row['round']}, {row['name']}: {row['status']}, best {row['worst_psnr']} dB, {row['reason']}")
    return list(log.rows)


def captured(told: argparse.Namespace) -> Any:
    """PSNR by round with the local training given."""
    return audit_rows(run(told.out / "given", (), told, local=LOCAL))


def untold(told: argparse.Namespace) -> Any:
    """The captured files attacked as if nothing were known of the training, and the diagnosis."""
    rows = []
    attack = ls.get_attack("inverting-gradients", steps=told.steps)
    for path in sorted((told.out / "given").glob("round-*/updates/client-*.safetensors")):
        model = task.normalised_net()
        load_weights(model, path.parents[1] / "model.safetensors")
        update = replace(ls.load_update(path), local=None)
        truth = task.pictures(int(path.stem.rpartition("-")[2]))
        seen = ls.observe(model, update, scenario="C", input_shape=(3, 32, 32))
        found = attack.reconstruct(seen)
        diagnosis = ls.diagnose(seen, found)
        psnr = ls.score(found, truth).psnr
        rows.append(
            {
                "file": f"{path.parents[1].name}/{path.stem}",
                "status": str(found.status),
                "worst_psnr": float(psnr.max()),
                "diagnosis": "" if diagnosis is None else diagnosis.line,
            }
        )
        print(rows[-1], flush=True)
    return rows


def pruned(told: argparse.Namespace) -> Any:
    """PSNR by round under the pruning mod."""
    return audit_rows(run(told.out / "pruned", [flower.defence_mod(MODS["prune"], seed=0)], told, local=LOCAL))


def gated(told: argparse.Namespace) -> Any:
    """Updates kept back by the gate, without a defence and behind noise that drowns every picture."""
    found = {}
    for name, spec in (("no defence", None), ("gaussian-noise:sigma=0.1", "gaussian-noise:sigma=0.1")):
        gate = flower.gate_mod(
            18.0,
            model=task.normalised_net,
            data=lambda context: task.pictures(int(context.node_config["partition-id"])),
            attack=f"inverting-gradients:steps={told.steps}",
            local=LOCAL,
            defence=spec,
            seconds=told.seconds,
        )
        mods = [gate] if spec is None else [gate, flower.defence_mod(spec, seed=0)]
        once = argparse.Namespace(**{**vars(told), "rounds": 1})
        log = run(told.out / f"gate-{'open' if spec is None else 'noise'}", mods, once, local=LOCAL)
        (counts,) = log.counts
        found[name] = {"sent": counts.captured, "kept back": [one["reason"] for one in counts.failed]}
        print(name, found[name], flush=True)
    return found


def overhead(told: argparse.Namespace) -> Any:
    """Processor time with each mod over that without, of one round of training on `--pictures` pictures."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    torch.set_num_threads(1)
    batch = ls.Batch(torch.rand(told.pictures, 3, 32, 32), torch.arange(told.pictures) % 10)
    content = RecordDict({"arrays": ArrayRecord(task.Net().state_dict()), "config": ConfigRecord({"server-round": 1})})
    found = {}

    def train(message: Message, context: Context) -> Message:
        return train_once(message, batch)

    for name, spec in MODS.items():
        mod, ratios, plain, own = flower.defence_mod(spec, seed=0), [], [], []
        for pair in range(PAIRS + 1):
            seconds = {side: time_once(mod, train, content, with_mod=side) for side in order(pair)}
            ratios.append(seconds[True] / seconds[False])
            plain.append(seconds[False])
            own.append(own_time(mod, content))
        low, middle, high = statistics.quantiles(ratios[1:], n=4)
        share = statistics.median(own[1:]) / statistics.median(plain[1:])
        steps = -(-told.pictures // BATCH) * EPOCHS
        found[name] = {"ratio": middle, "low": low, "high": high, "own share": share, "local steps": steps}
        print(
            f"{name:16} {middle:.3f}× [{low:.3f}, {high:.3f}] of a round of {steps} steps; "
            f"the mod itself {100 * share:.2f} %",
            flush=True,
        )
    return found


def order(pair: int) -> tuple[bool, bool]:
    """With and without the mod, or the other way round."""
    return (False, True) if pair % 2 else (True, False)


def time_once(mod: Any, train: Callable[..., Message], content: RecordDict, *, with_mod: bool) -> float:
    """Processor seconds of one message's way through a client."""
    message = Message(content, dst_node_id=7, message_type="train")
    context = Context(run_id=1, node_id=7, node_config={}, state=RecordDict(), run_config={})
    began = time.process_time()
    reply = mod(message, context, train) if with_mod else train(message, context)
    taken = time.process_time() - began
    assert reply.has_content(), reply.error.reason
    return taken


def own_time(mod: Any, content: RecordDict) -> float:
    """Processor seconds of the mod round a training that is there already."""
    weights = content["arrays"].to_torch_state_dict()
    trained = ArrayRecord({name: value + 0.01 * torch.randn(value.shape) for name, value in weights.items()})
    metrics = MetricRecord({"train_loss": 1.0, "num-examples": BATCH})

    def at_once(message: Message, context: Context) -> Message:
        return Message(RecordDict({"arrays": trained, "metrics": metrics}), reply_to=message)

    return time_once(mod, at_once, content, with_mod=True)


def agreement(told: argparse.Namespace) -> Any:
    """The same experiment in process and on Flower, with defences inside the training and as mods."""
    everything = ls.data.load("digits", split="all", count=300)
    test = ls.data.load("digits", split="test", count=100, seed=1)
    clients = [
        Client.of(number, ls.Batch(everything.inputs[number::4], everything.targets[number::4])) for number in range(4)
    ]
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    plan = Experiment(rounds=5, local=ls.LocalTraining(lr=0.1, epochs=2, batch_size=16, momentum=0.9, shuffle=True))
    cases: dict[str, tuple[Experiment, Sequence[Any], Experiment]] = {
        "fedavg": (plan, (), plan),
        "fedboosting": (replace(plan, strategy=FedBoosting()), (), replace(plan, strategy=FedBoosting())),
    }
    for spec in ("prune:fraction=0.9", "top-k:share=0.1"):
        name, _, option = spec.partition(":")
        key, _, value = option.partition("=")
        defended = replace(plan, defence=ls.get_defence(name, **{key: float(value)}))
        cases[f"{name}, inside"] = (defended, (), defended)
        cases[f"{name}, as a mod"] = (defended, [flower.defence_mod(spec, seed=0, sends="change")], plan)
    noisy = replace(plan, defence=ls.get_defence("gaussian-noise", sigma=0.001))
    cases["gaussian-noise, inside"] = (noisy, (), noisy)
    return {name: compare(name, model, clients, test, case) for name, case in cases.items()}


def compare(name: str, model: Any, clients: Sequence[Client], test: ls.Batch, case: Any) -> dict[str, float]:
    """Largest difference of any weight, and the seconds of both."""
    here, mods, there = case
    began = time.perf_counter()
    one = train_federated(model, clients, test, here)
    middle = time.perf_counter()
    # The server plays the whole experiment; clients whose defence is a mod train without it.
    two = flower.simulate(model, clients, test, there, mods=mods)
    end = time.perf_counter()
    pairs = zip(one.model.state_dict().values(), two.model.state_dict().values(), strict=True)
    worst = max(float((a.double() - b.double()).abs().max()) for a, b in pairs)
    found = {"largest difference": worst, "in process": middle - began, "on Flower": end - middle}
    print(
        f"{name:24} largest difference {worst:.3g}, {middle - began:.2f} s, on Flower {end - middle:.2f} s", flush=True
    )
    return found


PIECES: dict[str, Callable[[argparse.Namespace], Any]] = {
    "captured": captured,
    "untold": untold,
    "pruned": pruned,
    "gated": gated,
    "overhead": overhead,
    "agreement": agreement,
}


def main() -> None:
    """Run the pieces that are not there yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pieces", nargs="*", choices=[*PIECES, "all"], default="all")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "flower-app")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=1_800.0)
    parser.add_argument("--pictures", type=int, default=480)
    told = parser.parse_args()
    told.out = told.out.resolve()
    told.out.mkdir(parents=True, exist_ok=True)
    for name in PIECES if "all" in told.pieces else told.pieces:
        file = told.out / f"{name}.json"
        if file.exists():
            print(f"{name}: done before, {file.name}")
            continue
        print(f"== {name}", flush=True)
        file.write_text(json.dumps(PIECES[name](told), indent=1))
    write_table(told.out)


def write_table(folder: Path) -> None:
    """PSNR by round of the captured runs, side by side."""
    rows = []
    for name in ("captured", "pruned"):
        if (folder / f"{name}.json").exists():
            rows += [{"run": name, **row} for row in json.loads((folder / f"{name}.json").read_text())]
    if rows:
        with (folder / "psnr.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), extrasaction="ignore")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
