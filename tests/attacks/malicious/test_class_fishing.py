from __future__ import annotations

import pytest
import torch
from torch import nn

import leakscope as ls
from attacks.malicious.crafted_audits import RAW, named, pictures, play
from leakscope.attacks.malicious.fished_gradient import count_labels
from leakscope.errors import UnsuitableError, UsageError
from leakscope.types import Status


def rectified(*, classes: int = 10):
    return ls.models.build("mlp", num_classes=classes, image_size=16, hidden=[40, 24], seed=2)


def convolutional():
    return ls.models.build("lenet5", num_classes=10, image_size=16, seed=2)


@pytest.mark.parametrize("network", [rectified, convolutional])
def test_the_body_sees_one_example(network):
    batch = pictures([4, 1, 7, 1, 7, 2])
    seen = play(named("class-fishing", target=4), network(), batch)
    alone = ls.share(seen.model, ls.Batch(batch.inputs[:1], batch.targets[:1]))
    assert isinstance(alone, ls.SharedUpdate)
    body = [name for name in alone.tensors if not name.startswith(seen.secret.head)]
    assert body
    for name in body:
        expected = alone.tensors[name] / len(batch)
        assert float((seen.update.tensors[name] - expected).abs().max()) < 1e-6 * max(1.0, float(expected.abs().max()))


def test_the_first_round_tells_which_classes_occur():
    batch = pictures([4, 1, 7, 1, 7, 7])
    seen = play(named("class-fishing", target=1), rectified(), batch)
    assert count_labels(seen).round().tolist() == [0, 2, 0, 0, 1, 0, 0, 3, 0, 0]


def test_a_class_that_occurs_once_is_found_and_read():
    batch = pictures([1, 7, 1, 4, 7, 7])
    result = ls.audit(rectified(), batch, "class-fishing", prior_alone=False)
    assert (result.rounds, result.server, str(result.status)) == (2, "malicious", "ok")
    assert (result.scores.psnr > 100).tolist() == [False, False, False, True, False, False]
    assert bool(result.scores.label_correct[3])


def test_two_of_a_class_are_a_mixture():
    batch = pictures([1, 7, 1, 7])
    attack = named("class-fishing", target=1)
    found = attack.reconstruct(play(attack, rectified(), batch))
    assert (found.status, found.members) == (Status.DIVERGED, (2,))
    assert any("none of them is a person" in note for note in found.notes)


def test_further_rounds_fish_for_a_feature():
    batch = pictures([1, 7, 1, 7, 7, 1])
    attack = named("class-fishing", searches=6)
    result = ls.audit(rectified(), batch, attack, prior_alone=False)
    assert result.rounds == 8
    assert (str(result.status), int((result.scores.psnr > 100).sum())) == ("ok", 1)
    # A feature does not tell the class.
    seen = play(attack, rectified(), batch)
    assert attack.reconstruct(seen).targets is None


def test_without_the_size_of_the_batch_nothing_is_called_alone():
    attack = named("class-fishing")
    batch = pictures([1, 7, 1, 4, 7, 7])
    found = attack.reconstruct(play(attack, rectified(), batch, scenario="E"))
    assert found.members is None
    assert found.targets.tolist() == [4]
    assert float(ls.score(found, batch).psnr.max()) > 100


def test_a_class_that_is_absent_gives_nothing():
    found = ls.audit(rectified(), pictures([1, 7]), named("class-fishing", target=3), prior_alone=False)
    assert found.status is Status.DIVERGED
    assert any("no example of class 3 is in the batch" in note for note in found.notes)


def test_misuse_is_named():
    with pytest.raises(UsageError, match="target from 0 to 9, got 10"):
        named("class-fishing", target=10).craft(rectified())
    with pytest.raises(UsageError, match="scale > 0"):
        named("class-fishing", scale=0)
    with pytest.raises(UnsuitableError, match="last linear layer with a bias"):
        named("class-fishing").craft(nn.Sequential(nn.Flatten(), nn.Linear(768, 10, bias=False)))
    with pytest.raises(UnsuitableError, match="trains with cross-entropy"):
        ls.audit(rectified(), pictures([1, 7]), "class-fishing", task=RAW)
    seen = ls.observe(rectified(), ls.share(rectified(), pictures([1])), truth=pictures([1]))
    with pytest.raises(UnsuitableError, match="a model that it crafted itself"):
        named("class-fishing").reconstruct(seen)


def test_its_row_and_biases_are_those_of_the_release():
    crafted = named("class-fishing", target=3).craft(rectified())
    head = crafted.model.get_submodule("fc3")
    assert bool((head.weight[3] == 0.5).all())
    others = [label for label in range(10) if label != 3]
    assert not bool(head.weight[others].any())
    assert bool((head.bias[others] == 1000).all())
    assert torch.equal(head.bias[3], rectified().get_submodule("fc3").bias[3])
