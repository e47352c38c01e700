from __future__ import annotations

import argparse

import pytest
import torch

import leakscope as ls


@pytest.fixture
def images():
    return torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def victim(load, images):
    model = load("networks").build("lenet-dlg", seed=1)
    parameters = {name: value.detach() for name, value in model.named_parameters()}
    return load("victim").Victim("lenet-dlg", images, torch.tensor([7, 3, 5, 3]), parameters, {})


def test_local_training_is_absent_unless_asked_for(load):
    victims = load("victim")
    parser = argparse.ArgumentParser()
    victims.add_local(parser)
    assert victims.local_training(parser.parse_args([])) is None
    asked = victims.local_training(parser.parse_args(["--local-steps", "2", "--local-batch", "3"]))
    assert asked == victims.Local(steps=2, batch=3, lr=1e-4)
    assert [list(range(6))[chosen] for chosen in asked.order()] == [[0, 1, 2], [3, 4, 5]]


def test_both_sides_share_the_same_change_of_the_weights(load, victim, images):
    local = load("victim").Local(steps=2, batch=2, lr=0.1)
    theirs = load("breaching_worker").change(victim.network(), images, victim, local)
    model = ls.models.build("lenet-dlg", num_classes=10)
    with torch.no_grad():
        for mine, value in zip(model.parameters(), victim.parameters.values(), strict=True):
            mine.copy_(value)
    training = ls.LocalTraining(local.lr, steps=local.steps, batch_size=local.batch)
    ours = ls.share(model, ls.Batch(images, victim.labels), local=training)
    assert isinstance(ours, ls.SharedUpdate)
    for mine, value in zip(ours.tensors.values(), theirs, strict=True):
        torch.testing.assert_close(mine, value, rtol=1e-4, atol=1e-7)


def test_breaching_is_told_the_labels_of_every_step(load, victim):
    local = load("victim").Local(steps=2, batch=2, lr=1e-4)
    told = load("breaching_worker").hyperparameters(victim, local)
    assert [labels.tolist() for labels in told.pop("labels")] == [[3, 7], [3, 5]]
    assert told == {"lr": 1e-4, "steps": 2, "data_per_step": 2}


def test_the_table_names_what_the_client_did(load):
    script = load("versus_breaching")
    plain = argparse.Namespace(local_steps=None, simulate=False)
    assert script.label("convnet", plain) == "convnet"
    assert script.local_options(plain) == ()
    trained = argparse.Namespace(local_steps=4, local_batch=1, local_lr=1e-4, simulate=True)
    assert script.label("convnet", trained) == "convnet, FedAvg 4×1 at 0.0001, simulated on both sides"
    assert script.local_options(trained)[:2] == ("--local-steps", 4)


def test_settings_of_breaching_are_named_alike_on_every_network(load):
    contests = load("versus_breaching").CONTESTS
    assert all("default" in contest.settings for contest in contests.values())
    assert set(contests["convnet"].settings) == {"default", "tuned"}
