"""A network by name: one of the reference networks, or what a function of the user's own returns."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from leakscope.errors import UsageError, suggest
from leakscope.models.build import build
from leakscope.models.weights import load_weights
from leakscope.networks import freeze, settle
from leakscope.tasks import Task
from leakscope.user_code import call, import_function, is_code, report_errors

_EXPECTED = "package.module:function, a function without arguments that returns a torch.nn.Module"
# What may be chosen beside the data; `seed` and `normalise` are taken out before.
_OPTIONS = ("activation", "init", "hidden")
_OF_THE_DATA = {
    "num_classes": "--classes or the data",
    "in_channels": "the shape of the data",
    "image_size": "--size or the data",
    "name": "--model",
    "normalise": "--normalise",
    "seed": "--model-seed",
}
_REMEDY = (
    "pass the weights the client started from as --weights (attack also takes them as --before), "
    "or load or seed them inside the function"
)


def load_network(
    name: str,
    *,
    shape: tuple[int, ...],
    classes: int | None = None,
    weights: str | PathLike[str] | None = None,
    normalise: str | None = None,
    seed: int | None = None,
    options: Mapping[str, Any] | None = None,
    task: Task | None = None,
    allow_code: bool = False,
    budget_mb: float | None = None,
) -> nn.Module:
    """Build the network that is attacked or audited; an option that would have no effect is refused.

    Args:
        name: A reference network, or `package.module:function` for one of the user's own.
        shape: Shape of one input.
        classes: Outputs of a reference network; 10 unless given.
        weights: File to load weights from; see `load_weights`.
        normalise: Constants of a reference network's first layer.
        seed: Seed of a reference network's weights; 0 unless given.
        options: Further options of `build`, for a reference network.
        task: What the network is for; classification unless given.
        allow_code: Whether `name` comes from the command line, so that the user's own code may run.
        budget_mb: Most memory the weights in a file may take; see `load_weights`.

    Raises:
        UsageError: An unknown name, an option without effect, or an error in the user's own code.
        BadInputError: The weights do not fit, or the network cannot be used.
    """
    if weights is not None and seed is not None:
        raise UsageError("--model-seed has no effect beside --weights, which replace what it draws; drop one of them")
    if is_code(name):
        _refuse_options(name, classes=classes, normalise=normalise, model_seed=seed, model_options=options or None)
        network = _build_own(name, has_weights=weights is not None, allow_code=allow_code)
    else:
        network = _build_reference(
            name,
            shape,
            num_classes=10 if classes is None else classes,
            normalise=normalise,
            seed=seed or 0,
            options=options or {},
        )
    if weights is not None:
        load_weights(network, weights, budget_mb=budget_mb)
    if is_code(name):
        _check_runs(name, network, shape, task)
    return network


def _refuse_options(name: str, **given: object) -> None:
    for option, value in given.items():
        if value is not None:
            raise UsageError(
                f"--{option.replace('_', '-')} is for reference networks and has no effect on {name!r}, which is built "
                "by your own function; drop it"
            )


def _build_reference(
    name: str, shape: tuple[int, ...], *, num_classes: int, normalise: str | None, seed: int, options: Mapping[str, Any]
) -> nn.Module:
    if len(shape) != 3:
        raise UsageError(
            f"reference networks take images of shape channels,height,width, got inputs of shape {list(shape)}; "
            "for other inputs name a network of your own, package.module:function"
        )
    for option in options:
        if option in _OF_THE_DATA:
            raise UsageError(
                f"model_options of {name!r} give {option!r}, which {_OF_THE_DATA[option]} already says; leave it out"
            )
        if option not in _OPTIONS:
            raise UsageError(f"model_options of {name!r} have no {option!r}.{suggest(str(option), _OPTIONS)}")
    size = (shape[1], shape[2])
    return build(
        name, in_channels=shape[0], image_size=size, num_classes=num_classes, normalise=normalise, seed=seed, **options
    )


def _build_own(name: str, *, has_weights: bool, allow_code: bool) -> nn.Module:
    """Call the user's function.

    Without weights to load, the network is built twice: where the two differ, its weights are drawn at
    random, they are not the client's, and an attack on them ends in noise that looks like protection.
    """
    function = import_function(name, allow_code=allow_code, expected=_EXPECTED)
    network, *second = (
        _check_module(name, call(name, function, expected=_EXPECTED)) for _ in range(1 if has_weights else 2)
    )
    for other in second:
        _check_repeatable(name, network, other)
    return network


def _check_module(name: str, network: object) -> nn.Module:
    if not isinstance(network, nn.Module):
        raise UsageError(f"{name!r} must return a torch.nn.Module, got {type(network).__name__}; expected {_EXPECTED}")
    return network


def _check_repeatable(name: str, first: nn.Module, second: nn.Module) -> None:
    one, other = _tensors(first), _tensors(second)
    if any(value is other.get(key) for key, value in one.items()):
        raise UsageError(
            f"{name!r} returns the same network at each call, so nothing tells whether its weights are the same in "
            f"each run; build a new one at each call, or {_REMEDY}"
        )
    differing = [key for key in {**one, **other} if not _are_same(one.get(key), other.get(key))]
    if differing:
        raise UsageError(
            f"{name!r} builds other weights at each call ({differing[0]!r} and {len(differing) - 1} more of {len(one)} "
            f"tensors differ), so they cannot be the client's; {_REMEDY}"
        )


def _tensors(network: nn.Module) -> dict[str, Tensor]:
    return {**dict(network.named_parameters()), **dict(network.named_buffers())}


def _are_same(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None or any(is_lazy(value) or value.is_meta for value in (one, other)):
        return False
    return one.dtype == other.dtype and torch.equal(one, other)


def _check_runs(name: str, network: nn.Module, shape: tuple[int, ...], task: Task | None) -> None:
    """Run the user's forward once, here, where any error it raises can be told in one line."""
    with report_errors(f"the network of {name!r} does not run on inputs of shape {list(shape)}", "mend its forward"):
        settle(freeze(network)[0], shape, task=task)
