"""From a network to a program: which rule serves which call, and the order of the instructions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from leakscope.errors import UsageError
from leakscope.fastgrad import activations, connections, convolution, linear, pooling
from leakscope.fastgrad.layer import CompiledLayer
from leakscope.fastgrad.losses import choose_rule
from leakscope.fastgrad.memory import keep_freed_memory
from leakscope.fastgrad.program import Instruction, Program
from leakscope.fastgrad.second_pass import Differences, Tangents
from leakscope.fastgrad.tail import TailProgram, split_before
from leakscope.fastgrad.trace import Trace, Unsupported, overwrites_input, trace_network
from leakscope.fastgrad.winograd import FromTiles, ToTiles
from leakscope.networks import is_normalisation
from leakscope.types import Loss

Mode = Literal["differences", "tangents"]
Compiled = TypeVar("Compiled", Program, TailProgram)
CompileCall = Callable[[Trace, fx.Node], list[CompiledLayer]]

SECOND_PASSES = {"differences": Differences, "tangents": Tangents}

MODULES: dict[type[nn.Module], CompileCall] = {
    nn.Conv2d: convolution.compile_convolution,
    nn.Linear: linear.compile_linear,
    nn.BatchNorm1d: linear.compile_batch_norm,
    nn.BatchNorm2d: linear.compile_batch_norm,
    nn.ReLU: activations.compile_relu,
    nn.LeakyReLU: activations.compile_leaky_relu,
    nn.Sigmoid: activations.compile_sigmoid,
    nn.Tanh: activations.compile_tanh,
    nn.SiLU: activations.compile_silu,
    nn.GELU: activations.compile_gelu,
    nn.Softplus: activations.compile_softplus,
    nn.MaxPool2d: pooling.compile_max_pool,
    nn.AvgPool2d: pooling.compile_average_pool,
    nn.AdaptiveAvgPool2d: pooling.compile_adaptive_pool,
    nn.Flatten: connections.compile_reshape,
    nn.Unflatten: connections.compile_reshape,
    nn.Identity: connections.compile_identity,
    nn.Dropout: connections.compile_dropout,
    nn.Dropout2d: connections.compile_dropout,
}

_RELU = (torch.relu, torch.relu_, functional.relu, functional.relu_, "relu", "relu_")
_RESHAPE = (torch.flatten, torch.reshape, torch.squeeze, torch.unsqueeze)
_RESHAPE_METHODS = ("flatten", "view", "reshape", "squeeze", "unsqueeze")

CALLS: dict[Any, CompileCall] = {
    **dict.fromkeys(connections.ARITHMETIC, connections.compile_arithmetic),
    **dict.fromkeys(_RELU, activations.compile_relu),
    **dict.fromkeys((functional.leaky_relu, functional.leaky_relu_), activations.compile_leaky_relu),
    **dict.fromkeys((torch.sigmoid, functional.sigmoid, "sigmoid", "sigmoid_"), activations.compile_sigmoid),
    **dict.fromkeys((torch.tanh, functional.tanh, "tanh", "tanh_"), activations.compile_tanh),
    **dict.fromkeys((*_RESHAPE, *_RESHAPE_METHODS), connections.compile_reshape),
    **dict.fromkeys((torch.mean, "mean"), pooling.compile_mean),
    **dict.fromkeys((torch.max_pool2d, functional.max_pool2d), pooling.compile_max_pool),
    **dict.fromkeys((functional.dropout, functional.dropout2d), connections.compile_dropout),
    functional.silu: activations.compile_silu,
    functional.gelu: activations.compile_gelu,
    functional.softplus: activations.compile_softplus,
    functional.avg_pool2d: pooling.compile_average_pool,
    functional.adaptive_avg_pool2d: pooling.compile_adaptive_pool,
    functional.pad: connections.compile_pad,
    operator.getitem: connections.compile_slice,
    "contiguous": connections.compile_identity,
}


def compile_network(model: nn.Module, *, loss: Loss, example: Tensor, mode: Mode = "differences") -> Program:
    """Compile `model` for matching the gradients of all its parameters; the model is read once.

    Args:
        model: made of the calls that `MODULES` and `CALLS` list, without active dropout. Batch norm in training mode
            uses the statistics of every group; running such a model moves its running ones, so give a copy.
        loss: mean cross-entropy in closed form, or any loss(logits, targets) → scalar.
        example: inputs of one group, [n, *input_shape]; its values do not matter.
        mode: "differences" (faster, within a few 1e-3 in float32) or "tangents" (exact).

    Raises:
        Unsupported: some part of the network has no rule; the message names it.
    """
    instructions, result = _read(model, example, mode)
    return _check_logits(_link(model, instructions, result, loss=loss, mode=mode), model, example)


def compile_tail(
    model: nn.Module, wanted: Collection[str], *, loss: Loss, example: Tensor, mode: Mode = "differences"
) -> Program | TailProgram:
    """As `compile_network`, for matching the gradients of the parameters `wanted` alone.

    What comes before the first of them runs once forward and once back. Where nothing can be cut off, all of the
    network is one program.
    """
    instructions, result = _read(model, example, mode)
    cut = split_before(instructions, wanted)
    if cut is None:
        return _check_logits(_link(model, instructions, result, loss=loss, mode=mode), model, example)
    head = _link(model, cut.head, cut.value, loss=loss, mode=mode)
    tail = _link(model, cut.tail, result, loss=loss, mode=mode)
    return _check_logits(TailProgram(head, tail), model, example)


def _read(model: nn.Module, example: Tensor, mode: Mode) -> tuple[list[Instruction], int]:
    if mode not in SECOND_PASSES:
        raise UsageError(f"mode must be 'differences' or 'tangents', got {mode!r}")
    keep_freed_memory(example)
    with torch.no_grad():
        instructions, result = _compile_nodes(trace_network(model, example))
    # Over all of them: a parameter of two layers may stand in both parts of a network that is cut.
    _list_names(model, instructions)
    return instructions, result


@torch.no_grad()
def _link(model: nn.Module, instructions: list[Instruction], result: int, *, loss: Loss, mode: Mode) -> Program:
    laid_out, plain = _change_layouts(instructions, result)
    names = _list_names(model, instructions)
    return Program(laid_out, plain, names, loss=choose_rule(loss), second=SECOND_PASSES[mode]())


@torch.no_grad()
def _check_logits(program: Compiled, model: nn.Module, example: Tensor) -> Compiled:
    expected, found = _run_model(model, example), program.logits(example)
    scale = expected.abs().max().clamp_min(torch.finfo(expected.dtype).tiny)
    if found.shape != expected.shape or not bool((found - expected).abs().max() <= 1e-3 * scale):
        raise Unsupported("the compiled network does not reproduce the logits of the model")
    return program


def _run_model(model: nn.Module, example: Tensor) -> Tensor:
    try:
        return model(example.clone())
    except ValueError as error:  # batch norm in training mode with one value per channel
        raise Unsupported(f"the network does not take {len(example)} examples: {error}") from error


def _compile_nodes(trace: Trace) -> tuple[list[Instruction], int]:
    """Instructions in the order of the trace, and the value that holds the logits."""
    instructions: list[Instruction] = []
    places: dict[fx.Node, int] = {}
    for node in trace.graph.nodes:
        if node.op == "placeholder":
            if places:
                raise Unsupported("the network has more than one input")
            places[node] = 0
        elif node.op == "output":
            return instructions, _find_result(trace, node, places)
        elif node not in trace.constant and isinstance(trace.values[node], Tensor):
            _append_node(trace, node, instructions=instructions, places=places)
    raise Unsupported("the network returns nothing")


def _append_node(trace: Trace, node: fx.Node, *, instructions: list[Instruction], places: dict[fx.Node, int]) -> None:
    inputs = tuple(places[arg] for arg in node.all_input_nodes if arg in places)
    for arg in node.all_input_nodes:
        if arg in trace.constant and (names := trace.trained_inside(arg)):
            # As a constant it would get no gradient, and what it adds to one would be left out.
            raise Unsupported(f"{node.name} uses parameter {names[0]} outside a known layer")
    if node.args[:2] == (node.args[0],) * 2 and len(inputs) == 1:
        inputs *= 2  # x + x: all_input_nodes names each node once
    for layer in _compile_node(trace, node):
        output = len(instructions) + 1
        instructions.append(Instruction(layer, inputs, output))
        inputs = (output,)
    places[node] = inputs[0]
    if overwrites_input(trace, node):
        # Whoever reads the overwritten value later sees the new one.
        places[node.all_input_nodes[0]] = inputs[0]


def _compile_node(trace: Trace, node: fx.Node) -> list[CompiledLayer]:
    """The layers, in order, that compute this node from its inputs ([] for identity)."""
    if node.op == "call_module":
        module = trace.module(node)
        rule, what = MODULES.get(type(module)), type(module).__name__
        if is_normalisation(module):
            rule = connections.compile_normalise
    else:
        rule, what = CALLS.get(node.target), str(getattr(node.target, "__name__", node.target))
    if rule is None:
        raise Unsupported(f"no rule for {what} (node {node.name!r})")
    return rule(trace, node)


def _find_result(trace: Trace, node: fx.Node, places: dict[fx.Node, int]) -> int:
    value = node.args[0]
    if not isinstance(value, fx.Node) or value not in places or len(trace.shape(value)) != 1:
        raise Unsupported("the network must return one row of logits for each example")
    return places[value]


def _list_names(model: nn.Module, instructions: list[Instruction]) -> tuple[str, ...]:
    """Names of the parameters with gradients, in the order of the model."""
    used = [part.name for instruction in instructions for part in instruction.layer.parameters if part.name]
    twice = sorted({name for name in used if used.count(name) > 1})
    if twice:
        raise Unsupported(f"parameter {twice[0]} is used by more than one layer")
    return tuple(name for name, _ in model.named_parameters() if name in set(used))


def _change_layouts(instructions: list[Instruction], result: int) -> tuple[tuple[Instruction, ...], int]:
    """Insert the changes between plain images and tiles, each value at most once; the result is plain."""
    done: list[Instruction] = []
    layouts = {0: "plain"}
    renamed: dict[tuple[int, str], int] = {(0, "plain"): 0}
    fresh = 1 + max((one.output for one in instructions), default=0)

    def fetch(value: int, wanted: str) -> int:
        nonlocal fresh
        if (value, wanted) not in renamed:
            change = ToTiles() if wanted == "tiles" else FromTiles()
            done.append(Instruction(change, (renamed[value, layouts[value]],), fresh))
            renamed[value, wanted] = fresh
            fresh += 1
        return renamed[value, wanted]

    for instruction in instructions:
        wanted = instruction.layer.layout
        if wanted == "any":
            wanted = "tiles" if any(layouts[value] == "tiles" for value in instruction.inputs) else "plain"
        inputs = tuple(fetch(value, wanted) for value in instruction.inputs)
        done.append(replace(instruction, inputs=inputs))
        layouts[instruction.output] = wanted
        renamed[instruction.output, wanted] = instruction.output
    plain = fetch(result, "plain")
    return tuple(done), plain
