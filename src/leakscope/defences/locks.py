"""The layers of a key-lock, and where in a network they stand."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from leakscope import rng as random
from leakscope.defences.insert import build_linear, replace_layer
from leakscope.errors import UnsuitableError
from leakscope.networks import UnknownTensors, copy_network
from leakscope.types import Observation, Tensors

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda value: value,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
}
_NORMS = {nn.Conv1d: nn.BatchNorm1d, nn.Conv2d: nn.BatchNorm2d, nn.Conv3d: nn.BatchNorm3d, nn.Linear: nn.BatchNorm1d}
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_NORMALISATIONS = (nn.modules.batchnorm._NormBase, nn.GroupNorm)


class Lock(nn.Module):
    """γ·x + β per channel, with γ = act(FC_s(key)) and β = act(FC_b(key)); behind another lock, of its γ and β."""

    key: Tensor

    def __init__(
        self, channels: int, key: Tensor, *, activation: str, rng: Generator, before: Lock | None = None
    ) -> None:
        """Draw both layers from `rng`; `before` is the lock whose γ and β are this one's keys."""
        super().__init__()
        width = key.numel() if before is None else before.channels
        self.channels, self.activation = channels, activation
        self.scale = build_linear(width, channels, rng, like=key)
        self.shift = build_linear(width, channels, rng, like=key)
        # In a tuple, so that its layers are registered once, where it stands itself.
        self.before = () if before is None else (before,)
        if before is None:
            self.register_buffer("key", key)

    def values(self) -> tuple[Tensor, Tensor]:
        """γ and β."""
        keys = self.before[0].values() if self.before else (self.key, self.key)
        act = _ACTIVATIONS[self.activation]
        return act(self.scale(keys[0])), act(self.shift(keys[1]))

    def forward(self, x: Tensor) -> Tensor:
        """Scale and shift the channels of x, [n, channels, …]."""
        return _apply(x, *self.values())


class LockOfUnknownKey(Lock, UnknownTensors):
    """The lock to a server that knows its layers and not its key."""

    def start_unknowns(self, examples: int, rng: Generator) -> dict[str, Tensor]:
        """A key as clients draw theirs."""
        return {} if self.before else {"key": random.uniform(tuple(self.key.shape), rng, like=self.key)}

    def read_unknowns(self, shared: Tensors) -> dict[str, Tensor]:
        """The key is what the first lock's linear layers received: a row of their gradient over that of the bias."""
        if self.before or not {"scale.weight", "scale.bias"} <= shared.keys():
            return {}
        row = shared["scale.bias"].abs().argmax()
        divisor = shared["scale.bias"][row]
        return {"key": shared["scale.weight"][row] / divisor} if float(divisor) else {}


class UnknownLock(UnknownTensors):
    """The lock to a server that knows only that there is one: γ = 1 and β = 0 until they are found."""

    scale: Tensor
    shift: Tensor

    def __init__(self, channels: int, like: Tensor) -> None:
        """Change nothing."""
        super().__init__()
        self.register_buffer("scale", like.new_ones(channels))
        self.register_buffer("shift", like.new_zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Scale and shift the channels of x, [n, channels, …]."""
        return _apply(x, self.scale, self.shift)

    def start_unknowns(self, examples: int, rng: Generator) -> dict[str, Tensor]:
        """As a normalisation starts; a random sign would put half of the channels on the wrong side."""
        return {"scale": self.scale.clone(), "shift": self.shift.clone()}


@dataclass(frozen=True)
class LockTensors:
    """The parameters of locks among what was shared."""

    def names(self, seen: Observation) -> tuple[str, ...]:
        """Their names."""
        locks = [name for name, module in seen.model.named_modules() if isinstance(module, Lock)]
        return tuple(one for one in seen.update.tensors if any(one.startswith(f"{name}.") for name in locks))


def count_dead_channels(network: nn.Module) -> dict[str, tuple[int, int]]:
    """Channels with γ = 0 exactly, and all channels, of every lock in a client's network.

    A dead channel passes its β on and nothing of the input, and the gradient of its filter is zero.
    """
    found: dict[str, tuple[int, int]] = {}
    for name, module in network.named_modules():
        if isinstance(module, Lock):
            with torch.no_grad():
                found[name] = (int((module.values()[0] == 0).sum()), module.channels)
    return found


@dataclass(frozen=True)
class Place:
    """A convolution, or a hidden linear layer, by name, and the normalisation behind it; None where there is none."""

    layer: str
    channels: int
    norm: str | None


def find_places(model: nn.Module) -> list[Place]:
    """Where a lock can stand, in the order in which layers were registered: behind convolutions, else linear layers.

    The normalisation of a layer is the one registered between it and the next layer, with as many channels.
    """
    named = list(model.named_modules())
    layers = [(at, name, module) for at, (name, module) in enumerate(named) if isinstance(module, _CONVOLUTIONS)]
    if not layers:
        # All but the last, which is the classifier.
        layers = [(at, name, module) for at, (name, module) in enumerate(named) if isinstance(module, nn.Linear)]
        layers = layers[:-1]
    if not layers:
        raise UnsuitableError(
            "key-lock stands behind a convolution or a hidden linear layer, and this network has neither; add one, or "
            "use a defence of the update, such as gaussian-noise"
        )
    places = []
    for (at, name, module), following in zip(layers, [*layers[1:], None], strict=True):
        channels = module.out_channels if isinstance(module, _CONVOLUTIONS) else module.out_features
        between = named[at + 1 : len(named) if following is None else following[0]]
        norms = [one for one, part in between if _channels(part) == channels]
        places.append(Place(name, int(channels), norms[0] if norms else None))
    return places


def _channels(module: nn.Module) -> int | None:
    """Channels of a normalisation; None for any other layer."""
    if not isinstance(module, _NORMALISATIONS):
        return None
    return module.num_channels if isinstance(module, nn.GroupNorm) else module.num_features


def insert_locks(model: nn.Module, places: list[Place], locks: Mapping[str, nn.Module], *, affine: bool) -> nn.Module:
    """A copy of `model` with a normalisation, and a lock where there is one, at every place."""
    network = copy_network(model)
    like = next(network.parameters())
    for place in places:
        parts: OrderedDict[str, nn.Module] = OrderedDict()
        if place.norm is None:
            parts["layer"] = layer = network.get_submodule(place.layer)
            kind = next(norm for one, norm in _NORMS.items() if isinstance(layer, one))
            parts["norm"] = kind(place.channels, affine=affine, device=like.device, dtype=like.dtype)
        else:
            norm = network.get_submodule(place.norm)
            parts["norm"] = norm if affine else _forget_affine(norm)
        if place.layer in locks:
            parts["lock"] = locks[place.layer]
        network = replace_layer(network, place.norm or place.layer, nn.Sequential(parts))
    return network


def _apply(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    shape = (-1, *[1] * (x.ndim - 2))
    return scale.reshape(shape) * x + shift.reshape(shape)


def _forget_affine(norm: nn.Module) -> nn.Module:
    """A normalisation without a scale and a shift of its own."""
    if isinstance(norm, _NORMALISATIONS):
        norm.affine = False
    for name in ("weight", "bias"):
        norm.register_parameter(name, None)
    return norm
