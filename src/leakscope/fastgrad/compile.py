"""From a traced network to an ordered list of steps on numbered values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from torch import Tensor, fx, nn

from leakscope.fastgrad.calls import overwrites
from leakscope.fastgrad.layer import Weighted
from leakscope.fastgrad.op import Memo, Op
from leakscope.fastgrad.second_pass import relative_movement
from leakscope.fastgrad.tiles import FromTiles, ToTiles
from leakscope.fastgrad.trace import Traced, trace
from leakscope.fastgrad.translate import translate
from leakscope.fastgrad.unsupported import Unsupported


@dataclass(frozen=True)
class Step:
    """values[output] = op(values[inputs]…); value 0 is the input of the network."""

    op: Op
    inputs: tuple[int, ...]
    output: int


@dataclass(frozen=True)
class Plan:
    """The steps of a network, and the four ways to walk through them.

    `result` is the value that holds the logits; `names` are the parameters with gradients.
    """

    steps: tuple[Step, ...]
    result: int
    names: tuple[str, ...]

    def forward(self, memos: list[Memo], inputs: Tensor) -> Tensor:
        """Logits of inputs [N, …]."""
        values = {0: inputs}
        for place, (step, memo) in enumerate(zip(self.steps, memos, strict=True)):
            values[step.output] = step.op.forward(memo, *(values[value] for value in step.inputs))
            self._forget(values, place)
        return values[self.result]

    def backward(self, memos: list[Memo], grad: Tensor) -> Tensor:
        """The cotangent of the inputs from that of the logits."""
        return self._back(memos, grad, rule="backward")

    def pull(self, memos: list[Memo], change: Tensor) -> Tensor:
        """The tangent of `backward` from the tangent of the logits' cotangent."""
        return self._back(memos, change, rule="pull")

    def push(self, memos: list[Memo]) -> Tensor:
        """The tangent of the logits from the changes of the weights in the memos."""
        values: dict[int, Tensor | None] = {0: None}
        for place, (step, memo) in enumerate(zip(self.steps, memos, strict=True)):
            values[step.output] = step.op.push(memo, *(values[value] for value in step.inputs))
            self._forget(values, place)
        found = values[self.result]
        if found is None:
            raise RuntimeError("no change of the weights reaches the logits")
        return found

    def movement(self, direction: Mapping[str, Tensor]) -> Tensor:
        """Relative movement [G, 1] of all weights together along `direction`."""
        return relative_movement([step.op.folded for step in self.steps if isinstance(step.op, Weighted)], direction)

    def _back(self, memos: list[Memo], grad: Tensor, *, rule: str) -> Tensor:
        grads = {self.result: grad}
        for step, memo in zip(reversed(self.steps), reversed(memos), strict=True):
            upstream = grads.pop(step.output, None)
            if upstream is None:
                continue
            for value, part in zip(step.inputs, getattr(step.op, rule)(memo, upstream), strict=True):
                grads[value] = grads[value] + part if value in grads else part
        return grads[0]

    def _forget(self, values: dict[int, Any], place: int) -> None:
        for value in self.last_reads[place]:
            del values[value]

    @cached_property
    def last_reads(self) -> tuple[tuple[int, ...], ...]:
        """For each step, the values nobody reads after it."""
        last = {value: place for place, step in enumerate(self.steps) for value in step.inputs}
        last.pop(self.result, None)
        return tuple(tuple(v for v, at in last.items() if at == place) for place in range(len(self.steps)))


def plan(model: nn.Module, example: Tensor) -> Plan:
    """Trace, translate, and put each value in the layout its readers want."""
    traced = trace(model, example)
    found, result = _steps(traced)
    return Plan(*_with_layouts(found, result), names=_names(model, found))


def _steps(traced: Traced) -> tuple[list[Step], int]:
    steps: list[Step] = []
    place: dict[fx.Node, int] = {}
    for node in traced.graph.nodes:
        if node.op == "placeholder":
            if place:
                raise Unsupported("the network has more than one input")
            place[node] = 0
        elif node.op == "output":
            return steps, _result(traced, node, place)
        elif node not in traced.constant and isinstance(traced.values[node], Tensor):
            _append(traced, node, steps, place)
    raise Unsupported("the network returns nothing")


def _append(traced: Traced, node: fx.Node, steps: list[Step], place: dict[fx.Node, int]) -> None:
    inputs = tuple(place[arg] for arg in node.all_input_nodes if arg in place)
    if node.args[:2] == (node.args[0],) * 2 and len(inputs) == 1:
        inputs *= 2  # x + x: all_input_nodes names each node once
    for op in translate(traced, node):
        output = len(steps) + 1
        steps.append(Step(op, inputs, output))
        inputs = (output,)
    place[node] = inputs[0]
    if overwrites(traced, node):
        # Whoever reads the overwritten value later sees the new one.
        place[node.all_input_nodes[0]] = inputs[0]


def _result(traced: Traced, node: fx.Node, place: dict[fx.Node, int]) -> int:
    value = node.args[0]
    if not isinstance(value, fx.Node) or value not in place or len(traced.shape(value)) != 1:
        raise Unsupported("the network must return one row of logits for each example")
    return place[value]


def _names(model: nn.Module, steps: list[Step]) -> tuple[str, ...]:
    used = [name for step in steps if isinstance(step.op, Weighted) for name in step.op.folded.names]
    twice = sorted({name for name in used if used.count(name) > 1})
    if twice:
        raise Unsupported(f"parameter {twice[0]} is used by more than one layer")
    return tuple(name for name, _ in model.named_parameters() if name in set(used))


def _with_layouts(steps: list[Step], result: int) -> tuple[tuple[Step, ...], int]:
    """Insert the changes between plain images and tiles; each value is changed at most once."""
    done: list[Step] = []
    layout = {0: "plain"}
    renamed: dict[tuple[int, str], int] = {(0, "plain"): 0}
    fresh = len(steps) + 1

    def fetch(value: int, wanted: str) -> int:
        nonlocal fresh
        if (value, wanted) not in renamed:
            change = ToTiles() if wanted == "tiles" else FromTiles()
            done.append(Step(change, (renamed[value, layout[value]],), fresh))
            renamed[value, wanted] = fresh
            fresh += 1
        return renamed[value, wanted]

    for step in steps:
        wanted = step.op.layout
        if wanted == "any":
            wanted = "tiles" if any(layout[value] == "tiles" for value in step.inputs) else "plain"
        inputs = tuple(fetch(value, wanted) for value in step.inputs)
        done.append(replace(step, inputs=inputs))
        layout[step.output] = wanted
        renamed[step.output, wanted] = step.output
    return tuple(done), result
