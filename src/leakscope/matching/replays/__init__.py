"""Axis 3: how the attacker imagines the client computed its update."""

from __future__ import annotations

from leakscope.matching.replays.replay import AsKnown, LocalSteps, OneGradient, Replay, predict, scale_known

__all__ = [
    "AsKnown",
    "LocalSteps",
    "OneGradient",
    "Replay",
    "predict",
    "scale_known",
]
