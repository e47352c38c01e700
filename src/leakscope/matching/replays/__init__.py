"""Axis 3: how the attacker imagines the client computed its update."""

from __future__ import annotations

from leakscope.matching.replays.replay import (
    AsKnown,
    LocalSteps,
    OneGradient,
    Replay,
    count_local_steps,
    predict,
    scale_known,
    simulate,
)
from leakscope.matching.replays.simulation import Simulation, describe_optimiser

__all__ = [
    "AsKnown",
    "LocalSteps",
    "OneGradient",
    "Replay",
    "Simulation",
    "count_local_steps",
    "describe_optimiser",
    "predict",
    "scale_known",
    "simulate",
]
