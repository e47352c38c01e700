"""Fishing for user data: a last layer that lets the gradient of one class through, or of one range of a feature.

With all rows of the last layer zero except that of class t, and all other scores higher by far, softmax leaves class t
nothing: p_t ≈ 0. The gradient of the body is then W_tᵀ(p_t − [y = t]) per example, zero unless y = t: if class t occurs
once, the gradient of the batch is that of one example over the batch size, and any attack on one example reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import nn

from leakscope.attack import Attack, CraftContext, Crafted, Effort, Watch
from leakscope.attacks.closed.linear.layer_inputs import first_linear
from leakscope.attacks.fc_inversion import fc_inversion
from leakscope.attacks.inverting_gradients import inverting_gradients
from leakscope.attacks.malicious.anatomy import guess_input_shape
from leakscope.attacks.malicious.fished_gradient import Catch, Hook, choose_catch, plan_hook
from leakscope.attacks.malicious.kept_secret import kept_secret
from leakscope.attacks.malicious.mixtures import describe_mixtures, fail, known_members, settle_mixtures
from leakscope.errors import UnsuitableError, UsageError
from leakscope.networks import find_head, noise_inputs
from leakscope.types import Knowledge, Observation, Reconstruction, Status

if TYPE_CHECKING:
    from leakscope.matching.recipe import Recipe

PAPER = "Wen et al.: Fishing for User Data in Large-Batch Federated Learning via Gradient Magnification, ICML 2022"


@dataclass(frozen=True)
class ClassFishing(Attack):
    """Gets one example's gradient out of a large batch, and leaves the rest to an attack on one example.

    Needs cross-entropy and a last linear layer with a bias; with batch statistics the examples stay mixed. It gets one
    example: of a class that occurs once, or, over further rounds, the one with the largest value of a feature. The head
    is nearly all zeros and the loss near `lift`: the most conspicuous server here.
    """

    target: int | None = None
    scale: float = 0.5
    lift: float = 1000.0
    searches: int = 0
    search: Attack = field(default_factory=inverting_gradients)
    name: str = "class-fishing"
    paper: str = PAPER
    is_malicious = True

    @property
    def rounds(self) -> int:
        """One to fish; one before it to learn which classes occur, where none is given; and those of a search."""
        return 1 + (self.target is None) + self.searches

    @property
    def effort(self) -> Effort:
        """That of the attack on one example."""
        return self.search.effort

    def with_effort(self, effort: Effort) -> ClassFishing:
        """The attack on one example with another effort."""
        return replace(self, search=self.search.with_effort(effort))

    def revised(self, change: Callable[[Recipe], Recipe]) -> ClassFishing:
        """The attack on one example learns of the defence."""
        return replace(self, search=self.search.revised(change))

    def _craft(self, model: nn.Module, context: CraftContext) -> Crafted:
        shape = context.input_shape or guess_input_shape(model)
        name, head = _find_head(model, shape)
        if self.target is not None and not 0 <= self.target < head.out_features:
            raise UsageError(f"class-fishing needs a target from 0 to {head.out_features - 1}, got {self.target}")
        hook = plan_hook(context, name, classes=head.out_features, target=self.target, searches=self.searches)
        with torch.no_grad():
            if context.history:
                _keep_body(model, context.history[0].model, head=name)
            hook.write(head, scale=self.scale, lift=self.lift)
        return Crafted(model, hook)

    def _reconstruct(self, seen: Observation, seed: int, watch: Watch | None) -> Reconstruction:
        catch = self._catch(seen)
        if catch.reason is not None:
            return fail(seen, catch.reason)
        alone = _as_one_example(seen, catch)
        found = self._inner(alone).reconstruct(alone, seed, watch=watch, diagnosing=False)
        members = [catch.members]
        is_alone = settle_mixtures(members, examples=seen.num_examples) is Status.OK
        status = found.status if is_alone else Status.DIVERGED
        notes = (*seen.notes, catch.note, *describe_mixtures(members, examples=seen.num_examples), *found.notes)
        # How much of the batch's update one example explains says nothing here.
        targets = found.targets if catch.has_label else None
        return replace(found, targets=targets, status=status, notes=notes, fit=None, members=known_members(members))

    def evaluate(self, seen: Observation, reconstruction: Reconstruction) -> float:
        """The loss of the attack on one example, computed again."""
        alone = _as_one_example(seen, self._catch(seen))
        return self._inner(alone).evaluate(alone, reconstruction)

    def _catch(self, seen: Observation) -> Catch:
        kept_secret(seen, Hook, attack=self.name)
        if not seen.task.is_cross_entropy:
            raise UnsuitableError("class-fishing needs a client that trains with cross-entropy; use robbing-the-fed")
        return choose_catch((*seen.earlier, seen))

    def _inner(self, alone: Observation) -> Attack:
        """A closed form where the network has a layer that receives the input, else the search."""
        try:
            first_linear(alone)
        except UnsuitableError:
            return self.search
        return fc_inversion()


def class_fishing(
    *, target: int | None = None, scale: float = 0.5, lift: float = 1000.0, searches: int = 0, steps: int | None = None
) -> ClassFishing:
    """A malicious server that gets the gradient of one example out of a batch, and inverts it.

    Args:
        target: the class to fish for; None looks in a first round which classes occur, and takes one that occurs once.
        scale: the weights of its row.
        lift: how far the scores of all other classes are above its own.
        searches: rounds of feature fishing, for batches in which no class (or not the target) occurs once.
        steps: of Inverting Gradients, where no layer receives the input itself; None for its own default.
    """
    if not scale > 0 or not lift > 0:
        raise UsageError(f"class-fishing needs scale > 0 and lift > 0, got {scale} and {lift}")
    if searches < 0:
        raise UsageError(f"class-fishing needs searches ≥ 0, got {searches}")
    search = inverting_gradients() if steps is None else inverting_gradients(steps=steps)
    return ClassFishing(target, scale, lift, searches, search)


def _find_head(model: nn.Module, shape: tuple[int, ...]) -> tuple[str, nn.Linear]:
    head = find_head(model, noise_inputs(model, shape))
    if head is None or head.bias is None or head.out_features < 2:
        raise UnsuitableError(
            "class-fishing needs a last linear layer with a bias that makes the scores of two classes or more; this "
            "network has none; use robbing-the-fed"
        )
    return next(name for name, module in model.named_modules() if module is head), head


def _keep_body(model: nn.Module, first: nn.Module, *, head: str) -> None:
    """Hand out the body of the first round again: a feature has to mean the same in every round."""
    values = {**dict(first.named_parameters()), **dict(first.named_buffers())}
    for name, value in (*model.named_parameters(), *model.named_buffers()):
        if not name.startswith(f"{head}."):
            value.copy_(values[name])


def _as_one_example(seen: Observation, catch: Catch) -> Observation:
    """What a server would see of one client with this example alone."""
    assert catch.update is not None
    assert catch.model is not None
    return replace(
        seen,
        model=catch.model,
        update=catch.update,
        num_examples=1,
        targets=torch.tensor([catch.target], device=seen.device),
        knowledge=seen.knowledge | {Knowledge.BATCH_SIZE, Knowledge.LABELS},
        local=None,
        order=None,
        batch_statistics=None,
        notes=(),
        contradictions=(),
        earlier=(),
        secret=None,
    )
