"""What a client computes before it shares: a local loop around a gradient rule, with four places for a defence.

The same functions serve the client (detached) and the attacker (differentiable): a replay that
drifted from the step it replays would silently weaken every attack.
"""

from __future__ import annotations

from leakscope.client.gradient import example_gradients
from leakscope.client.sharing import check_targets, client_generator, digest, harden, run_client, share
from leakscope.client.step import ClientRun, ClientStep
from leakscope.steps.gradient import replay_gradient, second_derivative, trainable
from leakscope.steps.local import check_order, measure_step_bytes, replay_local, train

__all__ = [
    "ClientRun",
    "ClientStep",
    "check_order",
    "check_targets",
    "client_generator",
    "digest",
    "example_gradients",
    "harden",
    "measure_step_bytes",
    "replay_gradient",
    "replay_local",
    "run_client",
    "second_derivative",
    "share",
    "train",
    "trainable",
]
