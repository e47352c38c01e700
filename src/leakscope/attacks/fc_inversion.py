"""Fully connected inversion: the input of a linear layer with bias, in closed form.

For z = Wx + b and one example, ∂L/∂W = δ xᵀ and ∂L/∂b = δ: every row of the weight gradient
is the input, times a number that was shared as well. Known since Phong et al. (2017).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from leakscope import rng as random
from leakscope.errors import UnsuitableError
from leakscope.matching.candidates import Pixels, normalisation
from leakscope.matching.facts import Fact, Noise
from leakscope.matching.labels import infer_labels
from leakscope.threat import check_needs
from leakscope.types import Knowledge, Observation, Reconstruction, SharedUpdate, Status

PAPER = "Phong et al.: Privacy-Preserving Deep Learning: Revisited and Enhanced, ATIS 2017"


@dataclass(frozen=True)
class FCInversion:
    """Reads the input off a linear layer that receives the whole input.

    `combine="best-row"` divides the row with the largest bias gradient; `"least-squares"`
    weighs all rows, Σ δ_i g_i / Σ δ_i², the best estimate where noise was added.
    For more than one example the result is a mixture, and the notes say so.
    """

    combine: Literal["best-row", "least-squares"] = "best-row"
    name: str = "fc-inversion"
    paper: str = PAPER
    needs: frozenset[Knowledge] = frozenset()

    def craft(self, model: nn.Module, history: Sequence[SharedUpdate] = ()) -> nn.Module:
        """Hand out the honest model."""
        return model

    def reconstruct(self, seen: Observation, seed: int = 0) -> Reconstruction:
        """Invert the layer; the loss is how far its weight gradient is from rank one."""
        check_needs(self.name, self.needs, seen)
        layer = _first_linear(seen)
        weight, bias = (seen.update.tensors[f"{layer}.{part}"] for part in ("weight", "bias"))
        signal = float(bias.abs().max())
        if signal == 0.0:
            return _failed(seen, f"the bias gradient of {layer!r} is zero: nothing to divide by")
        inputs = _denormalised(seen, self._input(weight, bias).reshape(1, *seen.input_shape))
        loss = _misfit(seen, layer, inputs)
        notes = (*seen.notes, f"closed form on {layer!r}", *_mixture_note(seen))
        return Reconstruction(inputs, _label(seen), loss, Status.OK, (loss,), None, 1, notes)

    def evaluate(self, seen: Observation, reconstruction: Reconstruction) -> float:
        """Relative distance of the layer's weight gradient from bias ⊗ input, afresh."""
        return _misfit(seen, _first_linear(seen), reconstruction.inputs)

    def informed(self, fact: Fact) -> FCInversion:
        """Under noise all rows are weighed together; under pruning the best row is read as before."""
        return replace(self, combine="least-squares") if isinstance(fact, Noise) else self

    def _input(self, weight: Tensor, bias: Tensor) -> Tensor:
        if self.combine == "least-squares":
            return (bias @ weight) / bias.square().sum()
        row = bias.abs().argmax()
        return weight[row] / bias[row]


def fc_inversion(*, combine: Literal["best-row", "least-squares"] = "best-row") -> FCInversion:
    """Closed-form inversion of the first linear layer with bias."""
    return FCInversion(combine=combine)


def _first_linear(seen: Observation) -> str:
    """Name of a shared linear layer with bias that receives the whole input, unchanged."""
    size = int(torch.tensor(seen.input_shape).prod())
    shared = {
        name: module
        for name, module in seen.model.named_modules()
        if isinstance(module, nn.Linear)
        and module.in_features == size
        and {f"{name}.weight", f"{name}.bias"} <= seen.update.tensors.keys()
    }
    if shared:
        probe = random.uniform((2, *seen.input_shape), random.generator(0, "probe"), like=_like(seen))
        expected = _normalised(seen, probe).flatten(1)
        for name, received in _received(seen.model, shared, probe).items():
            if received.shape == expected.shape and torch.allclose(received, expected, rtol=1e-4, atol=1e-5):
                return name
    raise UnsuitableError(
        f"fc-inversion needs a shared linear layer with bias that receives the whole input ({size} numbers) "
        "unchanged; this network or update has none: a convolution, an activation or a missing bias stands "
        "before it; use inverting-gradients or dlg"
    )


def _received(model: nn.Module, layers: dict[str, nn.Linear], probe: Tensor) -> dict[str, Tensor]:
    """What each layer receives for `probe`: the order of execution decides, not that of registration."""
    found: dict[str, Tensor] = {}

    def record(name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def hook(_module: nn.Module, received: tuple[Tensor, ...]) -> None:
            found.setdefault(name, received[0])

        return hook

    state = {name: buffer.clone() for name, buffer in model.named_buffers()}
    with ExitStack() as stack, torch.no_grad():
        for name, layer in layers.items():
            stack.callback(layer.register_forward_pre_hook(record(name)).remove)
        torch.func.functional_call(model, state, (probe,))
    return found


def _misfit(seen: Observation, layer: str, inputs: Tensor) -> float:
    """‖G_W − g_b xᵀ‖ / ‖G_W‖: zero where the layer saw exactly `inputs`."""
    weight, bias = (seen.update.tensors[f"{layer}.{part}"] for part in ("weight", "bias"))
    gap = weight - torch.outer(bias, _normalised(seen, inputs).reshape(-1))
    return float(gap.norm() / weight.norm().clamp_min(1e-30))


def _normalised(seen: Observation, inputs: Tensor) -> Tensor:
    mean, std = normalisation(seen)
    if mean is None or std is None:
        return inputs
    shape = (-1, *[1] * (len(seen.input_shape) - 1))
    return (inputs - mean.to(inputs).reshape(shape)) / std.to(inputs).reshape(shape)


def _like(seen: Observation) -> Tensor:
    return torch.empty(0, device=seen.device, dtype=seen.dtype)


def _denormalised(seen: Observation, coordinates: Tensor) -> Tensor:
    mean, _std = normalisation(seen)
    return coordinates if mean is None else Pixels(normalised=True).images(seen, coordinates)


def _label(seen: Observation) -> Tensor | None:
    if seen.targets is not None:
        return seen.targets[:1]
    try:
        return infer_labels(seen, count=1).labels
    except UnsuitableError:
        return None


def _mixture_note(seen: Observation) -> tuple[str, ...]:
    several = seen.num_examples is not None and seen.num_examples > 1
    return (f"{seen.num_examples} examples behind one update: the result is their mixture",) if several else ()


def _failed(seen: Observation, reason: str) -> Reconstruction:
    low, high = seen.bounds or (0.0, 1.0)
    grey = torch.full((1, *seen.input_shape), (low + high) / 2, device=seen.device, dtype=seen.dtype)
    return Reconstruction(grey, None, float("nan"), Status.DIVERGED, notes=(*seen.notes, reason))
