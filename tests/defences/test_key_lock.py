"""Key-lock: what it computes, what stays at the client, its dead channels, and the attackers who know it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from leakscope.attacks.fc_inversion import fc_inversion
from leakscope.attacks.idlg import idlg
from leakscope.attacks.inverting_gradients import inverting_gradients
from leakscope.defences.key_lock import key_lock
from leakscope.defences.locks import Lock, count_dead_channels, find_places
from leakscope.errors import UnsuitableError, UsageError
from leakscope.federated import fedavg
from leakscope.matching.gradient_matching import GradientMatching
from leakscope.matching.labels import infer_labels
from leakscope.metrics import score
from leakscope.models import build
from leakscope.networks import start_unknowns
from leakscope.observation.observe import observe
from leakscope.rng import generator
from leakscope.testing import check_defence, convolutional_problem, smallest_problem
from leakscope.types import Batch
from tiny import batch_of, convolutional, dense, shared

STRATEGIES = ("none", "key", "lock", "both")


def lock_of(model: nn.Module) -> Lock:
    return next(module for module in model.modules() if isinstance(module, Lock))


def open_lock(model: nn.Module) -> None:
    """γ = 1 and β = 0, whatever the key."""
    for module in model.modules():
        if isinstance(module, Lock):
            for layer, value in ((module.scale, 1.0), (module.shift, 0.0)):
                nn.init.zeros_(layer.weight)
                nn.init.constant_(layer.bias, value)


def deeper(*, norm: bool = True) -> nn.Sequential:
    """Two convolutions, the second without normalisation."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        middle = [nn.BatchNorm2d(3)] if norm else []
        model = nn.Sequential(
            *[nn.Conv2d(1, 3, 3, padding=1), *middle, nn.Sigmoid(), nn.Conv2d(3, 5, 3), nn.Sigmoid()],
            *[nn.Flatten(), nn.Linear(80, 4)],
        )
        return model.double()


@pytest.mark.parametrize("activation", ["none", "relu", "sigmoid"])
def test_scale_and_shift_come_from_the_key_through_two_layers(activation):
    network = key_lock(activation, key_length=10).harden(convolutional(norm=True), seed=1).client
    lock, act = lock_of(network), {"none": lambda x: x, "relu": torch.relu, "sigmoid": torch.sigmoid}[activation]
    gamma = act(lock.scale.weight @ lock.key + lock.scale.bias)
    beta = act(lock.shift.weight @ lock.key + lock.shift.bias)
    x = torch.rand(2, 3, 4, 5, dtype=torch.float64)
    torch.testing.assert_close(lock(x), gamma[None, :, None, None] * x + beta[None, :, None, None])
    assert not torch.allclose(gamma, beta)


def test_the_key_is_uniform_and_the_clients_own():
    keys = [lock_of(key_lock().harden(convolutional(), seed=seed).client).key for seed in (1, 1, 2)]
    assert keys[0].shape == (1024,)
    assert float(keys[0].min()) >= 0
    assert float(keys[0].max()) < 1
    assert abs(float(keys[0].mean()) - 0.5) < 0.05
    assert torch.equal(keys[0], keys[1])
    assert not torch.equal(keys[0], keys[2])


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("blocks", ["first", "all"])
def test_an_open_lock_is_the_normalisation_alone(norm, training, blocks):
    model, x = deeper(norm=norm).train(training), batch_of([1, 2, 3]).inputs
    # Chained locks pass 1 and 0 on as keys, which an open lock does not look at.
    locked = key_lock(blocks=blocks).harden(model, seed=1).client
    open_lock(locked)
    torch.testing.assert_close(locked(x), key_lock(scaling="none", blocks=blocks).harden(model).client(x))
    closed = key_lock(blocks=blocks).harden(model, seed=1).client
    assert not torch.allclose(locked(x), closed(x))


def test_in_a_network_with_normalisation_nothing_but_scale_and_shift_changes():
    model, x = convolutional(norm=True).eval(), batch_of([1, 2]).inputs
    with torch.no_grad():
        statistics = dict(model.named_buffers())
        statistics["1.running_mean"].fill_(0.3)
        statistics["1.running_var"].fill_(4.0)
    for scaling in ("affine", "none"):
        torch.testing.assert_close(key_lock(scaling=scaling).harden(model).client(x), model(x))
    kept = dict(key_lock(scaling="affine").harden(model).client.named_parameters())
    assert "1.norm.weight" in kept
    for scaling in ("none", "locked"):
        assert "1.norm.weight" not in dict(key_lock(scaling=scaling).harden(model).server.named_parameters())
    assert isinstance(model[1], nn.BatchNorm2d)
    assert model[1].affine


def test_a_new_normalisation_has_a_scale_only_where_it_is_trained():
    for scaling, own in (("affine", True), ("none", False), ("locked", False)):
        names = dict(key_lock(scaling=scaling).harden(deeper(norm=False)).server.named_parameters())
        assert ("0.norm.weight" in names) is own


def test_where_locks_stand():
    def places(model):
        return [(place.layer, place.channels, place.norm) for place in find_places(model)]

    assert places(deeper()) == [("0", 3, "1"), ("3", 5, None)]
    assert places(dense()) == [("1", 24, None)]
    grouped = nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Conv2d(4, 6, 3), nn.BatchNorm2d(4))
    # The second normalisation has another number of channels: it belongs to something else.
    assert places(grouped) == [("0", 4, "1"), ("2", 6, None)]
    network = build("resnet20")
    assert len(find_places(network)) == sum(isinstance(module, nn.Conv2d) for module in network.modules())
    assert all(place.norm for place in find_places(network))


@pytest.mark.parametrize("name", ["lenet5", "resnet20", "mlp"])
@pytest.mark.parametrize("blocks", ["first", "all"])
def test_reference_networks_can_be_locked(name, blocks):
    hardened = key_lock("relu", blocks=blocks).harden(build(name), seed=1)
    assert hardened.client(torch.rand(2, 3, 32, 32)).shape == (2, 10)
    assert hardened.server(torch.rand(2, 3, 32, 32)).shape == (2, 10)


def test_each_lock_has_scale_and_shift_of_the_one_before_as_keys():
    network = key_lock("sigmoid", blocks="all").harden(deeper(), seed=1).client
    first, second = (module for module in network.modules() if isinstance(module, Lock))
    gamma, beta = first.values()
    torch.testing.assert_close(second.values()[0], torch.sigmoid(second.scale(gamma)))
    torch.testing.assert_close(second.values()[1], torch.sigmoid(second.shift(beta)))
    assert "key" not in dict(second.named_buffers())


@pytest.mark.parametrize("blocks", ["first", "all"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_the_client_keeps_never_reaches_the_server(strategy, blocks):
    defence, batch = key_lock(shared=strategy, blocks=blocks), batch_of([2])
    hardened = defence.harden(deeper(), seed=3)
    update = shared(hardened, batch, defence=defence)
    seen = observe(hardened, update, scenario="A", truth=batch)
    known = {**dict(seen.model.named_parameters()), **dict(seen.model.named_buffers())}
    keeps_lock = strategy in ("none", "key")
    assert any("scale" in name for name in update.tensors) is not keeps_lock
    assert not any("key" in name for name in update.tensors)
    secret = lock_of(hardened.client)
    tells_lock = any(
        v.shape == secret.scale.weight.shape and torch.equal(v, secret.scale.weight) for v in known.values()
    )
    tells_key = any(v.shape == secret.key.shape and torch.equal(v, secret.key) for v in known.values())
    assert tells_lock is not keeps_lock
    # A key is of no use without its lock, so that a server that has it alone knows what one without it does.
    assert tells_key is (strategy == "both")
    names = {*dict(hardened.client.named_parameters()), *dict(hardened.client.named_buffers())}
    assert hardened.private <= names
    assert any(name.endswith("key") for name in hardened.private) is (strategy in ("none", "lock"))
    assert any("scale" in name for name in hardened.private) is keeps_lock


def test_other_parameters_are_the_same_on_both_sides():
    hardened = key_lock().harden(deeper(), seed=3)
    client = dict(hardened.client.named_parameters())
    for name, value in hardened.server.named_parameters():
        assert torch.equal(value, client[name])


def test_clients_with_other_keys_and_equal_locks_differ():
    one, other = (key_lock().harden(convolutional(), seed=seed).client for seed in (1, 2))
    key = lock_of(other).key.clone()
    other.load_state_dict(one.state_dict())
    x = batch_of([1]).inputs
    assert torch.equal(one(x), other(x))
    lock_of(other).key.copy_(key)
    assert not torch.allclose(one(x), other(x))


def at_truth(seen, batch, unknowns):
    attack = idlg(steps=1)
    found = attack.reconstruct(seen, diagnosing=False)
    return attack.evaluate(seen, replace(found, inputs=batch.inputs, targets=batch.targets, unknowns=unknowns))


@pytest.mark.parametrize("activation", ["none", "relu"])
def test_who_knows_all_of_it_explains_the_update_by_the_truth(activation):
    batch, model = batch_of([2]), convolutional(norm=True)
    views = {}
    for options in ({"shared": "none"}, {"shared": "lock"}, {"shared": "both"}, {"lock_known": True}):
        defence = key_lock(activation, **options)
        hardened = defence.harden(model, seed=3)
        seen = observe(hardened, shared(hardened, batch, defence=defence), scenario="A", truth=batch)
        views[str(options)] = (seen, lock_of(hardened.client))
    (blind, lock), (layers, _), (both, _), (known, _) = views.values()
    gamma, beta = (value.detach() for value in lock.values())
    assert at_truth(both, batch, {}) < 1e-20
    assert at_truth(blind, batch, {"1.lock.scale": gamma, "1.lock.shift": beta}) < 1e-20
    for seen in (layers, known):
        assert at_truth(seen, batch, {"1.lock.key": lock.key}) < 1e-20
    for seen in (blind, layers, known):
        assert at_truth(seen, batch, {}) > 1e-6


def test_what_there_is_to_search_for():
    def sought(**options):
        server = key_lock(**options).harden(deeper(), seed=3).server
        return {name: tuple(value.shape) for name, value in start_unknowns(server, 1, generator(0)).items()}

    assert sought() == sought(shared="key") == {"1.lock.scale": (3,), "1.lock.shift": (3,)}
    assert sought(shared="lock") == sought(lock_known=True) == {"1.lock.key": (1024,)}
    assert sought(shared="lock", blocks="all") == {"1.lock.key": (1024,)}
    assert sought(shared="both") == sought(shared="key", lock_known=True) == {}
    assert len(sought(blocks="all")) == 4


def test_a_shared_lock_gives_the_key_away():
    batch, defence = batch_of([2]), key_lock(shared="lock")
    hardened = defence.harden(convolutional(norm=True), seed=3)
    seen = observe(hardened, shared(hardened, batch, defence=defence), scenario="A", truth=batch)
    knowing = defence.adapt(idlg(steps=2))
    assert isinstance(knowing, GradientMatching)
    found = knowing.reconstruct(seen, diagnosing=False)
    torch.testing.assert_close(found.unknowns["1.lock.key"], lock_of(hardened.client).key)
    assert not any("lock" in name for name in knowing.recipe.matched(seen).update.tensors)


def test_the_attacker_who_knows_matches_nothing_behind_the_first_fully_connected_layer():
    layers = (nn.Conv2d(1, 3, 3), nn.Sigmoid(), nn.Flatten(), nn.Linear(48, 6), nn.Sigmoid(), nn.Linear(6, 4))
    batch, defence = batch_of([2]), key_lock()
    hardened = defence.harden(nn.Sequential(*layers).double(), seed=3)
    seen = observe(hardened, shared(hardened, batch, defence=defence), scenario="A", truth=batch)
    knowing = defence.adapt(idlg(steps=2))
    assert isinstance(knowing, GradientMatching)
    matched = set(knowing.recipe.matched(seen).update.tensors)
    assert {"3.weight", "3.bias"} <= matched
    assert not {"5.weight", "5.bias"} & matched


def test_updates_with_open_locks_average_as_without_locks():
    locked = key_lock().harden(deeper(), seed=3)
    open_lock(locked.client)
    plain = key_lock(scaling="none").harden(deeper())
    batches = [batch_of([1, 2], seed=seed) for seed in (0, 1)]
    ours, theirs = (fedavg([shared(network, batch) for batch in batches]).tensors for network in (locked, plain))
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        torch.testing.assert_close(ours[name], value)


def test_relu_kills_about_half_of_the_channels_and_their_filters():
    model = nn.Sequential(nn.Conv2d(1, 64, 3), nn.Sigmoid(), nn.Flatten(), nn.Linear(1024, 4)).double()
    dead = {}
    for activation in ("none", "relu", "sigmoid"):
        hardened = key_lock(activation).harden(model, seed=1)
        ((name, counted),) = count_dead_channels(hardened.client).items()
        assert name == "0.lock"
        silent = shared(hardened, batch_of([1])).tensors["0.layer.weight"].flatten(1).any(1).logical_not()
        dead[activation] = (*counted, int(silent.sum()))
    assert dead["none"] == dead["sigmoid"] == (0, 64, 0)
    assert 20 <= dead["relu"][0] <= 44
    assert dead["relu"][0] == dead["relu"][2]


def test_labels_are_read_off_as_before():
    for labels in ([3], [0, 1, 2]):
        batch, hardened = batch_of(labels), key_lock("relu").harden(convolutional(norm=True).eval(), seed=3)
        seen = observe(hardened, shared(hardened, batch), scenario="C", truth=batch)
        assert sorted(infer_labels(seen).labels.tolist()) == labels


def test_a_first_layer_that_is_fully_connected_gives_the_picture_away():
    batch, hardened = batch_of([2]), key_lock().harden(dense().eval(), seed=3)
    seen = observe(hardened, shared(hardened, batch), scenario="C", truth=batch)
    found = fc_inversion().reconstruct(seen, diagnosing=False)
    assert float((found.inputs - batch.inputs).abs().max()) < 1e-9
    assert key_lock().strong_attacks == ("fc-inversion", "inverting-gradients:restarts=4")


@pytest.mark.parametrize("scaling", ["affine", "none"])
def test_a_baseline_hides_nothing_so_no_attack_is_stronger_for_knowing_it(scaling):
    assert key_lock(scaling=scaling).strong_attacks == ()


@pytest.mark.parametrize("options", [{}, {"activation": "relu"}, {"shared": "lock"}, {"lock_known": True}], ids=str)
def test_the_attacker_who_searches_for_the_lock_sees_the_picture_again(options):
    problem, defence = smallest_problem(), key_lock(**options)
    hardened = defence.harden(problem.model, seed=1)
    seen = observe(hardened, shared(hardened, problem.batch), scenario="A", truth=problem.batch)
    naive = inverting_gradients(steps=150)
    blind, found = (
        float(score(attack.reconstruct(seen, seed=4, diagnosing=False), problem.batch).psnr)
        for attack in (naive, defence.adapt(naive))
    )
    assert found > blind + 8
    assert found > 25


def test_baselines_have_their_own_names_and_no_secret():
    assert [key_lock(scaling=one).name for one in ("locked", "affine", "none")] == [
        *("key-lock", "batch-norm-affine", "batch-norm-plain")
    ]
    for scaling in ("affine", "none"):
        defence = key_lock(scaling=scaling)
        hardened = defence.harden(deeper())
        assert not hardened.private
        assert hardened.client is hardened.server
        assert defence.adapt(idlg()) == idlg()
        assert count_dead_channels(hardened.client) == {}


@pytest.mark.slow
def test_the_contract_behind_convolutions():
    check_defence(key_lock(), problem=convolutional_problem())


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"activation": "tanh"}, "no activation='tanh'"),
        ({"blocks": "last"}, "no blocks='last'"),
        ({"shared": "all"}, "no shared='all'"),
        ({"scaling": "free"}, "no scaling='free'"),
        ({"key_length": 0}, "key_length ≥ 1"),
        ({"key_length": 1.5}, "key_length ≥ 1"),
    ],
)
def test_wrong_options_are_refused(options, complaint):
    with pytest.raises(UsageError, match=complaint):
        key_lock(**options)


def test_a_network_without_a_place_is_refused():
    with pytest.raises(UnsuitableError, match="behind a convolution or a hidden linear layer"):
        key_lock().harden(nn.Sequential(nn.Flatten(), nn.Linear(36, 4)))


def test_one_example_behind_batch_statistics_of_one_value_is_refused():
    hardened = key_lock().harden(dense().train())
    with pytest.raises(UnsuitableError, match="batch normalisation in training mode"):
        shared(hardened, Batch(batch_of([1]).inputs, torch.tensor([1])))
