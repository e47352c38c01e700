"""Run a network once, look at its layers while it runs, and leave it as it was.

Buffers are cloned, hooks are taken off again, and the caller's parameters and random numbers stay untouched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from leakscope.types import Tensors

# Called with the name of a layer and what it receives, before it runs.
Before = Callable[[str, tuple[Any, ...]], None]
# Called with the name of a layer and what it returned; anything but None takes the place of that.
After = Callable[[str, Any], Any]


def run(
    model: nn.Module,
    inputs: Tensor,
    *,
    parameters: Tensors | None = None,
    layers: Iterable[str] = (),
    before: Before | None = None,
    after: After | None = None,
    seed: int | None = None,
) -> Any:
    """What `model` returns for `inputs`; differentiable unless the caller says `torch.no_grad`.

    Args:
        model: the network; it keeps its buffers.
        inputs: [n, …].
        parameters: used instead of the model's own, by name; all others are its own.
        layers: names, as `named_modules` has them, of the layers that `before` and `after` look at.
        before: looks at what a layer receives.
        after: looks at what a layer returns, and may replace it.
        seed: what the pass draws comes from here, and torch's global generator stays as it was; None lets it draw.
    """
    state = {name: value.clone() for name, value in model.named_buffers()}
    with ExitStack() as stack:
        for name in layers:
            layer = model.get_submodule(name)
            if before is not None:
                stack.callback(layer.register_forward_pre_hook(_looking(name, before)).remove)
            if after is not None:
                stack.callback(layer.register_forward_hook(_replacing(name, after)).remove)
        if seed is not None:
            stack.enter_context(torch.random.fork_rng())
            torch.manual_seed(seed)
        return torch.func.functional_call(model, {**state, **(parameters or {})}, (inputs,))


def record_inputs(model: nn.Module, inputs: Tensor, layers: Iterable[str]) -> dict[str, list[Tensor]]:
    """What each of `layers` receives, once for every time it runs, in the order of execution; without derivatives."""
    found: dict[str, list[Tensor]] = {}

    def record(name: str, received: tuple[Any, ...]) -> None:
        found.setdefault(name, []).append(received[0])

    with torch.no_grad():
        run(model, inputs, layers=layers, before=record)
    return found


def _looking(name: str, before: Before) -> Callable[[nn.Module, tuple[Any, ...]], None]:
    def hook(_module: nn.Module, received: tuple[Any, ...]) -> None:
        before(name, received)

    return hook


def _replacing(name: str, after: After) -> Callable[[nn.Module, tuple[Any, ...], Any], Any]:
    def hook(_module: nn.Module, _received: tuple[Any, ...], output: Any) -> Any:
        return after(name, output)

    return hook
