from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

import leakscope as ls
from attacks.malicious.crafted_audits import RAW, by_label, named, pictures, play
from leakscope.attacks.malicious.decoupling.read import read_classes
from leakscope.errors import UnsuitableError, UsageError
from leakscope.types import Status

SMALL = (3, 16, 16)


def pooled(
    *, classes: int = 12, widths: tuple[int, int] = (32, 96), norm: bool = False, hidden: int = 64
) -> nn.Sequential:
    """Two convolutions with max pooling, then two linear layers: VGG in small."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        layers: list[nn.Module] = []
        before = 3
        for width in widths:
            layers += [nn.Conv2d(before, width, 3, padding=1), *([nn.BatchNorm2d(width)] if norm else []), nn.ReLU()]
            layers.append(nn.MaxPool2d(2))
            before = width
        return nn.Sequential(
            *layers, nn.Flatten(), nn.Linear(before * 16, hidden), nn.ReLU(), nn.Linear(hidden, classes)
        ).eval()


def features_of(model: nn.Module, batch: ls.Batch, layer: str) -> torch.Tensor:
    """What a layer receives for each example."""
    found: list[torch.Tensor] = []
    hook = model.get_submodule(layer).register_forward_pre_hook(lambda _layer, received: found.append(received[0]))
    model(batch.inputs)
    hook.remove()
    return found[0].detach()


CASES = [
    ({"loss": "raw-nll"}, RAW),
    ({"loss": "raw-nll", "form": "inconspicuous"}, RAW),
    ({}, None),
    ({"form": "inconspicuous"}, None),
    ({"variant": "dump-class", "shuffle": False}, None),
    ({"form": "inconspicuous", "variant": "dump-class", "shuffle": False}, None),
]


@pytest.mark.parametrize(("options", "task"), CASES, ids=lambda value: str(value))
def test_what_the_first_linear_layer_received_is_read_exactly(options, task):
    attack, batch = named("mkor", **options), pictures(list(range(9)))
    seen = play(attack, pooled(), batch, task=task)
    has_softmax = task is None and "variant" not in options
    found, _ = read_classes(seen, seen.secret.paths, has_softmax=has_softmax)
    read = torch.stack([one.features for one in found])
    expected = features_of(seen.model, batch, "7")
    assert [one.label for one in found] == list(range(9))
    assert [one.members for one in found] == [1] * 9
    # Under cross-entropy every row holds the features of all nine, which are taken off again.
    exact = 1e-6 if task is RAW else 9e-6
    assert float((read - expected).abs().max()) < exact * float(expected.abs().max())


@pytest.mark.parametrize(("options", "task"), CASES, ids=lambda value: str(value))
def test_bounds_bracket_every_pixel(options, task):
    attack, batch = named("mkor", **options), pictures(list(range(9)))
    seen = play(attack, pooled(), batch, task=task)
    bounds = attack.bounds(seen)
    exact = 1e-6 if task is RAW else 1e-5
    assert float((bounds.lower - batch.inputs).max()) < exact
    assert float((batch.inputs - bounds.upper).max()) < exact
    # Both sides are tight: each window of 4 × 4 has a brightest and a darkest pixel.
    assert float((bounds.upper - bounds.lower).mean()) < 0.35
    result = attack.reconstruct(seen)
    assert result.status is Status.OK
    assert result.members == (1,) * 9
    assert float(ls.score(result, batch).psnr.min()) > 18


@pytest.mark.parametrize("padding_mode", ["zeros", "replicate"])
def test_bounds_hold_for_vgg_whatever_the_padding(padding_mode):
    model = ls.models.build("vgg16", num_classes=6, image_size=48)
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            layer.padding_mode = padding_mode
            layer._reversed_padding_repeated_twice = [1, 1, 1, 1]
    attack, batch = named("mkor"), pictures([0, 3, 5], shape=(3, 48, 48))
    seen = play(attack, model, batch)
    bounds = attack.bounds(seen)
    assert float((bounds.lower - batch.inputs).max()) < 1e-5
    assert float((batch.inputs - bounds.upper).max()) < 1e-5


def test_vgg_carries_what_the_paper_says():
    """Three splits before the last three poolings: 6 · 4³ channels, moved by 4, 8 and 16 pixels."""
    crafted = named("mkor").craft(ls.models.build("vgg16", num_classes=6, image_size=32))
    plan = crafted.secret.plan
    assert len(plan.channels) == 384
    assert plan.step == 32
    assert plan.window == tuple(range(32))
    assert sorted({one.row for one in plan.channels}) == list(range(0, 32, 4))
    # (c1 + 4 c2 + 16 c3) · 6 + colour, 3 more for the inverted one: to the right by 4 and down by 16.
    one = plan.channels[(1 + 4 * 0 + 16 * 2) * 6 + 2 + 3]
    assert (one.colour, one.inverted, one.row, one.column) == (2, True, 16, 4)


@pytest.mark.parametrize("form", ["naive", "inconspicuous"])
@pytest.mark.parametrize("network", ["mkor-strided", "mkor-copy"])
def test_the_modified_networks_give_every_pixel_away(network, form):
    model = ls.models.build(network, num_classes=30, image_size=16, normalise="cifar10")
    batch = pictures(list(range(29)))
    for options, task in (({}, None), ({"loss": "raw-nll"}, RAW)):
        result = ls.audit(model, batch, named("mkor", form=form, **options), task=task, prior_alone=False)
        assert (str(result.status), result.server) == ("ok", "malicious")
        assert float(result.scores.psnr.min()) > 100
        assert bool(result.scores.label_correct.all())


def test_cross_entropy_without_an_absent_class_fails_and_says_so():
    model, batch = ls.models.build("mkor-strided", num_classes=10, image_size=16), pictures(list(range(10)))
    result = ls.audit(model, batch, "mkor", prior_alone=False)
    assert result.status is Status.DIVERGED
    assert any("10 of 10 classes occur" in note for note in result.notes)
    crowded = pictures([*range(10), *range(10), 3])
    repeated = ls.audit(model, crowded, "mkor", prior_alone=False)
    assert repeated.status is Status.DIVERGED
    assert any("10 of 10 classes occur" in note for note in repeated.notes)
    dumped = ls.audit(model, batch, "mkor:variant=dump-class", prior_alone=False)
    assert dumped.status is Status.OK
    assert int((dumped.scores.psnr > 100).sum()) == 9
    raw = ls.audit(model, batch, "mkor:loss=raw-nll", task=RAW, prior_alone=False)
    assert float(raw.scores.psnr.min()) > 100


@pytest.mark.parametrize(("options", "task"), [({"loss": "raw-nll"}, RAW), ({}, None)], ids=["raw", "softmax"])
def test_two_of_a_class_come_back_as_their_mean_and_are_called_a_mixture(options, task):
    model = ls.models.build("mkor-copy", num_classes=10, image_size=16)
    batch = pictures([1, 4, 4, 7])
    attack = named("mkor", **options)
    found = attack.reconstruct(play(attack, model, batch, task=task))
    assert found.targets.tolist() == [1, 4, 7]
    assert found.members == (1, 2, 1)
    assert torch.allclose(found.inputs[1], batch.inputs[1:3].mean(0), atol=1e-5)
    assert any("1 results are mixtures of 2 to 2 examples" in note for note in found.notes)
    only = pictures([4, 4])
    assert attack.reconstruct(play(attack, model, only, task=task)).status is Status.DIVERGED


def test_a_pair_of_rows_may_tell_two_of_a_class_apart():
    model = pooled()
    batch = pictures([1, 1, 1, 1, 1, 1], seed=3)
    attack = named("mkor", form="inconspicuous", loss="raw-nll")
    found = attack.reconstruct(play(attack, model, batch, task=RAW))
    assert sum(found.members) == 6


@pytest.mark.parametrize(("options", "task"), CASES[1:4:2], ids=["raw", "softmax"])
def test_every_way_through_three_layers_stays_open(options, task):
    """Eqs. 12 and 13 as printed close about half of them."""
    model = ls.models.build("mlp", num_classes=21, image_size=16, hidden=[128, 96], seed=5)
    batch, attack = pictures(list(range(20))), named("mkor", **options)
    found = attack.reconstruct(play(attack, model, batch, task=task))
    assert found.members == (1,) * 20
    assert torch.allclose(found.inputs, batch.inputs, atol=1e-4)


def test_how_many_examples_to_expect_alone():
    """K (1 − 1/N)^(K−1): Eq. 3, 36.97 for a hundred examples of a hundred classes."""
    draws = torch.randint(100, (4000, 100), generator=torch.Generator().manual_seed(0))
    alone = (functional.one_hot(draws, 100).sum(1) == 1).sum(1).double().mean()
    assert abs(float(alone) - 100 * (1 - 1 / 100) ** 99) < 0.3
    assert abs(100 * (1 - 1 / 100) ** 99 - 36.97) < 0.01


@pytest.mark.parametrize(("network", "least"), [("lenet5", 16), ("lenet5-strided", 17)])
def test_sigmoids_are_inverted(network, least):
    model = ls.models.build(network, num_classes=10, in_channels=1, image_size=28)
    batch = pictures([0, 2, 5, 9], shape=(1, 28, 28))
    attack = named("mkor", loss="raw-nll")
    found = attack.reconstruct(play(attack, model, batch, task=RAW))
    assert float(ls.score(found, batch).psnr.min()) > least
    if network == "lenet5-strided":
        # Taps at the centre of the second, unpadded kernel leave a margin; inside it nothing is lost.
        assert torch.allclose(found.inputs[:, :, 4:24, 4:24], by_label(batch)[:, :, 4:24, 4:24], atol=2e-4)
    else:
        # A mean over 4 × 4 pixels, on the pixel right and below the centre (up to the curve of two sigmoids).
        means = functional.avg_pool2d(by_label(batch), 4, stride=1)
        assert torch.allclose(found.inputs[:, :, 5:25, 5:25], means[:, :, 3:23, 3:23], atol=5e-3)


def test_features_that_a_defence_zeroed_are_filled_from_their_neighbours():
    model = ls.models.build("lenet5", num_classes=10, in_channels=1, image_size=28)
    batch = pictures([0, 2, 5, 9], shape=(1, 28, 28))
    soteria = ls.get_defence("soteria", percentile=50.0, layer="fc1")
    result = ls.audit(model, batch, "mkor:loss=raw-nll", task=RAW, defence=soteria, prior_alone=False)
    # 25 dB without the defence; half of the pixels black would leave about 8.
    assert float(result.scores.psnr.mean()) > 15


def test_stored_statistics_are_undone_and_batch_statistics_stretched():
    stored = pooled(norm=True)
    for layer in stored.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.uniform_(-1, 1, generator=torch.Generator().manual_seed(0))
            layer.running_var.uniform_(0.5, 2, generator=torch.Generator().manual_seed(1))
    batch, attack = pictures(list(range(9))), named("mkor")
    bounds = attack.bounds(play(attack, stored, batch))
    assert float((bounds.lower - batch.inputs).max()) < 1e-4
    assert float((batch.inputs - bounds.upper).max()) < 1e-4
    live = play(attack, pooled(norm=True).train(), batch)
    found = attack.reconstruct(live)
    assert any("batch statistics" in note for note in found.notes)
    flat = [(one - one.mean()).flatten() for one in (found.inputs, batch.inputs)]
    assert float(functional.cosine_similarity(*flat, dim=0)) > 0.9


def test_parallel_ways_outlive_dropout():
    def dropping():
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(2)
            return nn.Sequential(
                nn.Flatten(),
                nn.Linear(768, 64),
                nn.ReLU(),
                nn.Dropout(0.5),
                nn.Linear(64, 64),
                nn.ReLU(),
                nn.Linear(64, 12),
            ).train()

    batch = pictures(list(range(9)))
    with pytest.raises(UnsuitableError, match="dropout is active in the linear layers; use variant='dump-class'"):
        named("mkor").craft(dropping())
    attack = named("mkor", variant="dump-class")
    crafted = attack.craft(dropping())
    assert {len(rows) for rows in crafted.secret.paths.rows} == {4}
    result = ls.audit(dropping(), batch, attack, prior_alone=False)
    assert int((result.scores.psnr > 100).sum()) >= 8


@pytest.mark.parametrize(
    ("model", "match"),
    [
        (
            nn.Sequential(nn.Conv2d(3, 12, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
            "cannot pass a picture on",
        ),
        (nn.Sequential(nn.Conv2d(3, 12, 3), nn.ReLU(), nn.Flatten()), "no linear layer at its end"),
        (
            nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(196, 5)),
            "needs 6 channels",
        ),
        (nn.Sequential(nn.Flatten(), nn.Linear(768, 4), nn.ReLU(), nn.Linear(4, 5)), "needs 5 nodes"),
        (nn.Sequential(nn.Flatten(), nn.Linear(768, 5, bias=False)), "'1' has none"),
    ],
    ids=["global pooling", "no head", "few channels", "few nodes", "no bias"],
)
def test_networks_it_cannot_use_are_named(model, match):
    with pytest.raises(UnsuitableError, match=match):
        play(named("mkor"), model, pictures([0, 1]))


def test_residual_networks_are_refused():
    with pytest.raises(UnsuitableError, match="a residual"):
        named("mkor").craft(ls.models.build("resnet20"))


def test_the_wrong_loss_is_refused_and_the_right_one_named():
    model, batch = ls.models.build("mkor-copy", num_classes=10, image_size=16), pictures([1, 2])
    with pytest.raises(UnsuitableError, match="use loss='raw-nll'"):
        ls.audit(model, batch, "mkor", task=RAW)
    with pytest.raises(UnsuitableError, match="use loss='cross-entropy'"):
        ls.audit(model, batch, "mkor:loss=raw-nll")


def test_without_its_secret_it_refuses():
    model, batch = ls.models.build("mkor-copy", num_classes=10, image_size=16), pictures([1, 2])
    seen = ls.observe(model, ls.share(model, batch), truth=batch)
    with pytest.raises(UnsuitableError, match="a model that it crafted itself"):
        named("mkor").reconstruct(seen)


def test_without_the_size_of_the_batch_nothing_is_called_alone():
    model, batch = ls.models.build("mkor-copy", num_classes=10, image_size=16), pictures([1, 2])
    attack = named("mkor")
    found = attack.reconstruct(play(attack, model, batch, scenario="E"))
    assert found.members is None
    assert any("not known without the size of the batch" in note for note in found.notes)
    assert float(ls.score(found, batch).psnr.min()) > 100


def test_a_delta_of_one_step_is_read_as_well():
    model, batch = ls.models.build("mkor-copy", num_classes=10, image_size=16), pictures([1, 2, 2])
    result = ls.audit(model, batch, "mkor", local=ls.LocalTraining(lr=0.1, steps=1), prior_alone=False)
    assert float(result.scores.psnr[0]) > 80


@pytest.mark.parametrize(
    "spec",
    ["mkor:alpha=0.5", "mkor:beta=0", "mkor:noise=-1", "mkor:form=loud", "mkor:loss=mse", "mkor:variant=none"],
)
def test_options_that_cannot_work_are_refused(spec):
    with pytest.raises(UsageError, match="mkor needs"):
        ls.registry.attack_from_spec(spec)


@pytest.mark.parametrize("beta", [0.3, 3.0])
def test_beta_is_taken_back(beta):
    attack, batch = named("mkor", beta=beta), pictures(list(range(9)))
    seen = play(attack, pooled(), batch)
    bounds = attack.bounds(seen)
    assert float((bounds.lower - batch.inputs).max()) < 1e-4
    assert float((batch.inputs - bounds.upper).max()) < 1e-4


def test_the_form_that_hides_changes_few_weights():
    agreed = pooled()
    crafted = named("mkor", form="inconspicuous", noise=1e-7).craft(agreed).model
    zeros = [float((value == 0).double().mean()) for value in crafted.parameters()]
    assert max(zeros) == 0.0
    share = {
        name: float((value == dict(crafted.named_parameters())[name]).double().mean())
        for name, value in agreed.named_parameters()
    }
    assert share["7.weight"] > 0.8
    # Pairs of rows: every second one of 2N is the other times alpha.
    paths = named("mkor", form="inconspicuous", alpha=-0.5).craft(agreed)
    weight = paths.model.get_submodule("7").weight
    for one, other in paths.secret.paths.rows:
        assert torch.allclose(weight[other], -0.5 * weight[one])


def test_shuffled_channels_depend_on_the_seed_alone():
    from leakscope.attack import CraftContext

    attack = named("mkor", shuffle=True)
    first, again, other = (
        attack.craft(pooled(), context=CraftContext(seed=seed, input_shape=SMALL)) for seed in (1, 1, 2)
    )
    assert first.secret.plan == again.secret.plan
    assert first.secret.plan != other.secret.plan
    assert all(torch.equal(a, b) for a, b in zip(first.model.parameters(), again.model.parameters(), strict=True))
