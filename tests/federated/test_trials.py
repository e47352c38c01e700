"""Training under a defence over seeds: interval, deltas, central training, private layers, cache."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from leakscope import rng as random
from leakscope.attack import Attack
from leakscope.defence import ClientHooks, Defence, Hardened
from leakscope.defences.noise import gaussian_noise
from leakscope.defences.prune import prune
from leakscope.defences.top_k import top_k
from leakscope.errors import UsageError
from leakscope.federated import measure_utility, seeds_interval, train_with, trials, wilson_interval
from leakscope.federated.memory import ClientMemory
from leakscope.types import Batch, LocalTraining, SharedUpdate

QUICK: dict[str, Any] = {"rounds": 6, "batch_size": 8, "clients": 2}


def data(count: int = 48, *, seed: int = 0) -> Batch:
    """Points in the plane, classed by the larger coordinate."""
    inputs = random.uniform((count, 2), random.generator(seed, "points"))
    return Batch(inputs, (inputs[:, 0] > inputs[:, 1]).long())


def network(seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))


TRAIN, TEST = data(), data(80, seed=1)


def test_one_seed_is_the_training_of_measure_utility():
    found = train_with(None, network(), TRAIN, TEST, seeds=(3,), **QUICK)
    once = measure_utility(network(), TRAIN, TEST, seed=3, **QUICK)
    assert replace(found.runs[0], step_seconds=once.step_seconds) == once
    assert (found.accuracy, found.interval) == (once.accuracy, once.interval)
    assert found.interval == wilson_interval(round(80 * found.accuracy), 80)


def test_the_interval_covers_seeds_and_test_examples():
    accuracies = [0.80, 0.90, 0.85]
    half = 4.302652729911275 * stdev(accuracies) / math.sqrt(3)
    low, high = wilson_interval(850, 1_000)
    found = seeds_interval(accuracies, 1_000)
    assert found == pytest.approx((0.85 - math.hypot(half, 0.85 - low), 0.85 + math.hypot(half, high - 0.85)))
    # Equal seeds leave the test examples, and so many test examples leave the seeds.
    assert seeds_interval([0.85] * 3, 1_000) == pytest.approx((low, high))
    assert seeds_interval(accuracies, 10**9) == pytest.approx((0.85 - half, 0.85 + half), abs=1e-4)
    assert seeds_interval([0.1, 1.0], 50) == (0.0, 1.0)
    with pytest.raises(UsageError, match="at least one seed"):
        seeds_interval([], 10)


def test_means_and_medians_over_seeds():
    found = train_with(gaussian_noise(0.5), network(), TRAIN, TEST, **QUICK)
    assert found.seeds == (0, 1, 2)
    assert len(set(found.accuracies)) > 1, "seeds differ"
    assert found.accuracy == pytest.approx(fmean(found.accuracies))
    assert found.interval == seeds_interval(found.accuracies, 80)
    assert found.final_loss == pytest.approx(fmean(run.final_loss for run in found.runs))
    assert found.step_ratio is not None
    assert [run.step_ratio is None for run in found.runs] == [False, True, True]
    assert found.bytes_sent > 4 * 42
    assert "3 seeds" in str(found)
    assert "bytes per client and round" in str(found)


def test_a_run_at_chance_says_so():
    one = Batch(TRAIN.inputs, torch.zeros_like(TRAIN.targets))
    found = train_with(None, network(), one, TEST, seeds=(0, 1), **QUICK)
    assert found.at_chance
    assert found.classes == 2
    assert found.chance == pytest.approx(max(TEST.targets.float().mean(), 1 - TEST.targets.float().mean()))
    assert "no better than guessing" in str(found)
    # Two seeds far apart make a wide interval; that alone is no sign of guessing.
    runs = tuple(replace(found.runs[0], accuracy=value) for value in (0.8, 0.95))
    apart = replace(found, runs=runs)
    assert apart.interval[0] <= 0.5
    assert not apart.at_chance


def test_divergence_of_one_seed_is_reported():
    calls: list[int] = []

    @dataclass(frozen=True)
    class Failing(Defence):
        name: str = "failing"
        paper: str = "none"

        def hooks(self) -> ClientHooks:
            def change(update: SharedUpdate, rng: Generator) -> SharedUpdate:
                calls.append(1)
                factor = math.nan if len(calls) == 5 else 1.0
                return replace(update, tensors={name: factor * value for name, value in update.tensors.items()})

            return ClientHooks(update=change)

        def adapt(self, attack: Attack) -> Attack:
            return attack

    found = train_with(Failing(), network(), TRAIN, TEST, seeds=(0, 1), **QUICK)
    assert found.diverged
    assert found.rounds == 2
    assert [run.diverged for run in found.runs] == [True, False]
    assert "training diverged" in str(found)


def test_the_server_adds_the_mean_change():
    """Two clients of unlike size, one local step on all they have: the same as one weighted descent."""
    train = Batch(TRAIN.inputs[:9], TRAIN.targets[:9])
    local = LocalTraining(lr=0.3, steps=1, batch_size=9)
    found = measure_utility(
        network(), train, TEST, share="delta", local=local, clients=2, rounds=3, batch_size=9, timed=False
    )
    plain = network()
    for _ in range(3):
        loss = functional.cross_entropy(plain(train.inputs), train.targets)
        slopes = torch.autograd.grad(loss, list(plain.parameters()))
        with torch.no_grad():
            for parameter, slope in zip(plain.parameters(), slopes, strict=True):
                parameter -= 0.3 * slope
    with torch.no_grad():
        expected = functional.cross_entropy(plain(TEST.inputs), TEST.targets).item()
    assert found.final_loss == pytest.approx(expected, rel=1e-5)


def test_the_usual_local_training_is_one_pass_in_four_steps():
    options: dict[str, Any] = {"share": "delta", "clients": 2, "rounds": 4, "batch_size": 8, "lr": 0.2, "seeds": (0,)}
    usual = train_with(None, network(), TRAIN, TEST, **options)
    named = train_with(None, network(), TRAIN, TEST, local=LocalTraining(lr=0.2, epochs=1, batch_size=2), **options)
    assert usual.final_loss == named.final_loss
    assert usual.final_loss != train_with(None, network(), TRAIN, TEST, **{**options, "share": "gradient"}).final_loss


def test_changes_are_held_back_and_sent_later_too():
    options: dict[str, Any] = {**QUICK, "rounds": 30, "share": "delta", "lr": 0.5, "seeds": (0,)}
    memory, forgetful = (
        train_with(top_k(0.03, feedback=feedback), network(), TRAIN, TEST, **options).final_loss
        for feedback in (True, False)
    )
    assert memory < forgetful - 0.01


def test_central_training_is_one_client_with_everything():
    options: dict[str, Any] = {"rounds": 4, "batch_size": 48, "seeds": (0,)}
    central = train_with(None, network(), TRAIN, TEST, how="central", **options)
    assert central.final_loss == train_with(None, network(), TRAIN, TEST, clients=1, **options).final_loss
    weak = train_with(gaussian_noise(3.0), network(), TRAIN, TEST, how="central", **options)
    assert weak.final_loss != central.final_loss


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"how": "central", "clients": 2}, "one client"),
        ({"how": "elsewhere"}, "'federated' or 'central'"),
        ({"share": "weights"}, "'gradient' or 'delta'"),
        ({"local": LocalTraining(lr=0.1)}, "share='delta'"),
        ({"seeds": ()}, "at least one seed"),
        ({"seeds": (1, 1)}, "each once"),
        ({"share": "delta", "lr": 0.0}, "lr > 0"),
    ],
)
def test_settings_are_checked(wrong, told):
    with pytest.raises(UsageError, match=told):
        train_with(None, network(), TRAIN, TEST, **wrong)


class Gate(nn.Module):
    """Turns the outputs over, or not, by a number of the client's own."""

    def __init__(self, inner: nn.Module, start: float) -> None:
        super().__init__()
        self.inner = inner
        self.own = nn.Parameter(torch.tensor(start))
        self.register_buffer("key", torch.tensor(start))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.own * self.inner(inputs)


@dataclass(frozen=True)
class Gated(Defence):
    """Every client multiplies the scores by a number that it keeps."""

    start: Callable[[int], float] = lambda seed: 1.0 + seed % 97 / 97
    frozen: bool = False
    name: str = "gated"
    paper: str = "none"
    changes_network: bool = True

    def harden(self, model: nn.Module, *, seed: int = 0) -> Hardened:
        client = Gate(model, self.start(seed))
        return Hardened(client, model, private=frozenset({"own", "key"}))

    def adapt(self, attack: Attack) -> Attack:
        return attack


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[ClientMemory]:
    """The memories of the last training."""
    from leakscope.federated import training

    found: list[ClientMemory] = []
    real = training.start_memories

    def watched(*args: Any, **options: Any) -> list[ClientMemory]:
        found[:] = real(*args, **options)
        return found

    monkeypatch.setattr(training, "start_memories", watched)
    return found


def test_private_parameters_are_each_clients_own_and_are_trained(kept):
    measure_utility(network(), TRAIN, TEST, defence=Gated(), timed=False, **{**QUICK, "rounds": 1, "clients": 3})
    first = [float(memory.private["own"]) for memory in kept]
    starts = [float(memory.private["key"]) for memory in kept]
    assert len(set(starts)) == 3, "each starts with its own"
    assert starts[0] == 1.0, "the first from the seed itself"
    assert all(value != start for value, start in zip(first, starts, strict=True)), "each is trained"


@pytest.mark.parametrize("share", ["gradient", "delta"])
def test_one_client_trains_private_parameters_as_if_they_were_shared(share):
    """Nobody else is there: momentum SGD, or local training, on all parameters together."""
    options: dict[str, Any] = {"rounds": 5, "batch_size": 48, "clients": 1, "lr": 0.2, "timed": False, "share": share}
    private = measure_utility(network(), TRAIN, TEST, defence=Gated(), **options)
    shared = measure_utility(Gate(network(), 1.0), TRAIN, TEST, **options)
    assert private.final_loss == pytest.approx(shared.final_loss, rel=1e-6)
    assert private.nonzero_fraction < shared.nonzero_fraction


def test_accuracy_is_the_mean_over_the_clients_networks():
    # One client has its scores turned over: it is right where the other is wrong.
    turned = Gated(start=lambda seed: 1.0 if seed == 0 else -1.0)
    found = measure_utility(
        network(), TRAIN, TEST, defence=turned, clients=2, rounds=1, batch_size=8, lr=1e-9, timed=False
    )
    assert found.accuracy == pytest.approx(0.5)
    with torch.no_grad():
        scores = network()(TEST.inputs)
        expected = fmean(functional.cross_entropy(sign * scores, TEST.targets).item() for sign in (1, -1))
    assert found.final_loss == pytest.approx(expected, rel=1e-5)


def _never(*args: Any, **options: Any) -> Any:
    raise AssertionError("trained again")


def test_a_finished_training_is_read_and_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    options: dict[str, Any] = {**QUICK, "cache": tmp_path / "new", "seeds": (0, 1)}
    first = train_with(prune(fraction=0.5), network(), TRAIN, TEST, **options)
    assert len(list((tmp_path / "new").iterdir())) == 2
    monkeypatch.setattr(trials, "measure_utility", _never)
    assert train_with(prune(fraction=0.5), network(), TRAIN, TEST, **options) == first
    # Another order of seeds uses what there is of them.
    with pytest.raises(AssertionError, match="trained again"):
        train_with(prune(fraction=0.5), network(), TRAIN, TEST, **{**options, "seeds": (0, 2)})


def _own_loss(output: Tensor, targets: Tensor) -> Tensor:
    return 2 * functional.cross_entropy(output, targets)


@pytest.mark.parametrize(
    "change",
    [
        {"defence": prune(fraction=0.6)},
        {"defence": None},
        {"model": network(1)},
        {"train": data(48, seed=2)},
        {"test": data(80, seed=3)},
        {"rounds": 7},
        {"lr": 0.2},
        {"clients": 3},
        {"share": "delta"},
        {"loss": _own_loss},
        {"freeze_batch_norm": True},
    ],
    ids=lambda change: next(iter(change)),
)
def test_whatever_changes_the_result_changes_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change):
    def run(**options: Any) -> None:
        given = {"defence": prune(fraction=0.5), "model": network(), "train": TRAIN, "test": TEST, **QUICK, **options}
        train_with(seeds=(0,), cache=tmp_path, **given)

    run(rounds=1)
    monkeypatch.setattr(trials, "measure_utility", _never)
    run(rounds=1)
    with pytest.raises(AssertionError, match="trained again"):
        run(**{"rounds": 1, **change})


def _with_a_dead_unit(weight: float) -> nn.Module:
    """The last hidden unit is off for every point of the plane's unit square, whatever its weights."""
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter.copy_(torch.linspace(-1, 1, parameter.numel()).reshape(parameter.shape) + number / 10)
        model[0].weight[2] = weight  # type: ignore[index]
        model[0].bias[2] = -100.0  # type: ignore[index]
    return model


def test_weights_are_in_the_key_even_where_no_update_shows_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    options: dict[str, Any] = {**QUICK, "rounds": 1, "seeds": (0,), "cache": tmp_path}
    train_with(None, _with_a_dead_unit(1.0), TRAIN, TEST, **options)
    monkeypatch.setattr(trials, "measure_utility", _never)
    with pytest.raises(AssertionError, match="trained again"):
        train_with(None, _with_a_dead_unit(2.0), TRAIN, TEST, **options)


def test_a_torn_file_is_replaced(tmp_path: Path):
    options: dict[str, Any] = {**QUICK, "seeds": (0,), "cache": tmp_path}
    first = train_with(None, network(), TRAIN, TEST, **options)
    (file,) = tmp_path.iterdir()
    whole = file.read_text()
    for torn in (whole[: len(whole) // 2], "{}", "[1]", ""):
        file.write_text(torn)
        again = train_with(None, network(), TRAIN, TEST, **options)
        assert again.accuracy == first.accuracy
        assert file.read_text().startswith('{"accuracy"')


def test_what_does_not_tell_its_options_is_not_cached(tmp_path: Path):
    with pytest.raises(UsageError, match="does not tell its options"):
        train_with(Gated(start=lambda seed: 2.0), network(), TRAIN, TEST, cache=tmp_path, **QUICK)
