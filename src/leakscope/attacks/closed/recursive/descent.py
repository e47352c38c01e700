"""From the last layer down to the input: undo the activation, carry k through it, solve the layer."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from leakscope.attacks.closed.recursive import convolution
from leakscope.attacks.closed.recursive.activations import slope, undo
from leakscope.attacks.closed.recursive.convolution import Solved
from leakscope.attacks.closed.recursive.layer_chain import LayerBlock, SolvableChain
from leakscope.attacks.closed.recursive.start import Start
from leakscope.types import Tensors


@dataclass(frozen=True, eq=False)
class Descent:
    """The input of the lowest layer reached, and what was solved on the way, last layer first."""

    values: Tensor
    layers: tuple[tuple[LayerBlock, Solved], ...]

    @property
    def residual(self) -> float:
        """The worst relative misfit of a layer's gradient equations."""
        return max((solved.residual for _block, solved in self.layers), default=0.0)


def descend(chain: SolvableChain, tensors: Tensors, start: Start, *, top: int, layers: int | None = None) -> Descent:
    """Recover the inputs of the blocks below `top`; only the first `layers` of them where given.

    k_{i} = Aᵀ_{i+1} k_{i+1} ⊙ act′(z_i), and z_i is the activation's preimage of the input of i + 1.
    """
    values, gradient = start.inputs, start.gradient
    solved: list[tuple[LayerBlock, Solved]] = []
    lowest = 0 if layers is None else max(0, top - layers)
    for place in range(top - 1, lowest - 1, -1):
        block = chain.blocks[place]
        output = undo(block.activations, values.reshape(block.out_shape))
        pulled = chain.blocks[place + 1].pull_back(gradient).reshape(block.out_shape)
        gradient = pulled * slope(block.activations, output)
        if isinstance(block.layer, nn.Linear) and f"{block.name}.bias" in tensors:
            gradient = tensors[f"{block.name}.bias"]
        found = _layer(block, gradient, tensors[f"{block.name}.weight"], output)
        solved.append((block, found))
        values = found.inputs
    if lowest == 0:
        values = chain.to_inputs(values)
    return Descent(values, tuple(solved))


def _layer(block: LayerBlock, gradient: Tensor, weight_gradient: Tensor, output: Tensor) -> Solved:
    if isinstance(block.layer, nn.Conv2d):
        return convolution.solve(block, gradient=gradient, weight_gradient=weight_gradient, output=output)
    strength = gradient.square().sum()
    if float(strength) == 0:
        return Solved(gradient.new_zeros(block.in_shape), 0, 1.0, (f"no gradient reaches {block.name!r}",))
    inputs = weight_gradient.T @ gradient / strength
    gap = weight_gradient - gradient[:, None] * inputs
    residual = float(gap.norm() / weight_gradient.norm().clamp_min(1e-300))
    return Solved(inputs, inputs.numel(), residual)
