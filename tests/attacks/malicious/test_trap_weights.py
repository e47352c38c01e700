from __future__ import annotations

import pytest
import torch

import leakscope as ls
from attacks.malicious.crafted_audits import named, pictures, play
from leakscope.errors import UnsuitableError, UsageError
from leakscope.types import Status


def wide(*, hidden: int = 300):
    return ls.models.build("mlp", num_classes=10, image_size=16, hidden=[hidden], seed=2)


def test_rows_open_for_few_examples():
    batch = pictures(list(range(10)) * 4)
    trapped, honest = named("trap-weights").craft(wide()).model, wide()
    rates = [
        float((model.get_submodule("fc1")(batch.inputs.flatten(1)) > 0).double().mean()) for model in (trapped, honest)
    ]
    assert rates[0] < 0.1
    assert rates[1] > 0.3


def test_what_is_returned_is_an_example():
    batch = pictures([3, 1, 7, 1, 0, 2, 3, 9])
    result = ls.audit(wide(), batch, "trap-weights", prior_alone=False)
    assert (str(result.status), result.server) == ("ok", "malicious")
    alone = result.scores.psnr > 80
    assert int(alone.sum()) >= 4
    # Nothing else came back: no mixture passes for a person.
    assert bool((result.scores.psnr[~alone] == 0).all())
    assert bool(result.scores.label_correct[alone].all())


def test_an_honest_layer_gives_less():
    batch = pictures([3, 1, 7, 1, 0, 2, 3, 9])
    trapped = ls.audit(wide(), batch, "trap-weights", prior_alone=False)
    passive = ls.audit(wide(), batch, "fc-inversion", prior_alone=False)
    assert int((trapped.scores.psnr > 80).sum()) > int((passive.scores.psnr > 80).sum())


def test_without_the_size_of_the_batch_it_says_that_nothing_is_proven():
    attack = named("trap-weights")
    found = attack.reconstruct(play(attack, wide(), pictures([3, 1]), scenario="E"))
    assert found.status is Status.DIVERGED
    assert any("they hold mixtures" in note for note in found.notes)


def test_rows_are_half_negative_and_larger_there():
    crafted = named("trap-weights", scale=2.0, share=0.5).craft(wide())
    weight, before = crafted.model.get_submodule("fc1").weight, wide().get_submodule("fc1").weight
    rows = (weight != before).any(1)
    assert int(rows.sum()) == 150
    chosen = weight[rows].detach()
    assert bool(((chosen < 0).sum(1) == 384).all())
    ratio = float(chosen[chosen < 0].abs().mean() / chosen[chosen > 0].mean())
    assert abs(ratio - 2.0) < 0.05
    assert not bool(crafted.model.get_submodule("fc1").bias[rows].any())


def test_misuse_is_named():
    with pytest.raises(UsageError, match="scale > 0"):
        named("trap-weights", scale=0.0)
    with pytest.raises(UsageError, match="share ≤ 1"):
        named("trap-weights", share=1.5)
    for model in (ls.models.build("lenet5"), ls.models.build("mlp", activation="sigmoid")):
        with pytest.raises(UnsuitableError, match="a ReLU behind it that receives the input itself"):
            named("trap-weights").craft(model)
    batch = pictures([1])
    seen = ls.observe(wide(), ls.share(wide(), batch), truth=batch)
    with pytest.raises(UnsuitableError, match="a model that it crafted itself"):
        named("trap-weights").reconstruct(seen)


def test_same_seed_same_model():
    first, again = (named("trap-weights").craft(wide()).model for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
