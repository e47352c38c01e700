from __future__ import annotations

import pytest
import torch

from leakscope import rng
from leakscope.errors import BadInputError, UsageError
from leakscope.priors import Trainer, TrainingSettings

SETTINGS = TrainingSettings(latent=4, width=8, epochs=60, batch_size=32, lr=1e-2)


def blobs(count=96, size=8):
    """Bright discs at random places: two numbers describe each."""
    centres = rng.uniform((count, 2, 1, 1), rng.generator(0)) * (size - 1)
    down, across = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    far = (down - centres[:, 0]).square() + (across - centres[:, 1]).square()
    return torch.exp(-far / 4)[:, None]


@pytest.fixture(scope="module")
def trained():
    """A trainer after all its steps, and the error after each."""
    trainer = Trainer(blobs(), SETTINGS)
    return trainer, [progress.rmse for progress in trainer.run()]


def test_training_beats_the_mean_image(trained):
    trainer, errors = trained
    assert len(errors) == SETTINGS.steps(len(trainer.images))
    assert sum(errors[-6:]) / 6 < 0.5 * float(trainer.images.std(0).square().mean().sqrt())


def test_samples_look_like_the_images(trained):
    images, prior = trained[0].images, trained[0].prior()
    made = prior.decode(prior.sample(200, rng.generator(3)))
    nearest = torch.cdist(made.flatten(1), images.flatten(1)).amin(1).mean()
    mean = images.mean(0, keepdim=True).flatten(1)
    assert float(nearest) < 0.7 * float(torch.cdist(mean, images.flatten(1)).amin())
    assert abs(float(made.mean() - images.mean())) < 0.05


def test_folding_the_latents_in_changes_no_image():
    trainer = Trainer(blobs(), SETTINGS)
    for _, _step in zip(range(20), trainer.run(), strict=False):
        pass
    mean, factor = trainer._latent_moments()
    latents = rng.normal((5, 4), rng.generator(1))
    before = trainer.decoder.decode(trainer.weights, latents @ factor.T + mean)
    assert torch.allclose(trainer.prior().decode(latents), before, atol=1e-5)


def test_a_stopped_training_ends_with_the_same_bytes(trained):
    whole = trained[0]
    early = Trainer(blobs(), SETTINGS)
    steps = early.run()
    for _ in range(31):
        next(steps)
    late = Trainer(blobs(), SETTINGS, early.state())
    assert next(progress.step for progress in late.run()) == 32
    for _ in late.run():
        pass
    assert late.prior() == whole.prior()
    assert late.prior() != early.prior()


def test_a_state_is_not_changed_by_going_on():
    trainer = Trainer(blobs(), SETTINGS)
    state = trainer.state()
    kept = {name: value.clone() for name, value in state.items()}
    next(trainer.run())
    assert all(torch.equal(kept[name], value) for name, value in state.items())


def test_misuse_is_named():
    with pytest.raises(BadInputError, match="another prior"):
        Trainer(blobs(), SETTINGS, Trainer(blobs(size=12), SETTINGS).state())
    with pytest.raises(BadInputError, match=r"images \[n, C, H, W\]"):
        Trainer(torch.zeros(3, 8), SETTINGS)
    with pytest.raises(UsageError, match="latent ≥ 1"):
        TrainingSettings(latent=0)
    with pytest.raises(UsageError, match="lr > 0"):
        TrainingSettings(lr=0.0)
    with pytest.raises(BadInputError, match="diverged at step"):
        list(Trainer(blobs() * torch.nan, SETTINGS).run())
