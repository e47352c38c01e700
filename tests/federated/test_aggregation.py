"""FedAvg: the weighted mean, and what it refuses."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from leakscope.errors import BadInputError, UsageError
from leakscope.federated import fedavg
from leakscope.types import LocalTraining, SealedUpdate, SharedUpdate


def update(seed: int, count: int | None = 1, dtype: torch.dtype = torch.float64, **rest) -> SharedUpdate:
    rng = torch.Generator().manual_seed(seed)
    shapes = {"weight": (3, 2), "bias": (3,)}
    tensors = {name: torch.randn(shape, generator=rng, dtype=torch.float64).to(dtype) for name, shape in shapes.items()}
    return SharedUpdate(rest.pop("kind", "gradient"), tensors, num_examples=count, **rest)


@settings(max_examples=30, deadline=None)
@given(counts=st.lists(st.integers(1, 50), min_size=1, max_size=5))
def test_is_the_mean_weighted_by_examples(counts):
    updates = [update(seed, count) for seed, count in enumerate(counts)]
    found = fedavg(updates)
    for name in ("weight", "bias"):
        stacked = torch.stack([client.tensors[name] for client in updates])
        weights = torch.tensor(counts, dtype=torch.float64) / sum(counts)
        torch.testing.assert_close(found.tensors[name], torch.tensordot(weights, stacked, 1), rtol=0, atol=1e-12)
    assert found.num_examples == sum(counts)
    assert list(found.tensors) == ["weight", "bias"]


def test_equal_weights_give_the_mean_of_all_examples_gradients():
    rng = torch.Generator().manual_seed(0)
    inputs = torch.randn(12, 4, generator=rng, dtype=torch.float64)
    goals = torch.randn(12, 1, generator=rng, dtype=torch.float64)
    layer = torch.nn.Linear(4, 1).double()

    def gradient(rows: slice) -> SharedUpdate:
        value = torch.nn.functional.mse_loss(layer(inputs[rows]), goals[rows])
        names = [name for name, _ in layer.named_parameters()]
        grads = torch.autograd.grad(value, list(layer.parameters()))
        return SharedUpdate("gradient", dict(zip(names, grads, strict=True)), num_examples=len(inputs[rows]))

    found = fedavg([gradient(slice(0, 7)), gradient(slice(7, 12))])
    for name, expected in gradient(slice(0, 12)).tensors.items():
        torch.testing.assert_close(found.tensors[name], expected, rtol=0, atol=1e-12)


def test_weights_override_counts_and_zero_leaves_a_client_out():
    first, second = update(0, None), update(1, None)
    found = fedavg([first, second], [0.0, 3.0])
    assert torch.equal(found.tensors["bias"], second.tensors["bias"])
    assert found.num_examples is None


def test_half_precision_is_summed_in_float32():
    clients = [update(seed, dtype=torch.bfloat16) for seed in range(64)]
    found = fedavg(clients).tensors["weight"]
    assert found.dtype == torch.bfloat16
    exact = torch.stack([client.tensors["weight"].double() for client in clients]).mean(0)
    torch.testing.assert_close(found.double(), exact, rtol=2**-8, atol=1e-6)


def test_buffers_are_averaged_and_counters_take_the_largest():
    first = update(0, 1, buffers={"mean": torch.tensor([1.0]), "batches": torch.tensor(3)})
    second = update(1, 3, buffers={"mean": torch.tensor([5.0]), "batches": torch.tensor(9)})
    found = fedavg([first, second]).buffers
    assert found["mean"].tolist() == [4.0]
    assert found["batches"].item() == 9


def test_local_training_is_kept_only_when_all_agree():
    local = LocalTraining(lr=0.1, steps=2)
    same = [update(seed, kind="delta", local=local) for seed in range(2)]
    assert fedavg(same).local == local
    assert fedavg(same).kind == "delta"
    assert fedavg([same[0], update(1, kind="delta")]).local is None


def test_sources_are_left_alone():
    first = update(0)
    before = first.tensors["weight"].clone()
    found = fedavg([first])
    found.tensors["weight"].add_(1)
    assert torch.equal(first.tensors["weight"], before)


def test_what_cannot_be_averaged_is_refused():
    with pytest.raises(UsageError, match="at least one update"):
        fedavg([])
    with pytest.raises(BadInputError, match=r"update 1 is a SealedUpdate; .* federated\.combine"):
        fedavg([update(0), SealedUpdate("ckks", b"")])  # type: ignore[list-item]
    with pytest.raises(BadInputError, match="gradients and deltas together"):
        fedavg([update(0), update(1, kind="delta")])
    with pytest.raises(BadInputError, match="bias on one side only"):
        fedavg([update(0), SharedUpdate("gradient", {"weight": torch.zeros(3, 2)}, num_examples=1)])
    other = SharedUpdate("gradient", {"weight": torch.zeros(2, 2), "bias": torch.zeros(3)}, num_examples=1)
    with pytest.raises(BadInputError, match=r"weight is \[3, 2\] .* but \[2, 2\]"):
        fedavg([update(0), other])


@pytest.mark.parametrize("weights", [[1.0], [0.0, 0.0], [-1.0, 2.0], [float("nan"), 1.0]])
def test_weights_are_checked(weights):
    with pytest.raises(UsageError, match="weight"):
        fedavg([update(0), update(1)], weights)


def test_unknown_counts_need_weights():
    with pytest.raises(UsageError, match="update 1 does not say how many examples"):
        fedavg([update(0), update(1, None)])
