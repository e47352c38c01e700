from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from leakscope.attacks.closed.pooling.gradient_evidence import BlockFacts, gradient_evidence, gradient_rows
from leakscope.attacks.closed.pooling.pooled_blocks import take_apart
from leakscope.errors import UnsuitableError
from leakscope.models import build
from tiny import batch_of, seen_of


def _seen(model, *, size=12, channels=1):
    batch = batch_of([1], shape=(channels, size, size), dtype=torch.float32)
    return seen_of(model, batch, scenario="C"), batch


@pytest.mark.parametrize("normalise", [None, "cifar100"])
def test_the_blocks_compute_what_the_network_does(normalise):
    model = build("lenet-grnn", num_classes=10, image_size=18, normalise=normalise, seed=1)
    seen, batch = _seen(model, size=18, channels=3)
    blocks, linear = take_apart(seen)
    features = batch.inputs.double()
    for block in blocks:
        features = block.outputs(features)
    received = []
    handle = model.get_submodule(linear).register_forward_pre_hook(lambda _, given: received.append(given[0]))
    model(batch.inputs)
    handle.remove()
    assert [block.name for block in blocks] == ["conv1", "conv2"]
    assert torch.allclose(features.flatten(1).float(), received[0], atol=1e-5)


@pytest.mark.parametrize("activation", [nn.Sigmoid(), nn.Tanh(), nn.LeakyReLU(0.2)])
def test_activations_are_inverted_and_their_slopes_are_right(network, activation):
    seen, _ = _seen(network(12, activation=activation))
    bend = take_apart(seen)[0][0].bend
    before = torch.linspace(-3, 3, 7).double().requires_grad_()
    after = bend.forward(before)
    (slope,) = torch.autograd.grad(after.sum(), before)
    assert torch.allclose(bend.inverse(after), before)
    assert torch.allclose(bend.slope(after)[[0, 1, 2, 4, 5, 6]], slope[[0, 1, 2, 4, 5, 6]])


@pytest.mark.parametrize(
    ("layers", "reason"),
    [
        (
            [nn.Conv2d(1, 2, 3, padding=1), nn.Sigmoid(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 4)],
            "without padding",
        ),
        ([nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(50, 4)], "strictly increasing"),
        (
            [nn.Conv2d(1, 2, 3), nn.Sigmoid(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(50, 4)],
            "windows that do not overlap",
        ),
        ([nn.Conv2d(1, 2, 3), nn.Sigmoid(), nn.MaxPool2d(3, 2), nn.Flatten(), nn.Linear(32, 4)], "do not overlap"),
        ([nn.Flatten(), nn.Linear(144, 4)], "needs blocks of convolution"),
    ],
)
def test_other_networks_are_refused_with_the_layer_that_does_not_fit(layers, reason):
    seen, _ = _seen(nn.Sequential(*layers))
    with pytest.raises(UnsuitableError, match=reason):
        take_apart(seen)


def test_a_layer_that_was_not_shared_is_named(network):
    seen, _ = _seen(network(12))
    kept = {name: value for name, value in seen.update.tensors.items() if name != "0.weight"}
    with pytest.raises(UnsuitableError, match=r"'0\.weight', which was not shared"):
        take_apart(replace(seen, update=replace(seen.update, tensors=kept)))


def test_with_the_winners_known_the_true_input_explains_the_gradient_exactly(network):
    model = network(12).double()
    batch = batch_of([1], shape=(1, 12, 12))
    seen = seen_of(model, batch, scenario="C")
    (block,), _ = take_apart(seen)
    truth = batch.inputs.flatten()
    before = block.weight @ truth[block.columns] + block.bias[:, None]
    winners = before[:, block.windows].argmax(2)
    odds = torch.nn.functional.one_hot(winners, 4).double()
    gradient = seen.update.tensors["0.weight"].flatten(1)
    # The backward signal of a window is the gradient of the loss by its maximum.
    maxima = before[:, block.windows].amax(2).requires_grad_()
    (signal,) = torch.autograd.grad(
        nn.functional.cross_entropy(model[3:](maxima.sigmoid().reshape(1, 6, 5, 5)), batch.targets), maxima
    )
    nothing = torch.zeros(144, 144).double()
    known = BlockFacts(maxima.detach(), signal, gradient, torch.zeros_like(signal))
    found = gradient_evidence(block, known, odds=odds, mean=0 * truth, covariance=nothing, tolerance=1e-3)
    scale = found.shift.abs().max()
    assert float((found.precision @ truth - found.shift).abs().max() / scale) < 1e-9


def test_a_wary_reader_doubts_the_gradient_of_one_output_where_it_contradicts_the_belief(network):
    (block,), _ = take_apart(_seen(network(12))[0])
    mean, covariance = torch.full((144,), 0.5).double(), 1e-4 * torch.eye(144).double()
    odds = torch.nn.functional.one_hot(torch.zeros(6, 25, dtype=torch.long), 4).double()
    signal = torch.ones(6, 25).double()
    gradient = torch.stack([gradient_rows(block, share) @ mean for share in odds])
    gradient[2] += 3.0
    known = BlockFacts(signal, signal, gradient, 0 * signal)
    trust = [
        gradient_evidence(
            block, known, odds=odds, mean=mean, covariance=covariance, tolerance=1e-2, wary=wary
        ).precision.trace()
        for wary in (False, True)
    ]
    # Six alike, of which one is as good as gone; its share is a little smaller, as its gradient is larger.
    assert 0.8 < float(trust[1] / trust[0]) < 0.9
