"""Products of the gradients at the points of a line: all ways to compute them give those of plain backward passes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from leakscope.defences.transforms import gradient_products as products
from leakscope.defences.transforms.gradient_products import gradient_products
from leakscope.models import load_network
from leakscope.rng import generator, uniform
from leakscope.types import Batch


class Network(nn.Module):
    """Strides, channel groups, dilation, biases and norms with statistics of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.apart = nn.Conv2d(4, 6, 3, padding=2, dilation=2, groups=2, bias=False)
        self.last = nn.Linear(6, 3)
        with torch.no_grad():
            assert self.norm.running_mean is not None
            assert self.norm.running_var is not None
            self.norm.running_mean.uniform_(-1, 1, generator=generator(1))
            self.norm.running_var.uniform_(0.5, 2, generator=generator(2))

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = functional.relu_(self.norm(self.stem(inputs)))
        return self.last(torch.tanh(self.apart(hidden)).mean((2, 3)))


class Tied(Network):
    """A weight that is also used outside its layer."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs) + self.last.weight.square().sum() * inputs.mean((1, 2, 3))[
            :, None
        ] * torch.arange(3)


class Twice(Network):
    """A layer that is called twice."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs) + self.last(self.norm(self.stem(inputs)).mean((2, 3)).repeat(1, 2)[:, :6])


class Mixed(Network):
    """Examples of a batch meet."""

    def forward(self, inputs: Tensor) -> Tensor:
        found = super().forward(inputs)
        return found + found.detach().mean(0) * found


class Single(Network):
    """One example at a time."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs.reshape(1, 1, 8, 8))


class Other(Network):
    """A layer without a rule."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.GroupNorm(3, 6)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = functional.relu(self.norm(self.stem(inputs)))
        return self.last(self.scale(self.apart(hidden)).square().mean((2, 3)))


class Unused(Network):
    """A layer that is not called."""

    def __init__(self) -> None:
        super().__init__()
        self.spare = nn.Linear(2, 2)


def build(kind: type[Network]) -> Network:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return kind().double().eval()


def line_of(count: int, *, shape: tuple[int, ...] = (1, 8, 8), dtype: torch.dtype = torch.float64) -> Batch:
    inputs = uniform((count, *shape), generator(5)).to(dtype)
    return Batch(inputs, torch.full((count,), 2))


def by_hand(model: nn.Module, line: Batch) -> tuple[Tensor, Tensor]:
    """A backward pass for every point."""
    rows = []
    for place in range(len(line.inputs)):
        loss = functional.cross_entropy(model(line.inputs[place, None]), line.targets[place, None])
        wanted = [value for value in model.parameters() if value.requires_grad]
        found = torch.autograd.grad(loss, wanted, allow_unused=True, materialize_grads=True)
        rows.append([value.flatten().double() for value in found])
    dots = [[one @ last for one, last in zip(row, rows[-1], strict=True)] for row in rows]
    squares = [[one @ one for one in row] for row in rows]
    return torch.tensor(dots), torch.tensor(squares)


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every network counts as large; the points of each pass through one."""
    passes: list[int] = []
    plain = products._pass

    def noted(model: nn.Module, points: Batch, loss: products.TrainingLoss) -> dict | None:
        passes.append(len(points.inputs))
        return plain(model, points, loss)

    monkeypatch.setattr(products, "_LARGE_NETWORK", 0)
    monkeypatch.setattr(products, "_pass", noted)
    return passes


def check(model: nn.Module, line: Batch) -> None:
    expected = by_hand(model, line)
    found = gradient_products(model, line, loss=functional.cross_entropy)
    assert float(expected[1].min()) >= 0
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize(("most", "passes"), [(65_536, [5]), (128, [2, 2, 1]), (1, [1] * 5)])
def test_points_that_pass_together_give_the_products_of_single_ones(large, monkeypatch, most, passes):
    monkeypatch.setattr(products, "_MOST_TOGETHER", most)
    model = build(Network)
    check(model, line_of(5))
    trial = 1 if most >= 128 else 2
    assert large[trial:] == passes


@pytest.mark.parametrize("kind", [Tied, Twice, Mixed, Single, Other, Unused])
def test_networks_that_cannot_be_taken_apart_are_gone_through_point_by_point(large, kind):
    check(build(kind), line_of(4))
    assert max(large, default=0) <= 2, "passed together"


@pytest.mark.parametrize("kind", [Network, Tied, Other])
def test_small_networks_are_vectorised_and_give_the_same(kind):
    check(build(kind), line_of(4))


def test_frozen_parameters_are_left_out(large):
    model = build(Network)
    model.stem.weight.requires_grad_(False)
    model.last.bias.requires_grad_(False)
    found, _ = gradient_products(model, line_of(3), loss=functional.cross_entropy)
    assert found.shape == (3, 5)
    check(model, line_of(3))
    assert large[-1] == 3


@pytest.mark.parametrize("factor", [1e-24, 1e16])
def test_gradients_beyond_the_squares_of_float32_are_multiplied_in_float64(large, factor):
    model, line = build(Network).float(), line_of(3, dtype=torch.float32)

    def scaled(output: Tensor, targets: Tensor) -> Tensor:
        return factor * functional.cross_entropy(output, targets)

    plain = gradient_products(model, line, loss=functional.cross_entropy)
    far = gradient_products(model, line, loss=scaled)
    torch.testing.assert_close([one / factor**2 for one in far], list(plain), rtol=1e-4, atol=1e-9)
    assert large[-1] == 3


def test_the_network_is_left_as_it_was(large):
    model = build(Network)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    gradient_products(model, line_of(3), loss=functional.cross_entropy)
    assert large[-1] == 3
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(value.grad is None and value.requires_grad for value in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())


def test_the_network_of_the_paper_passes_together_in_float32(large):
    model = load_network("resnet20-4", shape=(1, 28, 28), classes=10, seed=0).eval()
    line = line_of(3, shape=(1, 28, 28), dtype=torch.float32)
    dots, squares = by_hand(model, line)
    found = gradient_products(model, line, loss=functional.cross_entropy)
    assert large == [2, 3]
    lengths = (squares * squares[-1]).sqrt()
    torch.testing.assert_close(found[0] / lengths, dots / lengths, rtol=0, atol=1e-4)
    torch.testing.assert_close(found[1], squares, rtol=1e-4, atol=0)
