"""Gradients of single examples: what a client that clips each of them computes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from leakscope.defence import TrainingLoss
from leakscope.errors import UnsuitableError
from leakscope.steps.gradient import compute_gradient, run_network, twice_differentiable
from leakscope.tensors import detach
from leakscope.types import Batch, Tensors


def example_gradients(model: nn.Module, parameters: Tensors, batch: Batch, *, loss: TrainingLoss) -> dict[str, Tensor]:
    """Gradients of single examples, name → [n, …]; their mean is the gradient of the batch.

    All examples at once where torch can vectorise the network, else one after the other.
    """
    _refuse_mixing(model)
    fixed = detach(parameters)
    try:
        with twice_differentiable(model):
            return _vectorise(model, fixed, batch, loss)
    except RuntimeError:
        # Some layers (recurrent ones, control flow that reads values) and some memories allow only this.
        return _one_by_one(model, fixed, batch, loss)


def _vectorise(model: nn.Module, parameters: Tensors, batch: Batch, loss: TrainingLoss) -> dict[str, Tensor]:
    def of_one(weights: dict[str, Tensor], inputs: Tensor, target: Tensor) -> Tensor:
        return loss(run_network(model, weights, inputs[None]), target[None])

    each = torch.func.vmap(torch.func.grad(of_one), in_dims=(None, 0, 0), randomness="different")
    return detach(each(dict(parameters), batch.inputs, batch.targets))


def _one_by_one(model: nn.Module, parameters: Tensors, batch: Batch, loss: TrainingLoss) -> dict[str, Tensor]:
    weights = {name: value.detach().requires_grad_() for name, value in parameters.items()}
    rows = [
        compute_gradient(model, weights, inputs[None], target[None], loss=loss, create_graph=False)
        for inputs, target in zip(batch.inputs, batch.targets, strict=True)
    ]
    return {name: torch.stack([row[name] for row in rows]) for name in weights}


def _refuse_mixing(model: nn.Module) -> None:
    """Batch normalisation over the batch makes every output depend on every example."""
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and (module.training or module.running_mean is None):
            raise UnsuitableError(
                f"examples have no gradients of their own: batch normalisation {name!r} uses statistics of the whole "
                "batch; put it in evaluation mode with stored statistics, or use group normalisation"
            )
