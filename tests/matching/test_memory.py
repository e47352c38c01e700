"""What a reconstruction leaves behind: nothing, even before Python's collector of reference cycles has run."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

import leakscope as ls
from leakscope.fastgrad import TailProgram
from leakscope.fastgrad.winograd import Winograd
from leakscope.matching import routes
from leakscope.networks import trace
from tiny import batch_of, seen_of


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Only reference counts free memory here."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def _network() -> nn.Module:
    """Wide and large enough for Winograd's convolutions, which share memory between layers."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        wide = [nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32)]
        return nn.Sequential(*wide, nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(512, 4)).eval()


def _count_tensors() -> int:
    return sum(issubclass(type(thing), Tensor) for thing in gc.get_objects())


def _reconstruct(model: nn.Module, *, layers: str = "steady") -> None:
    batch = batch_of([1], shape=(3, 16, 16), dtype=torch.float32)
    ls.get_attack("inverting-gradients", steps=2, layers=layers).reconstruct(seen_of(model, batch), seed=0)


@pytest.mark.parametrize(("chosen", "function"), [("all", "compile_network"), ("steady", "compile_tail")])
def test_compiled_networks_die_with_the_run(monkeypatch, no_collector, chosen, function):
    compiling, layers = getattr(routes, function), []

    def remember(*args, **kwargs):
        network = compiling(*args, **kwargs)
        programs = (network.head, network.tail) if isinstance(network, TailProgram) else (network,)
        instructions = [one for program in programs for one in program.instructions]
        layers.extend((type(one.layer), weakref.ref(one.layer)) for one in instructions)
        return network

    monkeypatch.setattr(routes, function, remember)
    _reconstruct(_network(), layers=chosen)
    assert Winograd in [kind for kind, _ in layers]
    assert [kind.__name__ for kind, layer in layers if layer() is not None] == []


def test_no_tensor_stays_alive_after_a_reconstruction(no_collector):
    model = _network()
    _reconstruct(model)
    before = _count_tensors()
    for _ in range(2):
        _reconstruct(model)
    assert _count_tensors() == before


def test_tracing_a_network_does_not_keep_it(no_collector):
    model = _network()
    parameter = weakref.ref(model[0].weight)
    graph, values = trace(model, torch.rand(2, 3, 16, 16))
    assert len(graph.nodes) == len(values)
    del model, graph, values
    assert parameter() is None
