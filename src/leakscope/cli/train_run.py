"""The work of `leakscope train`: run, continue, and leave behind what came of it."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from leakscope.cli.train import PLANE
from leakscope.cli.train_subject import TrainOptions, TrainSubject, load_subject
from leakscope.errors import RoundFailedError, UsageError
from leakscope.federated import Experiment, RoundRecord, Training, train_federated
from leakscope.federated.central import centralise
from leakscope.federated.checkpoints import HEADER
from leakscope.federated.keys import KeyAccuracies, evaluate_keys
from leakscope.files import private_folder, write_atomic, write_tensors
from leakscope.progress import Counter, show_progress
from leakscope.report.boundary import draw_boundary
from leakscope.report.training_page import TrainingCurve, render_training
from leakscope.runner.lock import hold
from leakscope.text import printable
from leakscope.version import __version__

RESULT, PAGE, MODEL = "result.json", "report.html", "model.safetensors"
_CENTRAL = "central"


def run(
    options: TrainOptions,
    experiment: Experiment,
    out: Path,
    *,
    central: bool,
    time_limit: float | None,
    quiet: bool,
    as_json: bool,
) -> str:
    """Train, write result, model and page into `out`, and return what is printed."""
    _refuse_other_results(out)
    private_folder(out)
    with hold(out / ".lock"):
        subject = load_subject(options)
        experiment = replace(experiment, task=subject.task)
        trainings = _train(subject, experiment, out, central=central, time_limit=time_limit, quiet=quiet)
        main = trainings[experiment.strategy.name]
        keys = evaluate_keys(main, subject.model, subject.test) if main.network.private else None
        found = describe(trainings, options, keys=keys)
        text = json.dumps(found, indent=1, allow_nan=False) + "\n"
        write_tensors(out / MODEL, main.public_state())
        write_atomic(out / RESULT, text.encode())
        drawings = _draw(trainings, subject) if options.data == PLANE else {}
        for name, drawing in drawings.items():
            write_atomic(out / f"boundary-{name}.svg", drawing.encode())
        curves = [TrainingCurve(name, training.rounds) for name, training in trainings.items()]
        title = f"{curves[0].name} on {Path(options.data).name}"
        page = render_training(curves, title=title, settings=found["settings"], keys=keys, drawings=drawings)
        write_atomic(out / PAGE, page.encode())
    if as_json:
        return text.rstrip("\n")
    return "\n".join([*show(found), "", f"report: {printable(out / PAGE)}", f"model: {printable(out / MODEL)}"])


def _refuse_other_results(out: Path) -> None:
    """A folder of another command would lose its result."""
    if os.path.lexists(out / HEADER):
        return
    for name in (RESULT, PAGE, "summary.json", "search.json"):
        if os.path.lexists(out / name):
            raise UsageError(f"{out} holds {name} of something else than this training; choose another --out")


def _train(
    subject: TrainSubject,
    experiment: Experiment,
    out: Path,
    *,
    central: bool,
    time_limit: float | None,
    quiet: bool,
) -> dict[str, Training]:
    """The training asked for, and the centralised one behind it."""
    plans = {experiment.strategy.name: (list(subject.clients), experiment, out)}
    if central:
        plans[_CENTRAL] = (*centralise(subject.clients, experiment), out / _CENTRAL)
    found = {}
    with show_progress(quiet=quiet) as progress:
        for name, (clients, plan, folder) in plans.items():
            # A round takes seconds to hours: each has its line.
            with progress.count(name, plan.rounds, every=0.0) as counter:
                try:
                    found[name] = train_federated(
                        subject.model,
                        clients,
                        subject.test,
                        plan,
                        directory=folder,
                        watch=_show_round(counter),
                        time_limit=time_limit,
                    )
                except RoundFailedError as error:
                    raise RoundFailedError(f"{error}; rounds before it are kept, the same command goes on") from error
    return found


def _show_round(counter: Counter) -> Any:
    def watch(record: RoundRecord) -> None:
        failed = f", {len(record.failures)} failed" if record.failures else ""
        counter.update(record.round + 1, f"accuracy {100 * record.accuracy:.1f} %, loss {record.loss:.4f}{failed}")

    return watch


def describe(
    trainings: dict[str, Training], options: TrainOptions, *, keys: KeyAccuracies | None = None
) -> dict[str, Any]:
    """The result as plain values; nothing in it depends on how long anything took."""
    main = next(iter(trainings.values()))
    experiment = main.experiment
    settings = {name: value for name, value in asdict(options).items() if value not in (None, ())}
    settings |= {
        "rounds": experiment.rounds,
        "local": "gradient" if experiment.local is None else experiment.local.settings(),
        "batch_size": experiment.batch_size,
        "strategy": experiment.strategy.name,
        "server": asdict(experiment.server),
        "defence": "none" if experiment.defence is None else repr(experiment.defence),
        "fraction": experiment.fraction,
        "min_completed": experiment.min_completed,
        "examples_by_client": [len(client.train) for client in main.clients],
    }
    # Where data lie is nobody's business; of a path the last part tells enough.
    settings = {
        name: Path(str(value)).name if name in ("data", "weights") else value for name, value in settings.items()
    }
    return {
        "leakscope": __version__,
        "settings": settings,
        "trainings": {
            name: [_plain(replace(record, seconds=0.0)) for record in training.rounds]
            for name, training in trainings.items()
        },
        "keys": None if keys is None else asdict(keys),
    }


def _plain(record: RoundRecord) -> dict[str, Any]:
    found = {name: value for name, value in asdict(record).items() if name != "seconds"}
    return json.loads(json.dumps(found, allow_nan=True), parse_constant=lambda _: None)


def show(found: dict[str, Any]) -> list[str]:
    """The result for people."""
    lines = []
    for name, rounds in found["trainings"].items():
        lines += [name, f"  {'round':>5}{'accuracy':>10}{'loss':>9}{'up':>13}{'down':>13}  clients"]
        lines += [f"  {_show_line(record)}" for record in rounds]
    if keys := found["keys"]:
        own = ", ".join(f"client {number} {_percent(value)}" for number, value in keys["own"].items())
        lines.append(f"with their own keys and locks: {own}")
        lines.append(
            f"with a random key: {_percent(keys['random_key'])}, with untrained locks: "
            f"{_percent(keys['initial_locks'])}, with both: {_percent(keys['random_and_initial'])}"
        )
    return lines


def _show_line(record: dict[str, Any]) -> str:
    loss = math.nan if record["loss"] is None else record["loss"]
    counted = " ".join(f"{number}:{weight:.2f}" for number, weight in record["weights"].items())
    failed = "".join(f"; client {one['client']} failed: {one['reason']}" for one in record["failures"])
    return (
        f"{record['round'] + 1:>5}{_percent(record['accuracy']):>10}{loss:>9.4f}{record['bytes_up']:>13,}"
        f"{record['bytes_down']:>13,}  {counted}{failed}"
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _draw(trainings: dict[str, Training], subject: TrainSubject) -> dict[str, str]:
    """Decision boundaries in the plane; a network that differs from client to client has none."""
    test = subject.test
    return {
        name: draw_boundary(training.model, test.inputs, test.targets, title=name)
        for name, training in trainings.items()
        if not training.network.private
    }
