from __future__ import annotations

import pytest
import torch
from torch import nn

from data_folder import data_root, needs
from leakscope import data
from leakscope.errors import UnsuitableError
from leakscope.files import load_state
from leakscope.matching.candidates import load_prior
from leakscope.priors import recognise
from leakscope.priors.residual import ResidualDecoder

LIKE = torch.empty(0)


def decoder(width=8, channels=4):
    """One stage of such a decoder: first layer, two blocks, a doubling, a block, colours."""

    def conv(number, inner, outer, bias=True):
        found = {f"{number}.weight": torch.randn(outer, inner, 3, 3) / 6}
        return {**found, f"{number}.bias": torch.zeros(outer)} if bias else found

    def block(number, mixed):
        found = {}
        for part in (0, 2, 4):
            found |= conv(f"{number}.conv.{part}", width, width)
        if mixed:
            found |= {
                f"{number}.pool.0.weight": torch.randn(4 * width, width, 1, 1) / 3,
                f"{number}.pool.1.weight": torch.ones(4 * width),
                f"{number}.pool.1.bias": torch.zeros(4 * width),
                f"{number}.pool.3.weight": torch.randn(width, 4 * width, 1, 1) / 6,
            }
        return found

    return {
        **conv(1, channels, width),
        **block(3, True),
        **conv(5, width, width, bias=False),
        **block(6, False),
        **conv(7, width, 3),
    }


def test_the_architecture_is_read_off_the_weights():
    prior = recognise({name: value.half() for name, value in decoder().items()}, {})
    assert isinstance(prior.architecture, ResidualDecoder)
    assert prior.architecture.layers == ((1, "conv"), (3, "mixed"), (5, "up"), (6, "block"), (7, "out"))
    assert prior.weights["1.weight"].dtype == torch.float32
    colour = prior.at((3, 10, 12), like=LIKE)
    assert colour.latent_shape == (4, 5, 6)
    assert colour.decode(torch.randn(2, 4, 5, 6)).shape == (2, 3, 10, 12)


def test_other_sizes_are_cut_and_grey_is_the_mean_of_the_colours():
    prior = recognise(decoder(), {})
    latents = torch.randn(2, 4, 4, 4)
    colour = prior.at((3, 8, 8), like=LIKE).decode(latents)
    cut = prior.at((3, 7, 8), like=LIKE)
    assert cut.latent_shape == (4, 4, 4)
    assert torch.equal(cut.decode(latents), colour[:, :, :7])
    grey = prior.at((1, 8, 8), like=LIKE).decode(latents)
    assert grey.shape == (2, 1, 8, 8)
    assert 0 <= float(grey.min()) <= float(grey.max()) <= 1
    with pytest.raises(UnsuitableError, match="colour or grey"):
        prior.at((2, 8, 8), like=LIKE)


class Block(nn.Module):
    """A residual block written with modules, as an independent reading of the layout."""

    def __init__(self, width, mixed):
        super().__init__()
        convs = [nn.Conv2d(width, width, 3, padding=1) for _ in range(3)]
        self.conv = nn.Sequential(convs[0], nn.ReLU(), convs[1], nn.ReLU(), convs[2])
        self.pool = None
        if mixed:
            first, second = nn.Conv2d(width, 4 * width, 1, bias=False), nn.Conv2d(4 * width, width, 1, bias=False)
            self.pool = nn.Sequential(first, nn.GroupNorm(4, 4 * width), nn.ReLU(), second)

    def forward(self, x):
        x = x if self.pool is None else x + self.pool(x)
        return torch.relu(self.conv(x) + x)


def encoder(state):
    """The encoder that belongs to the decoder: strided convolutions between blocks."""
    layers = nn.Sequential()
    numbers = sorted({int(name.split(".")[0]) for name in state})
    for number in numbers:
        names = {name.split(".", 1)[1] for name in state if name.startswith(f"{number}.")}
        if "weight" not in names:
            layers.add_module(str(number), Block(64, "pool.0.weight" in names))
            continue
        outer, inner = state[f"{number}.weight"].shape[:2]
        stride = 1 if "bias" in names else 2
        layers.add_module(str(number), nn.Conv2d(inner, outer, 3, stride, 1, bias="bias" in names))
    layers.load_state_dict(state)
    return layers


@needs("weights/taef2_decoder.safetensors")
@needs("weights/taef2_encoder.safetensors")
@needs("tiny-imagenet")
def test_a_real_decoder_undoes_its_encoder():
    root = data_root()
    assert root is not None
    weights = root / "weights"
    state = {name: value.float() for name, value in load_state(weights / "taef2_encoder.safetensors").items()}
    images = data.load("tiny-imagenet", indices=[0, 500, 1000], root=root).inputs
    prior = load_prior(weights / "taef2_decoder.safetensors").at((3, 64, 64), like=images)
    with torch.no_grad():
        latents = encoder(state)(images)
        made = prior.decode(latents)
    assert latents.shape[1:] == prior.latent_shape == (32, 8, 8)
    assert float((made - images).square().mean().log10()) * -10 > 22
