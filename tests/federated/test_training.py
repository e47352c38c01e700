"""Utility of federated training: learns, repeats, notices damage, leaves the caller alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from sklearn.datasets import load_digits
from torch import Generator, nn
from torch.nn import functional

from leakscope.attack import Attack
from leakscope.defence import ClientHooks, Defence, Hardened
from leakscope.defences.noise import gaussian_noise
from leakscope.defences.sign import sign
from leakscope.defences.top_k import top_k
from leakscope.errors import BadInputError, UsageError
from leakscope.federated import measure_utility
from leakscope.types import Batch, SealedUpdate, SharedUpdate


@dataclass(frozen=True)
class Changed(Defence):
    """Shares what `change` makes of the update."""

    change: Callable[[SharedUpdate, Generator], SharedUpdate | SealedUpdate]
    name: str = "changed"
    paper: str = "none"

    def hooks(self) -> ClientHooks:
        return ClientHooks(update=self.change)

    def adapt(self, attack: Attack) -> Attack:
        return attack


def failing(after: int, value: float) -> Changed:
    calls = []

    def change(update: SharedUpdate, rng: Generator) -> SharedUpdate:
        calls.append(1)
        factor = value if len(calls) > after else 1.0
        return replace(update, tensors={name: g * factor for name, g in update.tensors.items()})

    return Changed(change)


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
    found = measure_utility(network(), *digits)
    assert found.accuracy > 0.88
    assert found.interval[0] < found.accuracy < found.interval[1]
    assert found.interval[1] - found.interval[0] < 0.06
    assert 0 < found.final_loss < 0.5
    assert found.step_seconds > 0
    assert 0.3 < found.nonzero_fraction <= 1
    assert (found.rounds, found.diverged) == (150, False)


def test_what_is_held_back_is_sent_in_later_rounds(digits):
    options = {"rounds": 60, "clients": 2}
    memory, forgetful = (
        measure_utility(network(), *digits, defence=top_k(0.005, feedback=remembers), **options)
        for remembers in (True, False)
    )
    assert memory.final_loss < forgetful.final_loss - 0.1


def test_every_client_has_a_memory_of_its_own(digits):
    given: list[dict[str, torch.Tensor]] = []

    @dataclass(frozen=True)
    class Remembering(Changed):
        def hooks(self) -> ClientHooks:
            def feedback(update, held_back, rng):
                given.append(dict(held_back))
                return update, {"turn": torch.tensor(len(given))}

            return ClientHooks(feedback=feedback)

    measure_utility(network(), *digits, defence=Remembering(lambda update, rng: update), rounds=3, clients=2)
    turns = [int(one["turn"]) if one else 0 for one in given[:6]]
    assert turns == [0, 0, 1, 2, 3, 4]


def test_bytes_are_counted_as_sent(digits):
    numbers = sum(value.numel() for value in network().parameters())
    sizes = {
        name: measure_utility(network(), *digits, defence=defence, rounds=3, clients=2).bytes_sent
        for name, defence in (("none", None), ("sign", sign()), ("top-k", top_k(0.01)), ("noise", gaussian_noise(1.0)))
    }
    # Names and shapes take a line each.
    assert sizes["noise"] == pytest.approx(4 * numbers, abs=120)
    assert sizes["none"] <= sizes["noise"]
    # Signs, and exact zeros where a unit or a pixel is off: at most two bits.
    assert numbers / 8 < sizes["sign"] < numbers / 4 + 150
    assert sizes["top-k"] < 0.01 * numbers * 6 + 120


def test_noise_costs_accuracy_step_by_step(digits):
    options = {"rounds": 60}
    clean, some, much = (
        measure_utility(network(), *digits, defence=gaussian_noise(level), **options).accuracy
        for level in (0.0, 0.2, 1.0)
    )
    assert clean > some + 0.02 > much + 0.2


def test_the_seed_decides_everything(digits):
    def run(seed: int) -> tuple[float, float]:
        found = measure_utility(network(nn.Dropout(0.3)), *digits, defence=gaussian_noise(0.05), rounds=10, seed=seed)
        return found.accuracy, found.final_loss

    first = run(0)
    torch.rand(5)
    assert run(0) == first
    assert run(1) != first


def test_one_client_with_all_data_is_plain_momentum_sgd(digits):
    train, test = Batch(digits[0].inputs[:40], digits[0].targets[:40]), digits[1]
    found = measure_utility(network(), train, test, clients=1, rounds=5, batch_size=40, lr=0.2)
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
    options = {"rounds": 4, "batch_size": 42}
    four = measure_utility(network(), train, test, clients=4, **options)
    one = measure_utility(network(), train, test, clients=1, **options)
    assert four.final_loss == pytest.approx(one.final_loss, rel=1e-5)


def test_the_callers_model_and_random_state_are_left_alone(digits):
    model = network(nn.BatchNorm1d(32), nn.Dropout(0.1)).eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    measure_utility(model, *digits, rounds=3)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not model.training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_batch_norm_statistics_follow_the_data(digits):
    train, test = digits
    # Shifted data: with statistics left at 0 and 1 the test loss would be far off.
    model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64, affine=False), network())
    shifted = [Batch(part.inputs * 5 - 40, part.targets, bounds=None) for part in (train, test)]
    fresh = measure_utility(model, *shifted, rounds=60)
    frozen = measure_utility(model, *shifted, rounds=60, freeze_batch_norm=True)
    assert fresh.accuracy > 0.85
    assert fresh.accuracy > frozen.accuracy + 0.2


def test_frozen_batch_norm_allows_single_examples(digits):
    model = network(nn.BatchNorm1d(32))
    with pytest.raises(UsageError, match="freeze_batch_norm=True"):
        measure_utility(model, *digits, rounds=2, batch_size=1)
    found = measure_utility(model, *digits, rounds=2, batch_size=1, freeze_batch_norm=True)
    assert found.rounds == 2


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_non_finite_update_stops_training_before_it_is_applied(digits, value):
    found = measure_utility(network(), *digits, defence=failing(after=40, value=value), rounds=30)
    assert found.diverged
    assert found.rounds == 10
    assert found.accuracy == measure_utility(network(), *digits, rounds=10).accuracy


def test_a_learning_rate_that_explodes_is_flagged(digits):
    found = measure_utility(network(), *digits, rounds=60, lr=1e30)
    assert found.diverged


def test_unshared_layers_stay_and_count_as_nothing(digits):
    def head_only(update: SharedUpdate, rng: Generator) -> SharedUpdate:
        return replace(update, tensors={name: torch.ones_like(update.tensors[name]) for name in ("3.weight", "3.bias")})

    found = measure_utility(network(), *digits, defence=Changed(head_only), rounds=2)
    head, body = 32 * 10 + 10, 64 * 32 + 32
    assert found.nonzero_fraction == pytest.approx(head / (head + body))


def test_updates_that_are_no_gradient_of_the_model_are_refused(digits):
    def delta(update: SharedUpdate, rng: Generator) -> SharedUpdate:
        return SharedUpdate("delta", update.tensors)

    def sealed(update: SharedUpdate, rng: Generator) -> SealedUpdate:
        return SealedUpdate("ckks", b"")

    def foreign(update: SharedUpdate, rng: Generator) -> SharedUpdate:
        return SharedUpdate("gradient", {"other.weight": torch.zeros(2)})

    with pytest.raises(UsageError, match="got a delta"):
        measure_utility(network(), *digits, defence=Changed(delta))
    with pytest.raises(UsageError, match="got a SealedUpdate"):
        measure_utility(network(), *digits, defence=Changed(sealed))
    with pytest.raises(BadInputError, match=r"'other\.weight' of shape \[2\], which is not a parameter"):
        measure_utility(network(), *digits, defence=Changed(foreign))


@dataclass(frozen=True)
class Wider(Defence):
    """Trains a network with another layer, of which the client keeps the bias."""

    name: str = "wider"
    paper: str = "none"
    changes_network: bool = True

    def harden(self, model: nn.Module, *, seed: int = 0) -> Hardened:
        assert isinstance(model, nn.Sequential)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            wider = nn.Sequential(*model, nn.ReLU(), nn.Linear(10, 10))
        return Hardened(wider, wider, private=frozenset({"5.bias"}))

    def adapt(self, attack: Attack) -> Attack:
        return attack


def test_a_defence_that_changes_the_network_is_trained_in_its_changed_form(digits):
    model = network()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = measure_utility(model, *digits, defence=Wider(), rounds=40)
    shared, private = 64 * 32 + 32 + 32 * 10 + 10 + 100, 10
    assert 0.3 < found.nonzero_fraction <= shared / (shared + private)
    assert found.accuracy > 0.3
    assert found.accuracy != measure_utility(network(), *digits, rounds=40).accuracy
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_clients_train_with_the_callers_loss_unless_the_defence_has_one(digits):
    def flat(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return 0.0 * functional.cross_entropy(output, targets)

    start = network()
    with torch.no_grad():
        hits = int((start(digits[1].inputs).argmax(1) == digits[1].targets).sum())
    found = measure_utility(network(), *digits, rounds=5, loss=flat)
    assert found.accuracy == hits / len(digits[1])
    assert found.final_loss == 0.0


@pytest.mark.parametrize("wrong", [{"clients": 0}, {"rounds": 0}, {"batch_size": 0}, {"lr": 0.0}, {"clients": 5000}])
def test_settings_are_checked(digits, wrong):
    with pytest.raises(UsageError, match="clients"):
        measure_utility(network(), *digits, **wrong)
