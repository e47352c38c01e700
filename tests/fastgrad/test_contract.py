"""What callers may rely on besides the numbers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from leakscope.errors import UsageError
from leakscope.fastgrad import Unsupported, compile_network

MODES = ["differences", "tangents"]


def _snapshot(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("mode", MODES)
def test_same_inputs_same_bytes_and_model_untouched(bench, mode):
    model = bench.network("resnet", torch.float32)
    before, hooks = _snapshot(model), [len(m._forward_hooks) for m in model.modules()]
    inputs, targets = bench.problem(2, 1, dtype=torch.float32)
    kept = inputs.clone()
    results = []
    for _ in range(2):
        network = compile_network(model, loss=functional.cross_entropy, example=inputs[0], mode=mode)
        first = network.gradients(inputs, targets)
        results.append((first.gradients, network.pullback(first, first.gradients)[0]))
    assert torch.equal(results[0][1], results[1][1])
    assert all(torch.equal(value, results[1][0][name]) for name, value in results[0][0].items())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert hooks == [len(m._forward_hooks) for m in model.modules()]
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert torch.equal(inputs, kept)


@pytest.mark.parametrize("mode", MODES)
def test_passes_may_be_interleaved_and_pulled_back_twice(bench, mode):
    model = bench.network("convnet", torch.float32)
    inputs, targets = bench.problem(1, 2, dtype=torch.float32)
    others = bench.problem(1, 2, seed=5, dtype=torch.float32)[0]
    network = compile_network(model, loss=functional.cross_entropy, example=inputs[0], mode=mode)
    first = network.gradients(inputs, targets)
    direction = {name: value.sign() for name, value in first.gradients.items()}
    alone = network.pullback(first, direction)[0]
    second = network.gradients(others, targets)
    network.pullback(second, direction)
    again = network.pullback(first, direction)[0]
    if mode == "tangents":
        assert torch.equal(again, alone)
    else:
        assert bench.error(again, alone) < 5e-3


@pytest.mark.parametrize("mode", MODES)
def test_missing_names_stand_for_zero(bench, mode):
    model = bench.network("convnet")
    inputs, targets = bench.problem(2, 1, soft=True)
    network = compile_network(model, loss=functional.cross_entropy, example=inputs[0], mode=mode)
    first = network.gradients(inputs, targets)
    tolerance = 1e-9 if mode == "tangents" else 1e-5
    for names in (network.names[-1:], network.names[1:3], network.names[:1], network.names[2:5:2]):
        direction = {name: first.gradients[name].cos() for name in names}
        expected = bench.oracle(model, inputs, targets, direction)
        to_inputs, to_targets = network.pullback(first, direction)
        assert bench.error(to_inputs, expected.inputs) < tolerance, names
        assert bench.error(to_targets, expected.targets) < tolerance, names
    to_inputs, to_targets = network.pullback(first, {})
    assert not to_inputs.any()
    assert not to_targets.any()


@pytest.mark.parametrize("mode", MODES)
def test_any_loss_works_through_the_logits(bench, mode):
    def squares(logits: Tensor, targets: Tensor) -> Tensor:
        return ((logits.softmax(-1) - targets) ** 2).sum(-1).mean()

    model = bench.network("lenet")
    inputs, targets = bench.problem(2, 2, soft=True)
    network = compile_network(model, loss=squares, example=inputs[0], mode=mode)
    first = network.gradients(inputs, targets)
    direction = {name: value.cos() for name, value in first.gradients.items()}
    expected = bench.oracle(model, inputs, targets, direction, loss=squares)
    to_inputs, to_targets = network.pullback(first, direction)
    tolerance = 1e-9 if mode == "tangents" else 1e-5
    assert bench.error(to_inputs, expected.inputs) < tolerance
    assert bench.error(to_targets, expected.targets) < tolerance


def test_closed_form_and_general_cross_entropy_agree(bench):
    model = bench.network("mlp")
    inputs, targets = bench.problem(2, 3)
    losses = (functional.cross_entropy, nn.CrossEntropyLoss(), lambda z, t: functional.cross_entropy(z, t))
    results = []
    for loss in losses:
        network = compile_network(model, loss=loss, example=inputs[0], mode="tangents")
        first = network.gradients(inputs, targets)
        results.append(network.pullback(first, first.gradients)[0])
    assert bench.error(results[1], results[0]) < 1e-12
    assert bench.error(results[2], results[0]) < 1e-12


def test_label_smoothing_is_not_mistaken_for_plain_cross_entropy(bench):
    loss = nn.CrossEntropyLoss(label_smoothing=0.2)
    model = bench.network("mlp")
    inputs, targets = bench.problem(1, 2)
    network = compile_network(model, loss=loss, example=inputs[0], mode="tangents")
    first = network.gradients(inputs, targets)
    expected = bench.oracle(model, inputs, targets, first.gradients, loss=loss)
    assert bench.error(network.pullback(first, first.gradients)[0], expected.inputs) < 1e-9


class Branching(nn.Module):
    """Control flow that depends on values."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(768, 10)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x.flatten(1))
        return y if y.sum() > 0 else -y


class Product(Branching):
    """Two branches multiplied."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x.flatten(1))
        return y * torch.sigmoid(y)


class Mixing(Branching):
    """Examples of a batch added to each other."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x.flatten(1))
        return y - y.mean(0, keepdim=True)


class Counting(Branching):
    """Arithmetic with the batch size."""

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.flatten(1)) * x.size(0)


class Tied(nn.Module):
    """One parameter in two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(768, 768), nn.Linear(768, 768)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x.flatten(1)))


class Pair(nn.Module):
    """Two outputs."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.flatten(1), x


def _hooked() -> nn.Module:
    model = nn.Sequential(nn.Flatten(), nn.Linear(768, 10))
    model[1].register_forward_hook(lambda module, args, output: torch.neg(output))
    return model


REFUSED = {
    "control flow": (Branching, "cannot be traced"),
    "product of branches": (Product, "may only be added"),
    "mean over the batch": (Mixing, "batch"),
    "batch size in arithmetic": (Counting, "shape of its input"),
    "shared parameter": (Tied, "more than one layer"),
    "two outputs": (Pair, "one row of logits"),
    "hooks": (_hooked, "hooks"),
    "unknown layer": (lambda: nn.Sequential(nn.Flatten(), nn.LayerNorm(768), nn.Linear(768, 10)), "LayerNorm"),
    "approximate gelu": (lambda: nn.Sequential(nn.Flatten(), nn.GELU("tanh"), nn.Linear(768, 10)), "options"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_a_reason(bench, name):
    build, reason = REFUSED[name]
    inputs, _ = bench.problem(1, 2)
    with pytest.raises(Unsupported, match=reason):
        compile_network(build().double().eval(), loss=functional.cross_entropy, example=inputs[0])


def test_active_dropout_is_refused(bench):
    model = nn.Sequential(nn.Dropout(0.5), nn.Flatten(), nn.Linear(768, 10)).double().train()
    inputs, _ = bench.problem(1, 2)
    with pytest.raises(Unsupported, match="evaluation mode"):
        compile_network(model, loss=functional.cross_entropy, example=inputs[0])


def test_unknown_mode_is_misuse(bench):
    inputs, _ = bench.problem(1, 1)
    with pytest.raises(UsageError, match="'exact'"):
        compile_network(bench.network("mlp"), loss=functional.cross_entropy, example=inputs[0], mode="exact")


@pytest.mark.parametrize("mode", MODES)
def test_only_tangents_keep_what_entered_the_layers(bench, mode):
    # Differences run the layers again instead: the peak memory of an attack depends on it.
    inputs, targets = bench.problem(1, 2)
    network = compile_network(bench.network("convnet"), loss=functional.cross_entropy, example=inputs[0], mode=mode)
    first = network.gradients(inputs, targets)
    steps = zip(network.instructions, first.memos, strict=True)
    weighted = [memo for instruction, memo in steps if instruction.layer.parameters]
    assert len(weighted) == 7
    assert all(memo.gradient is None for memo in weighted)
    assert {memo.entered is not None for memo in weighted} == {mode == "tangents"}
    assert {memo.upstream is not None for memo in weighted} == {mode == "tangents"}
