"""A private copy of a network, without anything that a caller hung on it and without chance in its dropout layers."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from leakscope.errors import BadInputError
from leakscope.networks.layers import norm_statistics

_DROPOUT = (nn.modules.dropout._DropoutNd,)
# Hooks from here belong to the network: weight and spectral normalisation, pruning, and a draw of the attacker's own.
_OWN_HOOKS = ("torch.nn.utils.", "leakscope.networks.")
_RUNNING_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_FILE_HOOKS = (
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)


def copy_network(model: nn.Module) -> nn.Module:
    """A copy that shares nothing with `model`.

    Tensors that a forward pass left behind in attributes (`weight_norm` keeps the weight it computed) have a history,
    and torch refuses to copy those; their values are copied.
    """
    computed = (value for module in model.modules() for value in _tensors(list(vars(module).values())))
    memo: dict[int, Any] = {id(value): value.detach().clone() for value in computed if not value.is_leaf}
    return copy.deepcopy(model, memo)


def strip(model: nn.Module) -> nn.Module:
    """A copy of `model` that is the network and nothing else.

    It has none of the caller's hooks and no attribute of an instance that hides a method (`module.forward = spy`):
    either could carry what the network has seen. What torch's own `weight_norm`, `spectral_norm` and pruning hooked
    in stays, for it is part of the network.
    """
    return _strip_copy(model)[0]


def freeze(model: nn.Module) -> tuple[nn.Module, tuple[str, ...]]:
    """Return a private copy of `model` for observations, stripped, with notes on what had to change.

    The copy keeps the training or evaluation mode of the original. Dropout is switched off:
    the attacker does not know the mask.
    """
    check_weights(model)
    frozen, changed = _strip_copy(model)
    notes: list[str] = []
    if changed:
        notes.append(
            f"the model carried hooks or replaced methods ({', '.join(changed[:3])}"
            f"{', …' if len(changed) > 3 else ''}), which the attacker does not get; if they change what the network "
            "computes, make them a part of it"
        )
    for name, module in frozen.named_modules():
        if isinstance(module, _DROPOUT) and module.training and module.p > 0:
            module.eval()
            notes.append(
                f"dropout {name!r} was active at the client; the attacker does not know its mask and leaves it out: "
                "a low score is not evidence of protection, since masks can be estimated"
            )
    return frozen, tuple(notes)


def check_weights(model: nn.Module) -> None:
    """Insist on weights that exist, can be differentiated and can be replaced in a forward pass."""
    if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        raise BadInputError(f"the model is wrapped in {type(model).__name__}; give the network inside it, model.module")
    if isinstance(model, torch.jit.ScriptModule):
        raise BadInputError(
            "the model is a TorchScript module, whose weights cannot be replaced; give the Python module"
        )
    lazy = [name for name, value in model.named_parameters() if is_lazy(value)]
    if lazy:
        raise BadInputError(
            f"parameter {lazy[0]!r} has no shape yet (a lazy module); run one example through the model first"
        )
    quantised = [name for name, part in model.named_modules() if ".quantized" in type(part).__module__]
    if quantised:
        raise BadInputError(
            f"layer {quantised[0]!r} is quantised and its weights get no gradient; audit the floating-point model "
            "that the client trains"
        )


@torch.no_grad()
def batch_statistics(model: nn.Module, inputs: Tensor) -> dict[str, Tensor]:
    """Mean and variance of what each batch-normalisation layer receives for `inputs`.

    The inputs may be private: a copy of `model` sees them and is thrown away, whatever its modules remember.
    """
    found: dict[str, Tensor] = {}
    for name, (mean, variance) in norm_statistics(copy_network(model), inputs).items():
        found |= {f"{name}.mean": mean, f"{name}.var": variance}
    return found


def _strip_copy(model: nn.Module) -> tuple[nn.Module, list[str]]:
    """A stripped copy, and the names of what was left out that runs in a forward or backward pass."""
    copied = copy_network(model)
    left_out: list[str] = []
    for name, module in copied.named_modules():
        gone = [kind for kind in _RUNNING_HOOKS if _drop_hooks(module, kind)]
        for kind in _FILE_HOOKS:
            _drop_hooks(module, kind)
        for attribute in _shadows(module):
            gone.append(attribute)
            object.__delattr__(module, attribute)
        left_out += [f"{what.strip('_').replace('_', ' ')} of {name or type(module).__name__!r}" for what in gone]
    return copied, left_out


def _drop_hooks(module: nn.Module, kind: str) -> bool:
    """Take the caller's hooks of one kind off; whether there were any."""
    hooks: dict[int, Any] = vars(module).get(kind, {})
    foreign = [key for key, hook in hooks.items() if not _home(hook).startswith(_OWN_HOOKS)]
    for key in foreign:
        del hooks[key]
    return bool(foreign)


def _shadows(module: nn.Module) -> list[str]:
    """Attributes of the instance that hide a method of its class; a class without a forward of its own keeps one."""
    methods = {name: _method(type(module), name) for name, value in vars(module).items() if callable(value)}
    return [name for name, method in methods.items() if method and method is not nn.Module.forward]


def _method(kind: type, name: str) -> FunctionType | None:
    found = next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)
    return found if isinstance(found, FunctionType) else None


def _home(hook: Any) -> str:
    """The module a hook was written in, with a dot behind it."""
    if isinstance(hook, nn.modules.module._WrappedHook):
        hook = hook.hook
    if isinstance(hook, MethodType):
        hook = hook.__func__
    named = hook if isinstance(hook, FunctionType) else type(hook)
    return f"{named.__module__}."


def _tensors(values: list[Any]) -> Iterator[Tensor]:
    """Tensors among `values`, also inside lists, tuples and mappings."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(list(value))
        elif isinstance(value, dict):
            yield from _tensors(list(value.values()))
