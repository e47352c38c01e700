"""Reference networks by name, deterministic by seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from leakscope.counts import check_count
from leakscope.errors import UsageError, suggest
from leakscope.files.opening import BUDGET_VARIABLE, budget_bytes
from leakscope.models import initialise
from leakscope.models.initialise import Rule
from leakscope.models.lenet import lenet5, lenet5_strided, lenet_dlg, lenet_grnn
from leakscope.models.lstm import initialise_lstm, lstm
from leakscope.models.mkor import mkor_copy, mkor_strided
from leakscope.models.normalise import Constants, resolve_constants
from leakscope.models.plain import convnet, convnet_9, mlp, vgg16
from leakscope.models.plan import ACTIVATIONS, NetworkPlan
from leakscope.models.resnet import resnet18, resnet18_grnn, resnet20, resnet20_4, resnet32, resnet34, resnet50
from leakscope.models.rgap import cnn6, fcn3
from leakscope.models.vit import initialise_vit, vit
from leakscope.picture_size import LARGEST_SIDE, PictureSize, height_width

# Classes, channels and widths of layers.
_MOST_WIDE = 1_000_000
_MOST_LAYERS = 1_000
# Below this the weights decide how much memory is needed; above, what flows through the layers may.
_LARGE_PICTURE = 3 * 512 * 512


@dataclass(frozen=True)
class Network:
    """One family's builder with the paper's choices and the smallest image it can take."""

    make: Callable[[NetworkPlan], nn.Module]
    activation: str = "relu"
    init: Rule = initialise.default
    default: Rule = initialise.default
    smallest: int = 1
    hidden: tuple[int, ...] = ()


_NETWORKS = {
    "lenet-dlg": Network(lenet_dlg, activation="sigmoid", init=initialise.uniform),
    "lenet-grnn": Network(lenet_grnn, activation="sigmoid", init=initialise.uniform, smallest=16),
    "lenet5": Network(lenet5, activation="sigmoid", smallest=12),
    "lenet5-strided": Network(lenet5_strided, activation="sigmoid", smallest=12),
    "mkor-strided": Network(mkor_strided),
    "mkor-copy": Network(mkor_copy),
    "mlp": Network(mlp, hidden=(256, 128)),
    "fcn3": Network(fcn3, activation="leaky-relu", hidden=(1_000, 100)),
    "cnn6": Network(cnn6, activation="leaky-relu"),
    "convnet": Network(convnet, smallest=9),
    "convnet-9": Network(convnet_9, smallest=9),
    "resnet20": Network(resnet20, init=initialise.kaiming_fan_in),
    "resnet32": Network(resnet32, init=initialise.kaiming_fan_in),
    "resnet20-4": Network(resnet20_4, init=initialise.kaiming_fan_out),
    "resnet18": Network(resnet18, init=initialise.kaiming_fan_out),
    "resnet18-grnn": Network(resnet18_grnn, activation="sigmoid", init=initialise.uniform),
    "resnet34": Network(resnet34, init=initialise.kaiming_fan_out),
    "resnet50": Network(resnet50, init=initialise.kaiming_fan_out),
    "vgg16": Network(vgg16, init=initialise.vgg, smallest=32),
    "vit": Network(vit, activation="gelu", init=initialise_vit, default=initialise_vit, smallest=2),
    "lstm": Network(lstm, activation="none", init=initialise_lstm, default=initialise_lstm),
}


def names() -> list[str]:
    """Return the name of every reference network."""
    return list(_NETWORKS)


def build(
    name: str,
    *,
    num_classes: int = 10,
    in_channels: int = 3,
    image_size: PictureSize = 32,
    seed: int = 0,
    activation: str | None = None,
    init: str | None = None,
    normalise: str | Constants | None = None,
    hidden: Sequence[int] | None = None,
) -> nn.Module:
    """Build a reference network in evaluation mode; the global random state stays as it was.

    The published attacks differentiate the network in evaluation mode; call `.train()` for batch
    statistics.

    Args:
        name: One of `names()`.
        num_classes: Size of the output.
        in_channels: Channels of the images.
        image_size: Side of the square images, or (height, width).
        seed: The same seed gives the same weights; a parameter's numbers depend on its name and shape only.
        activation: "relu", "leaky-relu" (slope 0.2), "sigmoid" or "gelu"; None is the paper's.
        init: "paper" (also None), "default" (PyTorch's) or "uniform" (U(−0.5, 0.5), biases included).
        normalise: Name of a data set with known constants, a (mean, std) pair, or None for none.
        hidden: Widths of the hidden layers, for "mlp" only.

    Example:
        >>> model = build("lenet-dlg", num_classes=100)
        >>> model(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 100])
    """
    if name not in _NETWORKS:
        raise UsageError(f"unknown model {name!r}.{suggest(name, _NETWORKS)}")
    network = _NETWORKS[name]
    height, width = _check_sizes(name, num_classes=num_classes, in_channels=in_channels, image_size=image_size)
    mean, std = resolve_constants(normalise, in_channels)
    plan = NetworkPlan(
        num_classes=num_classes,
        in_channels=in_channels,
        height=height,
        width=width,
        activation=_activation(name, activation),
        mean=mean,
        std=std,
        hidden=_hidden(name, hidden),
    )
    rules = {"paper": network.init, "default": network.default, "uniform": initialise.uniform}
    rule = _choose("init", init or "paper", rules)
    # On the meta device no layer draws numbers for weights that are about to be replaced.
    with torch.device("meta"):
        model = network.make(plan)
        _check_memory(name, model, torch.empty(1, in_channels, height, width))
    model = model.to_empty(device="cpu")
    initialise.initialise(model, rule, seed=seed, name=name)
    return model.eval()


def _check_memory(name: str, model: nn.Module, image: Tensor) -> None:
    """Refuse a network that would not fit into memory, before any of it is allocated."""
    shown: list[int] = []
    if image.numel() > _LARGE_PICTURE and not any(isinstance(part, nn.LSTM) for part in model.modules()):
        hooks = [
            part.register_forward_hook(lambda _part, _inputs, output: shown.append(output.numel()))
            for part in model.modules()
            if not any(part.children())
        ]
        model(image)
        for hook in hooks:
            hook.remove()
    needed = 4 * (sum(value.numel() for value in model.parameters()) + sum(shown))
    if needed > (allowed := budget_bytes()):
        raise UsageError(
            f"{name} for images of {' × '.join(map(str, image.shape[1:]))} numbers takes about "
            f"{needed / 2**30:,.1f} GiB, the budget is {allowed / 2**30:,.1f} GiB; use smaller images or "
            f"layers, or a larger {BUDGET_VARIABLE}"
        )


def _check_sizes(name: str, *, num_classes: int, in_channels: int, image_size: PictureSize) -> tuple[int, int]:
    """Height and width of the images."""
    for label, value in (("num_classes", num_classes), ("in_channels", in_channels)):
        check_count(value, label, most=_MOST_WIDE)
    height, width = height_width(image_size, label="image_size", largest=LARGEST_SIDE)
    smallest = _NETWORKS[name].smallest
    if min(height, width) < smallest:
        raise UsageError(
            f"{name} needs images of at least {smallest}×{smallest} pixels, got {height}×{width}; "
            f"pass image_size={smallest} or more and resize the data, or take 'lenet-dlg' or 'mlp'"
        )
    return height, width


def _hidden(name: str, hidden: Sequence[int] | None) -> tuple[int, ...]:
    if hidden is None:
        return _NETWORKS[name].hidden
    if name != "mlp":
        raise UsageError(f"hidden is for 'mlp' only, got hidden={hidden!r} for {name!r}; leave it out")
    if not isinstance(hidden, (list, tuple)) or len(hidden) > _MOST_LAYERS:
        raise UsageError(f"hidden needs at most {_MOST_LAYERS} widths, as in [256, 128], got {str(hidden)[:80]!r}")
    for width in hidden:
        check_count(width, "hidden needs whole widths ≥ 1: a width", most=_MOST_WIDE)
    return tuple(hidden)


def _activation(name: str, activation: str | None) -> Callable[[], nn.Module]:
    usual = _NETWORKS[name].activation
    if usual == "none":
        if activation is not None:
            raise UsageError(f"{name!r} has no activation to choose, got activation={activation!r}; leave it out")
        return nn.Identity
    return _choose("activation", activation or usual, ACTIVATIONS)


def _choose(label: str, value: str, options: dict[str, Callable]) -> Callable:
    if not isinstance(value, str) or value not in options:
        raise UsageError(f"unknown {label} {str(value)[:80]!r}.{suggest(str(value)[:80], options)}")
    return options[value]
