"""Where labels cannot be read as usual: one logit, negative features, other losses, heads in disguise."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import nn
from torch.nn import functional

from leakscope.attacks.agic import agic
from leakscope.attacks.cpl import cpl
from leakscope.attacks.dlg import dlg
from leakscope.attacks.gradinversion import gradinversion
from leakscope.attacks.grnn import grnn
from leakscope.errors import UnsuitableError
from leakscope.matching.labels import DistinctFirst, Inferred, LastLayerSign, RowMinimum, Soft, infer_labels
from leakscope.matching.labels.last_layer import find_last_layer, likeliest, probabilities
from leakscope.metrics import score
from leakscope.models.rgap import logistic_loss
from leakscope.observation.observe import observe
from leakscope.rng import generator
from leakscope.types import Batch, Status
from tiny import batch_of, dense, seen_of, shared

CLASSES = 6


def body(activation: nn.Module, *, classes: int, bias: bool = True, seed: int = 0) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = [nn.Flatten(), nn.Linear(36, 24), activation, nn.Linear(24, classes, bias=bias)]
        return nn.Sequential(*layers).double()


def seen_with(model, batch, loss, *, scenario="C"):
    return observe(model, shared(model, batch, loss=loss), scenario=scenario, truth=batch, loss=loss)


def one_logit(label: int, *, side: int = 6, loss=logistic_loss):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(side**2, 24), nn.Sigmoid(), nn.Linear(24, 1)).double()
    batch = batch_of([label], shape=(1, side, side))
    return seen_with(model, batch, loss), batch


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize(
    ("attack", "least"),
    [
        (dlg(steps=40, retries=1), 40.0),
        (cpl(steps=20), 40.0),
        (agic(steps=50), 15.0),
        (gradinversion(steps=100, seeds=2), 15.0),
    ],
    ids=["dlg", "cpl", "agic", "gradinversion"],
)
def test_attacks_find_image_and_label_behind_one_logit(attack, least, label):
    seen, batch = one_logit(label)
    found = attack.reconstruct(seen)
    assert found.status is Status.OK
    assert found.targets.tolist() == [label]
    assert float(score(found, batch).psnr) > least
    assert attack.evaluate(seen, found) == found.loss


@pytest.mark.parametrize("label", [0, 1])
def test_a_generated_label_of_one_logit_can_be_either(label):
    seen, _batch = one_logit(label, side=8)
    found = grnn(steps=40).reconstruct(seen)
    assert found.targets.tolist() == [label]
    assert found.loss < 0.5 * found.history[0]


@pytest.mark.parametrize("label", [0, 1])
def test_every_rule_reads_one_logit_by_its_sign(label):
    seen, _batch = one_logit(label)
    for rule in (DistinctFirst(), Inferred("geng"), LastLayerSign(), RowMinimum(), Inferred()):
        assert rule.resolve(seen, 1).tolist() == [label]
    for name in ("auto", "sign", "row-minimum", "counting", "geng"):
        assert infer_labels(seen, rule=name).labels.tolist() == [label]
    with pytest.raises(UnsuitableError, match="sum over 2 examples"):
        DistinctFirst().resolve(seen, 2)


def test_soft_labels_of_one_logit_and_back():
    logits = torch.tensor([[-2.0], [3.0]])
    torch.testing.assert_close(probabilities(logits), logits.sigmoid())
    assert likeliest(probabilities(logits)).tolist() == [0, 1]
    assert likeliest(torch.tensor([0.2, 0.7, 0.9])).tolist() == [0, 1, 1]
    assert likeliest(torch.tensor([[[0.2], [0.7]]]), axes=2).tolist() == [[0, 1]]
    several = torch.tensor([[0.2, 0.3, 0.1]])
    torch.testing.assert_close(probabilities(several), several.softmax(-1))
    assert likeliest(several).tolist() == [1]


@pytest.mark.parametrize("activation", [nn.Tanh(), nn.LeakyReLU(0.2)], ids=["tanh", "leaky"])
def test_labels_behind_negative_features_are_counted_with_a_note(activation):
    right, rule = 0, DistinctFirst()
    for seed in range(6):
        wanted = torch.randint(10, (8,), generator=generator(seed, "labels")).tolist()
        seen = seen_of(body(activation, classes=10, seed=seed), batch_of(wanted, seed=seed), scenario="C")
        found = rule.resolve(seen, 8).tolist()
        right += sum((Counter(found) & Counter(wanted)).values())
        assert "negative features" in rule.describe(seen, 8)[0]
    assert right >= 46


def test_what_a_rule_doubts_reaches_the_reconstruction():
    model = dense(classes=4)
    sign = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(12)
    with torch.no_grad():
        # Bright images are of class 0, dark ones of class 1.
        model.get_parameter("1.weight").copy_(sign[:, None].expand(24, 36))
        model.get_parameter("1.bias").copy_(-36 * 0.47 * sign)
        model.get_parameter("3.weight")[:2].copy_(torch.stack([5 * sign, -5 * sign]))
    seen = seen_of(model, batch_of([1, 1, 2, 3, 0, 0]), scenario="C")
    for rule in (DistinctFirst(), Inferred(), Inferred("counting")):
        assert any("trained" in note for note in rule.describe(seen, 6))
        assert rule.describe(seen_of(model, batch_of([1]), scenario="A"), 1) == ()
    assert any("trained" in note for note in agic(steps=1).reconstruct(seen).notes)


def test_two_classes_without_bias_and_features_of_both_signs_are_a_coin_flip():
    for label in (0, 1):
        batch = batch_of([label])
        seen = seen_of(body(nn.Tanh(), classes=2, bias=False), batch, scenario="C")
        guess = infer_labels(seen)
        assert guess.confidence.tolist() == [0.5]
        assert "two classes is a guess" in guess.notes[0]
        assert LastLayerSign().describe(seen, 1) == guess.notes
        for sure in (body(nn.Tanh(), classes=2), body(nn.Sigmoid(), classes=2, bias=False)):
            guess = infer_labels(seen_of(sure, batch, scenario="C"))
            assert (guess.labels.tolist(), guess.confidence.tolist(), guess.notes) == ([label], [1.0], ())


def squared(output, targets):
    return functional.mse_loss(output, functional.one_hot(targets, CLASSES).to(output))


RULES = [Inferred(), DistinctFirst(), Inferred("geng"), LastLayerSign(), RowMinimum()]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_labels_are_not_read_off_another_loss(rule):
    batch = batch_of([1])
    hot = Batch(batch.inputs, functional.one_hot(batch.targets, CLASSES).double())
    for loss, given in ((functional.mse_loss, hot), (squared, batch)):
        seen = seen_with(dense(classes=CLASSES), given, loss)
        with pytest.raises(
            UnsuitableError, match=f"cross-entropy on class labels.*got {loss.__name__} of 6.*scenario A"
        ):
            rule.resolve(seen, 1)


def test_another_loss_works_where_no_label_is_inferred():
    batch = batch_of([1])
    hot = Batch(batch.inputs, functional.one_hot(batch.targets, CLASSES).double())
    seen = seen_with(dense(classes=CLASSES), hot, functional.mse_loss)
    found = dlg(steps=30).reconstruct(seen)
    assert found.targets.tolist() == [1]
    granted = seen_with(dense(classes=CLASSES), hot, functional.mse_loss, scenario="A")
    assert agic(steps=60).reconstruct(granted).status is Status.OK


def focal(output, targets):
    own = functional.log_softmax(output, 1).gather(1, targets[:, None])[:, 0]
    return (-((1 - own.exp()) ** 2) * own).mean()


KIN = [
    lambda output, targets: functional.cross_entropy(output, targets),
    nn.CrossEntropyLoss(reduction="sum"),
    nn.CrossEntropyLoss(label_smoothing=0.1),
    lambda output, targets: functional.cross_entropy(output, targets, label_smoothing=0.1),
    lambda output, targets: functional.cross_entropy(output, targets, weight=torch.arange(1, 7).to(output)),
    lambda output, targets: functional.cross_entropy(output, targets, ignore_index=0),
    focal,
]


@pytest.mark.parametrize("loss", KIN, ids=["wrapped", "sum", "smooth", "smooth function", "weights", "ignore", "focal"])
def test_kin_of_cross_entropy_tell_labels_as_it_does(loss):
    for label in range(1, CLASSES):
        seen = seen_with(dense(classes=CLASSES), batch_of([label], seed=label), loss)
        assert Inferred().resolve(seen, 1).tolist() == [label]


def test_a_loss_that_takes_labels_in_no_form_an_attack_has_is_refused():
    batch = batch_of([1])
    column = Batch(batch.inputs, torch.ones(1, 1, dtype=torch.float64))
    seen = seen_with(dense(classes=1), column, nn.BCEWithLogitsLoss())
    assert infer_labels(seen).labels.tolist() == [1]
    with pytest.raises(UnsuitableError, match=r"whole numbers \[n\], and BCEWithLogitsLoss does not take them"):
        Inferred().resolve(seen, 1)
    assert Soft().resolve(seen, 1) is None

    def logs(output, targets):
        return functional.nll_loss(output.log_softmax(1), targets)

    with pytest.raises(UnsuitableError, match=r"probabilities \[n, classes\], and logs does not take them"):
        dlg(steps=1).reconstruct(seen_with(dense(classes=CLASSES), batch, logs))


class Tail(nn.Module):
    """A linear layer as wide as there are classes, and a function behind it."""

    def __init__(self, function) -> None:
        super().__init__()
        self.layer = nn.Linear(36, CLASSES)
        self.mix = nn.Parameter(torch.randn(CLASSES, CLASSES) / 3)
        self.shift = nn.Parameter(torch.randn(CLASSES))
        self.norm = nn.BatchNorm1d(36, affine=False)
        self.function = function

    def forward(self, images):
        return self.function(self, self.layer(self.norm(images.flatten(1))))


def tailed(function) -> Tail:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Tail(function).double().train()


@pytest.mark.parametrize("function", [lambda m, z: z.tanh() @ m.mix, lambda m, z: -z, lambda m, z: z.flip(1)])
def test_a_hidden_layer_as_wide_as_the_classes_is_not_the_last(function):
    model = tailed(function)
    seen = seen_of(model, batch_of([2, 3]), scenario="C")
    before = {name: value.clone() for name, value in seen.model.state_dict().items()}
    drawn = torch.random.get_rng_state()
    with pytest.raises(UnsuitableError, match="no shared linear layer with 6 outputs"):
        infer_labels(seen, count=1)
    assert all(torch.equal(value, before[name]) for name, value in seen.model.state_dict().items())
    assert torch.equal(torch.random.get_rng_state(), drawn)
    assert seen.model.training
    assert all(not module._forward_hooks for module in seen.model.modules())
    assert all(value.grad is None for value in seen.model.parameters())


@pytest.mark.parametrize(
    ("function", "loss"),
    [
        (lambda _m, z: z.log_softmax(1), functional.nll_loss),
        (lambda _m, z: z.log_softmax(1), functional.cross_entropy),
        (lambda _m, z: z.softmax(1), lambda p, y: functional.nll_loss(p.log(), y)),
        (lambda _m, z: 20 * z, functional.cross_entropy),
        (lambda m, z: z + m.shift, functional.cross_entropy),
        (lambda _m, z: 5 * (z / 5).tanh(), functional.cross_entropy),
    ],
    ids=["log-softmax", "twice", "softmax", "scale", "shift", "soft cap"],
)
def test_a_layer_whose_output_becomes_the_logits_class_by_class_is_the_last(function, loss):
    model = tailed(function).eval()
    for label in range(CLASSES):
        seen = seen_with(model, batch_of([label], seed=label), loss)
        assert find_last_layer(seen)[0] == "layer"
        assert Inferred().resolve(seen, 1).tolist() == [label]
