from __future__ import annotations

import pytest
import torch


@pytest.mark.parametrize(
    ("architecture", "parameters", "tensors"),
    [("convnet", 3_112_420, 34), ("resnet20-4", 4_350_884, 65), ("lenet-dlg", 85_036, 8)],
)
def test_networks_have_the_published_size(load, architecture, parameters, tensors):
    model = load("networks").build(architecture, num_classes=100)
    sizes = [value.numel() for value in model.parameters()]
    assert (sum(sizes), len(sizes)) == (parameters, tensors)


def test_resnet_18_for_small_images_has_its_published_size(load):
    sizes = [value.numel() for value in load("networks").build("resnet18").parameters()]
    assert (sum(sizes), len(sizes)) == (11_173_962, 62)


def test_normalisation_is_the_papers_unless_said_otherwise(load):
    networks = load("networks")
    none = ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    assert networks.normalisation("lenet-dlg") == networks.normalisation("convnet", normalised=False) == none
    usual = networks.normalisation("convnet")
    assert (
        usual == networks.normalisation("lenet-dlg", normalised=True) == (networks.CIFAR10_MEAN, networks.CIFAR10_STD)
    )


def test_building_depends_on_the_seed_alone_and_leaves_the_global_state(load):
    networks = load("networks")
    before = torch.get_rng_state()
    first, second, other = (networks.build("lenet-dlg", seed=seed)[0].weight for seed in (3, 3, 4))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert torch.equal(before, torch.get_rng_state())


def test_a_victim_survives_its_file(load, tmp_path):
    victim = load("victim")
    model = load("networks").build("resnet20-4", seed=1)
    made = victim.Victim(
        architecture="resnet20-4",
        images=torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0)),
        labels=torch.tensor([3, 8]),
        parameters={name: value.detach() for name, value in model.named_parameters()},
        buffers=dict(model.named_buffers()),
        normalised=False,
    )
    made.save(tmp_path / "v.npz")
    again = victim.load(tmp_path / "v.npz")
    assert [*again.parameters] == [*made.parameters]
    assert again.normalised is False
    assert torch.equal(again.normalise(made.images), made.images)
    assert torch.equal(again.labels, made.labels)
    assert torch.equal(again.network()(made.images), model(made.images))


def test_leakscopes_network_with_the_victims_weights_is_the_same_function(load):
    models = pytest.importorskip("leakscope.models")
    networks = load("networks")
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    for architecture in networks.ARCHITECTURES:
        plain = networks.build(architecture, seed=5)
        mean, std = networks.normalisation(architecture)
        ours = models.build(architecture, num_classes=10, normalise=(mean, std))
        with torch.no_grad():
            for mine, theirs in zip(ours.parameters(), plain.parameters(), strict=True):
                mine.copy_(theirs)
        shifted = (images - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]
        torch.testing.assert_close(ours(images), plain(shifted))
