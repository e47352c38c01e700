"""From a server's crafted model to the one a client trains: weights and buffers, and nothing that could listen.

A crafted module is code of the attacker's. With a hook, a method replaced on an instance, or a class of its own it
could write down what the client feeds it, and no attack may learn the private batch in that way.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from leakscope.errors import UsageError
from leakscope.networks import strip

# Hooks that torch calls for every module of the process.
_GLOBAL_HOOKS = (
    torch_module._global_forward_hooks,
    torch_module._global_forward_pre_hooks,
    torch_module._global_backward_hooks,
    torch_module._global_backward_pre_hooks,
)


def take_over(agreed: nn.Module, crafted: nn.Module, *, attack: str, changes_architecture: bool) -> nn.Module:
    """A copy of `agreed` with the values of `crafted`; with a changed architecture, `crafted` without its hooks."""
    if changes_architecture:
        _check_types(agreed, crafted, attack)
        return strip(crafted)
    ours, theirs = _state(agreed), _state(crafted)
    differing = [name for name in {**ours, **theirs} if not _same_form(ours.get(name), theirs.get(name))]
    if differing:
        raise UsageError(
            f"attack {attack!r} hands out a network with other weights than the agreed one ({differing[0]!r} and "
            f"{len(differing) - 1} more differ in name, shape or type); set changes_architecture = True on the attack, "
            "or change values only"
        )
    taken = strip(agreed)
    with torch.no_grad():
        for name, value in _state(taken).items():
            value.copy_(theirs[name])
    return taken


@contextmanager
def no_new_global_hooks() -> Iterator[None]:
    """Remove, at the end of the block, hooks on all modules of the process that were registered inside it."""
    before = [dict(hooks) for hooks in _GLOBAL_HOOKS]
    try:
        yield
    finally:
        for hooks, kept in zip(_GLOBAL_HOOKS, before, strict=True):
            for number in [number for number in hooks if number not in kept]:
                del hooks[number]


def _state(model: nn.Module) -> dict[str, Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _same_form(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None:
        return False
    return (one.shape, one.dtype, one.device) == (other.shape, other.dtype, other.device)


def _check_types(agreed: nn.Module, crafted: nn.Module, attack: str) -> None:
    """Only layers of torch, of leakscope and of the agreed network: another class may have a forward that records."""
    known = {type(module) for module in agreed.modules()}
    for name, module in crafted.named_modules():
        home = type(module).__module__
        if type(module) not in known and not home.startswith(("torch.nn.", "leakscope.")):
            raise UsageError(
                f"attack {attack!r} hands out a layer {name!r} of type {type(module).__name__}, which is neither "
                "torch's nor part of the agreed network: a layer of its own could record what the client feeds it; "
                "build the changed network of torch.nn layers"
            )
