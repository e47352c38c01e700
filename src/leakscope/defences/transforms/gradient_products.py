"""⟨g(t), g(1)⟩ and ‖g(t)‖² at the points of a line, tensor by tensor: what S_pri is made of.

Through a large network whose layers are known, points pass together: a convolution of one small picture leaves half of
a processor idle. The gradient of each point is then made layer by layer, and only its products are kept.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.func import functional_call

from leakscope.client.gradient import example_gradients
from leakscope.defence import TrainingLoss
from leakscope.defences.transforms.layer_gradients import Passage, find_layers, record
from leakscope.rng import generator, uniform
from leakscope.steps.gradient import compute_gradient, leaves, on_scores, trainable
from leakscope.tensors import detach
from leakscope.types import Batch, Loss, Tensors

# [points, tensors] each, in float64.
Products = tuple[Tensor, Tensor]

# Where torch's vectorised gradients stop being the fastest. 21 points on one thread: ResNet-20 (0.27 million, colour)
# 0.12 s vectorised and 0.17 s together; ResNet20-4 (4.3 million, grey) 0.85 s together and 1.29 s one by one, and
# vectorised it was slower than one by one.
_LARGE_NETWORK = 1_000_000
# Pixels that pass together: 21 points of a colour picture of 32 × 32, one of 224 × 224.
_MOST_TOGETHER = 65_536
# The same gradient computed in two ways differs by 1e-5 in float32; one that lacks a term, by much more.
_AGREE = 1e-3
# Squares that float32 adds up without losing anything.
_SAFE = (1e-20, 1e30)

_TRIED: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()


def gradient_products(model: nn.Module, line: Batch, *, loss: Loss) -> Products:
    """Products of the gradient at every point with that at the last, and with itself.

    Args:
        model: in evaluation mode; it stays as it is.
        line: the points, with their labels.
        loss: of one point.
    """
    of_output = on_scores(loss)
    if sum(value.numel() for value in trainable(model).values()) < _LARGE_NETWORK:
        return _vectorised(model, line, of_output)
    if _may_pass_together(model, line, of_output):
        found = _together(model, line, of_output)
        if found is not None:
            return found
    return _apart(model, line, of_output)


def _vectorised(model: nn.Module, line: Batch, loss: TrainingLoss) -> Products:
    """All gradients of all points at once, as torch vectorises them."""
    gradients = example_gradients(model, leaves(model), line, loss=loss)
    rows = [value.flatten(1).double() for value in gradients.values()]
    dots, squares = zip(*((row @ row[-1], row.square().sum(1)) for row in rows), strict=True)
    return torch.stack(dots, 1), torch.stack(squares, 1)


def _may_pass_together(model: nn.Module, line: Batch, loss: TrainingLoss) -> bool:
    """Whether this gives the products of points one by one: tried once for each network, on noise.

    A weight that is also used outside its layer, or a layer in which examples meet, would go unnoticed otherwise.
    """
    if find_layers(model) is None:
        return False
    if model not in _TRIED:
        # The same noise in every process, whichever picture comes first.
        noise = uniform((2, *line.inputs.shape[1:]), generator(0, "search", "trial"), like=line.inputs)
        _TRIED[model] = _try_together(model, noise, loss)
    return _TRIED[model]


def _try_together(model: nn.Module, inputs: Tensor, loss: TrainingLoss) -> bool:
    try:
        with torch.no_grad():
            output = model(inputs)
        if not isinstance(output, Tensor) or output.ndim != 2:
            return False
        # The classes that the network believes in least: where it is sure and right there is no gradient to compare.
        batch = Batch(inputs, output.argmin(1))
        found = _together(model, batch, loss)
    except RuntimeError:
        # A network that takes one example at a time.
        return False
    return found is not None and _agree(found, _apart(model, batch, loss))


def _agree(one: Products, other: Products) -> bool:
    (dots, squares), (others, expected) = one, other
    near = (squares - expected).abs() <= _AGREE * expected
    return bool(near.all() and ((dots - others).abs() <= _AGREE * (expected * expected[-1]).sqrt()).all())


def _together(model: nn.Module, line: Batch, loss: TrainingLoss) -> Products | None:
    """Several points to a pass, the last ones first; None where the network's calls are not those of its layers."""
    count, step = len(line.inputs), max(1, _MOST_TOGETHER // line.inputs[0].numel())
    columns = {name: number for number, name in enumerate(trainable(model))}
    found = torch.zeros(2, count, len(columns), dtype=torch.float64)
    last: dict[str, Tensor] = {}
    for end in range(count, 0, -step):
        begin = max(0, end - step)
        passages = _pass(model, Batch(line.inputs[begin:end], line.targets[begin:end]), loss)
        if passages is None:
            return None
        for layer, passage in passages.items():
            for name, values in _multiply_layer(layer, passage, last).items():
                if name in columns:
                    found[:, begin:end, columns[name]] = values
    return found[0], found[1]


def _pass(model: nn.Module, points: Batch, loss: TrainingLoss) -> dict[str, Passage] | None:
    """What points leave behind in the layers, without any gradient in a weight."""
    weights: Tensors = detach(dict(model.named_parameters()))
    inputs = points.inputs.detach().requires_grad_()
    with torch.enable_grad(), record(find_layers(model) or {}) as passages:
        output = functional_call(model, dict(weights), (inputs,))
        if not isinstance(output, Tensor) or len(output) != len(inputs):
            return None
        pairs = zip(output.split(1), points.targets.split(1), strict=True)
        torch.autograd.grad(torch.stack([loss(one, target) for one, target in pairs]).sum(), [inputs])
    return passages if all(passage.once for passage in passages.values()) else None


def _multiply_layer(layer: str, passage: Passage, last: dict[str, Tensor]) -> dict[str, Tensor]:
    """Products of the points of one pass, [2, points] for each tensor of a layer; `last` keeps g(1)."""
    before = f"{layer}." if layer else ""
    found: dict[str, Tensor] = {}
    for name, rows in passage.vectors().items():
        wide = rows.double()
        found[before + name] = torch.stack([wide @ last.setdefault(before + name, wide[-1]), wide.square().sum(1)])
    if passage.has_weight:
        found[f"{before}weight"] = _multiply_weights(f"{before}weight", passage, last)
    return found


def _multiply_weights(name: str, passage: Passage, last: dict[str, Tensor]) -> Tensor:
    """⟨g, g(1)⟩ and ‖g‖² of every point; in float64, which takes longer, where float32 has not the range."""
    count = len(passage.entered[0])
    # The last point of the line is the last one of the first pass.
    made = {} if name in last else {count - 1: last.setdefault(name, passage.weight(count - 1))}

    def multiply(dtype: torch.dtype) -> Tensor:
        final, pairs = last[name].to(dtype), list[Tensor]()
        for place in range(count):
            # Multiplied while it is in the processor's cache.
            here = (made[place] if place in made else passage.weight(place)).to(dtype)
            pairs += [here @ final, here @ here]
        return torch.stack(pairs).double().view(-1, 2).t()

    found = multiply(last[name].dtype)
    squares = torch.cat([found[1], (last[name] @ last[name]).double()[None]])
    if bool((squares > _SAFE[0]).all() and (squares < _SAFE[1]).all()):
        return found
    return multiply(torch.float64)


def _apart(model: nn.Module, line: Batch, loss: TrainingLoss) -> Products:
    """One point after the other, in any network."""
    weights = leaves(model)

    def at(point: int) -> list[Tensor]:
        one, target = line.inputs[point, None], line.targets[point, None]
        found = compute_gradient(model, weights, one, target, loss=loss, create_graph=False)
        # Squares of small numbers need the range.
        return [value.flatten().double() for value in found.values()]

    # One at a time, and only the products kept: the gradients of 21 points would fill memory.
    last = at(len(line.inputs) - 1)
    dots, squares = [], []
    for point in range(len(line.inputs)):
        here = at(point) if point < len(line.inputs) - 1 else last
        dots.append(torch.stack([one @ other for one, other in zip(here, last, strict=True)]))
        squares.append(torch.stack([one @ one for one in here]))
    return torch.stack(dots), torch.stack(squares)
