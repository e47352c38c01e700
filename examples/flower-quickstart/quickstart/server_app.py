"""The server: federated averaging, every update captured and one of each round attacked."""

from __future__ import annotations

import torch
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

import leakscope as ls
from leakscope.federated import flower  # leakscope
from quickstart.task import MOMENTUM, Net, normalised_net, pictures

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for the configured number of rounds."""
    told = context.run_config
    torch.manual_seed(0)
    strategy = FedAvg(fraction_evaluate=float(told["fraction-evaluate"]))
    local = ls.LocalTraining(
        lr=float(told["learning-rate"]),
        epochs=int(told["local-epochs"]),
        batch_size=int(told["batch-size"]),
        momentum=MOMENTUM,
        shuffle=True,
    )
    audit = flower.RoundAudit((3, 32, 32), truth=pictures)  # leakscope
    strategy = flower.Capture(strategy, str(told["capture-folder"]), model=normalised_net, local=local, audit=audit)
    strategy.start(grid=grid, initial_arrays=ArrayRecord(Net().state_dict()), num_rounds=int(told["num-server-rounds"]))
