"""Layer weights: the ramp in execution order, the three sums of the cosine, and what they compose with."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch import nn

from leakscope.client import share
from leakscope.errors import UnsuitableError, UsageError
from leakscope.matching.distances import L1, Clipped, Cosine, Denoised, LayerWeighted, Masked, SquaredL2
from leakscope.models import build
from leakscope.observation.observe import observe
from leakscope.rng import generator, uniform
from leakscope.types import Batch, SharedUpdate


class Backwards(nn.Module):
    """Registers its layers in another order than it runs them."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.last = nn.Conv2d(4, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.middle = nn.Conv2d(4, 4, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.middle(self.norm(self.first(inputs))))
        return self.fc(self.last(hidden).mean((2, 3)))


def backwards(*, training=False):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Backwards().train(training)


def look(model, *, shape=(1, 6, 6), classes=3, names=None):
    images = uniform((2, *shape), generator(1, "images"))
    update = share(model, Batch(images, torch.arange(2) % classes))
    assert isinstance(update, SharedUpdate)
    if names is not None:
        update = SharedUpdate("gradient", {name: update.tensors[name] for name in names}, num_examples=2)
    return observe(model, update, scenario="C", input_shape=shape)


def weights(seen, **options):
    return {layer.name: layer.weight for layer in LayerWeighted(Cosine(), **options).bound(seen).layers}


def grouped(seen, *, seed=3, groups=2):
    draw = generator(seed, "gradients")
    target = {name: value.expand(groups, *value.shape) for name, value in seen.update.tensors.items()}
    found = {name: value + 0.1 * uniform(tuple(value.shape), draw, like=value) for name, value in target.items()}
    return found, target


def test_ramp_follows_execution_not_registration():
    found = weights(look(backwards()), beta=5.0)
    assert found["first.weight"] == found["first.bias"] == 1.0
    assert found["middle.weight"] == 3.0
    assert found["last.weight"] == found["last.bias"] == 5.0
    assert found["fc.weight"] == found["fc.bias"] == 3.0


@pytest.mark.parametrize(("rule", "weight"), [("as-conv", 1.0), ("mean", 3.0), ("one", 1.0), ("excluded", 0.0)])
def test_batch_norm_has_the_weight_that_was_asked_for(rule, weight):
    found = weights(look(backwards()), beta=5.0, batch_norm=rule)
    assert found["norm.weight"] == found["norm.bias"] == weight


@pytest.mark.parametrize("training", [True, False])
def test_without_beta_stored_statistics_have_the_published_ramp_too(training):
    bound = LayerWeighted(Cosine()).bound(look(backwards(training=training)))
    assert max(layer.weight for layer in bound.layers) == 50.0
    assert any(layer.zeros_of for layer in bound.layers)


@pytest.mark.parametrize(
    ("distance", "said"),
    [
        (LayerWeighted(Cosine()), "layer weights: β = 50, with the ReLU modifier"),
        (LayerWeighted(Cosine(), beta=2.5, relu_modifier=False), "layer weights: β = 2.5, without the ReLU modifier"),
        (Masked(LayerWeighted(Cosine(), beta=9.0)), "layer weights: β = 9, with the ReLU modifier"),
        (
            LayerWeighted(Clipped(Cosine()), beta=1.0, relu_modifier=False),
            "layer weights: β = 1, without the ReLU modifier; all layers count alike",
        ),
    ],
)
def test_the_ratio_is_said_through_any_wrapper(distance, said):
    assert distance.notes == (said,)
    assert Cosine().notes == ()


def test_without_beta_a_network_without_batch_norm_has_the_published_ramp():
    plain = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Conv2d(2, 2, 3), nn.Flatten(), nn.Linear(8, 3)).eval()
    assert weights(look(plain))["1.weight"] == 50.0


def test_resnet_counts_its_shortcuts():
    seen = look(build("resnet20-4", num_classes=10, image_size=8, seed=0), shape=(3, 8, 8), classes=10)
    found = weights(seen, beta=21.0)
    ramp = sorted(w for name, w in found.items() if seen.update.tensors[name].ndim == 4)
    assert ramp == pytest.approx(range(1, 22))
    # The shortcut runs after the second convolution of its block: 1 + 6 + 2 before it.
    assert found["layer2.0.shortcut.0.weight"] == pytest.approx(10.0)
    assert found["layer2.0.shortcut.1.weight"] == pytest.approx(10.0)
    assert found["layer2.0.bn2.weight"] == pytest.approx(9.0)
    assert found["fc.bias"] == pytest.approx(11.0)


@pytest.mark.parametrize("base", [Cosine(), SquaredL2(), L1()], ids=repr)
def test_one_without_modifier_is_the_base_distance(base):
    seen = look(backwards())
    found, target = grouped(seen)
    plain = LayerWeighted(base, beta=1.0, relu_modifier=False).bound(seen)
    assert torch.equal(plain.value(found, target), base.value(found, target))
    value, pulled = plain.value_and_cotangent(found, target)
    expected, reference = base.value_and_cotangent(found, target)
    assert torch.equal(value, expected)
    assert all(torch.equal(pulled[name], reference[name]) for name in target)


def test_weights_stand_in_all_three_sums():
    seen = look(backwards())
    found, target = grouped(seen, groups=1)
    alpha = weights(seen, beta=7.0)

    def total(left, right):
        return sum(alpha[name] * float((left[name] * right[name]).sum()) for name in alpha)

    cosine = total(found, target) / (total(found, found) * total(target, target)) ** 0.5
    distance = LayerWeighted(Cosine(), beta=7.0, relu_modifier=False).bound(seen)
    assert float(distance.value(found, target)) == pytest.approx(1 - cosine, abs=1e-6)


def test_relu_modifier_divides_by_the_share_of_non_zeros_of_each_group():
    seen = look(backwards())
    found, target = grouped(seen)
    target = {name: value.clone() for name, value in target.items()}
    target["last.weight"][0, :3] = 0.0
    target["first.weight"][1] = 0.0
    with_zeros = LayerWeighted(SquaredL2(), beta=3.0).bound(seen)
    without = LayerWeighted(SquaredL2(), beta=3.0, relu_modifier=False).bound(seen)
    gap = with_zeros.value(found, target) - without.value(found, target)
    gaps = [(found[name] - target[name]).square().flatten(1).sum(1) for name in ("last.weight", "last.bias")]
    own = torch.stack(gaps).sum(0)
    # Three quarters of zeros: four times the weight 3, the bias with its kernel. All zeros: the plain weight.
    assert float(gap[0]) == pytest.approx(float(9 * own[0]), rel=1e-4)
    assert float(gap[1]) == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize(
    "distance",
    [
        LayerWeighted(Cosine(), beta=9.0),
        Masked(LayerWeighted(Cosine(), beta=9.0, batch_norm="excluded")),
        Clipped(LayerWeighted(SquaredL2(), beta=9.0)),
        Denoised(LayerWeighted(Cosine(), beta=9.0), 1e-4),
        LayerWeighted(Masked(Cosine()), beta=9.0),
        LayerWeighted(Clipped(SquaredL2()), beta=9.0, batch_norm="one"),
    ],
    ids=repr,
)
def test_composes_with_other_distances_and_knows_its_own_derivative(distance):
    seen = look(backwards())
    bound = distance.bound(seen)
    found, target = grouped(seen)
    leaves = {name: value.double().requires_grad_() for name, value in found.items()}
    goal = {name: value.double() for name, value in target.items()}
    value = bound.value(leaves, goal)
    grads = torch.autograd.grad(value.sum(), list(leaves.values()))
    exact, pulled = bound.value_and_cotangent({k: v.detach() for k, v in leaves.items()}, goal)
    torch.testing.assert_close(exact, value.detach())
    for name, grad in zip(leaves, grads, strict=True):
        torch.testing.assert_close(pulled[name], grad, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("training", [False, True])
def test_binding_leaves_the_model_as_it_was(training):
    seen = look(backwards(training=training))
    state = {name: value.clone() for name, value in seen.model.state_dict().items()}
    before = torch.random.get_rng_state()
    LayerWeighted(Cosine()).bound(seen)
    assert all(torch.equal(value, state[name]) for name, value in seen.model.state_dict().items())
    assert not any(module._forward_pre_hooks for module in seen.model.modules())
    assert torch.equal(torch.random.get_rng_state(), before)


def test_network_without_convolutions_weighs_all_alike():
    seen = look(build("mlp", num_classes=3, in_channels=1, image_size=6, seed=0))
    assert set(weights(seen, beta=50.0).values()) == {1.0}


def test_part_of_an_update_keeps_the_weights_of_the_whole():
    seen = look(backwards(), names=["middle.weight", "last.bias"])
    assert weights(seen, beta=5.0) == {"middle.weight": 3.0, "last.bias": 5.0}


def test_misuse_is_refused():
    seen = look(backwards(), names=["norm.weight", "norm.bias"])
    with pytest.raises(UnsuitableError, match="nothing to compare"):
        LayerWeighted(Cosine(), batch_norm="excluded").bound(seen)
    with pytest.raises(UsageError, match="bound"):
        LayerWeighted(Cosine(), beta=2.0).value(*grouped(seen))
    with pytest.raises(UsageError, match="beta > 0"):
        LayerWeighted(Cosine(), beta=0.0)
    with pytest.raises(UsageError, match="one of as-conv"):
        LayerWeighted(Cosine(), batch_norm="zero")  # type: ignore[arg-type]


def test_is_a_value():
    distance = LayerWeighted(Cosine(), beta=2.0).bound(look(backwards()))
    assert pickle.loads(pickle.dumps(distance)) == distance
    assert "first.weight" in repr(distance)
