"""The ladder of scenarios: what a server knows, granted explicitly and nowhere else.

A ⊃ B ⊃ C ⊃ D ⊃ E. Model, update and input shape are known in every one of them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from leakscope.errors import BadInputError, KnowledgeError, UsageError, suggest
from leakscope.types import Batch, Knowledge, Loss, Observation, SealedUpdate, SharedUpdate, Tensors

_SIZE = frozenset({Knowledge.BATCH_SIZE})
_TRAINING = _SIZE | {Knowledge.LEARNING_RATE, Knowledge.LOCAL_STEPS}
_NORMALISATION = (nn.modules.batchnorm._BatchNorm,)
_DROPOUT = (nn.modules.dropout._DropoutNd,)


@dataclass(frozen=True)
class Scenario:
    """A named set of granted knowledge, with the sentence a report prints for it."""

    name: str
    grants: frozenset[Knowledge]
    text: str

    @property
    def withholds(self) -> frozenset[Knowledge]:
        """What the server does not know here."""
        return frozenset(Knowledge) - self.grants


SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario("A", frozenset(Knowledge), "The server knows everything but the inputs: an upper bound on leakage."),
        Scenario("B", _TRAINING | {Knowledge.LABELS}, "The server knows the labels and how the client trained."),
        Scenario("C", _TRAINING, "The server knows how the client trained; it must infer the labels."),
        Scenario("D", _SIZE, "The server knows how many examples were used, but not the learning rate or the steps."),
        Scenario("E", frozenset(), "The server knows the model, the update and the input shape, and nothing else."),
    )
}


def get_scenario(name: str | Scenario) -> Scenario:
    """Look a scenario up by its letter."""
    if isinstance(name, Scenario):
        return name
    if name not in SCENARIOS:
        raise UsageError(f"unknown scenario {name!r}.{suggest(name, SCENARIOS)}")
    return SCENARIOS[name]


def check_needs(name: str, needs: Iterable[Knowledge], seen: Observation) -> None:
    """Refuse, before any compute, an attack that needs more than was granted."""
    missing = sorted((frozenset(needs) - seen.knowledge), key=lambda item: item.name)
    if not missing:
        return
    granting = [s.name for s in SCENARIOS.values() if frozenset(needs) <= s.grants]
    raise KnowledgeError(
        f"attack {name!r} needs {'; '.join(item.value for item in missing)}, which scenario "
        f"{seen.scenario!r} does not grant; use scenario {' or '.join(granting)}, or another attack"
    )


def observe(
    model: nn.Module,
    update: SharedUpdate | SealedUpdate,
    *,
    scenario: str | Scenario = "C",
    truth: Batch | None = None,
    targets: Tensor | None = None,
    input_shape: Sequence[int] | None = None,
    num_classes: int | None = None,
    loss: Loss | None = None,
) -> Observation:
    """Build what a server in `scenario` sees. `truth` fills only what the scenario grants.

    Without `truth`, what a scenario grants is taken from the update itself (`num_examples`,
    `local`); the labels that A and B grant must then be given as `targets`.
    """
    frozen, notes = freeze(model)
    return observe_many(
        frozen, [update], scenario=scenario, truths=[truth], input_shape=input_shape,
        num_classes=num_classes, loss=loss, notes=notes, targets=[targets],
    )[0]  # fmt: skip


def observe_many(
    frozen: nn.Module,
    updates: Sequence[SharedUpdate | SealedUpdate],
    *,
    scenario: str | Scenario,
    truths: Sequence[Batch | None],
    targets: Sequence[Tensor | None] | None = None,
    input_shape: Sequence[int] | None = None,
    num_classes: int | None = None,
    loss: Loss | None = None,
    notes: tuple[str, ...] = (),
) -> list[Observation]:
    """Observations of several victims of one already frozen model, which they share."""
    rung = get_scenario(scenario)
    shape = _input_shape(input_shape, truths[0])
    classes = num_classes or probe_outputs(frozen, shape)
    labels = targets or [None] * len(updates)
    function = loss or functional.cross_entropy
    known = [given if truth is None else truth.targets for truth, given in zip(truths, labels, strict=True)]
    return [
        _observe_one(frozen, update, rung, truth, one, shape, classes, function, notes)
        for update, truth, one in zip(updates, truths, known, strict=True)
    ]


def _observe_one(
    frozen: nn.Module, update: SharedUpdate | SealedUpdate, rung: Scenario, truth: Batch | None,
    labels: Tensor | None, shape: tuple[int, ...], classes: int, loss: Loss, notes: tuple[str, ...],
) -> Observation:  # fmt: skip
    if isinstance(update, SealedUpdate):
        raise UsageError(f"the update is sealed ({update.scheme}); no attack can read it, record it as sealed")
    check_fits(update.tensors, frozen)
    if labels is None and Knowledge.LABELS in rung.grants:
        raise UsageError(f"scenario {rung.name!r} grants the labels, so they must be given; use C, D or E without them")
    size = update.num_examples if labels is None else len(labels)
    public = update if rung.grants >= _TRAINING else _without_training(update, rung)
    return Observation(
        model=frozen, update=public, loss=loss, input_shape=shape, num_classes=classes,
        scenario=rung.name, knowledge=rung.grants, notes=notes,
        bounds=truth.bounds if truth is not None else (0.0, 1.0),
        num_examples=size if Knowledge.BATCH_SIZE in rung.grants else None,
        targets=_granted_targets(labels, rung),
        local=public.local,
        batch_statistics=_granted_statistics(frozen, truth, rung),
    )  # fmt: skip


def _without_training(update: SharedUpdate, rung: Scenario) -> SharedUpdate:
    """Strip the fields of the update that would tell more than the scenario grants."""
    size = update.num_examples if Knowledge.BATCH_SIZE in rung.grants else None
    return SharedUpdate(update.kind, update.tensors, num_examples=size, local=None, buffers=update.buffers)


def _granted_targets(labels: Tensor | None, rung: Scenario) -> Tensor | None:
    if labels is None or Knowledge.LABELS not in rung.grants:
        return None
    # Without the order only the multiset of labels is known: sorting removes the rest.
    ordered = Knowledge.LABEL_ORDER in rung.grants or labels.is_floating_point()
    return labels.clone() if ordered else labels.sort().values


def _granted_statistics(model: nn.Module, truth: Batch | None, rung: Scenario) -> Tensors | None:
    if truth is None or Knowledge.BATCH_STATISTICS not in rung.grants:
        return None
    return batch_statistics(model, truth.inputs)


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


def freeze(model: nn.Module) -> tuple[nn.Module, tuple[str, ...]]:
    """Return a private copy of `model` for observations, with notes on what had to change.

    The copy keeps the training or evaluation mode of the original. Dropout is switched off:
    the attacker does not know the mask.
    """
    frozen = copy.deepcopy(model)
    notes: list[str] = []
    for name, module in frozen.named_modules():
        if isinstance(module, _DROPOUT) and module.training and module.p > 0:
            module.eval()
            notes.append(f"dropout {name!r} was active at the client; the attacker does not know its mask")
    return frozen, tuple(notes)


def probe_outputs(model: nn.Module, input_shape: tuple[int, ...]) -> int:
    """Number of classes of `model`, found by one forward pass on a grey example."""
    reference = next(model.parameters(), torch.zeros(()))
    # Two examples: batch normalisation in training mode refuses one.
    grey = torch.full((2, *input_shape), 0.5, device=reference.device, dtype=reference.dtype)
    state = {name: buffer.clone() for name, buffer in model.named_buffers()}
    try:
        with torch.no_grad():
            output = torch.func.functional_call(model, state, (grey,))
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise BadInputError(
            f"the model does not accept inputs of shape {list(grey.shape)}: {error}; "
            "pass the input_shape it was built for"
        ) from error
    return check_output(output).shape[1]


def check_output(output: object) -> Tensor:
    """Insist on one tensor of logits [n, classes]; a wrapper must unpack anything else."""
    if isinstance(output, Tensor) and output.ndim == 2:
        return output
    came = f"a tensor of shape {list(output.shape)}" if isinstance(output, Tensor) else f"a {type(output).__name__}"
    raise BadInputError(
        f"the model must return one tensor of logits [n, classes], got {came}; "
        "wrap it in a module whose forward returns the logits alone"
    )


def check_fits(tensors: Tensors, model: nn.Module) -> None:
    """Insist that every shared tensor is a parameter of `model` with the same shape, and finite."""
    parameters = dict(model.named_parameters())
    for name, value in tensors.items():
        if name not in parameters:
            raise BadInputError(f"update tensor {name!r} is not a parameter of the model.{suggest(name, parameters)}")
        if value.shape != parameters[name].shape:
            raise BadInputError(
                f"update tensor {name!r} has shape {list(value.shape)}, the model's parameter has "
                f"{list(parameters[name].shape)}; the update comes from another model"
            )
        if value.dtype != parameters[name].dtype or value.device != parameters[name].device:
            raise BadInputError(
                f"update tensor {name!r} is {value.dtype} on {value.device}, the model's parameter "
                f"{parameters[name].dtype} on {parameters[name].device}; convert one of them with .to()"
            )
        if not parameters[name].requires_grad:
            raise BadInputError(
                f"update tensor {name!r} belongs to a parameter that gets no gradient; "
                "call requires_grad_(True) on the parameters the client trained"
            )
        if not bool(torch.isfinite(value).all()):
            raise BadInputError(f"update tensor {name!r} holds NaN or Inf; no attack can be trusted on it")


def _input_shape(given: Sequence[int] | None, truth: Batch | None) -> tuple[int, ...]:
    if given is not None:
        return tuple(int(side) for side in given)
    if truth is None:
        raise UsageError("observe needs input_shape=(channels, height, width) when truth is not given")
    return tuple(truth.inputs.shape[1:])
