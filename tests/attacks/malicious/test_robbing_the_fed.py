from __future__ import annotations

import pytest
import torch

import leakscope as ls
from attacks.malicious.crafted_audits import named, pictures, play
from leakscope.errors import UnsuitableError, UsageError
from leakscope.types import Status


def network():
    return ls.models.build("lenet5", num_classes=10, image_size=16, seed=2)


def bins_of(seen, batch):
    """The bin of each example."""
    layer = seen.model.get_submodule("imprint")
    measured = (batch.inputs.flatten(1) @ layer.weight[0]).detach()
    return (measured[:, None] > torch.tensor(seen.secret.edges[:-1])).sum(1) - 1


@pytest.mark.parametrize("gain", [1.0, 1e-3])
def test_examples_in_bins_of_their_own_are_exact(gain):
    batch = pictures([4, 1, 7, 1, 7, 2, 0, 9, 4, 4])
    attack = named("robbing-the-fed", bins=200, gain=gain)
    seen = play(attack, network(), batch)
    places = bins_of(seen, ls.Batch(batch.inputs / gain, batch.targets, None))
    alone = [place for place, own in enumerate(places) if int((places == own).sum()) == 1]
    assert len(alone) >= 6
    found = attack.reconstruct(seen)
    order = places[alone].argsort()
    single = [place for place, count in enumerate(found.members) if count == 1]
    assert torch.allclose(found.inputs[single], batch.inputs[alone][order], atol=1e-4)
    assert found.targets[single].tolist() == batch.targets[alone][order].tolist()
    assert found.status is Status.OK


def test_two_in_a_bin_are_a_mixture_by_their_gradients():
    one = pictures([4, 4, 1])
    batch = ls.Batch(torch.stack([one.inputs[0], one.inputs[0].flip(0), one.inputs[2]]), torch.tensor([4, 2, 1]))
    attack = named("robbing-the-fed", bins=2)
    seen = play(attack, network(), batch)
    places = bins_of(seen, batch)
    assert len(set(places.tolist())) < 3
    found = attack.reconstruct(seen)
    assert 2 in found.members
    assert any("which this attack cannot hold apart" in note for note in found.notes)


def test_a_mixture_that_looks_like_a_picture_is_not_called_one():
    """Examples of one class pull the same way: their mixture is valid data, and only the replay tells."""
    attack, pool = named("robbing-the-fed", bins=2), pictures([4] * 6)
    places = bins_of(play(attack, network(), pool), pool)
    batch = ls.Batch(pool.inputs[places == places[0]], pool.targets[places == places[0]])
    assert len(batch) >= 2
    found = attack.reconstruct(play(attack, network(), batch))
    assert float(found.inputs.min()) > -0.01
    assert float(found.inputs.max()) < 1.01
    assert found.members == (2,)
    assert found.status is Status.DIVERGED


def test_the_audit_declares_the_change_and_the_agreed_model_stays():
    model = network()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    result = ls.audit(model, pictures([4, 1, 7]), "robbing-the-fed:bins=128", prior_alone=False)
    assert result.server == "malicious"
    assert float(result.scores.psnr.min()) > 80
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert named("robbing-the-fed").changes_architecture


def test_without_the_size_of_the_batch_nothing_is_called_alone():
    attack = named("robbing-the-fed")
    found = attack.reconstruct(play(attack, network(), pictures([4, 1, 7]), scenario="E"))
    assert found.members is None


def test_no_input_is_below_the_first_bin():
    crafted = named("robbing-the-fed").craft(network())
    layer = crafted.model.get_submodule("imprint")
    lowest = float(layer.weight[0].detach().clamp_max(0).sum())
    assert crafted.secret.edges[0] <= lowest + 1e-3
    assert bool((layer.weight == layer.weight[0]).all())
    assert bool((layer.bias[:-1] > layer.bias[1:]).all())


def test_misuse_is_named():
    with pytest.raises(UsageError, match="bins ≥ 2"):
        named("robbing-the-fed", bins=1)
    with pytest.raises(UsageError, match="gain > 0"):
        named("robbing-the-fed", gain=0.0)
    batch = pictures([1])
    seen = ls.observe(network(), ls.share(network(), batch), truth=batch)
    with pytest.raises(UnsuitableError, match="a model that it crafted itself"):
        named("robbing-the-fed").reconstruct(seen)
