"""A frozen network made usable: it takes a float and answers the same every time.

Whatever stands in the way of an attack (tokens instead of numbers, a forward pass that rolls dice) is found here,
before any attack computes.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from leakscope.errors import BadInputError, UnsuitableError
from leakscope.networks.forward import run
from leakscope.networks.freeze import copy_network
from leakscope.networks.tokens import find_token_layer, noise_tokens, usual_task
from leakscope.tasks import Classification, Task

# Instance normalisation, too, computes something else in training mode, and nothing random.
_MODE_MATTERS = (nn.modules.batchnorm._NormBase,)
_LOW_PRECISION = (torch.bfloat16, torch.float16)
_FORWARD_ERRORS = (RuntimeError, ValueError, TypeError, IndexError)
_QUIET = (
    "the forward pass drew random numbers at the client (functional dropout or the like); the attacker does not know "
    "them and runs evaluation mode: a low score is not evidence of protection, since they can be estimated"
)
_OWN_DRAW = (
    "the forward pass draws random numbers even in evaluation mode; the attacker replays it with a draw of its own: a "
    "low score is not evidence of protection, since they can be estimated"
)


@dataclass(frozen=True)
class Settled:
    """A network that answers the same every time, its number of outputs, and what was done for it."""

    model: nn.Module
    outputs: int
    notes: tuple[str, ...]


def settle(frozen: nn.Module, input_shape: tuple[int, ...], *, task: Task | None = None) -> Settled:
    """Make a frozen network usable: in float32 at least, and without chance in its forward pass.

    Numbers that a client drew are unknown to the attacker. Where evaluation mode draws none, that
    is what the attacker runs; where it does, the attacker fixes a draw of its own. `frozen` is
    not modified: it is copied where something must change.
    """
    task = task or usual_task(frozen, input_shape)
    model, notes = _in_single_precision(frozen)
    outputs, steady = _probe_twice(model, input_shape, task)
    if steady:
        return Settled(model, outputs, notes)
    quiet = copy_network(model)
    for module in quiet.modules():
        if not isinstance(module, _MODE_MATTERS):
            module.training = False
    if _probe_twice(quiet, input_shape, task)[1]:
        return Settled(quiet, outputs, (*notes, _QUIET))
    _give_own_draw(quiet)
    if _probe_twice(quiet, input_shape, task)[1]:
        return Settled(quiet, outputs, (*notes, _OWN_DRAW))
    raise UnsuitableError(
        "the model answers the same input differently each time, even with torch's generator fixed: it keeps a "
        "generator or a state of its own, and no replay can match its updates; draw from torch's global generator, "
        "or reset the state in forward"
    )


def check_output(output: object) -> Tensor:
    """The logits [n, classes] that a classifier returned, unwrapped; anything else is refused."""
    return Classification().check_output(output)


def noise_inputs(model: nn.Module, input_shape: tuple[int, ...], *, count: int = 2) -> Tensor:
    """The same `count` noise examples every time, in the dtype of the weights; tokens where the model takes those."""
    tokens = find_token_layer(model, input_shape)
    if tokens is not None:
        return noise_tokens(tokens.layer, (count, *input_shape))
    # Two by default: batch normalisation in training mode refuses one.
    weights = [value for value in model.parameters() if value.is_floating_point()]
    reference = next((value for value in weights if value.requires_grad), next(iter(weights), torch.zeros(())))
    noise = torch.rand((count, *input_shape), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return noise.to(device=reference.device, dtype=reference.dtype)


def _in_single_precision(model: nn.Module) -> tuple[nn.Module, tuple[str, ...]]:
    """An attacker is free to compute in float32 what a client computed with fewer digits."""
    low = sorted({str(value.dtype) for value in model.parameters() if value.dtype in _LOW_PRECISION})
    if not low:
        return model, ()
    note = f"the client computed in {' and '.join(low)}; the attacker computes in torch.float32"
    return copy_network(model).float(), (note,)


def _probe_twice(model: nn.Module, input_shape: tuple[int, ...], task: Task) -> tuple[int, bool]:
    """Number of outputs, and whether two passes on noise under different seeds agree and draw nothing."""
    inputs = noise_inputs(model, input_shape)
    try:
        (first, drew), (second, drew_again) = (_forward(model, inputs, task, seed=seed) for seed in (1, 2))
    except _FORWARD_ERRORS as error:
        if isinstance(error, BadInputError):
            raise
        raise _refusal(model, inputs, task, error) from error
    # A layer of zeros behind dropout hides the mask from the output, not from the gradient: therefore `drew`.
    steady = not (drew or drew_again) and torch.equal(first.nan_to_num(), second.nan_to_num())
    return task.outputs(first), steady


def _forward(model: nn.Module, inputs: Tensor, task: Task, *, seed: int) -> tuple[Tensor, bool]:
    """Scores, and whether the pass used torch's global generator; the caller's stays as it was."""
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(seed)
        before = torch.random.get_rng_state()
        output = task.check_output(run(model, inputs))
        return output, not torch.equal(before, torch.random.get_rng_state())


def _refusal(model: nn.Module, inputs: Tensor, task: Task, error: Exception) -> BadInputError | UnsuitableError:
    try:
        _forward(model, torch.zeros_like(inputs, dtype=torch.long), task, seed=0)
    except _FORWARD_ERRORS:
        return BadInputError(
            f"the model does not accept inputs of shape {list(inputs.shape)}: {error}; "
            "pass the input_shape it was built for"
        )
    return tokens_refused()


def tokens_refused(attack: str | None = None) -> UnsuitableError:
    """The reason why whole-number inputs cannot be rebuilt by this attack, or cannot be read at all."""
    if attack is None:
        return UnsuitableError(
            "the model takes whole numbers (tokens) without an nn.Embedding that receives them as they are, so that no "
            "attack can read them; audit the part of the model behind the embedding, with embeddings as inputs"
        )
    return UnsuitableError(
        f"attack {attack!r} moves inputs by small amounts, and the model takes whole numbers (tokens), which do not "
        "allow it; use embedding-tokens, which reads the set of tokens off the embedding's gradient, or audit the part "
        "of the model behind the embedding, with embeddings as inputs"
    )


def _give_own_draw(model: nn.Module) -> None:
    """Let every forward pass of `model` use the same random numbers, and none of the caller's."""
    draw = _OwnDraw()
    model.register_forward_pre_hook(draw.begin)
    model.register_forward_hook(draw.end, always_call=True)


class _OwnDraw:
    """Hooks, not a wrapper: the names of the parameters must stay those of the update."""

    def __init__(self) -> None:
        self.forks: list[AbstractContextManager[None]] = []

    def begin(self, _module: nn.Module, _received: tuple[Tensor, ...]) -> None:
        self.forks.append(torch.random.fork_rng())
        self.forks[-1].__enter__()
        torch.manual_seed(0)

    def end(self, _module: nn.Module, _received: tuple[Tensor, ...], _output: object) -> None:
        self.forks.pop().__exit__(None, None, None)
