"""Soteria: which columns go, that nothing else changes, and the attacker who leaves the tensor out."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from leakscope.attacks.idlg import idlg
from leakscope.defence import StepContext
from leakscope.defences import soteria as soteria_file
from leakscope.defences.soteria import EPSILONS, DefendedWeight, score_features, soteria
from leakscope.errors import UnsuitableError, UsageError
from leakscope.matching.gradient_matching import GradientMatching
from leakscope.matching.labels import infer_labels
from leakscope.metrics import score
from leakscope.observation.observe import observe
from leakscope.steps import trainable
from leakscope.testing import smallest_problem
from leakscope.types import LocalTraining, SharedUpdate
from tiny import batch_of, convolutional, dense, flat, shared


def signed(*, seed: int = 0) -> nn.Sequential:
    """A network whose features have both signs."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Flatten(), nn.Linear(36, 9), nn.Tanh(), nn.Linear(9, 4)).double()


def context(model, batch):
    return StepContext(model, trainable(model), batch, nn.functional.cross_entropy, 0, torch.Generator())


def score_one_by_one(model, batch, epsilon):
    """Feature by feature and example by example, as the formula is written."""
    body = model[:-1]
    total = torch.zeros(model[-1].in_features, dtype=torch.float64)
    for inputs in batch.inputs:
        x = inputs[None].clone().requires_grad_()
        features = body(x)[0]
        for i, feature in enumerate(features):
            length = torch.autograd.grad(feature, x, retain_graph=True)[0].norm()
            total[i] += length / (feature.detach() + epsilon)
    return total


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1e-10])
@pytest.mark.parametrize("model", [dense(), signed()], ids=["sigmoid", "tanh"])
def test_scores_are_those_of_the_formula(model, epsilon):
    batch = batch_of([1, 3, 3])
    layer = "3"
    found = score_features(context(model, batch), layer, epsilon=epsilon)
    torch.testing.assert_close(found, score_one_by_one(model, batch, epsilon))


def test_the_named_divisors():
    assert EPSILONS == {"dlg": 0.0, "inverting-gradients": 0.1, "ggl": 1e-10}


@pytest.mark.parametrize("examples", [1, 130])
def test_more_features_or_examples_than_fit_at_once(examples):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(36, 150), nn.Sigmoid(), nn.Linear(150, 4)).double()
    batch = batch_of([1] * examples)
    found = score_features(context(model, batch), "3", epsilon=0.1)
    torch.testing.assert_close(found, score_one_by_one(model, batch, 0.1))


class Cube(torch.autograd.Function):
    """x³ by a rule that torch cannot vectorise."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, *grad_outputs):
        (x,), (g,) = ctx.saved_tensors, grad_outputs
        # Asking for a value is what cannot be vectorised.
        return 3 * x * x * g if float(g.abs().sum()) else torch.zeros_like(g)


class Cubed(nn.Module):
    def forward(self, x):
        return Cube.apply(x)


def test_layers_that_cannot_be_vectorised_are_differentiated_one_at_a_time():
    model, batch = dense(), batch_of([1, 2])
    model[2] = Cubed()
    x = batch.inputs.clone().requires_grad_()
    with pytest.raises(RuntimeError):
        torch.autograd.grad(model[:3](x), x, torch.ones(2, 2, 24).double(), is_grads_batched=True)
    found = score_features(context(model, batch), "3", epsilon=0.1)
    torch.testing.assert_close(found, score_one_by_one(model, batch, 0.1))


@pytest.mark.parametrize("variant", EPSILONS)
@pytest.mark.parametrize("percentile", [1, 40, 60, 99])
def test_columns_below_the_percentile_go_and_nothing_else(percentile, variant):
    model, batch = signed(), batch_of([1, 3])
    plain = shared(model, batch).tensors
    found = shared(model, batch, defence=soteria(percentile, variant=variant)).tensors
    scores = score_one_by_one(model, batch, EPSILONS[variant])
    kept = scores >= torch.quantile(scores, percentile / 100)
    assert 0 < int(kept.sum()) < len(kept)
    assert torch.equal(found["3.weight"], plain["3.weight"] * kept)
    for name in ("1.weight", "1.bias", "3.bias"):
        assert torch.equal(found[name], plain[name])


def test_percentile_0_is_the_identity():
    model, batch = dense(), batch_of([1, 3])
    assert torch.equal(flat(shared(model, batch, defence=soteria(0)).tensors), flat(shared(model, batch).tensors))
    assert soteria(0).adapt(idlg()) == idlg()


def test_features_that_nothing_moves_go_first():
    model, batch = dense(), batch_of([1])
    with torch.no_grad():
        model[1].weight[:5] = 0
        model[1].bias[:5] = -1
    model[2] = nn.ReLU()
    scores = score_features(context(model, batch), "3", epsilon=0.0)
    assert torch.equal(scores[:5], torch.zeros(5).double())
    assert not bool(scores.isnan().any())


def test_it_acts_in_every_local_step():
    model, batch = dense(), batch_of([1, 3])
    local = LocalTraining(lr=0.1, steps=2, batch_size=2)
    found = shared(model, batch, defence=soteria(60), local=local).tensors["3.weight"]
    first = shared(model, batch, defence=soteria(60)).tensors["3.weight"]
    moved = dense()
    once = shared(model, batch, defence=soteria(60), local=LocalTraining(lr=0.1, steps=1, batch_size=2)).tensors
    with torch.no_grad():
        for name, value in moved.named_parameters():
            value.add_(once[name])
    second = shared(moved, batch, defence=soteria(60)).tensors["3.weight"]
    torch.testing.assert_close(found, -0.1 * (first + second))


class Reversed(nn.Module):
    """Its classifier is registered first."""

    def __init__(self) -> None:
        super().__init__()
        self.last, self.first = nn.Linear(8, 4).double(), nn.Linear(36, 8).double()

    def forward(self, x):
        return self.last(torch.sigmoid(self.first(x.flatten(1))))


def test_the_defended_layer_is_the_last_that_runs_or_the_named_one():
    model, batch = Reversed(), batch_of([1])
    plain = shared(model, batch).tensors
    for options, layer in (({}, "last"), ({"layer": "first"}, "first")):
        found = shared(model, batch, defence=soteria(60, **options)).tensors
        assert [name for name in plain if not torch.equal(plain[name], found[name])] == [f"{layer}.weight"]
        knowing = soteria(60, **options).adapt(idlg())
        assert isinstance(knowing, GradientMatching)
        seen = observe(model, shared(model, batch), scenario="A", truth=batch)
        assert knowing.recipe.matched(seen).update.tensors.keys() == plain.keys() - {f"{layer}.weight"}
        assert DefendedWeight(options.get("layer")).names(seen) == (f"{layer}.weight",)


def test_the_attacker_who_leaves_the_tensor_out_sees_the_picture_again():
    problem = smallest_problem()
    update = shared(problem.model, problem.batch, defence=soteria(60))
    seen = observe(problem.model, update, scenario="A", truth=problem.batch)
    naive = idlg(steps=40)
    blind, found = (
        float(score(attack.reconstruct(seen, seed=4, diagnosing=False), problem.batch).psnr)
        for attack in (naive, soteria(60).adapt(naive))
    )
    assert blind < 15
    assert found > 60


def test_nothing_left_to_match_is_refused():
    model, batch = nn.Sequential(nn.Flatten(), nn.Linear(36, 4, bias=False)).double(), batch_of([2])
    seen = observe(model, shared(model, batch), scenario="A", truth=batch)
    with pytest.raises(UnsuitableError, match="nothing is left to match"):
        soteria(60).adapt(idlg()).reconstruct(seen)


def test_labels_are_read_off_as_before():
    model, batch = dense(), batch_of([3])
    seen = observe(model, shared(model, batch, defence=soteria(60)), scenario="C", truth=batch)
    assert infer_labels(seen).labels.tolist() == [3]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"percentile": 100}, "0 ≤ percentile < 100"),
        ({"percentile": -1}, "0 ≤ percentile < 100"),
        ({"percentile": float("nan")}, "0 ≤ percentile < 100"),
        ({"variant": "grnn"}, "unknown variant"),
    ],
)
def test_wrong_options_are_refused(options, complaint):
    with pytest.raises(UsageError, match=complaint):
        soteria(**options)


class Twice(Reversed):
    def forward(self, x):
        return self.last(torch.sigmoid(self.first(x.flatten(1)))) + self.last(torch.zeros(len(x), 8).double())


@pytest.mark.parametrize(
    ("model", "options", "complaint"),
    [
        (nn.Sequential(nn.Conv2d(1, 4, 6), nn.Flatten()).double(), {}, "no nn.Linear runs"),
        (dense(), {"layer": "fc"}, "no fully connected layer 'fc'"),
        (convolutional(), {"layer": "0"}, "no fully connected layer '0'"),
        (Twice(), {}, "runs once"),
    ],
    ids=["no linear layer", "unknown layer", "a convolution", "runs twice"],
)
def test_networks_without_the_layer_are_refused(model, options, complaint):
    with pytest.raises(UnsuitableError, match=complaint):
        shared(model, batch_of([1]), defence=soteria(60, **options))


def test_a_layer_without_a_gradient_is_refused():
    model = dense()
    model[3].weight.requires_grad_(False)
    with pytest.raises(UnsuitableError, match="gets no gradient"):
        shared(model, batch_of([1]), defence=soteria(60))


def test_only_what_was_shared_is_left_out():
    model, batch = dense(), batch_of([2])
    update = shared(model, batch)
    rest = SharedUpdate("gradient", {k: v for k, v in update.tensors.items() if k != "3.weight"}, 1)
    seen = observe(model, rest, scenario="A", truth=batch)
    knowing = soteria(60).adapt(idlg())
    assert isinstance(knowing, GradientMatching)
    assert knowing.recipe.matched(seen).update.tensors.keys() == rest.tensors.keys()
    some = replace(knowing.recipe, only=("1.weight", "3.weight"))
    assert list(some.matched(observe(model, update, scenario="A", truth=batch)).update.tensors) == ["1.weight"]


@pytest.fixture
def counted(monkeypatch):
    """How often lengths of derivatives were computed, with nothing kept from other tests."""
    found, compute = [], soteria_file._lengths
    monkeypatch.setattr(soteria_file, "_kept", type(soteria_file._kept)())
    monkeypatch.setattr(soteria_file, "_lengths", lambda *given: found.append(given) or compute(*given))
    return found


def test_the_same_step_is_scored_once(counted):
    model, batch = signed(), batch_of([1, 3])
    first, again = (shared(model, batch, defence=soteria(60)).tensors for _ in range(2))
    assert len(counted) == 1
    assert torch.equal(flat(first), flat(again))
    # The percentile and the divisor come after the lengths.
    shared(model, batch, defence=soteria(40, variant="ggl"))
    assert len(counted) == 1


def test_another_step_is_scored_by_itself(counted):
    model = signed()
    for batch in (batch_of([1, 3]), batch_of([1, 2]), batch_of([1, 3], seed=9)):
        found = shared(model, batch, defence=soteria(60)).tensors["3.weight"]
        scores = score_one_by_one(model, batch, EPSILONS["inverting-gradients"])
        kept = scores >= torch.quantile(scores, 0.6)
        assert torch.equal(found != 0, kept.expand_as(found))
    assert len(counted) == 3


class Steep(nn.Module):
    """Has the value of tanh, and a derivative that grows from feature to feature."""

    def forward(self, x):
        steep = torch.linspace(1, 9, x.shape[1], dtype=x.dtype)
        return torch.tanh(x).detach() + steep * (x - x.detach())


def test_a_network_with_the_same_features_and_other_derivatives_is_scored_by_itself(counted):
    model, batch = signed(), batch_of([1, 3])
    shared(model, batch, defence=soteria(60))
    other = signed()
    other[2] = Steep()
    assert torch.equal(model[:3](batch.inputs), other[:3](batch.inputs))
    found = shared(other, batch, defence=soteria(60)).tensors["3.weight"]
    scores = score_one_by_one(other, batch, EPSILONS["inverting-gradients"])
    assert torch.equal(found != 0, (scores >= torch.quantile(scores, 0.6)).expand_as(found))
    assert len(counted) == 2


def test_only_the_last_steps_are_kept(counted):
    model = signed()
    for number in range(soteria_file._KEPT_STEPS + 1):
        shared(model, batch_of([1], seed=number), defence=soteria(60))
    assert len(soteria_file._kept) == soteria_file._KEPT_STEPS
    shared(model, batch_of([1], seed=0), defence=soteria(60))
    assert len(counted) == soteria_file._KEPT_STEPS + 2
