"""Networks that take whole numbers: which embedding receives them, and made-up texts for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from leakscope.networks.forward import run
from leakscope.tasks import Classification, NextToken, Task, unwrap

_FORWARD_ERRORS = (RuntimeError, ValueError, TypeError, IndexError)


@dataclass(frozen=True)
class TokenLayer:
    """The embedding that receives the tokens themselves.

    Attributes:
        name: of its weight as `named_parameters` has it: the first, where it is shared with other layers.
        layer: the embedding.
        tied: whether a layer of another name uses the same weight.
    """

    name: str
    layer: nn.Embedding
    tied: bool


def find_token_layer(model: nn.Module, input_shape: tuple[int, ...]) -> TokenLayer | None:
    """The embedding that a network feeds its inputs to as they come; None where it takes numbers with a fraction.

    Positions and segments go through embeddings as well; what they receive does not change with the input.
    """
    found = {name: module for name, module in model.named_modules() if isinstance(module, nn.Embedding)}
    if not found:
        return None
    # Every embedding that tells two things apart takes zeros and ones.
    bits = torch.randint(0, 2, (2, *input_shape), generator=torch.Generator().manual_seed(0))
    probe = bits.to(next(iter(found.values())).weight.device)
    receiving: list[str] = []

    def record(name: str, received: tuple[Any, ...]) -> None:
        if isinstance(received[0], Tensor) and received[0].shape == probe.shape and torch.equal(received[0], probe):
            receiving.append(name)

    try:
        with torch.no_grad():
            run(model, probe, layers=found, before=record, seed=0)
    except _FORWARD_ERRORS:
        return None
    if not receiving:
        return None
    layer = found[receiving[0]]
    names = [name for name, value in model.named_parameters(remove_duplicate=False) if value is layer.weight]
    return TokenLayer(names[0], layer, len(names) > 1)


def usual_task(model: nn.Module, input_shape: tuple[int, ...]) -> Task:
    """What a network is taken to be for where nobody says it.

    It predicts tokens where it takes tokens and has scores [n, length, words]; any other tells classes apart.
    """
    tokens = find_token_layer(model, input_shape)
    if tokens is None or len(input_shape) != 1:
        return Classification()
    try:
        with torch.no_grad():
            scores = unwrap(run(model, noise_tokens(tokens.layer, (2, *input_shape)), seed=0))
    except _FORWARD_ERRORS:
        return Classification()
    by_place = isinstance(scores, Tensor) and scores.ndim == 3 and scores.shape[:2] == (2, *input_shape)
    return NextToken() if by_place else Classification()


def noise_tokens(layer: nn.Embedding, shape: tuple[int, ...], *, seed: int = 0) -> Tensor:
    """Made-up texts: every token as likely as any other."""
    drawn = torch.randint(0, layer.num_embeddings, shape, generator=torch.Generator().manual_seed(seed))
    return drawn.to(layer.weight.device)
