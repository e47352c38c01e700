"""Strategies, server optimisers and poison from one line of text, as they are written on a command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from leakscope.catalogue import parse_spec, refuse_non_finite
from leakscope.errors import UsageError, suggest
from leakscope.federated.experiment import ServerOptimiser
from leakscope.federated.fedboosting import FedBoosting
from leakscope.federated.poison import Poison
from leakscope.federated.strategy import FedAvg, Strategy

_STRATEGIES: dict[str, tuple[Callable[..., Strategy], tuple[str, ...]]] = {
    "fedavg": (FedAvg, ()),
    "fedboosting": (FedBoosting, ("formula", "training_loss", "mixing")),
}
_SERVERS = {"sgd": ("lr", "momentum"), "adam": ("lr", "eps")}
_TRUTHS = {"true": True, "false": False}


def strategy_from_spec(spec: str) -> Strategy:
    """A strategy from `fedavg` or `fedboosting:formula=thesis,training_loss=false,mixing=0.9`.

    Example:
        >>> strategy_from_spec("fedboosting:training_loss=false").name
        'fedboosting-released-no-training-loss'
    """
    name, options = _read("strategy", spec, _STRATEGIES)
    build, known = _STRATEGIES[name]
    _check_options(f"strategy {name!r}", options, known)
    return _build(spec, build, options)


def server_from_spec(spec: str) -> ServerOptimiser:
    """A server optimiser from `sgd:lr=1,momentum=0.9` or `adam:lr=0.01`."""
    name, options = _read("server optimiser", spec, _SERVERS)
    _check_options(f"server optimiser {name!r}", options, _SERVERS[name])
    return _build(spec, lambda **given: ServerOptimiser(rule=name, **given), options)  # type: ignore[arg-type]


def poison_from_spec(spec: str, *, classes: int) -> tuple[int, Poison]:
    """A client's number and what it does, from `2:flip`, `2:factor=-1` or `2:flip,factor=3`."""
    number, _, rest = spec.partition(":")
    try:
        client = int(number)
        parts = [part.strip() for part in rest.split(",")]
        factors = [float(part.removeprefix("factor=")) for part in parts if part != "flip"]
        if client < 0 or not rest or len(factors) > 1:
            raise ValueError
    except ValueError as error:
        raise UsageError(
            f"cannot read poison {spec!r}; write client:flip, client:factor=-1, or both with a comma"
        ) from error
    return client, Poison(classes if "flip" in parts else None, *factors)


def _read(kind: str, spec: str, known: Sequence[str] | dict[str, Any]) -> tuple[str, dict[str, Any]]:
    name, options = parse_spec(spec)
    if name not in known:
        raise UsageError(f"unknown {kind} {name!r}.{suggest(name, known)}")
    return name, {option: _TRUTHS.get(str(value).lower(), value) for option, value in options.items()}


def _check_options(what: str, options: dict[str, Any], known: tuple[str, ...]) -> None:
    for option, value in options.items():
        if option not in known:
            raise UsageError(f"{what} has no option {option!r}.{suggest(option, known) if known else ' It has none.'}")
        refuse_non_finite(f"{what}: {option}", value)


def _build(spec: str, build: Callable[..., Any], options: dict[str, Any]) -> Any:
    try:
        return build(**options)
    except (TypeError, AttributeError) as error:
        raise UsageError(
            f"{spec!r} has an option of the wrong kind: {error}; numbers and true or false are taken"
        ) from error
