"""Every rule on a small network, exact tangents against double backward."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from leakscope.fastgrad import compile_network
from leakscope.models import Normalise


class Body(nn.Module):
    """Convolution, then something, then a linear layer that fits."""

    def __init__(self, middle, features: int) -> None:
        super().__init__()
        self.front = nn.Conv2d(3, 6, 3, padding=1)
        self.middle = middle
        self.tail = nn.Linear(features, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.tail(torch.flatten(self.middle(self.front(x)), 1))


class Call(nn.Module):
    """A function inside a network."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def _residual(x: Tensor) -> Tensor:
    y = torch.sigmoid(x) * 2
    y += x
    return torch.add(y, x) * 0.5


def _in_place(x: Tensor) -> Tensor:
    y = x + 1.0
    functional.relu(y, inplace=True)
    return y * 2 - 0.5


FULL, HALF = 6 * 256, 6 * 64
MIDDLES = {
    "identity": (lambda: nn.Identity(), FULL),
    "relu": (lambda: nn.ReLU(inplace=True), FULL),
    "leaky": (lambda: nn.LeakyReLU(0.2), FULL),
    "sigmoid": (lambda: nn.Sigmoid(), FULL),
    "tanh": (lambda: nn.Tanh(), FULL),
    "softplus": (lambda: nn.Softplus(), FULL),
    "silu": (lambda: nn.SiLU(), FULL),
    "gelu": (lambda: nn.GELU(), FULL),
    "dropout": (lambda: nn.Dropout(0.5), FULL),
    "norm alone": (lambda: nn.Sequential(nn.Tanh(), nn.BatchNorm2d(6)), FULL),
    "norm folded": (lambda: nn.BatchNorm2d(6), FULL),
    "norm without affine": (lambda: nn.BatchNorm2d(6, affine=False), FULL),
    "max pool": (lambda: nn.MaxPool2d(2), HALF),
    "overlapping max pool": (lambda: nn.MaxPool2d(3, 2, 1), HALF),
    "average pool": (lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=False), HALF),
    "adaptive pool": (lambda: nn.AdaptiveAvgPool2d((3, 5)), 90),
    "global pool": (lambda: nn.AdaptiveAvgPool2d(1), 6),
    "strided": (lambda: nn.Conv2d(6, 4, 5, 2, 2), 256),
    "dilated": (lambda: nn.Conv2d(6, 4, 3, padding=2, dilation=2, bias=False), 1024),
    "grouped": (lambda: nn.Conv2d(6, 4, 3, padding=1, groups=2), 1024),
    "same padding": (lambda: nn.Conv2d(6, 4, 5, padding="same"), 1024),
    "valid padding": (lambda: nn.Conv2d(6, 4, 3, padding="valid"), 784),
    "F.relu": (lambda: Call(functional.relu), FULL),
    "F.leaky_relu": (lambda: Call(lambda x: functional.leaky_relu(x, 0.3)), FULL),
    "F.max_pool2d": (lambda: Call(lambda x: functional.max_pool2d(x, 2)), HALF),
    "F.avg_pool2d": (lambda: Call(lambda x: functional.avg_pool2d(x, 2)), HALF),
    "F.adaptive": (lambda: Call(lambda x: functional.adaptive_avg_pool2d(x, 1)), 6),
    "F.dropout": (lambda: Call(lambda x: functional.dropout(x, 0.5, training=False)), FULL),
    "mean": (lambda: Call(lambda x: x.mean(dim=[2, 3])), 6),
    "mean of rows": (lambda: Call(lambda x: torch.mean(x, 3, keepdim=True)), 96),
    "view": (lambda: Call(lambda x: x.view(x.size(0), -1)), FULL),
    "reshape": (lambda: Call(lambda x: x.reshape(-1, 3, 2, 256)), FULL),
    "slice": (lambda: Call(lambda x: x[:, 1:5, ::2, ::2]), 256),
    "pad": (lambda: Call(lambda x: functional.pad(x[:, :, ::2, ::2], (0, 0, 1, 0, 2, 1))), 9 * 9 * 8),
    "residual": (lambda: Call(_residual), FULL),
    "twice": (lambda: Call(lambda x: x + x), FULL),
    "in place": (lambda: Call(_in_place), FULL),
    "constants": (lambda: Call(lambda x: 1.0 - (x - 0.5) / 0.25 * torch.pi), FULL),
}


def _assert_rule(bench, model: nn.Module, *, groups: int = 2, n: int = 2) -> None:
    inputs, targets = bench.problem(groups, n)
    network = compile_network(model, loss=functional.cross_entropy, example=inputs[0], mode="tangents")
    first = network.gradients(inputs, targets)
    direction = {name: torch.sin(37 * value) for name, value in first.gradients.items()}
    expected = bench.oracle(model, inputs, targets, direction)
    assert first.gradients.keys() == expected.gradients.keys()
    for name, value in expected.gradients.items():
        torch.testing.assert_close(first.gradients[name], value, rtol=1e-9, atol=1e-12)
    assert bench.error(network.pullback(first, direction)[0], expected.inputs) < 1e-9


@pytest.mark.parametrize("name", MIDDLES)
def test_rule(bench, name):
    middle, features = MIDDLES[name]
    _assert_rule(bench, bench.settle(Body(middle(), features)))


def test_input_normalisation(bench):
    body = Body(nn.ReLU(), FULL)
    _assert_rule(bench, bench.settle(nn.Sequential(Normalise((0.5, 0.4, 0.3), (0.2, 0.3, 0.4)), body)))


def test_frozen_parameters_have_no_gradient_but_keep_their_part(bench):
    model = bench.settle(Body(nn.Sequential(nn.BatchNorm2d(6), nn.ReLU()), FULL))
    model.front.weight.requires_grad_(False)
    model.middle[0].bias.requires_grad_(False)
    model.tail.bias.requires_grad_(False)
    _assert_rule(bench, model)


def test_a_norm_scaled_to_zero_still_has_its_gradient(bench):
    model = bench.settle(Body(nn.Sequential(nn.BatchNorm2d(6), nn.ReLU()), FULL))
    model.middle[0].weight.data[2:4] = 0
    _assert_rule(bench, model)
