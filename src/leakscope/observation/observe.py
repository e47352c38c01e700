"""From an update to what a server sees of it: everything the scenario grants, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from torch import Tensor, nn

from leakscope.errors import BadInputError, UsageError
from leakscope.networks import (
    Settled,
    find_head,
    find_token_layer,
    freeze,
    noise_inputs,
    settle,
    tokens_refused,
    usual_task,
)
from leakscope.observation.checks import as_precise, check_fits, check_not_zero, not_shared
from leakscope.observation.consistency import contradictions, suspicions
from leakscope.observation.scenario import Scenario, get_scenario
from leakscope.observation.sent_buffers import choose_statistics
from leakscope.tasks import Classification, OutputLoss, Task
from leakscope.types import Batch, Bounds, Knowledge, Loss, Observation, SealedUpdate, SharedUpdate

if TYPE_CHECKING:
    from leakscope.defence import Hardened

# Positions of the examples of every local step, in any sequences.
Positions = Sequence[Sequence[int]]


def observe(
    model: nn.Module | Hardened,
    update: SharedUpdate | SealedUpdate,
    *,
    scenario: str | Scenario = "C",
    truth: Batch | None = None,
    targets: Tensor | None = None,
    input_shape: Sequence[int] | None = None,
    num_classes: int | None = None,
    loss: Loss | None = None,
    task: Task | None = None,
    order: Positions | None = None,
    proxy: Tensor | None = None,
) -> Observation:
    """Build what a server in `scenario` sees. `truth` fills only what the scenario grants.

    Without `truth`, what a scenario grants is taken from the update itself (`num_examples`,
    `local`); the labels that A and B grant must then be given as `targets`.

    Args:
        model: the network of the federation; of one under a defence, what the server knows of it.
        update: what the client sent.
        scenario: what the server knows, by letter.
        truth: the private examples.
        targets: their labels, where `truth` is not at hand.
        input_shape: shape of one input, where `truth` is not at hand.
        num_classes: outputs of the network, where they are not one for each class.
        loss: what the client trained with, by default the task's; takes scores and targets.
        task: what the network is for, by default classification with `loss`, or `tasks.NextToken` where tokens go in
            and scores [n, length, words] come out. A loss of one's own is not known to be cross-entropy:
            `Classification(loss=…, cross_entropy=True)` says that it is.
        order: positions of the examples of every local step; kept where the scenario grants the order of labels.
        proxy: public inputs [n, …] like the client's. Their batch statistics stand for those of the private batch where
            neither the scenario grants them nor buffers that the client sent tell them; a note declares it.
    """
    # A hardened network is declared above this module, so it is told apart by what it is not.
    network = model if isinstance(model, nn.Module) else model.server
    if not isinstance(model, nn.Module):
        loss = loss or (None if model.loss is None else OutputLoss(model.loss))
    frozen, notes = freeze(network)
    return observe_many(
        frozen,
        [update],
        scenario=scenario,
        truths=[truth],
        targets=[targets],
        input_shape=input_shape,
        num_classes=num_classes,
        loss=loss,
        task=task,
        orders=[order],
        notes=notes,
        proxy=proxy,
    )[0]


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
    task: Task | None = None,
    orders: Sequence[Positions | None] | None = None,
    notes: tuple[str, ...] = (),
    proxy: Tensor | None = None,
) -> list[Observation]:
    """Observations of several victims of one already frozen model, which they share."""
    shape = _input_shape(input_shape, truths[0])
    problem = _task(task or usual_task(frozen, shape), loss)
    problem.check_input_shape(shape)
    settled = settle(frozen, shape, task=problem)
    readable = [_readable(update, frozen) for update in updates]
    tokens = find_token_layer(settled.model, shape)
    if tokens is None and any(truth is not None and not truth.inputs.is_floating_point() for truth in truths):
        raise tokens_refused()
    common = _Common(
        model=settled.model,
        head=_head(settled, shape, problem),
        scenario=get_scenario(scenario),
        shape=shape,
        vocabulary=None if tokens is None else tokens.layer.num_embeddings,
        classes=_classes(settled, num_classes, problem),
        task=problem,
        loss=loss or _bare_loss(problem),
        notes=(*notes, *settled.notes, *problem.doubts(settled.outputs)),
        proxy=proxy,
    )
    nothing = [None] * len(updates)
    rows = zip(readable, truths, targets or nothing, orders or nothing, strict=True)
    return [
        _observe_one(common, update, truth, _labels(common, update, truth, given), order)
        for update, truth, given, order in rows
    ]


@dataclass(frozen=True)
class _Common:
    """What all victims of one model share."""

    model: nn.Module
    head: nn.Linear | None
    scenario: Scenario
    shape: tuple[int, ...]
    vocabulary: int | None
    classes: int
    task: Task
    loss: Loss
    notes: tuple[str, ...]
    proxy: Tensor | None = None


def _task(task: Task, loss: Loss | None) -> Task:
    """The task; the loss that the client trained with is part of a classification."""
    return replace(task, loss=loss) if loss is not None and isinstance(task, Classification) else task


def _bare_loss(task: Task) -> Loss:
    """The loss as it was given: shorter ways to compute its gradient know the usual ones by sight."""
    return task.function if isinstance(task, Classification) else task.loss


def _classes(settled: Settled, declared: int | None, task: Task) -> int:
    if task.is_cross_entropy and declared not in (None, settled.outputs):
        raise BadInputError(
            f"num_classes={declared} was declared, the model returns {settled.outputs} logits; "
            "leave num_classes out, or pass the model the update was computed on"
        )
    return declared or settled.outputs


def _head(settled: Settled, shape: tuple[int, ...], task: Task) -> nn.Linear | None:
    return find_head(settled.model, noise_inputs(settled.model, shape)) if task.is_cross_entropy else None


def _readable(update: SharedUpdate | SealedUpdate, frozen: nn.Module) -> SharedUpdate:
    if isinstance(update, SealedUpdate):
        raise UsageError(f"the update is sealed ({update.scheme}); no attack can read it, record it as sealed")
    check_fits(update.tensors, frozen)
    return update


def _labels(common: _Common, update: SharedUpdate, truth: Batch | None, given: Tensor | None) -> Tensor | None:
    """The true labels, whether granted or not."""
    labels = given if truth is None else truth.targets
    if labels is None:
        if Knowledge.LABELS in common.scenario.grants:
            raise UsageError(
                f"scenario {common.scenario.name!r} grants the labels, so they must be given; "
                "use C, D or E without them"
            )
        return None
    common.task.check_targets(labels, common.classes)
    if truth is None and update.num_examples not in (None, len(labels)):
        raise BadInputError(
            f"{len(labels)} targets were given for an update of {update.num_examples} examples; "
            "give one target per example"
        )
    return labels


def _observe_one(
    common: _Common, update: SharedUpdate, truth: Batch | None, labels: Tensor | None, order: Positions | None
) -> Observation:
    check_not_zero(update.tensors)
    scenario, model = common.scenario, common.model
    size = update.num_examples if labels is None else len(labels)
    granted = size if Knowledge.BATCH_SIZE in scenario.grants else None
    public = scenario.grant_update(update)
    doubts = suspicions(common.head, public, model=model, num_examples=granted)
    precise = as_precise(public, model)
    granted_statistics = scenario.grant_statistics(model, truth)
    statistics, told = choose_statistics(
        granted_statistics, public, model=model, shape=common.shape, proxy=common.proxy
    )
    return Observation(
        model=model,
        update=precise,
        loss=common.loss,
        input_shape=common.shape,
        num_classes=common.classes,
        scenario=scenario.name,
        knowledge=scenario.grant_knowledge(public),
        bounds=_bounds(common, truth),
        vocabulary=common.vocabulary,
        num_examples=granted,
        targets=scenario.grant_targets(labels, dtype=next(iter(precise.tensors.values())).dtype),
        local=public.local,
        batch_statistics=statistics,
        notes=(*common.notes, *not_shared(public, model), *doubts, *told),
        contradictions=contradictions(doubts),
        task=common.task,
        order=scenario.grant_order(order),
    )


def _bounds(common: _Common, truth: Batch | None) -> Bounds | None:
    """The range of valid inputs; tokens have none."""
    if common.vocabulary is not None:
        return None
    return truth.bounds if truth is not None else common.task.bounds


def _input_shape(given: Sequence[int] | None, truth: Batch | None) -> tuple[int, ...]:
    if given is not None:
        return tuple(int(side) for side in given)
    if truth is None:
        raise UsageError("observe needs input_shape=(channels, height, width) when truth is not given")
    return tuple(truth.inputs.shape[1:])
