"""What one client step computes: a gradient, and the local loop around it; shared by client, attacker and fit."""

from __future__ import annotations

from leakscope.steps.gradient import replay_gradient, second_derivative, trainable
from leakscope.steps.local import replay_local, train

__all__ = ["replay_gradient", "replay_local", "second_derivative", "train", "trainable"]
