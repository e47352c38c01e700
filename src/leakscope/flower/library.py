"""The one file that imports Flower: its names, as the rest of this package uses them."""

from __future__ import annotations

import os

from leakscope.errors import MissingExtraError

# Read by both when they are imported. Who has set them keeps what was chosen.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

try:
    from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import Result, Strategy
    from flwr.simulation import run_simulation
except ImportError as error:
    raise MissingExtraError("Flower is not installed; install it with: pip install 'leakscope[flower]'") from error

__all__ = [
    "Array",
    "ArrayRecord",
    "ClientApp",
    "ConfigRecord",
    "Context",
    "Error",
    "Grid",
    "Message",
    "MetricRecord",
    "RecordDict",
    "Result",
    "ServerApp",
    "Strategy",
    "run_simulation",
]
