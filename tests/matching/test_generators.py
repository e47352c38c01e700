from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from leakscope.errors import UnsuitableError
from leakscope.matching.candidates import TwoBranchGenerator
from leakscope.matching.candidates.generators import LATENT
from leakscope.matching.candidates.pixels import is_fixed, stack_groups
from leakscope.matching.distances import SquaredPlusNorm, Wasserstein
from leakscope.matching.distances.distance import flat
from leakscope.rng import generator, normal
from tiny import batch_of, dense, seen_of

DOUBLE = torch.empty(0, dtype=torch.float64)


def seen_like(shape, *, classes=4, dtype=torch.float64, bounds=(0.0, 1.0)):
    """An observation whose inputs have `shape`; the generator reads nothing else of it."""
    seen = seen_of(dense(classes=classes, dtype=dtype), batch_of([1], dtype=dtype), scenario="C")
    return replace(seen, input_shape=shape, bounds=bounds)


def groups_of(seen, *, count=1, groups=2, width=32):
    made = TwoBranchGenerator(width=width)
    return made, stack_groups([made.start(seen, count, generator(group)) for group in range(groups)])


class Reference(nn.Module):
    """The published generator written with PyTorch's own layers."""

    def __init__(self, blocks, classes, channels, width):
        super().__init__()
        widths = [width * 2**block for block in reversed(range(blocks + 1))]
        self.label = nn.Linear(128, classes)
        self.stem = nn.ConvTranspose2d(128, 2 * widths[0], 4, 1, 0)
        pairs = zip(widths, [*widths[1:], channels], strict=True)
        self.ups = nn.ModuleList(
            nn.Sequential(
                nn.Upsample(scale_factor=2),
                nn.Conv2d(inner, 2 * outer, 3, padding=1, bias=False),
                nn.BatchNorm2d(2 * outer),
                nn.GLU(1),
            )
            for inner, outer in pairs
        )

    def forward(self, latent):
        features = nn.functional.glu(self.stem(latent[:, :, None, None]), 1)
        for block in self.ups:
            features = block(features)
        return features.sigmoid(), self.label(latent).softmax(1)


def reference_for(variables, *, blocks, classes, channels, width):
    network = Reference(blocks, classes, channels, width).double()
    names = {"label": "label", "stem": "stem"}
    for block in range(blocks + 1):
        names |= {f"up{block}": f"ups.{block}.1", f"norm{block}": f"ups.{block}.2"}
    kinds = {"scale": "weight", "shift": "bias"}
    state = network.state_dict()
    for name, value in variables.items():
        owner, kind = name.split(".")
        if name != LATENT:
            place = names[owner.replace("up", "norm") if kind in kinds else owner]
            state[f"{place}.{kinds.get(kind, kind)}"] = value
    network.load_state_dict(state)
    return network


@pytest.mark.parametrize(("side", "channels", "count"), [(8, 1, 1), (16, 3, 2), (32, 3, 1)])
def test_every_group_is_the_published_generator(side, channels, count):
    seen = seen_like((channels, side, side))
    made, variables = groups_of(seen, count=count, width=8)
    variables = {k: v + 0.1 * normal(tuple(v.shape), generator(3, k), like=v) for k, v in variables.items()}
    images, labels = made.decode(seen, variables), made.soft_labels(seen, variables)
    for group in range(2):
        one = {name: value[group] for name, value in variables.items()}
        network = reference_for(one, blocks=side.bit_length() - 4, classes=4, channels=channels, width=8)
        expected = network(one[LATENT])
        torch.testing.assert_close(images[group], expected[0].detach(), rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(labels[group], expected[1].detach(), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("side", [32, 64, 128, 256])
def test_shapes_of_all_published_sizes(side):
    seen = seen_like((3, side, side), dtype=torch.float32)
    made, variables = groups_of(seen, groups=1, width=2)
    assert made.decode(seen, variables).shape == (1, 1, 3, side, side)
    assert made.soft_labels(seen, variables).shape == (1, 1, 4)


def test_a_32_pixel_generator_has_the_published_widths_and_pytorchs_default_start():
    seen = seen_like((3, 32, 32), classes=4)
    start = TwoBranchGenerator().start(seen, 2, generator(0))
    assert {name: list(value.shape) for name, value in start.items()} == {
        LATENT: [2, 128],
        "label.weight": [4, 128],
        "label.bias": [4],
        "stem.weight": [128, 256, 4, 4],
        "stem.bias": [256],
        "up0.weight": [128, 128, 3, 3],
        "up0.scale": [128],
        "up0.shift": [128],
        "up1.weight": [64, 64, 3, 3],
        "up1.scale": [64],
        "up1.shift": [64],
        "up2.weight": [6, 32, 3, 3],
        "up2.scale": [6],
        "up2.shift": [6],
    }
    reference = Reference(2, 4, 3, 32)
    drawn = {
        "stem.weight": reference.stem.weight,
        "up0.weight": reference.get_parameter("ups.0.1.weight"),
        "label.weight": reference.label.weight,
    }
    for name, expected in drawn.items():
        # The largest of many uniform numbers is the bound; their spread is the bound over √3.
        assert float(start[name].abs().max()) == pytest.approx(float(expected.detach().abs().max()), rel=0.02)
        assert float(start[name].std()) == pytest.approx(float(expected.detach().std()), rel=0.06)
    assert torch.equal(start["up0.scale"], torch.ones_like(start["up0.scale"]))
    assert not start["up0.shift"].any()


def test_starts_depend_on_the_seed_alone_and_keep_the_dtype():
    for dtype in (torch.float32, torch.float64):
        seen = seen_like((1, 8, 8), dtype=dtype)
        state = torch.random.get_rng_state()
        first, again, other = (TwoBranchGenerator().start(seen, 1, generator(seed)) for seed in (1, 1, 2))
        assert torch.equal(torch.random.get_rng_state(), state)
        assert all(torch.equal(first[name], again[name]) for name in first)
        assert not torch.equal(first["stem.weight"], other["stem.weight"])
        assert {value.dtype for value in first.values()} == {dtype}


def test_groups_never_mix_and_the_latent_is_fixed():
    seen = seen_like((2, 16, 16))
    made, variables = groups_of(seen, count=2, groups=3, width=4)
    leaves = {name: value.clone().requires_grad_() for name, value in variables.items()}
    images, labels = made.decode(seen, leaves), made.soft_labels(seen, leaves)
    grads = torch.autograd.grad(images[1].square().sum() + labels[1].square().sum(), list(leaves.values()))
    for grad in grads:
        assert grad[1].abs().sum() > 0
        assert not grad[[0, 2]].any()
    assert [name for name in variables if is_fixed(name)] == [LATENT]
    assert made.generates_labels


def test_one_example_is_normalised_by_its_own_statistics():
    seen = seen_like((1, 8, 8))
    made, variables = groups_of(seen, count=2, groups=1, width=4)
    alone = {**variables, LATENT: variables[LATENT][:, :1]}
    together = made.decode(seen, variables)
    assert made.decode(seen, alone).shape == (1, 1, 1, 8, 8)
    assert (made.decode(seen, alone) - together[:, :1]).abs().max() > 1e-3


def test_images_fill_the_range_of_the_data():
    made, variables = groups_of(seen_like((1, 8, 8)), width=4)
    variables["up0.scale"] = 50 * variables["up0.scale"]
    unit = made.decode(seen_like((1, 8, 8)), variables)
    wide = made.decode(seen_like((1, 8, 8), bounds=(-1.0, 3.0)), variables)
    torch.testing.assert_close(wide, 4 * unit - 1)
    assert 0 <= float(unit.min()) < 0.1
    assert 0.9 < float(unit.max()) <= 1


@pytest.mark.parametrize(
    ("shape", "complaint"),
    [
        ((3, 28, 28), "got 28×28; resize to 16 or 32"),
        ((1, 4, 4), "got 4×4; resize to 8,"),
        ((3, 33, 33), "resize to 32 or 64"),
        ((3, 32, 64), r"square images .* got inputs of shape \[3, 32, 64\]"),
        ((36,), "square images"),
    ],
)
def test_other_sizes_are_refused_with_the_nearest_that_fit(shape, complaint):
    with pytest.raises(UnsuitableError, match=complaint):
        TwoBranchGenerator().start(seen_like(shape), 1, generator(0))


def test_data_without_a_range_is_refused():
    with pytest.raises(UnsuitableError, match="needs the range of the data, got bounds=None"):
        TwoBranchGenerator().start(seen_like((1, 8, 8), bounds=None), 1, generator(0))


DISTANCES = {
    "norm": SquaredPlusNorm(),
    "sorted": Wasserstein(),
    "squared and sorted": Wasserstein(squared=True),
}


def gradients(seed, groups=3):
    return {
        name: normal((groups, *shape), generator(seed, name), like=DOUBLE)
        for name, shape in {"a": (4, 3), "b": (5,), "c": ()}.items()
    }


@pytest.mark.parametrize("distance", DISTANCES.values(), ids=DISTANCES)
def test_the_cotangent_is_what_autograd_gives_and_groups_never_mix(distance):
    found, target = gradients(0), gradients(1)
    leaves = {name: value.clone().requires_grad_() for name, value in found.items()}
    value = distance.value(leaves, target)
    expected = dict(zip(leaves, torch.autograd.grad(value.sum(), list(leaves.values())), strict=True))
    again, pulled = distance.value_and_cotangent(found, target)
    torch.testing.assert_close(again, value.detach(), rtol=1e-13, atol=0)
    torch.testing.assert_close(pulled, expected, rtol=1e-12, atol=1e-14)
    alone, _ = distance.value_and_cotangent(
        {k: v[1:2] for k, v in found.items()}, {k: v[1:2] for k, v in target.items()}
    )
    assert float(alone) == pytest.approx(float(again[1]), rel=1e-13)
    assert all(torch.equal(value, gradients(0)[name]) for name, value in found.items())


@pytest.mark.parametrize("distance", DISTANCES.values(), ids=DISTANCES)
def test_equal_gradients_are_at_distance_zero_with_no_pull(distance):
    found = gradients(0)
    leaves = {name: value.clone().requires_grad_() for name, value in found.items()}
    value = distance.value(leaves, found)
    assert not value.detach().any()
    assert all(not grad.any() for grad in torch.autograd.grad(value.sum(), list(leaves.values())))
    assert all(not pull.any() for pull in distance.value_and_cotangent(found, found)[1].values())


def test_the_published_distance_is_the_square_plus_the_norm_of_all_tensors_as_one():
    found, target = gradients(0), gradients(1)
    gap = torch.cat([flat(found[name] - target[name]) for name in target], dim=1)
    torch.testing.assert_close(SquaredPlusNorm().value(found, target), gap.square().sum(1) + gap.norm(dim=1))


def test_the_true_wasserstein_distance_cannot_tell_a_shuffled_gradient():
    scipy = pytest.importorskip("scipy.stats")
    found, target = gradients(0), gradients(1)
    left, right = (torch.cat([flat(value) for value in tensors.values()], 1) for tensors in (found, target))
    expected = [scipy.wasserstein_distance(a.numpy(), b.numpy()) for a, b in zip(left, right, strict=True)]
    assert Wasserstein().value(found, target).tolist() == pytest.approx(expected, rel=1e-12)
    shuffled = {name: flat(value).flip(1).reshape(value.shape) for name, value in found.items()}
    assert Wasserstein().value(shuffled, found).tolist() == pytest.approx([0.0] * 3, abs=1e-15)
    assert float(SquaredPlusNorm().value(shuffled, found).min()) > 1
