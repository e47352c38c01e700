"""The gradient rule: what one step computes from its examples together, for the client and for who replays it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from leakscope.errors import BadInputError, UnsuitableError
from leakscope.networks import check_output
from leakscope.tasks import OutputLoss, Task
from leakscope.types import Loss, Tensors

if TYPE_CHECKING:
    from leakscope.defence import TrainingLoss


def trainable(model: nn.Module) -> dict[str, Tensor]:
    """Parameters that get a gradient, by name; a parameter shared by two layers appears once."""
    found: dict[str, Tensor] = {name: value for name, value in model.named_parameters() if value.requires_grad}
    if not found:
        raise BadInputError("the model has no parameter that gets a gradient; call requires_grad_(True) on it")
    return found


def leaves(model: nn.Module) -> dict[str, Tensor]:
    """The trainable parameters as leaves of their own, so that autograd never touches the model's .grad."""
    return {name: value.detach().requires_grad_() for name, value in trainable(model).items()}


def on_scores(loss: Loss, task: Task | None = None) -> TrainingLoss:
    """A loss of scores, taken on what a network returned, unprocessed; scores are what `task` finds in it."""
    if isinstance(loss, OutputLoss):
        return loss
    check = check_output if task is None else task.check_output

    def of_output(output: Any, targets: Tensor) -> Tensor:
        return loss(check(output), targets)

    return of_output


def replay_gradient(
    model: nn.Module,
    parameters: Tensors,
    inputs: Tensor,
    targets: Tensor,
    *,
    loss: Loss,
    task: Task | None = None,
    create_graph: bool = True,
    given: Tensors | None = None,
) -> dict[str, Tensor]:
    """∇_W loss(model(inputs; W), targets), differentiable in `inputs`, `targets` and `given`.

    `given` takes the place of buffers: what is assumed of tensors of the network that nobody shared.
    """
    return compute_gradient(
        model, parameters, inputs, targets, loss=on_scores(loss, task), create_graph=create_graph, given=given
    )


def compute_gradient(
    model: nn.Module,
    parameters: Tensors,
    inputs: Tensor,
    targets: Tensor,
    *,
    loss: TrainingLoss,
    create_graph: bool,
    given: Tensors | None = None,
) -> dict[str, Tensor]:
    """As `replay_gradient`, with a loss that takes the network's output as it is."""
    # A caller's no_grad must not turn the one derivative this is about off.
    with torch.enable_grad(), twice_differentiable(model):
        value = loss(run_network(model, {**(given or {}), **parameters}, inputs), targets)
        grads = torch.autograd.grad(
            value, list(parameters.values()), create_graph=create_graph, allow_unused=True, materialize_grads=True
        )
    return dict(zip(parameters, grads, strict=True))


def run_network(model: nn.Module, parameters: Tensors, inputs: Tensor) -> Any:
    """What `model` with `parameters` (and buffers, by name) returns for `inputs`; its own buffers stay as they are."""
    buffers = {name: value.clone() for name, value in model.named_buffers()}
    try:
        return functional_call(model, {**buffers, **parameters}, (inputs,))
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise UnsuitableError(
            f"batch normalisation in training mode cannot normalise {len(inputs)} example of one value per channel: "
            "there is no such update; use two examples or more, or put the model in evaluation mode"
        ) from error


@contextmanager
def second_derivative() -> Iterator[None]:
    """Name the reason where a layer in the block turns out to have one derivative only."""
    try:
        yield
    except RuntimeError as error:
        if "derivative for" not in str(error):
            raise
        raise UnsuitableError(
            f"the network has no second derivative ({error}), and matching gradients needs one; replace the layer by "
            "one made of plain tensor operations, or use an attack in closed form (fc-inversion)"
        ) from error


@contextmanager
def twice_differentiable(model: nn.Module) -> Iterator[None]:
    """Let forward passes in the block use kernels that have a second derivative.

    The fused attention kernels and cuDNN's recurrent layers have none; the plain ones compute the
    same.
    """
    with ExitStack() as stack:
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        if torch.backends.cudnn.enabled and any(isinstance(module, nn.RNNBase) for module in model.modules()):
            stack.enter_context(torch.backends.cudnn.flags(enabled=False))
        yield
