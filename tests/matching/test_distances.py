from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from leakscope.attacks.inverting_gradients import inverting_gradients
from leakscope.matching.distances import L1, Clipped, Cosine, Denoised, Masked, Shortened, SquaredL2
from leakscope.matching.replays import OneGradient
from leakscope.observation.observe import observe
from leakscope.rng import generator, normal
from leakscope.tensors import scale
from leakscope.types import LocalTraining, SharedUpdate
from tiny import batch_of, dense, shared

BASES = {"l2": SquaredL2(), "l1": L1(), "cosine": Cosine()}
ALL = {
    **BASES,
    **{f"masked {name}": Masked(base) for name, base in BASES.items()},
    **{f"clipped {name}": Clipped(base) for name, base in BASES.items()},
    **{f"shortened {name}": Shortened(base) for name, base in BASES.items()},
    **{f"denoised {name}": Denoised(base, variance=0.2) for name, base in BASES.items()},
    "denoised masked cosine": Denoised(Masked(Cosine()), variance=0.2),
}

shapes = st.lists(st.lists(st.integers(1, 4), min_size=0, max_size=3).map(tuple), min_size=1, max_size=3)


def grouped(seed: int, groups: int, sizes: list[tuple[int, ...]], *, zeros: bool = False) -> dict[str, torch.Tensor]:
    like = torch.empty(0, dtype=torch.float64)
    found = {f"t{i}": normal((groups, *shape), generator(seed, i), like=like) for i, shape in enumerate(sizes)}
    if zeros:
        found = {name: value * (value.abs() > 0.4) for name, value in found.items()}
    return found


@pytest.mark.parametrize("distance", ALL.values(), ids=ALL)
@given(shapes, st.integers(1, 3), st.integers(0, 99))
@settings(max_examples=20, deadline=None, derandomize=True)
def test_the_closed_form_cotangent_is_what_autograd_gives(distance, sizes, groups, seed):
    found, target = grouped(seed, groups, sizes), grouped(seed + 1000, groups, sizes, zeros=True)
    leaves = {name: value.clone().requires_grad_() for name, value in found.items()}
    value = distance.value(leaves, target)
    expected = torch.autograd.grad(value.sum(), list(leaves.values()), allow_unused=True, materialize_grads=True)
    again, cotangent = distance.value_and_cotangent(found, target)
    assert value.shape == (groups,)
    torch.testing.assert_close(again, value.detach(), rtol=1e-12, atol=1e-13)
    scale = max(1.0, *(float(grad.abs().max()) for grad in expected))
    for (name, found_grad), grad in zip(cotangent.items(), expected, strict=True):
        assert name in target
        torch.testing.assert_close(found_grad, grad, rtol=1e-9, atol=1e-11 * scale)


@pytest.mark.parametrize("distance", ALL.values(), ids=ALL)
def test_the_value_can_be_differentiated(distance):
    sizes = [(3, 2), (4,)]
    found, target = grouped(0, 2, sizes), grouped(1, 2, sizes, zeros=True)
    leaves = [value.clone().requires_grad_() for value in found.values()]
    assert torch.autograd.gradcheck(lambda *v: distance.value(dict(zip(found, v, strict=True)), target), leaves)


@pytest.mark.parametrize("distance", ALL.values(), ids=ALL)
def test_groups_never_mix_and_inputs_are_left_alone(distance):
    sizes = [(3, 2), (4,)]
    found, target = grouped(0, 3, sizes), grouped(1, 3, sizes, zeros=True)
    copies = {name: value.clone() for name, value in found.items()}
    together, pulled = distance.value_and_cotangent(found, target)
    for group in range(3):
        one = {name: value[group : group + 1] for name, value in found.items()}
        goal = {name: value[group : group + 1] for name, value in target.items()}
        alone, part = distance.value_and_cotangent(one, goal)
        torch.testing.assert_close(alone[0], together[group])
        torch.testing.assert_close(part["t0"][0], pulled["t0"][group])
    assert all(torch.equal(value, copies[name]) for name, value in found.items())


@pytest.mark.parametrize("distance", ALL.values(), ids=ALL)
def test_the_observation_is_at_distance_zero_from_itself_and_others_are_not(distance):
    sizes = [(3, 2), (4,)]
    target = grouped(1, 2, sizes, zeros=True)
    assert float(distance.value(target, target).max()) <= 1e-15
    assert float(distance.value(grouped(0, 2, sizes), target).min()) > 1e-2


def test_the_plain_distances_are_sums_over_all_tensors():
    found, target = (
        {"a": torch.tensor([[1.0, 2.0]]), "b": torch.tensor([[3.0]])},
        {
            "a": torch.tensor([[0.0, 4.0]]),
            "b": torch.tensor([[0.0]]),
        },
    )
    assert float(SquaredL2().value(found, target)) == 14.0
    assert float(L1().value(found, target)) == 6.0
    assert float(Cosine().value(found, target)) == pytest.approx(1 - 8 / (14**0.5 * 4))


@given(st.floats(1e-6, 1e6), st.integers(0, 99))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_cosine_is_blind_to_scale_and_bounded(factor, seed):
    found, target = grouped(seed, 2, [(3, 2), (4,)]), grouped(seed + 1, 2, [(3, 2), (4,)])
    value = Cosine().value(found, target)
    scaled = Cosine().value({name: factor * tensor for name, tensor in found.items()}, target)
    torch.testing.assert_close(scaled, value, rtol=1e-10, atol=1e-12)
    opposite = Cosine().value({name: -tensor for name, tensor in found.items()}, target)
    torch.testing.assert_close(value + opposite, torch.full_like(value, 2.0))
    assert bool(((value >= 0) & (value <= 2)).all())


def test_cosine_with_nothing_is_finite():
    zero, target = {"a": torch.zeros(1, 3)}, {"a": torch.ones(1, 3)}
    for found, goal in ((zero, target), (target, zero), (zero, zero)):
        assert float(Cosine().value(found, goal)) == 1.0


@pytest.mark.parametrize("base", BASES.values(), ids=BASES)
def test_masked_ignores_what_was_not_shared(base):
    target = {"a": torch.tensor([[1.0, 0.0, -2.0]])}
    near, far = ({"a": torch.tensor([[0.5, hidden, -1.0]])} for hidden in (0.0, 99.0))
    assert torch.equal(Masked(base).value(near, target), Masked(base).value(far, target))
    assert Masked(base).value_and_cotangent(far, target)[1]["a"][0, 1] == 0


def test_clipped_does_not_punish_a_longer_gradient_of_the_same_direction_but_a_shorter_one():
    target = {"a": torch.tensor([[3.0, 4.0]])}
    longer, shorter = {"a": 7 * target["a"]}, {"a": 0.5 * target["a"]}
    assert float(Clipped(SquaredL2()).value(longer, target)) == pytest.approx(0, abs=1e-9)
    assert float(Clipped(SquaredL2()).value(shorter, target)) == pytest.approx(0.25)


def test_clipped_does_not_depend_on_how_tight_the_bound_was():
    found, target = grouped(0, 2, [(3, 2), (4,)]), grouped(1, 2, [(3, 2), (4,)])
    found = {name: 100 * value for name, value in found.items()}
    tight = {name: 1e-3 * value for name, value in target.items()}
    torch.testing.assert_close(Clipped(SquaredL2()).value(found, tight), Clipped(SquaredL2()).value(found, target))


def test_shortened_is_the_squared_tangent_of_the_angle_and_plain_for_what_is_too_short():
    target = {"a": torch.tensor([[3.0]]), "b": torch.tensor([[4.0]])}
    # Twice as long along the target, and 5 to the side of it: tan = 5/10.
    beside = {"a": torch.tensor([[6.0 - 4.0]]), "b": torch.tensor([[8.0 + 3.0]])}
    distance = Shortened(SquaredL2())
    assert float(distance.value(beside, target)) == pytest.approx(0.25)
    longer = {name: 7 * value for name, value in target.items()}
    assert float(distance.value(longer, target)) == pytest.approx(0, abs=1e-9)
    # Along the target by less than its length, or against it: nothing was cut, and lengths count, in units of 5.
    for factor in (0.5, -2.0):
        short = {name: factor * value for name, value in target.items()}
        assert float(distance.value(short, target)) == pytest.approx((1 - factor) ** 2)
    tight = {name: 1e-3 * value for name, value in target.items()}
    assert float(distance.value(beside, tight)) == pytest.approx(0.25)


def test_shortened_changes_nothing_about_a_distance_that_is_blind_to_scale():
    found, target = grouped(0, 2, [(3, 2), (4,)]), grouped(1, 2, [(3, 2), (4,)])
    torch.testing.assert_close(Shortened(Cosine()).value(found, target), Cosine().value(found, target))
    assert Cosine().clipped() == Cosine()
    assert SquaredL2().clipped() == Shortened(SquaredL2())


def test_denoised_hardly_listens_to_a_tensor_drowned_in_noise():
    target = {name: torch.full((1, 4), size).double() for name, size in (("clear", 10.0), ("drowned", 0.1))}
    distance = Denoised(SquaredL2(), variance=0.04)
    off_clear = {**target, "clear": target["clear"] + 1}
    off_drowned = {**target, "drowned": target["drowned"] + 1}
    assert float(distance.value(off_clear, target)) == pytest.approx(4 * (1 - 0.04 / 100))
    assert float(distance.value(off_drowned, target)) == pytest.approx(4e-4)


def test_beside_a_prior_no_tensor_is_weighed_and_rounds_are_still():
    target = {name: torch.full((1, 4), size).double() for name, size in (("clear", 10.0), ("drowned", 0.1))}
    plain, weighed = (Denoised(SquaredL2(), 0.04, weighs_tensors=weighs) for weighs in (False, True))
    for name in target:
        assert float(plain.value({**target, name: target[name] + 1}, target)) == pytest.approx(4)
    torch.testing.assert_close(plain.clearness(target), weighed.clearness(target))
    seen = observe(model := dense(), shared(model, batch_of([1])), scenario="B", truth=batch_of([1]))
    recipe = replace(inverting_gradients().recipe, noise=0.01)
    for chosen, expected in ((recipe, False), (replace(recipe, penalties=()), True)):
        distance = chosen.distance_to(seen)
        assert isinstance(distance, Denoised)
        assert distance.weighs_tensors is expected


def test_noise_on_a_delta_weighs_as_the_same_noise_on_a_gradient():
    model, batch, local = dense(), batch_of([1]), LocalTraining(0.01, 4, 1)
    gradient = shared(model, batch)
    delta = SharedUpdate("delta", scale(gradient.tensors, -local.total_rate(4)), num_examples=1, local=local)
    seen = [observe(model, update, scenario="C", truth=batch) for update in (gradient, delta)]
    # Without a prior tensors are weighed.
    recipe, sigma = replace(inverting_gradients().recipe, penalties=()), 0.05
    noises = (sigma, sigma * local.total_rate(4))
    gains = []
    for one, noise in zip(seen, noises, strict=True):
        weighed = replace(recipe, noise=noise**2).distance_to(one)
        assert isinstance(weighed, Denoised)
        gains.append(weighed.gains({k: v[None] for k, v in OneGradient().target(one).items()}))
    assert min(float(gain) for gain in gains[0].values()) < 0.7
    for name, gain in gains[0].items():
        torch.testing.assert_close(gain, gains[1][name])


def test_entries_that_were_not_shared_carry_no_noise():
    full = {"w": torch.full((1, 8), 0.5)}
    half = {"w": torch.tensor([[0.5] * 8 + [0.0] * 8])}
    distance = Denoised(Cosine(), 0.1)
    torch.testing.assert_close(distance.gains(full)["w"], distance.gains(half)["w"])
