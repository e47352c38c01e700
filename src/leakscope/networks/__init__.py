"""The network as an attacker can use it: a private copy, run without side effects, and taken to its layers."""

from __future__ import annotations

from leakscope.networks.chain import LayerChain, Step, take_apart, trace
from leakscope.networks.forward import record_inputs, run
from leakscope.networks.freeze import batch_statistics, check_weights, copy_network, freeze, strip
from leakscope.networks.kinds import NetworkKind, kind_of
from leakscope.networks.layers import (
    InputNormalisation,
    find_head,
    find_normalisation,
    is_normalisation,
    norm_layers,
    norm_statistics,
    normalisation_constants,
)
from leakscope.networks.settle import Settled, check_output, noise_inputs, settle, tokens_refused
from leakscope.networks.skips import is_residual_with_stored_statistics
from leakscope.networks.tokens import TokenLayer, find_token_layer, noise_tokens, usual_task
from leakscope.networks.unknowns import UnknownTensors, read_unknowns, start_unknowns, take_examples

__all__ = [
    "InputNormalisation",
    "LayerChain",
    "NetworkKind",
    "Settled",
    "Step",
    "TokenLayer",
    "UnknownTensors",
    "batch_statistics",
    "check_output",
    "check_weights",
    "copy_network",
    "find_head",
    "find_normalisation",
    "find_token_layer",
    "freeze",
    "is_normalisation",
    "is_residual_with_stored_statistics",
    "kind_of",
    "noise_inputs",
    "noise_tokens",
    "norm_layers",
    "norm_statistics",
    "normalisation_constants",
    "read_unknowns",
    "record_inputs",
    "run",
    "settle",
    "start_unknowns",
    "strip",
    "take_apart",
    "take_examples",
    "tokens_refused",
    "trace",
    "usual_task",
]
