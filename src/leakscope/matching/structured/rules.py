"""Rules for layers without parameters: activations, pooling, reshaping."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor, fx

from leakscope.matching.structured import pointwise, pooling, shaping
from leakscope.matching.structured.calls import options, pair, source
from leakscope.matching.structured.op import Op
from leakscope.matching.structured.tracing import Traced
from leakscope.matching.structured.unsupported import Unsupported

Rule = Callable[[Traced, fx.Node], list[Op]]


def normalise(mean: Tensor, std: Tensor) -> list[Op]:
    """(x − mean)/std with one constant per channel."""
    mean, std = (constants.detach().reshape(-1, 1, 1) for constants in (mean, std))
    return [shaping.Shift(-mean), shaping.Scale(1 / std)]


def identity(traced: Traced, node: fx.Node) -> list[Op]:
    """Nothing to compute."""
    return []


def dropout(traced: Traced, node: fx.Node) -> list[Op]:
    """Identity in evaluation mode."""
    defaults: dict[str, Any] = {"p": 0.5, "training": True}
    if options(traced, node, defaults=defaults)["training"]:
        raise Unsupported(f"{node.name} drops at random; put the model in evaluation mode")
    return []


def relu(traced: Traced, node: fx.Node) -> list[Op]:
    """max(x, 0)."""
    return [pointwise.ReLU()]


def leaky_relu(traced: Traced, node: fx.Node) -> list[Op]:
    """Two slopes."""
    return [pointwise.LeakyReLU(float(options(traced, node, defaults={"negative_slope": 0.01})["negative_slope"]))]


def smooth(value: Callable[[Tensor], Tensor], slopes: pointwise.Slopes, **standard: Any) -> Rule:
    """A smooth activation, whose options must be the `standard` ones."""

    def rule(traced: Traced, node: fx.Node) -> list[Op]:
        if options(traced, node, defaults=standard) != standard:
            raise Unsupported(f"{node.name} has options other than {standard}")
        return [pointwise.Smooth(value, slopes)]

    return rule


def max_pool(traced: Traced, node: fx.Node) -> list[Op]:
    """Maximum over windows."""
    defaults = {"kernel_size": 2, "stride": None, "padding": 0, "dilation": 1, "ceil_mode": False}
    chosen = options(traced, node, defaults=defaults | {"return_indices": False})
    if chosen.pop("return_indices"):
        raise Unsupported(f"{node.name} returns indices")
    return [pooling.MaxPool(_image(traced, node), **chosen)]


def average_pool(traced: Traced, node: fx.Node) -> list[Op]:
    """Mean over windows."""
    defaults = {"kernel_size": 2, "stride": None, "padding": 0, "ceil_mode": False}
    chosen = options(traced, node, defaults=defaults | {"count_include_pad": True, "divisor_override": None})
    kernel = pair(chosen["kernel_size"])
    stride = kernel if chosen["stride"] in (None, ()) else pair(chosen["stride"])
    rest = (chosen["ceil_mode"], chosen["count_include_pad"], chosen["divisor_override"])
    return [pooling.AveragePool(_image(traced, node), kernel, stride, pair(chosen["padding"]), *rest)]


def adaptive_pool(traced: Traced, node: fx.Node) -> list[Op]:
    """Mean over the cells of a grid; a grid of one cell is the mean of the image."""
    before, after = _image(traced, node), pair(traced.shape(node)[-2:])
    if after == (1, 1):
        return [pooling.Mean(before, axes=(2, 3), keep=True)]
    return [pooling.AdaptiveAveragePool(before, after)]


def mean(traced: Traced, node: fx.Node) -> list[Op]:
    """Mean over axes other than the batch."""
    chosen = options(traced, node, defaults={"dim": (), "keepdim": False})
    before = traced.shape(source(node))
    axes = chosen["dim"] if isinstance(chosen["dim"], tuple | list) else (chosen["dim"],)
    positive = tuple(sorted(axis % (len(before) + 1) for axis in axes if axis is not None))
    if not positive or 0 in positive:
        raise Unsupported(f"{node.name} averages over the batch")
    return [pooling.Mean(before, axes=positive, keep=bool(chosen["keepdim"]))]


def reshape(traced: Traced, node: fx.Node) -> list[Op]:
    """View, flatten, squeeze: the same numbers in the same order, example by example."""
    before, after = traced.shape(source(node)), traced.shape(node)
    if len(traced.values[node]) != len(traced.values[source(node)]) or math.prod(before) != math.prod(after):
        raise Unsupported(f"{node.name} mixes the examples of a batch")
    return [] if before == after else [shaping.Reshape(before, after)]


def cut(traced: Traced, node: fx.Node) -> list[Op]:
    """x[:, a:b, ::s]: slices with constant bounds that leave the batch alone."""
    index = node.args[1] if isinstance(node.args[1], tuple) else (node.args[1],)
    constant = all(isinstance(part, slice) and not _traced_bounds(part) for part in index)
    if not constant or index[0] != slice(None):
        raise Unsupported(f"{node.name} indexes by something other than constant slices behind the batch axis")
    return [shaping.Slice(traced.shape(source(node)), tuple(index))]  # type: ignore[arg-type]


def pad(traced: Traced, node: fx.Node) -> list[Op]:
    """Zero padding behind the batch axis."""
    chosen = options(traced, node, defaults={"pad": (), "mode": "constant", "value": None})
    widths = tuple(chosen["pad"])
    zero = chosen["mode"] == "constant" and chosen["value"] in (None, 0)
    if not zero or len(widths) > 2 * len(traced.shape(source(node))) or min(widths, default=0) < 0:
        raise Unsupported(f"{node.name} pads with something other than zeros behind the batch axis")
    return [shaping.Pad(widths)]


def _traced_bounds(part: slice) -> bool:
    return any(isinstance(bound, fx.Node) for bound in (part.start, part.stop, part.step))


def _image(traced: Traced, node: fx.Node) -> tuple[int, ...]:
    shape = traced.shape(source(node))
    if len(shape) != 3:
        raise Unsupported(f"{node.name} pools something that is not an image batch")
    return shape
