"""Utility of federated training: learns, repeats, notices damage, leaves the caller alone."""

from __future__ import annotations

import pytest
import torch
from sklearn.datasets import load_digits
from torch import Generator, nn
from torch.nn import functional

from leakscope.errors import BadInputError, UsageError
from leakscope.federated import measure_utility
from leakscope.types import Batch, SealedUpdate, SharedUpdate


def gradient_step(model: nn.Module, batch: Batch, rng: Generator) -> SharedUpdate:
    parameters = dict(model.named_parameters())
    value = functional.cross_entropy(model(batch.inputs), batch.targets)
    grads = torch.autograd.grad(value, list(parameters.values()))
    return SharedUpdate("gradient", dict(zip(parameters, grads, strict=True)), num_examples=len(batch))


def noisy_step(level: float):
    def step(model: nn.Module, batch: Batch, rng: Generator) -> SharedUpdate:
        clean = gradient_step(model, batch, rng).tensors
        noisy = {name: value + level * torch.randn(value.shape, generator=rng) for name, value in clean.items()}
        return SharedUpdate("gradient", noisy, num_examples=len(batch))

    return step


def failing_step(after: int, value: float):
    calls = []

    def step(model: nn.Module, batch: Batch, rng: Generator) -> SharedUpdate:
        calls.append(1)
        clean = gradient_step(model, batch, rng).tensors
        factor = value if len(calls) > after else 1.0
        return SharedUpdate("gradient", {name: g * factor for name, g in clean.items()}, num_examples=len(batch))

    return step


def network(*extra: nn.Module, seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), *extra, nn.ReLU(), nn.Linear(32, 10))


@pytest.fixture(scope="module")
def digits() -> tuple[Batch, Batch]:
    pixels, labels = load_digits(return_X_y=True)
    images = torch.from_numpy(pixels).float().view(-1, 1, 8, 8) / 16
    targets = torch.from_numpy(labels).long()
    return Batch(images[:1200], targets[:1200]), Batch(images[1200:], targets[1200:])


def test_learns_digits(digits):
    found = measure_utility(network(), *digits, step=gradient_step)
    assert found.accuracy > 0.88
    assert found.interval[0] < found.accuracy < found.interval[1]
    assert found.interval[1] - found.interval[0] < 0.06
    assert 0 < found.final_loss < 0.5
    assert found.step_seconds > 0
    assert 0.3 < found.nonzero_fraction <= 1
    assert (found.rounds, found.diverged) == (150, False)


def test_noise_costs_accuracy_step_by_step(digits):
    options = {"rounds": 60}
    clean, some, much = (
        measure_utility(network(), *digits, step=noisy_step(level), **options).accuracy for level in (0.0, 0.1, 1.0)
    )
    assert clean > some + 0.02 > much + 0.2


def test_the_seed_decides_everything(digits):
    def run(seed: int) -> tuple[float, float]:
        found = measure_utility(network(nn.Dropout(0.3)), *digits, step=noisy_step(0.05), rounds=10, seed=seed)
        return found.accuracy, found.final_loss

    first = run(0)
    torch.rand(5)
    assert run(0) == first
    assert run(1) != first


def test_one_client_with_all_data_is_plain_momentum_sgd(digits):
    train, test = Batch(digits[0].inputs[:40], digits[0].targets[:40]), digits[1]
    found = measure_utility(network(), train, test, step=gradient_step, clients=1, rounds=5, batch_size=40, lr=0.2)
    plain = network()
    optimiser = torch.optim.SGD(plain.parameters(), lr=0.2, momentum=0.9)
    for _ in range(5):
        optimiser.zero_grad()
        functional.cross_entropy(plain(train.inputs), train.targets).backward()
        optimiser.step()
    with torch.no_grad():
        expected = functional.cross_entropy(plain(test.inputs), test.targets).item()
    assert found.final_loss == pytest.approx(expected, rel=1e-5)


def test_clients_together_equal_one_client_with_the_same_examples(digits):
    train, test = Batch(digits[0].inputs[:42], digits[0].targets[:42]), digits[1]
    # 42 examples over 4 clients: shards of 11, 11, 10 and 10 need weights by size.
    options = {"step": gradient_step, "rounds": 4, "batch_size": 42}
    four = measure_utility(network(), train, test, clients=4, **options)
    one = measure_utility(network(), train, test, clients=1, **options)
    assert four.final_loss == pytest.approx(one.final_loss, rel=1e-5)


def test_the_callers_model_and_random_state_are_left_alone(digits):
    model = network(nn.BatchNorm1d(32), nn.Dropout(0.1)).eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    measure_utility(model, *digits, step=gradient_step, rounds=3)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not model.training
    assert all(parameter.grad is None for parameter in model.parameters())


def functional_step(model: nn.Module, batch: Batch, rng: Generator) -> SharedUpdate:
    """A step that, as a good one does, leaves the buffers of the model alone."""
    parameters = dict(model.named_parameters())
    buffers = {name: value.clone() for name, value in model.named_buffers()}
    output = torch.func.functional_call(model, {**parameters, **buffers}, (batch.inputs,))
    grads = torch.autograd.grad(functional.cross_entropy(output, batch.targets), list(parameters.values()))
    return SharedUpdate("gradient", dict(zip(parameters, grads, strict=True)), num_examples=len(batch))


def test_batch_norm_statistics_follow_the_data(digits):
    train, test = digits
    # Shifted data: with statistics left at 0 and 1 the test loss would be far off.
    model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64, affine=False), network())
    shifted = [Batch(part.inputs * 5 - 40, part.targets, bounds=None) for part in (train, test)]
    fresh = measure_utility(model, *shifted, step=functional_step, rounds=60)
    frozen = measure_utility(model, *shifted, step=functional_step, rounds=60, freeze_batch_norm=True)
    assert fresh.accuracy > 0.85
    assert fresh.accuracy > frozen.accuracy + 0.2


def test_frozen_batch_norm_allows_single_examples(digits):
    model = network(nn.BatchNorm1d(32))
    with pytest.raises(UsageError, match="freeze_batch_norm=True"):
        measure_utility(model, *digits, step=functional_step, rounds=2, batch_size=1)
    found = measure_utility(model, *digits, step=functional_step, rounds=2, batch_size=1, freeze_batch_norm=True)
    assert found.rounds == 2


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_non_finite_update_stops_training_before_it_is_applied(digits, value):
    found = measure_utility(network(), *digits, step=failing_step(after=40, value=value), rounds=30)
    assert found.diverged
    assert found.rounds == 10
    assert found.accuracy == measure_utility(network(), *digits, step=gradient_step, rounds=10).accuracy


def test_a_learning_rate_that_explodes_is_flagged(digits):
    found = measure_utility(network(), *digits, step=gradient_step, rounds=60, lr=1e30)
    assert found.diverged


def test_unshared_layers_stay_and_count_as_nothing(digits):
    def head_only(model: nn.Module, batch: Batch, rng: Generator) -> SharedUpdate:
        grads = gradient_step(model, batch, rng).tensors
        return SharedUpdate("gradient", {name: torch.ones_like(grads[name]) for name in ("3.weight", "3.bias")})

    found = measure_utility(network(), *digits, step=head_only, rounds=2)
    head, body = 32 * 10 + 10, 64 * 32 + 32
    assert found.nonzero_fraction == pytest.approx(head / (head + body))


def test_steps_that_share_something_else_are_refused(digits):
    def delta(model: nn.Module, batch: Batch, rng: Generator) -> SharedUpdate:
        return SharedUpdate("delta", gradient_step(model, batch, rng).tensors)

    def sealed(model: nn.Module, batch: Batch, rng: Generator) -> SealedUpdate:
        return SealedUpdate("ckks", b"")

    def foreign(model: nn.Module, batch: Batch, rng: Generator) -> SharedUpdate:
        return SharedUpdate("gradient", {"other.weight": torch.zeros(2)})

    with pytest.raises(UsageError, match="got a delta"):
        measure_utility(network(), *digits, step=delta)
    with pytest.raises(UsageError, match="got a SealedUpdate"):
        measure_utility(network(), *digits, step=sealed)
    with pytest.raises(BadInputError, match=r"'other\.weight' of shape \[2\], which is no parameter"):
        measure_utility(network(), *digits, step=foreign)


@pytest.mark.parametrize("wrong", [{"clients": 0}, {"rounds": 0}, {"batch_size": 0}, {"lr": 0.0}, {"clients": 5000}])
def test_settings_are_checked(digits, wrong):
    with pytest.raises(UsageError, match="clients"):
        measure_utility(network(), *digits, step=gradient_step, **wrong)
