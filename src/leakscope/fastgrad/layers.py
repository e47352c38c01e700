"""Rules for layers with parameters: convolution, linear, batch norm."""

from __future__ import annotations

import torch
from torch import fx, nn

from leakscope.fastgrad.calls import pair, source
from leakscope.fastgrad.convolution import Convolution
from leakscope.fastgrad.linear import Channelwise, Linear
from leakscope.fastgrad.op import Op
from leakscope.fastgrad.tiles import SIDE
from leakscope.fastgrad.trace import Traced
from leakscope.fastgrad.unsupported import Unsupported
from leakscope.fastgrad.weights import FoldedWeights, Parameter, norm_of, parameter
from leakscope.fastgrad.winograd import Winograd, pays

BatchNorm = (nn.BatchNorm1d, nn.BatchNorm2d)


def convolution(traced: Traced, node: fx.Node) -> list[Op]:
    """Conv2d with the batch norm behind it."""
    module, shape = traced.module(node), traced.shape(source(node))
    if not isinstance(module, nn.Conv2d) or module.padding_mode != "zeros" or len(shape) != 3:
        raise Unsupported(f"{node.name}: only zero-padded convolutions of image batches have a rule")
    folded = _folded(traced, node)
    if pays(module, shape=shape, examples=traced.examples):
        return [Winograd(folded, grid=(shape[1] // SIDE, shape[2] // SIDE), scratch=traced.scratch)]
    return [Convolution(folded, module=module, padding=_padding(module, node), shape=shape)]


def linear(traced: Traced, node: fx.Node) -> list[Op]:
    """Linear with the batch norm behind it."""
    if len(traced.shape(source(node))) != 1:
        raise Unsupported(f"{node.name}: a linear layer needs one vector for each example")
    return [Linear(_folded(traced, node))]


def batch_norm(traced: Traced, node: fx.Node) -> list[Op]:
    """Nothing where it was folded into the layer before; otherwise a layer of its own."""
    if _follower(traced, source(node)) is node:
        return []
    norm = norm_of(_checked(traced, node), traced.shared_names)
    return [Channelwise(FoldedWeights(Parameter(torch.ones_like(norm.mean)), norm=norm))]


def _padding(module: nn.Conv2d, node: fx.Node) -> tuple[int, int]:
    """Zeros on each side; "same" has no single number where a kernel side is even."""
    if not isinstance(module.padding, str):
        return pair(module.padding)
    if module.padding == "valid":
        return (0, 0)
    reach = [dilation * (side - 1) for dilation, side in zip(module.dilation, module.kernel_size, strict=True)]
    if any(length % 2 for length in reach):
        raise Unsupported(f"{node.name} pads its two sides differently")
    return pair([length // 2 for length in reach])


def _folded(traced: Traced, node: fx.Node) -> FoldedWeights:
    module, names = traced.module(node), traced.shared_names
    weight = parameter(module.weight, names)  # type: ignore[arg-type]
    if weight is None:
        raise Unsupported(f"{node.name} has no weight")
    follower = _follower(traced, node)
    norm = None if follower is None else norm_of(_checked(traced, follower), names)
    return FoldedWeights(weight, parameter(module.bias, names), norm)  # type: ignore[arg-type]


def _follower(traced: Traced, node: fx.Node) -> fx.Node | None:
    """The batch norm that alone reads the output of a convolution or linear layer."""
    if node.op != "call_module" or type(traced.module(node)) not in (nn.Conv2d, nn.Linear) or len(node.users) != 1:
        return None
    user = next(iter(node.users))
    if user.op != "call_module" or type(traced.module(user)) not in BatchNorm or len(traced.shape(node)) not in (1, 3):
        return None
    return user


def _checked(traced: Traced, node: fx.Node) -> nn.BatchNorm1d | nn.BatchNorm2d:
    module = traced.module(node)
    if not isinstance(module, BatchNorm):
        raise Unsupported(f"{node.name} is not a batch norm")
    if module.training or module.running_mean is None or module.running_var is None:
        raise Unsupported(f"{node.name} normalises with the statistics of the batch; put the model in evaluation mode")
    return module
