"""PRECODE: the bottleneck, its loss in bits, whose noise it is, and the two attackers who know it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence
from torch.nn import functional

from leakscope.attacks.fc_inversion import fc_inversion
from leakscope.attacks.idlg import idlg
from leakscope.attacks.inverting_gradients import inverting_gradients
from leakscope.client import client_generator
from leakscope.defences.precode import BottleneckLoss, Coded, VariationalBottleneck, precode
from leakscope.errors import UnsuitableError, UsageError
from leakscope.federated import measure_utility
from leakscope.matching.gradient_matching import GradientMatching
from leakscope.matching.labels import infer_labels
from leakscope.metrics import score
from leakscope.models import build
from leakscope.observation.observe import observe
from leakscope.rng import generator, normal
from leakscope.testing import check_defence, convolutional_problem, smallest_problem
from leakscope.types import SharedUpdate
from tiny import batch_of, convolutional, dense, flat, shared

LIKE = torch.empty(0, dtype=torch.float64)


def bottleneck(model: nn.Module) -> VariationalBottleneck:
    return next(module for module in model.modules() if isinstance(module, VariationalBottleneck))


def test_the_bottleneck_stands_before_the_classifier():
    model = dense()
    hardened = precode(7).harden(model, seed=1)
    inserted = bottleneck(hardened.client)
    assert hardened.client[3] is inserted
    assert torch.equal(inserted.head.weight, model[3].weight)
    assert (inserted.encode.in_features, inserted.encode.out_features) == (24, 14)
    assert (inserted.decode.in_features, inserted.decode.out_features) == (7, 24)
    assert precode().width == 256
    # Nothing of the caller's changed, and nothing of the network is private.
    assert isinstance(model[3], nn.Linear)
    assert hardened.client is hardened.server
    assert not hardened.private
    assert all(value.dtype == torch.float64 for value in hardened.client.parameters())


def test_what_it_computes():
    model, batch = dense(), batch_of([1, 3])
    network = precode(7).harden(model, seed=1).client
    inserted, noise = bottleneck(network), normal((2, 7), generator(3), like=LIKE)
    output = torch.func.functional_call(network, {"3.noise": noise}, (batch.inputs,))
    coded = inserted.encode(model[:3](batch.inputs))
    mean, spread = coded[:, :7], torch.log1p(coded[:, 7:].exp())
    torch.testing.assert_close(output.mean, mean)
    torch.testing.assert_close(output.spread, spread)
    torch.testing.assert_close(output.logits, model[3](inserted.decode(mean + spread * noise)))


def test_noise_is_drawn_in_evaluation_mode_too():
    network = precode(7).harden(dense().eval()).client
    assert not network[3].training
    first, second = (network(batch_of([1]).inputs).logits for _ in range(2))
    assert not torch.equal(first, second)


def test_the_loss_is_cross_entropy_and_bits():
    mean, spread = (normal((5, 7), generator(place), like=LIKE) for place in (0, 1))
    logits, targets = normal((5, 4), generator(2), like=LIKE), torch.tensor([0, 1, 2, 3, 1])
    output = Coded(logits, mean, spread.exp())
    nats = kl_divergence(Normal(mean, spread.exp()), Normal(0.0, 1.0)).sum(1).mean()
    torch.testing.assert_close(output.bits, nats / math.log(2))
    plain = functional.cross_entropy(logits, targets)
    torch.testing.assert_close(BottleneckLoss(0.5)(output, targets), plain + 0.5 * nats / math.log(2))
    torch.testing.assert_close(BottleneckLoss(0.5)(logits, targets), plain)
    assert precode().harden(dense()).loss == BottleneckLoss(1e-3)


def true_noise(batch, *, seed, width):
    """The client's own draw, which only who holds its examples can repeat."""
    rng = client_generator(seed, batch)
    with torch.random.fork_rng():
        torch.manual_seed(int(torch.randint(2**62, (1,), generator=rng)))
        return torch.randn(len(batch), width, dtype=torch.float64)


@pytest.mark.parametrize("labels", [[2], [1, 3]])
def test_with_the_clients_noise_the_truth_explains_the_update(labels):
    batch, hardened = batch_of(labels), precode(7).harden(dense(), seed=1)
    update = shared(hardened, batch, seed=1)
    seen = observe(hardened, update, scenario="A", truth=batch)
    found = (
        precode(7)
        .adapt(idlg(steps=1))
        .reconstruct(replace(seen, num_examples=1, targets=batch.targets[:1]), diagnosing=False)
    )
    assert found.unknowns.keys() == {"3.noise"}
    truth = replace(found, inputs=batch.inputs, targets=batch.targets)
    noise = true_noise(batch, seed=1, width=7)
    assert idlg().evaluate(seen, replace(truth, unknowns={"3.noise": noise})) < 1e-20
    # Neither no noise, nor a draw of the attacker's own, nor that of another client.
    other = true_noise(batch_of(labels, seed=9), seed=1, width=7)
    for wrong in ({"3.noise": 0 * noise}, {}, {"3.noise": other}):
        assert idlg().evaluate(seen, replace(truth, unknowns=wrong)) > 1e-3


def test_the_same_client_draws_the_same_and_another_seed_draws_anew():
    batch, hardened = batch_of([2]), precode(7).harden(dense(), seed=1)
    first, again, other = (flat(shared(hardened, batch, seed=seed).tensors) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)


def test_every_parameter_is_shared():
    hardened = precode(7).harden(dense())
    assert shared(hardened, batch_of([1])).tensors.keys() == dict(hardened.client.named_parameters()).keys()


@pytest.mark.parametrize("seed", range(3))
def test_a_first_layer_that_is_fully_connected_gives_the_picture_away_whatever_the_noise(seed):
    batch, hardened = batch_of([2]), precode().harden(dense(), seed=seed)
    seen = observe(hardened, shared(hardened, batch, seed=seed), scenario="C", truth=batch)
    found = fc_inversion().reconstruct(seen, diagnosing=False)
    assert float((found.inputs - batch.inputs).abs().max()) < 1e-9
    assert precode().strong_attacks == ("fc-inversion",)


def test_the_attacker_who_searches_for_the_noise_sees_the_picture_again():
    problem, defence = smallest_problem(), precode()
    hardened = defence.harden(problem.model, seed=1)
    seen = observe(hardened, shared(hardened, problem.batch), scenario="A", truth=problem.batch)
    blind, found = (
        float(score(attack.reconstruct(seen, seed=4, diagnosing=False), problem.batch).psnr)
        for attack in (idlg(steps=20), defence.adapt(idlg(steps=40)))
    )
    assert blind < 15
    assert found > 40


@pytest.mark.parametrize(
    ("model", "shape", "kept"),
    [
        (build("lenet5", num_classes=10, in_channels=3, image_size=32), (3, 32, 32), {"conv1", "conv2", "fc1"}),
        (build("mlp", num_classes=4, in_channels=1, image_size=8, hidden=[9, 8]), (1, 8, 8), {"fc1"}),
        (convolutional_problem().model, (1, 8, 8), {"0", "2", "5.encode"}),
        (nn.Sequential(nn.Flatten(), nn.Linear(36, 4)), (1, 6, 6), {"1.encode"}),
    ],
    ids=["lenet5", "mlp", "convolutions", "one layer"],
)
def test_the_attacker_who_knows_matches_up_to_the_first_fully_connected_layer_of_the_end(model, shape, kept):
    hardened = precode(7).harden(model)
    tensors = {name: torch.ones_like(value) for name, value in hardened.server.named_parameters()}
    seen = observe(hardened, SharedUpdate("gradient", tensors), scenario="E", input_shape=shape)
    knowing = precode(7).adapt(idlg())
    assert isinstance(knowing, GradientMatching)
    matched = knowing.recipe.matched(seen).update.tensors
    assert {name.rpartition(".")[0] for name in matched} == kept
    assert {name.rpartition(".")[2] for name in matched} == {"weight", "bias"}


@pytest.mark.slow
def test_behind_convolutions_the_attacker_who_knows_sees_the_picture_as_if_there_were_no_noise():
    problem, defence = convolutional_problem(), precode()
    hardened = defence.harden(problem.model, seed=1)
    seen = observe(hardened, shared(hardened, problem.batch), scenario="C", truth=problem.batch)
    attack = inverting_gradients(steps=300)
    blind, found = (
        float(score(one.reconstruct(seen, seed=4, diagnosing=False), problem.batch).psnr)
        for one in (attack, defence.adapt(attack))
    )
    assert blind < 12
    assert found > 35


def test_labels_are_read_off_as_before():
    batch, hardened = batch_of([3]), precode(7).harden(dense())
    seen = observe(hardened, shared(hardened, batch), scenario="C", truth=batch)
    assert infer_labels(seen).labels.tolist() == [3]


def test_the_network_can_be_trained():
    found = measure_utility(
        dense(dtype=torch.float32),
        *(batch_of([0, 1, 2, 3] * 4, dtype=torch.float32),) * 2,
        defence=precode(7),
        clients=2,
        rounds=3,
        batch_size=4,
    )
    assert not found.diverged


def test_the_classifier_can_be_named_and_may_be_the_whole_network():
    hardened = precode(7, layer="1").harden(dense())
    assert isinstance(hardened.client[1], VariationalBottleneck)
    alone = precode(7).harden(nn.Linear(36, 4)).client
    assert isinstance(alone, VariationalBottleneck)
    assert isinstance(precode(7).harden(convolutional(norm=True)).client[4], VariationalBottleneck)


@pytest.mark.slow
def test_the_contract_behind_convolutions():
    check_defence(precode(16), problem=convolutional_problem())


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"width": 0}, "width ≥ 1"),
        ({"width": 2.5}, "width ≥ 1"),
        ({"weight": -1.0}, "finite weight ≥ 0"),
        ({"weight": float("inf")}, "finite weight ≥ 0"),
    ],
)
def test_wrong_options_are_refused(options, complaint):
    with pytest.raises(UsageError, match=complaint):
        precode(**options)


def test_a_network_without_the_layer_is_refused():
    with pytest.raises(UnsuitableError, match=r"no nn\.Linear"):
        precode().harden(nn.Sequential(nn.Conv2d(1, 4, 6), nn.Flatten()))
    with pytest.raises(UnsuitableError, match="no fully connected layer 'fc'"):
        precode(layer="fc").harden(dense())
