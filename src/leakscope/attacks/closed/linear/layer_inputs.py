"""The linear layers of a network whose input can be read off an update."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from leakscope import rng as random
from leakscope.attacks.closed.linear.rows import quotient
from leakscope.errors import UnsuitableError
from leakscope.matching.candidates import Pixels
from leakscope.networks import find_normalisation, record_inputs
from leakscope.types import Observation


def layer_inputs(seen: Observation) -> dict[str, Tensor]:
    """What every shared linear layer with bias received, [1, features], for one example behind the update.

    Features are leakage too: they tell the class, often the person, and they are targets for attacks that
    search pixels. Layers that were used more than once, or along an axis of tokens, are left out: their
    gradient is a sum. So are layers that no gradient reached.

    Example:
        >>> from leakscope import Batch, models, observe, share
        >>> model, batch = models.build("lenet5"), Batch(torch.rand(1, 3, 32, 32), torch.tensor([3]))
        >>> sorted(layer_inputs(observe(model, share(model, batch), truth=batch)))
        ['fc1', 'fc2', 'fc3']
    """
    if seen.num_examples is not None and seen.num_examples > 1:
        raise UnsuitableError(
            f"layer_inputs needs one example behind the update, got {seen.num_examples}: a row then holds a mixture; "
            "use fc-inversion, which looks for rows that a single example reached"
        )
    layers = find_shared_layers(seen)
    received = record_inputs(seen.model, _sample_inputs(seen), layers)
    found: dict[str, Tensor] = {}
    for name in layers:
        weight, bias = gradients(seen, name)
        once = len(received.get(name, ())) == 1 and received[name][0].ndim == 2
        if once and bool(bias.any()):
            found[name] = quotient(weight, bias)[None]
    return found


def find_shared_layers(seen: Observation) -> dict[str, nn.Linear]:
    """Linear layers whose weight and bias gradient were both shared, by name."""
    return {
        name: module
        for name, module in seen.model.named_modules()
        if isinstance(module, nn.Linear) and set(parameter_names(name)) <= seen.update.tensors.keys()
    }


def gradients(seen: Observation, layer: str) -> tuple[Tensor, Tensor]:
    """What was shared of the layer's weight and bias."""
    weight, bias = parameter_names(layer)
    return seen.update.tensors[weight], seen.update.tensors[bias]


def first_linear(seen: Observation) -> str:
    """Name of a shared linear layer with bias that receives the whole input, unchanged."""
    size = int(torch.tensor(seen.input_shape).prod())
    shared = {name: layer for name, layer in find_shared_layers(seen).items() if layer.in_features == size}
    if shared:
        expected = normalise(seen, _sample_inputs(seen)).flatten(1)
        for name, values in record_inputs(seen.model, _sample_inputs(seen), shared).items():
            if values[0].shape == expected.shape and torch.allclose(values[0], expected, rtol=1e-4, atol=1e-5):
                return name
    raise UnsuitableError(
        f"fc-inversion needs a shared linear layer with bias that receives the whole input ({size} numbers) "
        "unchanged; this network or update has none: a convolution, an activation or a missing bias stands "
        "before it; use inverting-gradients or dlg"
    )


def normalise(seen: Observation, inputs: Tensor) -> Tensor:
    """Inputs as the model's own normalisation passes them on."""
    constants = find_normalisation(seen.model, seen.input_shape)
    if constants is None:
        return inputs
    mean, std = constants
    shape = (-1, *[1] * (len(seen.input_shape) - 1))
    return (inputs - mean.to(inputs).reshape(shape)) / std.to(inputs).reshape(shape)


def to_pixels(seen: Observation, received: Tensor) -> Tensor:
    """Inputs [n, …] from what the first layer received, [n, numbers]."""
    values = received.reshape(-1, *seen.input_shape)
    plain = find_normalisation(seen.model, seen.input_shape) is None
    return values if plain else Pixels(normalised=True).images(seen, values)


def parameter_names(layer: str) -> tuple[str, str]:
    """Names of a layer's weight and bias; a model that is one linear layer has no name of its own."""
    prefix = f"{layer}." if layer else ""
    return f"{prefix}weight", f"{prefix}bias"


def _sample_inputs(seen: Observation) -> Tensor:
    like = torch.empty(0, device=seen.device, dtype=seen.dtype)
    return random.uniform((2, *seen.input_shape), random.generator(0, "probe"), like=like)
