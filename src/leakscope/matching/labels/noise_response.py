"""What the network answers to made-up pictures: all that an attacker without data can know of its predictions.

The attacker has no data. Smooth coloured noise, with the 1/f spectrum of natural pictures, tells more
than white noise: on an untrained ResNet20-4 it raised counted labels from 97.5 % to 99.2 %.

Local training moves the predictions while it runs. The attacker holds both ends, the weights W and the change Δ that
was shared, so predictions are averaged over W + t·Δ for the steps' t = 0, 1/T, …, (T − 1)/T: one gradient is at W.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from leakscope import rng as random
from leakscope.matching.labels.last_layer import find_last_layer
from leakscope.matching.replays.replay import count_local_steps
from leakscope.networks import find_token_layer, noise_tokens, run
from leakscope.types import Observation, limits_of

# Made-up images.
_EXAMPLES = 16
# Above this share of variance between inputs the network tells classes apart, and noise says nothing of data.
_DISCERNING = 0.35
# Untrained networks had 1.0 to 1.1, trained ones 1.3 and more.
_SURE = 1.2
# Places between the two ends of local training: more are not worth their time.
_MOST_PLACES = 8


@dataclass(frozen=True)
class NoiseResponse:
    """Predictions [images, classes] and features [images, width] of the last layer.

    `drift` [classes] is how far local training moved the mean prediction from its first step to its last. `sureness` is
    the mean of Σ_c p_c² before it, in units of what an even prediction has: about 1 for an untrained network.
    """

    predictions: Tensor
    features: Tensor
    drift: Tensor
    sureness: float = 1.0

    @property
    def discerning(self) -> bool:
        """Whether predictions depend on the input so much that those on noise do not carry over."""
        spread = self.predictions.var(0, unbiased=False).sum()
        return float(spread / (1 - self.mean_on_noise.square().sum()).clamp_min(1e-12)) > _DISCERNING

    @property
    def sure(self) -> bool:
        """Whether the network prefers some class for every input: on data it then prefers others."""
        return self.discerning or not self.sureness <= _SURE

    @property
    def mean_on_noise(self) -> Tensor:
        """Mean prediction over the made-up images, [classes]."""
        return self.predictions.mean(0)

    @property
    def mean(self) -> Tensor:
        """Best guess of the mean prediction on private data, [classes]: even where noise says nothing."""
        even = torch.full_like(self.mean_on_noise, 1 / self.predictions.shape[1])
        return even if self.discerning else self.mean_on_noise

    @property
    def deviation(self) -> Tensor:
        """Standard deviation of one prediction about `mean`, [classes]."""
        if self.discerning:
            return (self.mean * (1 - self.mean)).sqrt()
        return self.predictions.std(0, unbiased=False)

    @property
    def non_negative(self) -> bool:
        """Whether the last layer sees no negative feature: rules on the weights rely on it."""
        return bool((self.features >= 0).all())


def respond_to_noise(seen: Observation) -> NoiseResponse:
    """Run the network on made-up images; neither its state nor global randomness changes."""
    name, layer = find_last_layer(seen)
    images = made_up_images(seen, random.generator(0, "label probe"))
    received: list[Tensor] = []

    def record(_name: str, inputs: tuple[Tensor, ...]) -> None:
        received.append(inputs[0])

    with torch.no_grad():
        rows = [
            seen.task.check_output(run(seen.model, images, parameters=weights, layers=[name], before=record)).softmax(1)
            for weights in _weights_along(seen)
        ]
    features = received[0].reshape(-1, layer.in_features)
    predictions = rows[0] if len(rows) == 1 else torch.stack(rows).mean(0)
    drift = (rows[-1].mean(0) - rows[0].mean(0)).abs()
    sureness = predictions.shape[1] * float(rows[0].square().sum(1).mean())
    return NoiseResponse(predictions, features, drift, sureness)


def _weights_along(seen: Observation) -> list[dict[str, Tensor]]:
    """The weights that were shared, at every local step, if they moved evenly; as they are for one gradient."""
    if seen.update.kind == "gradient":
        return [{}]
    steps = count_local_steps(seen) or _MOST_PLACES
    places = min(steps, _MOST_PLACES)
    own = dict(seen.model.named_parameters())
    # From the first step to the last: the change after the last step is in no gradient.
    last = (steps - 1) / steps
    shares = [last * place / max(1, places - 1) for place in range(places)]
    return [
        {name: own[name].detach() + share * change for name, change in seen.update.tensors.items()} if share else {}
        for share in shares
    ]


def made_up_images(seen: Observation, rng: Generator) -> Tensor:
    """Smooth coloured noise [16, …] for images, uniform noise for anything else, inside the bounds; or tokens."""
    tokens = None if seen.vocabulary is None else find_token_layer(seen.model, seen.input_shape)
    if tokens is not None:
        return noise_tokens(tokens.layer, (_EXAMPLES, *seen.input_shape), seed=1)
    like = torch.empty(0, device=seen.device, dtype=seen.dtype)
    shape = (_EXAMPLES, *seen.input_shape)
    low, high = limits_of(seen.bounds, like)
    unit = _smooth(shape, rng) if len(seen.input_shape) == 3 else random.uniform(shape, rng)
    return (
        (low + (high - low) * unit.to(like)).to(like)
        if isinstance(low, Tensor)
        else (low + (high - low) * unit).to(like)
    )


def _smooth(shape: tuple[int, ...], rng: Generator) -> Tensor:
    """Noise of amplitude 1/frequency, mostly grey, about a brightness that differs from image to image."""
    height, width = shape[-2:]
    rows, columns = torch.fft.fftfreq(height)[:, None], torch.fft.rfftfreq(width)[None]
    frequency = (rows.square() + columns.square()).sqrt().clamp_min(1 / max(height, width))
    grey = random.normal((shape[0], 1, height, width), rng)
    noise = torch.fft.irfft2(torch.fft.rfft2(grey + 0.5 * random.normal(shape, rng)) / frequency, s=(height, width))
    noise = noise - noise.mean((-1, -2), keepdim=True)
    noise = noise / noise.flatten(1).std(1).clamp_min(1e-6)[:, None, None, None]
    brightness = 0.47 + 0.18 * random.normal((shape[0], 1, 1, 1), rng)
    return (brightness + 0.2 * noise).clamp(0, 1)
