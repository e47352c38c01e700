"""Constructions of the papers, written small and literal: what a crafting server does to one layer.

Each takes a network that it may change, the client's examples and a strength, and returns the crafted network, or None
where the network has no place for it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from leakscope.rng import generator, normal
from leakscope.types import Batch

Change = Callable[[nn.Module, Batch, float], nn.Module | None]


def _linear(model: nn.Module, *, head: bool = False) -> list[nn.Linear]:
    found = [module for module in model.modules() if isinstance(module, nn.Linear)]
    return found if head else found[:-1]


def _convolutions(model: nn.Module) -> list[nn.Conv2d]:
    return [
        one for one in model.modules() if isinstance(one, nn.Conv2d) and one.kernel_size[0] >= 3 and one.groups == 1
    ]


def _rectified(model: nn.Module) -> bool:
    return any(isinstance(module, nn.ReLU) for module in model.modules())


@torch.no_grad()
def equal_rows(model: nn.Module, batch: Batch, bins: float) -> nn.Module | None:
    """Robbing-the-Fed in an agreed layer: `bins` equal rows, biases in steps; equal columns behind it."""
    layers = _linear(model, head=True)
    if len(layers) < 2 or layers[0].out_features < bins or layers[0].bias is None:
        return None
    count = int(bins)
    layers[0].weight[:count] = 1 / layers[0].in_features
    layers[0].bias[:count] = -torch.linspace(0.1, 0.9, count)
    layers[1].weight[:, :count] = 1.0
    return model


@torch.no_grad()
def one_average(model: nn.Module, batch: Batch, scale: float) -> nn.Module | None:
    """The release of MKOR: every weight of the first fully connected layer the same, identity behind it."""
    layers = _linear(model, head=True)
    if len(layers) < 2:
        return None
    layers[0].weight.fill_(scale / layers[0].in_features)
    for layer in layers[1:]:
        layer.weight.zero_().fill_diagonal_(1.0)
    for layer in layers:
        if layer.bias is not None:
            layer.bias.zero_()
    return model


@torch.no_grad()
def multiples(model: nn.Module, batch: Batch, alpha: float) -> nn.Module | None:
    """Pairs w and αw in the first fully connected layer, one for every class."""
    layers = _linear(model, head=True)
    count = layers[-1].out_features
    if len(layers) < 2 or layers[0].out_features < 2 * count or count < 4:
        return None
    layers[0].weight[count : 2 * count] = alpha * layers[0].weight[:count]
    return model


@torch.no_grad()
def noisy_multiples(model: nn.Module, batch: Batch, noise: float) -> nn.Module | None:
    """Pairs with α = −0.97 and noise of this part of their size."""
    changed = multiples(model, batch, -0.97)
    if changed is not None:
        weight = _linear(model)[0].weight
        weight.add_(noise * weight.std() * normal(tuple(weight.shape), generator(0, "pairs"), like=weight))
    return changed


def _copying(model: nn.Module, noise: float, *, shifted: bool) -> nn.Module | None:
    layers = _convolutions(model)
    if not layers or min(layer.out_channels for layer in layers) < 4:
        return None
    for layer in layers:
        weight, middle = layer.weight, layer.kernel_size[0] // 2
        kept = min(layer.out_channels, max(4, 2 * layer.in_channels))
        weight[:kept] = noise * normal((kept, *weight.shape[1:]), generator(0, "copy"), like=weight)
        for row in range(kept):
            tap = middle + (row % 2 if shifted else 0), middle + (row // 2 % 2 if shifted else 0)
            weight[row, row % layer.in_channels, tap[0], tap[1]] = -1.0 if row % 4 == 3 and not shifted else 1.0
    return model


@torch.no_grad()
def copy_kernels(model: nn.Module, batch: Batch, noise: float) -> nn.Module | None:
    """Filters that copy a channel or its negative, under noise."""
    return _copying(model, noise, shifted=False)


@torch.no_grad()
def shift_kernels(model: nn.Module, batch: Batch, noise: float) -> nn.Module | None:
    """Filters that shift a channel in four directions, under noise."""
    return _copying(model, noise, shifted=True)


@torch.no_grad()
def fishing(model: nn.Module, batch: Batch, bias: float) -> nn.Module | None:
    """Class fishing: all rows but one zero, all biases but one large."""
    head = _linear(model, head=True)[-1]
    if head.bias is None or head.out_features < 3:
        return None
    head.weight.zero_()[0] = 0.5
    head.bias.fill_(bias)[0] = 0.0
    return model


@torch.no_grad()
def feature_fishing(model: nn.Module, batch: Batch, weight: float) -> nn.Module | None:
    """Class fishing that tells examples of the class apart by one feature."""
    changed = fishing(model, batch, 1000.0)
    if changed is not None:
        head = _linear(model, head=True)[-1]
        head.weight.zero_()[0, 0] = weight
        head.bias[0] = -0.5 * weight
    return changed


@torch.no_grad()
def dump_class(model: nn.Module, batch: Batch, bias: float) -> nn.Module | None:
    """One class that takes all probability, so that the others decouple."""
    head = _linear(model, head=True)[-1]
    if head.bias is None or head.out_features < 3:
        return None
    head.bias[-1] += bias
    return model


@torch.no_grad()
def traps(model: nn.Module, batch: Batch, scale: float) -> nn.Module | None:
    """Trap weights in the first fully connected layer: half of each row negative, the rest its mirror, shrunk."""
    if not _linear(model) or not _rectified(model):
        return None
    layer = _linear(model)[0]
    half = layer.in_features // 2
    for number in range(layer.out_features):
        rng = generator(number, "trap")
        places = torch.randperm(layer.in_features, generator=rng)
        sizes = normal((half,), rng).abs() * layer.weight.std()
        layer.weight[number, places[:half]] = -sizes
        layer.weight[number, places[half : 2 * half]] = scale * sizes[torch.randperm(half, generator=rng)]
    if layer.bias is not None:
        layer.bias.zero_()
    return model


@torch.no_grad()
def quantile_biases(model: nn.Module, batch: Batch, rate: float) -> nn.Module | None:
    """Biases such that every neuron of the first fully connected layer fires for this share of examples."""
    if not _linear(model) or not _rectified(model) or _linear(model)[0].bias is None:
        return None
    layer, seen = _linear(model)[0], []
    hook = layer.register_forward_hook(lambda _layer, _inputs, output: seen.append(output))
    model(batch.inputs)
    hook.remove()
    if seen[0].ndim != 2:
        return None
    layer.bias.sub_(seen[0].quantile(1 - rate, dim=0))
    return model


@torch.no_grad()
def dead_layer(model: nn.Module, batch: Batch, bias: float) -> nn.Module | None:
    """A layer that never fires, so that nothing before it gets a gradient."""
    if not _linear(model) or not _rectified(model) or _linear(model)[0].bias is None:
        return None
    _linear(model)[0].bias.fill_(-bias)
    return model


@torch.no_grad()
def inserted_imprint(model: nn.Module, batch: Batch, bins: float) -> nn.Module | None:
    """A fully connected pair in front of everything, as Robbing-the-Fed and LOKI insert it."""
    shape, count = tuple(batch.inputs.shape[1:]), int(bins)
    width = batch.inputs[0].numel()
    first, second = nn.Linear(width, count), nn.Linear(count, width)
    first.weight.copy_((torch.arange(width) * 0.7).cos().expand(count, -1) / width)
    first.bias.copy_(-torch.linspace(-2, 2, count))
    second.weight.fill_(1.0)
    second.bias.zero_()
    return nn.Sequential(nn.Flatten(), first, nn.ReLU(), second, nn.Unflatten(1, shape), model)


@torch.no_grad()
def widened(model: nn.Module, batch: Batch, factor: float) -> nn.Module | None:
    """The first fully connected layer wider than agreed."""
    layers = _linear(model, head=True)[:2]
    if not isinstance(model, nn.Sequential) or len(layers) < 2 or not set(layers) <= set(model.children()):
        return None
    old, nxt = layers
    new = nn.Linear(old.in_features, int(factor * old.out_features))
    wider = nn.Linear(new.out_features, nxt.out_features)
    for name, module in list(model.named_children()):
        if module is old or module is nxt:
            setattr(model, name, new if module is old else wider)
    return model


@torch.no_grad()
def switched_off(model: nn.Module, batch: Batch, share: float) -> nn.Module | None:
    """All but a few rows of the fully connected layers zero."""
    layers: list[Tensor] = [layer.weight for layer in _linear(model)]
    for weight in layers:
        weight[: int(share * len(weight))] = 0.0
    return model if layers else None


def _rounded(change: Change, strength: float) -> Change:
    """The same, rounded to so many bits afterwards: a server may try to pass craft off as rounding."""

    @torch.no_grad()
    def rounded(model: nn.Module, batch: Batch, bits: float) -> nn.Module | None:
        changed = change(model, batch, strength)
        for value in () if changed is None else changed.parameters():
            if value.ndim > 1:
                step = value.abs().max().clamp_min(1e-30) / (2 ** (bits - 1) - 1)
                value.copy_((value / step).round() * step)
        return changed

    return rounded


CONSTRUCTIONS: dict[str, tuple[Change, tuple[float, ...]]] = {
    "equal rows, biases in steps": (equal_rows, (8, 32, 64)),
    "averaging layer and identities": (one_average, (1.0, 0.1)),
    "pairs w, αw": (multiples, (-1.0, -0.97, -0.5, 2.0)),
    "pairs under noise": (noisy_multiples, (0.001, 0.01, 0.02)),
    "copying filters": (copy_kernels, (0.0, 1e-3, 1e-2)),
    "shifting filters": (shift_kernels, (0.0, 1e-3, 1e-2)),
    "class fishing head": (fishing, (30.0, 100.0, 1000.0)),
    "feature fishing head": (feature_fishing, (30.0, 300.0)),
    "dump class": (dump_class, (60.0, 1000.0)),
    "trap weights": (traps, (0.9, 0.95, 0.97)),
    "biases at quantiles": (quantile_biases, (1 / 32, 1 / 16)),
    "layer that never fires": (dead_layer, (100.0, 1000.0)),
    "imprint block inserted": (inserted_imprint, (16, 64)),
    "wider layer": (widened, (2.0, 4.0)),
    "rows switched off": (switched_off, (0.7, 0.9)),
    "rows switched off, rounded": (_rounded(switched_off, 0.7), (4, 8)),
    "copying filters, rounded": (_rounded(copy_kernels, 1e-2), (4, 8)),
    "class fishing head, rounded": (_rounded(fishing, 100.0), (4, 8)),
}
