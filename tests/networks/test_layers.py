"""The normalisation of inputs: by its class, or by one rule; the one that runs first."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from leakscope import networks
from leakscope.attacks.closed.recursive.layer_chain import take_apart
from leakscope.errors import UnsuitableError
from leakscope.fastgrad import compile_network
from leakscope.models import Normalise, build
from leakscope.networks import InputNormalisation, find_normalisation, is_normalisation, norm_layers, norm_statistics

IMAGES = torch.rand(4, 2, 5, 5, generator=torch.Generator().manual_seed(0))


class Own(nn.Module):
    """A user's own, under a name of its own."""

    def __init__(self, *, as_buffers: bool = True) -> None:
        super().__init__()
        for name, values in (("mean", [0.2, 0.4]), ("std", [0.5, 0.25])):
            value = torch.tensor(values)[:, None, None]
            self.register_buffer(name, value) if as_buffers else setattr(self, name, value)

    def forward(self, images):
        return (images - self.mean) / self.std


class Otherwise(Own):
    """Has the tensors and does something else."""

    def forward(self, images):
        return images * self.std + self.mean


class Learnt(Own):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))


class Holder(Own):
    """A whole network that happens to keep its constants itself."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)


def network(first: nn.Module) -> nn.Sequential:
    return nn.Sequential(first, nn.Flatten(), nn.Linear(50, 3, bias=True)).eval()


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (Normalise((0.5,), (0.2,)), True),
        (Own(), True),
        (Own(as_buffers=False), True),
        (Learnt(), False),
        (Holder(), False),
        (nn.BatchNorm2d(2), False),
        (nn.LayerNorm(2), False),
        (nn.Identity(), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_one_rule_says_what_normalises_inputs(module, expected):
    assert is_normalisation(module) is expected
    assert isinstance(module, InputNormalisation) is isinstance(module, Normalise)


def test_constants_are_found_in_reference_networks_and_in_ones_own():
    model = build("lenet5", in_channels=2, image_size=32, normalise=([0.1, 0.2], [0.3, 0.4]))
    mean, std = find_normalisation(model, (2, 32, 32)) or (None, None)
    torch.testing.assert_close((mean, std), (torch.tensor([0.1, 0.2]), torch.tensor([0.3, 0.4])))
    own, _std = find_normalisation(network(Own()), (2, 5, 5)) or (None, None)
    assert own.flatten().tolist() == pytest.approx([0.2, 0.4])
    assert find_normalisation(network(nn.Identity()), (2, 5, 5)) is None
    # Constants for another number of channels are of something inside, not of the input.
    assert find_normalisation(network(Own()), (3, 5, 5)) is None


class Late(nn.Module):
    """Registers its layers in the order opposite to that in which they run."""

    def __init__(self) -> None:
        super().__init__()
        self.second, self.first = Normalise((0.0, 0.0), (2.0, 2.0)), Normalise((0.3, 0.3), (1.0, 1.0))

    def forward(self, images):
        return self.second(self.first(images)).flatten(1)


def test_of_two_the_one_that_runs_first_counts():
    mean, _std = find_normalisation(Late(), (2, 5, 5)) or (None, None)
    assert mean.tolist() == pytest.approx([0.3, 0.3])


def test_a_module_of_ones_own_is_compiled_and_taken_apart_like_ours():
    model = network(Own())
    compiled = compile_network(model, loss=nn.functional.cross_entropy, example=IMAGES)
    torch.testing.assert_close(compiled.logits(IMAGES), model(IMAGES))
    chain = take_apart(model, (2, 5, 5))
    assert chain.reason is None
    assert [block.name for block in chain.blocks] == ["2"]
    torch.testing.assert_close(chain.to_inputs(model[0](IMAGES[:1]).double()).float(), IMAGES[0])


def test_a_module_that_does_something_else_with_its_constants_is_not_believed():
    chain = take_apart(network(Otherwise()), (2, 5, 5))
    assert chain.blocks == ()
    assert "does something else" in chain.reason


def test_statistics_are_those_of_what_each_norm_layer_receives():
    model = nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(27, 4), nn.BatchNorm1d(4)
    ).eval()
    images = IMAGES.clone().requires_grad_()
    found = norm_statistics(model, images)
    assert list(found) == list(norm_layers(model)) == ["1", "4"]
    maps = model[0](IMAGES)
    torch.testing.assert_close(found["1"][0], maps.mean((0, 2, 3)))
    torch.testing.assert_close(found["1"][1], maps.var((0, 2, 3), unbiased=False))
    features = model[:4](IMAGES)
    torch.testing.assert_close(found["4"][1], features.var(0, unbiased=False))
    assert found["4"][0].requires_grad


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(50, 50), nn.Linear(50, 50)

    def forward(self, images):
        hidden = torch.sigmoid(self.first(images.flatten(1)))
        return self.second(hidden) + hidden


class Tied(Residual):
    def forward(self, images):
        return self.second(nn.functional.leaky_relu(self.first(self.first(images.view(images.size(0), -1))), 0.3))


def test_a_network_is_taken_apart_up_to_its_first_branch():
    chain = networks.take_apart(Residual(), (2, 5, 5))
    assert [type(step.layer) for step in chain.steps] == [nn.Identity, nn.Linear, nn.Sigmoid]
    assert (chain.steps[1].name, chain.steps[1].in_shape, chain.steps[1].out_shape) == ("first", (50,), (50,))
    assert "is used 2 times" in chain.reason
    model = Residual()
    step = networks.take_apart(model, (2, 5, 5)).steps[1]
    torch.testing.assert_close(step.returned, model.first(step.received))
    assert step.layer is not model.first


def test_weights_that_serve_twice_are_marked_and_the_whole_chain_has_no_reason():
    chain = networks.take_apart(Tied(), (2, 5, 5))
    assert chain.reason is None
    assert [(step.name, step.shared) for step in chain.steps if isinstance(step.layer, nn.Linear)] == [
        ("first", True),
        ("first", True),
        ("second", False),
    ]
    assert [step.layer.negative_slope for step in chain.steps if isinstance(step.layer, nn.LeakyReLU)] == [0.3]


def test_what_cannot_be_traced_is_named():
    model = Residual()
    model.first.register_forward_hook(lambda *_: None)
    with pytest.raises(UnsuitableError, match="layer 'first' carries hooks"):
        networks.take_apart(model, (2, 5, 5))
