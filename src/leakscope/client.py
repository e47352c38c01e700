"""What a client computes before it shares: one gradient, or local SGD. And `replay`.

The same functions serve the client (detached) and the attacker (differentiable): a replay
that drifted from the step it replays would silently weaken every attack.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn
from torch.func import functional_call
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from leakscope import rng as random
from leakscope.errors import BadInputError, UnsuitableError
from leakscope.networks import check_output, check_weights
from leakscope.tensors import all_finite, detach, subtract
from leakscope.types import (
    Batch,
    ClientStep,
    Defence,
    LocalTraining,
    Loss,
    SealedUpdate,
    SharedUpdate,
    Tensors,
)


def trainable(model: nn.Module) -> dict[str, Tensor]:
    """Parameters that get a gradient, by name; a parameter shared by two layers appears once."""
    found: dict[str, Tensor] = {name: value for name, value in model.named_parameters() if value.requires_grad}
    if not found:
        raise BadInputError("the model has no parameter that gets a gradient; call requires_grad_(True) on it")
    return found


def replay_gradient(
    model: nn.Module,
    parameters: Tensors,
    inputs: Tensor,
    targets: Tensor,
    *,
    loss: Loss,
    create_graph: bool = True,
) -> dict[str, Tensor]:
    """∇_W loss(model(inputs; W), targets), differentiable in `inputs` and `targets`."""
    buffers = {name: value.clone() for name, value in model.named_buffers()}
    # A caller's no_grad must not turn the one derivative this is about off.
    with torch.enable_grad(), _twice_differentiable(model):
        value = loss(_logits(model, {**buffers, **parameters}, inputs), targets)
        grads = torch.autograd.grad(
            value, list(parameters.values()), create_graph=create_graph, allow_unused=True, materialize_grads=True
        )
    return dict(zip(parameters, grads, strict=True))


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


def _logits(model: nn.Module, state: Tensors, inputs: Tensor) -> Tensor:
    try:
        return check_output(functional_call(model, dict(state), (inputs,)))
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise UnsuitableError(
            f"batch normalisation in training mode cannot normalise {len(inputs)} example of one value per channel: "
            "there is no such update; use two examples or more, or put the model in evaluation mode"
        ) from error


def replay_local(
    model: nn.Module,
    parameters: Tensors,
    inputs: Tensor,
    targets: Tensor,
    *,
    local: LocalTraining,
    loss: Loss,
    create_graph: bool = True,
) -> dict[str, Tensor]:
    """W_T − W_0 of plain local SGD over the examples in order, differentiable in them."""
    current = dict(parameters)
    for step in range(local.steps):
        chosen = local.indices(step, len(inputs))
        grads = replay_gradient(model, current, inputs[chosen], targets[chosen], loss=loss, create_graph=create_graph)
        current = {name: current[name] - local.lr * grads[name] for name in current}
        if not create_graph:
            current = {name: value.detach().requires_grad_() for name, value in current.items()}
    return subtract(current, parameters)


@dataclass(frozen=True)
class GradientStep:
    """FedSGD: share the mean gradient of one batch."""

    loss: Loss = functional.cross_entropy

    def __call__(self, model: nn.Module, batch: Batch, rng: Generator) -> SharedUpdate:
        """Return ∇_W loss as an update of kind "gradient"."""
        with _own_randomness(rng):
            grads = replay_gradient(
                model, _fresh(model), batch.inputs, batch.targets, loss=self.loss, create_graph=False
            )
        return SharedUpdate("gradient", detach(grads), num_examples=len(batch))


@dataclass(frozen=True)
class LocalSGDStep:
    """FedAvg: train locally and share what changed."""

    local: LocalTraining
    loss: Loss = functional.cross_entropy

    def __call__(self, model: nn.Module, batch: Batch, rng: Generator) -> SharedUpdate:
        """Return after − before as an update of kind "delta"."""
        with _own_randomness(rng):
            change = replay_local(
                model, _fresh(model), batch.inputs, batch.targets,
                local=self.local, loss=self.loss, create_graph=False,
            )  # fmt: skip
        return SharedUpdate("delta", detach(change), num_examples=len(batch), local=self.local)


def client_step(local: LocalTraining | None = None, loss: Loss | None = None) -> ClientStep:
    """The undefended step: one gradient, or local SGD where `local` is given."""
    function = loss or functional.cross_entropy
    return GradientStep(function) if local is None else LocalSGDStep(local, function)


def share(
    model: nn.Module,
    batch: Batch,
    *,
    defence: Defence | None = None,
    local: LocalTraining | None = None,
    seed: int = 0,
    loss: Loss | None = None,
) -> SharedUpdate | SealedUpdate:
    """Compute what a client with `batch` would send, under `defence` where one is given.

    `model` is the network the federation trains; a defence that changes it must have been
    applied with `defence.harden` before. The model is not modified.
    """
    check_weights(model)
    check_targets(model, batch)
    step = client_step(local, loss)
    if defence is not None:
        step = defence.wrap(step)
    update = step(model, batch, random.generator(seed, "client"))
    if isinstance(update, SharedUpdate) and not all_finite(update.tensors):
        raise BadInputError("the client's update holds NaN or Inf; lower the learning rate or check the model")
    return update


def check_targets(model: nn.Module, batch: Batch) -> None:
    """Insist on class labels the model can predict, before a kernel fails on them."""
    if batch.targets.is_floating_point() or batch.targets.ndim != 1:
        return
    if batch.targets.dtype != torch.long:
        raise BadInputError(f"class labels must be int64, got {batch.targets.dtype}; convert them with .long()")
    # One logit tells two classes apart, under a logistic loss.
    classes = max(2, _probed(model, batch).shape[1])
    low, high = int(batch.targets.min()), int(batch.targets.max())
    if low < 0 or high >= classes:
        raise BadInputError(
            f"labels must lie in 0…{classes - 1} for this model, got {low}…{high}; "
            "map the labels or build the model with more classes"
        )


def _probed(model: nn.Module, batch: Batch) -> Tensor:
    """Logits of the first example, twice: batch normalisation in training mode refuses one."""
    state = {name: value.clone() for name, value in model.named_buffers()}
    probe = batch.inputs[:1].expand(2, *batch.inputs.shape[1:])
    try:
        # Active dropout would otherwise advance the caller's random numbers.
        with torch.no_grad(), torch.random.fork_rng():
            return check_output(functional_call(model, state, (probe,)))
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        if isinstance(error, BadInputError):
            raise
        raise BadInputError(
            f"the model does not accept inputs of shape {list(batch.inputs.shape)} in {batch.inputs.dtype}: {error}; "
            "convert the batch with .to(), or use the model it belongs to"
        ) from error


def _fresh(model: nn.Module) -> dict[str, Tensor]:
    """Leaf copies of the parameters, so that autograd never touches the caller's .grad."""
    return {name: value.detach().requires_grad_() for name, value in trainable(model).items()}


@contextmanager
def _own_randomness(rng: Generator) -> Iterator[None]:
    """Let dropout and its like draw from `rng` without disturbing the global generator."""
    seed = int(torch.randint(2**62, (1,), generator=rng))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


@contextmanager
def _twice_differentiable(model: nn.Module) -> Iterator[None]:
    """Let forward passes in the block use kernels that have a second derivative.

    The fused attention kernels and cuDNN's recurrent layers have none; the plain ones compute the
    same.
    """
    with ExitStack() as stack:
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        if torch.backends.cudnn.enabled and any(isinstance(module, nn.RNNBase) for module in model.modules()):
            stack.enter_context(torch.backends.cudnn.flags(enabled=False))
        yield
