"""`leakscope train`: train a network federatedly, with curves, checkpoints and continuation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from leakscope.cli.failures import use_run_folder
from leakscope.cli.file_budget import budget_option
from leakscope.cli.terminal import echo

if TYPE_CHECKING:
    from leakscope.federated import Aggregator, Experiment

# A task of its own, beside the data sets: two clients in the plane.
PLANE = "two-gaussians"
USUAL_LOCAL = "lr=0.05,epochs=1,batch=32,shuffle=true"


def train(
    data: str = typer.Option(
        help="Data set, folder of pictures, .npz file, package.module:function for data of your own, or two-gaussians."
    ),
    model: str | None = typer.Option(
        None, help="Reference network, or package.module:function that returns one; two-gaussians brings its own."
    ),
    out: Path = typer.Option(Path("runs/train"), help="Directory of the training; the same command continues it."),
    clients: int = typer.Option(4, help="Number of clients."),
    partition: str = typer.Option("iid", help="How examples are dealt to them: iid, by-class or dirichlet."),
    alpha: float | None = typer.Option(None, help="Of dirichlet: small gives each client few classes (default 0.5)."),
    shards: int | None = typer.Option(None, help="Of by-class: runs of one label that a client gets (default 2)."),
    examples: int | None = typer.Option(None, help="Training examples to draw (default: all)."),
    test_examples: int | None = typer.Option(None, help="Test examples to draw (default: all)."),
    held_out: float = typer.Option(0.1, help="Share of its examples, the last ones, that a client validates with."),
    rounds: int = typer.Option(10, help="Rounds; a larger number continues a finished training."),
    local: str = typer.Option(
        USUAL_LOCAL, help="How clients train, e.g. lr=0.01,epochs=2,batch=8,momentum=0.9; none: they send a gradient."
    ),
    batch_size: int | None = typer.Option(None, help="With --local none: examples of one gradient (default: all)."),
    strategy: str = typer.Option(
        "fedavg", help="fedavg, or fedboosting with formula=released|thesis, training_loss=false, mixing=0.9."
    ),
    server: str | None = typer.Option(
        None, help="The server's optimiser, e.g. sgd:lr=1,momentum=0.9 or adam:lr=0.01 (default: sgd:lr=1)."
    ),
    fraction: float = typer.Option(1.0, help="Share of the clients that take part in a round."),
    min_completed: float = typer.Option(1.0, help="Share of these that must complete it, else the round fails."),
    time_limit: float | None = typer.Option(
        None, help="Seconds of the server's clock after which a client is ended and does not count (default: no limit)."
    ),
    defence: str = typer.Option("none", help="Defence with options, e.g. clip:norm=1+gaussian-noise:sigma=0.01."),
    seal: str | None = typer.Option(
        None, help="Seal and sign what clients send: ckks or paillier. Keys are made for the run and not kept."
    ),
    poison: list[str] | None = typer.Option(
        None, help="A client that works against the others: 2:flip turns its labels, 2:factor=-1 its update."
    ),
    central: bool = typer.Option(False, help="Also train on all examples in one place, as many of them seen."),
    weights: Path | None = typer.Option(None, help="Weights to start from: .safetensors, .pt, .pth or .npz."),
    classes: int | None = typer.Option(None, help="Classes of a reference network (default: those of the data)."),
    normalise: str | None = typer.Option(None, help="Constants of a reference network's first layer, e.g. cifar10."),
    size: int | None = typer.Option(None, help="Side to bring pictures to; needed where they differ."),
    bounds: str | None = typer.Option(None, help="Range of your own data, low,high; none where it has none."),
    freeze_batch_norm: bool = typer.Option(False, help="Keep batch-norm layers on their stored statistics."),
    seed: int = typer.Option(0, help="Seed of weights, partition, clients and defence."),
    budget_mb: float | None = budget_option(),
    as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
    quiet: bool = typer.Option(False, help="No progress."),
) -> None:
    """Train a network on clients' examples, round after round; killed, the same command continues.

    Example: leakscope train --data fashion-mnist --model mlp --clients 5 --partition by-class --rounds 20
    --strategy fedboosting --out runs/boosting
    """
    from leakscope.catalogue import check_data, check_network, check_spec
    from leakscope.errors import UsageError

    if not 0 <= held_out < 1:
        raise UsageError(f"--held-out must be a share from 0 to below 1, got {held_out}")
    if time_limit is not None and not time_limit > 0:
        raise UsageError(f"--time-limit must be a number of seconds above 0, got {time_limit}")
    if data != PLANE:
        check_data(data)
    if model is not None:
        check_network(model)
    check_spec("defence", defence)
    # From here on torch is imported.
    from leakscope.cli.train_run import run
    from leakscope.cli.train_subject import TrainOptions

    options = TrainOptions(
        data=data,
        model=model,
        clients=clients,
        partition=partition,
        alpha=alpha,
        shards=shards,
        examples=examples,
        test_examples=test_examples,
        held_out=held_out,
        poison=tuple(poison or ()),
        weights=weights,
        classes=classes,
        normalise=normalise,
        size=size,
        bounds=bounds,
        seed=seed,
    )
    experiment = _experiment(
        rounds=rounds,
        local=local,
        batch_size=batch_size,
        strategy=strategy,
        server=server,
        defence=defence,
        aggregator=_aggregator(seal, clients=clients),
        fraction=fraction,
        min_completed=min_completed,
        freeze_batch_norm=freeze_batch_norm,
        seed=seed,
    )
    use_run_folder(out)
    echo(run(options, experiment, out, central=central, time_limit=time_limit, quiet=quiet, as_json=as_json))


def _aggregator(seal: str | None, *, clients: int) -> Aggregator:
    from leakscope.federated import PlainAggregator, SealedAggregator, keygen

    return PlainAggregator() if seal is None else SealedAggregator.of(keygen(seal), range(clients))


def _experiment(*, local: str, strategy: str, server: str | None, defence: str, **settings: object) -> Experiment:
    from leakscope.cli.local_options import read_local
    from leakscope.federated import Experiment, ServerOptimiser
    from leakscope.federated.specs import server_from_spec, strategy_from_spec
    from leakscope.registry import defence_from_spec

    return Experiment(
        local=None if local == "none" else read_local(local),
        strategy=strategy_from_spec(strategy),
        server=ServerOptimiser() if server is None else server_from_spec(server),
        defence=defence_from_spec(defence),
        **settings,  # type: ignore[arg-type]
    )
