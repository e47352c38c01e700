"""The network as an attacker can use it: a private copy that takes a float and answers the same every time.

Whatever stands in the way of an attack (weights without gradients, tokens instead of numbers, a
forward pass that rolls dice) is found here, before any attack computes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from leakscope.errors import BadInputError, UnsuitableError

_NORMALISATION = (nn.modules.batchnorm._BatchNorm,)
# Instance normalisation, too, computes something else in training mode, and nothing random.
_MODE_MATTERS = (nn.modules.batchnorm._NormBase,)
_DROPOUT = (nn.modules.dropout._DropoutNd,)
_LOW_PRECISION = (torch.bfloat16, torch.float16)
_FORWARD_ERRORS = (RuntimeError, ValueError, TypeError, IndexError)


@dataclass(frozen=True)
class Settled:
    """A network that answers the same every time, its number of outputs, and what was done for it."""

    model: nn.Module
    outputs: int
    notes: tuple[str, ...]


def freeze(model: nn.Module) -> tuple[nn.Module, tuple[str, ...]]:
    """Return a private copy of `model` for observations, with notes on what had to change.

    The copy keeps the training or evaluation mode of the original. Dropout is switched off:
    the attacker does not know the mask.
    """
    check_weights(model)
    frozen = copy.deepcopy(model)
    notes: list[str] = []
    for name, module in frozen.named_modules():
        if isinstance(module, _DROPOUT) and module.training and module.p > 0:
            module.eval()
            notes.append(
                f"dropout {name!r} was active at the client; the attacker does not know its mask and leaves it out: "
                "a low score is no evidence of protection, since masks can be estimated"
            )
    return frozen, tuple(notes)


def settle(frozen: nn.Module, input_shape: tuple[int, ...]) -> Settled:
    """Make a frozen network usable: in float32 at least, and without chance in its forward pass.

    Numbers that a client drew are unknown to the attacker. Where evaluation mode draws none, that
    is what the attacker runs; where it does, the attacker fixes a draw of its own. `frozen` is
    not modified: it is copied where something must change.
    """
    model, notes = _in_single_precision(frozen)
    first, steady = _probe_twice(model, input_shape)
    if steady:
        return Settled(model, first.shape[1], notes)
    quiet = copy.deepcopy(model)
    for module in quiet.modules():
        if not isinstance(module, _MODE_MATTERS):
            module.training = False
    if _probe_twice(quiet, input_shape)[1]:
        note = (
            "the forward pass drew random numbers at the client (functional dropout or the like); the attacker does "
            "not know them and runs evaluation mode: a low score is no evidence of protection, since they can be "
            "estimated"
        )
        return Settled(quiet, first.shape[1], (*notes, note))
    _give_own_draw(quiet)
    if _probe_twice(quiet, input_shape)[1]:
        note = (
            "the forward pass draws random numbers even in evaluation mode; the attacker replays it with a draw of its "
            "own: a low score is no evidence of protection, since they can be estimated"
        )
        return Settled(quiet, first.shape[1], (*notes, note))
    raise UnsuitableError(
        "the model answers the same input differently each time, even with torch's generator fixed: it keeps a "
        "generator or a state of its own, and no replay can match its updates; draw from torch's global generator, "
        "or reset the state in forward"
    )


def probe_outputs(model: nn.Module, input_shape: tuple[int, ...]) -> int:
    """Number of classes of `model`, found by a forward pass on noise."""
    return _probe_twice(model, input_shape)[0].shape[1]


def check_output(output: object) -> Tensor:
    """Insist on one tensor of logits [n, classes]; a wrapper must unpack anything else."""
    if isinstance(output, Tensor) and output.ndim == 2:
        return output
    came = f"a tensor of shape {list(output.shape)}" if isinstance(output, Tensor) else f"a {type(output).__name__}"
    raise BadInputError(
        f"the model must return one tensor of logits [n, classes], got {came}; "
        "wrap it in a module whose forward returns the logits alone"
    )


def check_weights(model: nn.Module) -> None:
    """Insist on weights that exist and can be differentiated."""
    lazy = [name for name, value in model.named_parameters() if is_lazy(value)]
    if lazy:
        raise BadInputError(
            f"parameter {lazy[0]!r} has no shape yet (a lazy module); run one example through the model first"
        )
    quantised = [name for name, part in model.named_modules() if ".quantized" in type(part).__module__]
    if quantised:
        raise BadInputError(
            f"layer {quantised[0]!r} is quantised and its weights get no gradient; audit the floating-point model "
            "that the client trains"
        )


def batch_statistics(model: nn.Module, inputs: Tensor) -> dict[str, Tensor]:
    """Mean and variance of what each batch-normalisation layer receives for `inputs`."""
    found: dict[str, Tensor] = {}

    def record(name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def hook(_module: nn.Module, received: tuple[Tensor, ...]) -> None:
            dims = [d for d in range(received[0].ndim) if d != 1]
            found[f"{name}.mean"] = received[0].mean(dims)
            found[f"{name}.var"] = received[0].var(dims, unbiased=False)

        return hook

    state = {name: buffer.clone() for name, buffer in model.named_buffers()}
    with ExitStack() as stack, torch.no_grad():
        for name, module in model.named_modules():
            if isinstance(module, _NORMALISATION):
                stack.callback(module.register_forward_pre_hook(record(name)).remove)
        if any(isinstance(m, _NORMALISATION) for m in model.modules()):
            torch.func.functional_call(model, state, (inputs,))
    return found


def noise_inputs(model: nn.Module, input_shape: tuple[int, ...], *, count: int = 2) -> Tensor:
    """The same `count` noise examples every time, on the device and in the dtype of the weights."""
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
    return copy.deepcopy(model).float(), (note,)


def _probe_twice(model: nn.Module, input_shape: tuple[int, ...]) -> tuple[Tensor, bool]:
    """Logits of noise, and whether two passes under different seeds agree and draw nothing."""
    inputs = noise_inputs(model, input_shape)
    try:
        (first, drew), (second, drew_again) = (_forward(model, inputs, seed=seed) for seed in (1, 2))
    except _FORWARD_ERRORS as error:
        if isinstance(error, BadInputError):
            raise
        raise _refusal(model, inputs, error) from error
    # A layer of zeros behind dropout hides the mask from the output, not from the gradient: hence `drew`.
    return first, not (drew or drew_again) and torch.equal(first.nan_to_num(), second.nan_to_num())


def _forward(model: nn.Module, inputs: Tensor, *, seed: int) -> tuple[Tensor, bool]:
    """Logits, and whether the pass used torch's global generator; the caller's stays as it was."""
    state = {name: buffer.clone() for name, buffer in model.named_buffers()}
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(seed)
        before = torch.random.get_rng_state()
        output = check_output(torch.func.functional_call(model, state, (inputs,)))
        return output, not torch.equal(before, torch.random.get_rng_state())


def _refusal(model: nn.Module, inputs: Tensor, error: Exception) -> BadInputError | UnsuitableError:
    try:
        _forward(model, torch.zeros_like(inputs, dtype=torch.long), seed=0)
    except _FORWARD_ERRORS:
        return BadInputError(
            f"the model does not accept inputs of shape {list(inputs.shape)}: {error}; "
            "pass the input_shape it was built for"
        )
    return tokens_refused()


def tokens_refused() -> UnsuitableError:
    """The reason why whole-number inputs cannot be rebuilt."""
    return UnsuitableError(
        "the model takes whole numbers (tokens), and attacks move inputs by small amounts, which tokens do not "
        "allow; audit the part of the model behind the embedding, with embeddings as inputs"
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
