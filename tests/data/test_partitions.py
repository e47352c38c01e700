from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from leakscope import data
from leakscope.data.partitions import SCHEMES
from leakscope.errors import UsageError

TARGETS = torch.arange(1000) % 10


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    labels=st.lists(st.integers(0, 6), min_size=4, max_size=60),
    share=st.floats(0, 1),
    scheme=st.sampled_from(SCHEMES),
    alpha=st.floats(1e-3, 1e3),
    seed=st.integers(0, 2**31),
)
def test_every_example_goes_to_exactly_one_client(
    labels: list[int], share: float, scheme: str, alpha: float, seed: int
) -> None:
    clients = 1 + int(share * (len(labels) // 2 - 1))
    parts = data.partition(torch.tensor(labels), clients=clients, scheme=scheme, alpha=alpha, seed=seed)
    assert len(parts) == clients
    assert all(len(part) > 0 and part.dtype == torch.int64 for part in parts)
    assert sorted(torch.cat(parts).tolist()) == list(range(len(labels)))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_seed_decides_the_partition_and_the_global_state_is_untouched(scheme: str) -> None:
    before = torch.get_rng_state()
    first, again, other = (data.partition(TARGETS, clients=5, scheme=scheme, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_iid_parts_differ_by_at_most_one() -> None:
    assert sorted(len(part) for part in data.partition(TARGETS, clients=7)) == [142] + [143] * 6


def test_by_class_gives_each_client_at_most_its_shards_of_classes() -> None:
    parts = data.partition(TARGETS, clients=5, scheme="by-class", shards=2)
    assert all(len(TARGETS[part].unique()) <= 2 for part in parts)
    assert [len(part) for part in parts] == [200] * 5


def test_small_alpha_is_more_lopsided_than_large_alpha() -> None:
    def spread(alpha: float) -> float:
        parts = data.partition(TARGETS, clients=5, scheme="dirichlet", alpha=alpha)
        counts = torch.stack([torch.bincount(TARGETS[part], minlength=10) for part in parts]).double()
        return float(counts.std(dim=0).mean())

    assert spread(0.05) > 30 > 5 > spread(1000)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clients": 0}, "clients must be between 1 and"),
        ({"clients": 1001}, "number of examples, 1000"),
        ({"clients": 2, "scheme": "dirichlet", "alpha": 0.0}, "alpha must be a finite number above 0"),
        ({"clients": 2, "scheme": "dirichlet", "alpha": float("nan")}, "alpha must be"),
        ({"clients": 600, "scheme": "by-class"}, "clients × shards ≤ 1000"),
        ({"clients": 2, "scheme": "dirichelt"}, "Did you mean 'dirichlet'"),
    ],
)
def test_wrong_choices_are_usage_errors(options: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        data.partition(TARGETS, **options)


def test_an_endless_alpha_divides_every_class_evenly() -> None:
    parts = data.partition(TARGETS, clients=5, scheme="dirichlet", alpha=1e12)
    assert [torch.bincount(TARGETS[part], minlength=10).tolist() for part in parts] == [[20] * 10] * 5
