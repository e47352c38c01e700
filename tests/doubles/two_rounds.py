"""A malicious server that needs two rounds and a secret; in one file, and no other file knows of it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from leakscope import rng as random
from leakscope.attack import Attack, CraftContext, Crafted, Watch
from leakscope.types import Observation, Reconstruction, Status


@dataclass(frozen=True)
class TwoRounds(Attack):
    """Reads one half of the input's features in each round.

    Round r's first linear layer measures a secret orthogonal mixture of the input, shifted so that every unit fires.
    The half that belongs to the round is read off its rows; the secret of both rounds unmixes them.
    """

    name: str = "two-rounds"
    paper: str = "a double for tests"
    is_malicious = True

    @property
    def rounds(self) -> int:
        return 2

    def _craft(self, model: nn.Module, context: CraftContext) -> Crafted:
        assert bool(context.history) == bool(context.round)
        layer = _first_linear(model)
        size = layer.in_features
        mixing = torch.linalg.qr(
            random.normal((size, size), random.generator(context.seed, "mix"), like=layer.weight)
        ).Q
        before: Tensor = context.history[-1].secret if context.history else mixing  # type: ignore[assignment]
        with torch.no_grad():
            layer.weight.copy_(_rows(before, layer.out_features))
            assert layer.bias is not None
            layer.bias.fill_(1.0)
        return Crafted(model, secret=before)

    def evaluate(self, seen: Observation, reconstruction: Reconstruction) -> float:
        return self._misfit(seen, reconstruction.inputs)

    def _reconstruct(self, seen: Observation, seed: int, watch: Watch | None) -> Reconstruction:
        (first,) = seen.earlier
        # What the first round measured must be what was handed out by its secret: no other key opens it.
        secret: Tensor = seen.secret  # type: ignore[assignment]
        handed_out = _first_linear(seen.model).weight
        assert torch.allclose(handed_out, _rows(secret, len(handed_out)))
        halves = [_read(one) for one in (first, seen)]
        inputs = ((halves[0] + halves[1]) / 2).reshape(1, *seen.input_shape)
        loss = self._misfit(seen, inputs)
        return Reconstruction(inputs, None, loss, Status.OK, (loss,), evaluations=1)

    def _misfit(self, seen: Observation, inputs: Tensor) -> float:
        return float((_read(seen) - inputs.flatten()).norm())


def two_rounds() -> TwoRounds:
    """As the command line names it."""
    return TwoRounds()


def _rows(mixing: Tensor, count: int) -> Tensor:
    """As many weak rows as the layer has units, over again where it is wider than the input."""
    return 0.1 * mixing.repeat(-(-count // len(mixing)), 1)[:count]


def _first_linear(model: nn.Module) -> nn.Linear:
    return next(module for module in model.modules() if isinstance(module, nn.Linear))


def _read(seen: Observation) -> Tensor:
    names = {id(value): name for name, value in seen.model.named_parameters()}
    layer = _first_linear(seen.model)
    weight, bias = (seen.update.tensors[names[id(value)]] for value in (layer.weight, layer.bias))
    row = int(bias.abs().argmax())
    return weight[row] / bias[row]
