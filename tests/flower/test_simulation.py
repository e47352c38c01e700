"""The simulation engine itself: Ray starts processes, so these take minutes."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("flwr")
# Not imported here: Ray must not be there before the simulation, which tells it whom to let in.
if importlib.util.find_spec("ray") is None:
    pytest.skip("Ray is not installed", allow_module_level=True)

from flwr.app import ArrayRecord
from flwr.serverapp import ServerApp
from ray_processes import listening

from flower_messages import weights_app
from leakscope.errors import RoundFailedError, UsageError
from leakscope.federated import client_secret, flower, keygen, load_keys, save_keys, train_federated
from leakscope.flower import simulation
from leakscope.registry import get_defence
from small_federation import blobs, clients, experiment, network

# What Ray warns about in its own code.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
TEST = blobs(30, seed=9)


def largest_difference(one, other):
    pairs = zip(one.model.state_dict().values(), other.model.state_dict().values(), strict=True)
    return max(float((a.double() - b.double()).abs().max()) for a, b in pairs)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("as_mod", [False, True])
def test_five_rounds_on_ray_agree_with_those_in_process(as_mod, capsys):
    plan = experiment(rounds=5, defence=get_defence("top-k", share=0.3))
    here = train_federated(network(), clients(), TEST, plan)
    mods = [flower.defence_mod("top-k:share=0.3", seed=0, sends="change")] if as_mod else []
    trained_with = replace(plan, defence=None) if as_mod else plan
    there = flower.simulate(network(), clients(), TEST, trained_with, mods=mods)
    difference = largest_difference(here, there)
    with capsys.disabled():
        print(f"\nlargest difference of any weight after five rounds: {difference:.3g}")
    assert difference <= 1e-6
    assert there.accuracies == pytest.approx(here.accuracies)
    assert len(there.rounds) == 5


@pytest.mark.timeout(900)
def test_sealed_rounds_on_ray_agree_with_plain_ones_in_process(tmp_path, capsys):
    pytest.importorskip("tenseal")
    plan, model, people = experiment(rounds=2), network(), clients()
    keys, secrets = keygen("ckks"), {client.number: client_secret() for client in people}
    path = save_keys(tmp_path / "keys.json", keys)
    seal_first = flower.seal_mod(path, secret=lambda context: secrets[context.node_config["partition-id"]])
    strategy = flower.SealedStrategy(keys.public, secrets, min_train_nodes=3, fraction_evaluate=0.0)
    server, results = ServerApp(), []

    @server.main()
    def main(grid, context):
        start = ArrayRecord(model.state_dict())
        results.append(strategy.start(grid=grid, initial_arrays=start, num_rounds=2))

    flower.simulate_apps(server, weights_app(model, people, plan, [seal_first]), clients=3)
    there = flower.open_arrays(results[0].arrays, load_keys(path))
    here = train_federated(model, people, TEST, plan).model.state_dict()
    difference = max(float((there[name] - value).abs().max()) for name, value in here.items())
    with capsys.disabled():
        print(f"\nlargest difference of any weight after two sealed rounds: {difference:.3g}")
    assert difference <= 1e-6
    assert strategy.failures == {1: (), 2: ()}


@pytest.mark.timeout(900)
def test_a_round_that_fails_says_so_through_the_engine():
    def breaks(message, context, call_next):
        if message.metadata.message_type == "train" and context.node_config["partition-id"] == 1:
            raise MemoryError("no memory left")
        return call_next(message, context)

    with pytest.raises(RoundFailedError, match=r"client 1: .*no memory left"):
        flower.simulate(network(), clients(), TEST, experiment(rounds=1), mods=[breaks])


def test_a_ray_that_was_imported_before_is_refused(monkeypatch):
    monkeypatch.setattr("leakscope.flower.simulation._ray_is_private", threading.Event())
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
    with pytest.raises(UsageError, match="imported in this process before"):
        flower.simulate(network(), clients(), TEST, experiment(rounds=1))


@pytest.mark.timeout(900)
def test_nothing_listens_beyond_this_machine():
    seen, ended = set(), threading.Event()

    def look():
        while not ended.wait(0.5):
            seen.update(listening(set(_processes_with(simulation._PRIVATE["RAY_AUTH_TOKEN"]))))

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        flower.simulate(network(), clients(), TEST, experiment(rounds=1))
    finally:
        ended.set()
        watcher.join()
    assert seen == {"127.0.0.1"}, "Ray does listen, and nowhere else"


def _processes_with(token):
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if token.encode() in (entry / "environ").read_bytes():
                yield int(entry.name)
