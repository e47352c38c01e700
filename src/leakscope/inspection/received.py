"""What a client holds when a model arrives: the model, what was agreed, its own data, the model of the last round."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor, nn

from leakscope.errors import BadInputError, UsageError
from leakscope.inspection.finding import LARGEST
from leakscope.inspection.layers import LayerRows, find_rows
from leakscope.inspection.recording import Firing, run_recorded
from leakscope.networks import check_weights, strip, usual_task
from leakscope.tasks import Classification, Task
from leakscope.types import Batch, Tensors

# What a server sends: a network, or the tensors of one by name.
Model = nn.Module | Mapping[str, Tensor]


@dataclass(frozen=True, eq=False)
class Received:
    """A received model and all that it can be compared with.

    Attributes:
        tensors: parameters and stored buffers by name, in the order of the network.
        model: a copy of the network in evaluation mode, without hooks; None where only tensors came.
        reference: the tensors that were agreed on, whose values do not matter.
        agreed: the network that was agreed on, where it is one.
        previous: the tensors of the round before.
        earlier: what `model` runs with to be that of the round before; a network of its own where that is another one.
        batch: the client's own examples.
        task: what the network is for.
        pruned: share of the weights that the federation has agreed to set to zero.
        hashes: what other clients got, as `fingerprint` prints it.
    """

    tensors: Tensors
    model: nn.Module | None = None
    reference: Tensors | None = None
    agreed: nn.Module | None = None
    previous: Tensors | None = None
    earlier: nn.Module | Tensors | None = None
    batch: Batch | None = None
    task: Task = field(default_factory=Classification)
    pruned: float = 0.0
    hashes: tuple[str, ...] = ()

    @cached_property
    def layers(self) -> tuple[LayerRows, ...]:
        """Every layer of weights as a matrix with one row for each of its outputs."""
        return find_rows(self.tensors, self.model, pruned=self.pruned > 0)

    @property
    def can_run(self) -> bool:
        """Whether there is a network and there are examples to run it on."""
        return self.model is not None and self.batch is not None

    def lacks_examples(self, least: int) -> str:
        """What is missing for `least` examples to be run; empty where nothing is."""
        if self.model is None:
            return "the network: only its tensors were given"
        if self.batch is None or len(self.batch) < least:
            return f"at least {least} examples of your own, got {0 if self.batch is None else len(self.batch)}"
        return ""

    @property
    def scores(self) -> Tensor:
        """What the network answers to the batch."""
        return self._answers[0]

    @property
    def firing(self) -> tuple[Firing, ...]:
        """Which rectified neurons fire for which examples."""
        return self._answers[1]

    @cached_property
    def _answers(self) -> tuple[Tensor, tuple[Firing, ...]]:
        return self._run(self.model)

    @cached_property
    def loss_now(self) -> float:
        """The loss on the batch."""
        return self._loss(self.scores)

    @cached_property
    def loss_before(self) -> float:
        """The loss on the batch with the model of the last round."""
        if isinstance(self.earlier, nn.Module):
            return self._loss(self._run(self.earlier)[0])
        return self._loss(self._run(self.model, self.earlier)[0])

    @cached_property
    def errors(self) -> Tensor:
        """‖∂ℓᵢ/∂scores‖ of every example, [n]: how wrong it is answered."""
        assert self.batch is not None
        scores = self.scores.detach().clone().requires_grad_()
        with torch.enable_grad():
            (gradient,) = torch.autograd.grad(self.task.loss(scores, self.batch.targets), scores)
        return len(scores) * gradient.flatten(1).norm(dim=1).double()

    def _run(self, model: nn.Module | None, state: Tensors | None = None) -> tuple[Tensor, tuple[Firing, ...]]:
        assert model is not None
        assert self.batch is not None
        try:
            output, firing = run_recorded(model, self.batch.inputs, state)
            return self.task.check_output(output), firing
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            if isinstance(error, BadInputError):
                raise
            raise BadInputError(
                f"the model does not run on examples of shape {list(self.batch.inputs.shape[1:])}: {error}; give "
                "examples as the network takes them"
            ) from error

    def _loss(self, scores: Tensor) -> float:
        assert self.batch is not None
        with torch.no_grad():
            value = float(self.task.loss(scores, self.batch.targets))
        return value if math.isfinite(value) else LARGEST

    @property
    def head(self) -> LayerRows | None:
        """The last fully connected layer."""
        return next((layer for layer in reversed(self.layers) if not layer.is_convolution), None)


def receive(
    model: Model,
    *,
    reference: Model | None = None,
    previous: Model | None = None,
    batch: Batch | None = None,
    task: Task | None = None,
    pruned: float = 0.0,
    hashes: Sequence[str] = (),
) -> Received:
    """Put together what is inspected; nothing of the caller's is changed.

    Raises:
        BadInputError: a tensor that is not finite, or no tensor at all.
        UsageError: a share outside [0, 1).
    """
    if not 0 <= pruned < 1:
        raise UsageError(f"pruned is the agreed share of zeros, from 0 to below 1, got {pruned!r}")
    agreed = None if reference is None else tensors_of(reference)
    network = _copy(model)
    before = None if previous is None else tensors_of(previous)
    fitting = None if before is None or network is None else _fit(before, network)
    # Copying a network takes longer than running it: only one of another structure has to be.
    earlier = _copy(previous) if fitting is None and previous is not None else fitting
    found = _in_order(tensors_of(model), agreed)
    check_finite(found)
    received = Received(
        tensors=found,
        model=network,
        reference=agreed,
        agreed=reference if isinstance(reference, nn.Module) else None,
        previous=before,
        earlier=earlier,
        batch=_place(batch, network),
        task=task or _usual_task(network, batch),
        pruned=pruned,
        hashes=tuple(hashes),
    )
    if network is not None and received.batch is not None:
        # Here, where it can be told in one line that network and examples do not fit each other.
        received.task.check_targets(received.batch.targets, received.scores.shape[-1])
    return received


def tensors_of(model: Model) -> dict[str, Tensor]:
    """Parameters and stored buffers by name, detached."""
    state = model.state_dict() if isinstance(model, nn.Module) else model
    found = {name: value.detach() for name, value in state.items() if isinstance(value, Tensor)}
    if not found:
        raise BadInputError("the model holds no tensors; expected its weights by name: pass the network or its state")
    return found


def check_finite(tensors: Tensors) -> None:
    """Refuse numbers that nothing can be computed with."""
    for name, value in tensors.items():
        # A sum with NaN or Inf in it is neither; one that is may also have overflowed.
        if value.is_floating_point() and not math.isfinite(value.sum()) and not bool(torch.isfinite(value).all()):
            raise BadInputError(
                f"tensor {name!r} holds NaN or Inf, expected finite weights; ask the server for the model again, and "
                "do not train on this one"
            )


def _copy(model: Model) -> nn.Module | None:
    if not isinstance(model, nn.Module):
        return None
    check_weights(model)
    copied = strip(model).eval()
    # Half precision has no kernels on some machines, and too few digits to compare gradients with.
    is_low = any(value.dtype in (torch.float16, torch.bfloat16) for value in copied.parameters())
    copied = copied.float() if is_low else copied
    for value in copied.parameters():
        # What is held fixed here may be trained elsewhere.
        value.requires_grad_(value.is_floating_point())
    return copied


def _place(batch: Batch | None, model: nn.Module | None) -> Batch | None:
    """The examples in the type and on the device of the network."""
    like = None if model is None else next((one for one in model.parameters() if one.is_floating_point()), None)
    if batch is None or like is None or not batch.inputs.is_floating_point():
        return batch
    same = batch.inputs.device == like.device and batch.inputs.dtype == like.dtype
    return batch if same else batch.to(device=like.device, dtype=like.dtype)


def _usual_task(model: nn.Module | None, batch: Batch | None) -> Task:
    """Classification, unless the network takes tokens and predicts them."""
    if model is None or batch is None or batch.inputs.is_floating_point():
        return Classification()
    return usual_task(model, tuple(batch.inputs.shape[1:]))


def _fit(tensors: Tensors, network: nn.Module) -> dict[str, Tensor] | None:
    """What the network can run with instead of its own values, in its types; None where they do not fit it."""
    state = network.state_dict()
    if any(name not in tensors or tensors[name].shape != value.shape for name, value in state.items()):
        return None
    return {name: tensors[name].to(value) for name, value in state.items()}


def _in_order(tensors: dict[str, Tensor], agreed: dict[str, Tensor] | None) -> dict[str, Tensor]:
    """In the order of the agreed network: a file has its own."""
    if agreed is None:
        return tensors
    known = [name for name in agreed if name in tensors]
    return {name: tensors[name] for name in (*known, *(name for name in tensors if name not in agreed))}
