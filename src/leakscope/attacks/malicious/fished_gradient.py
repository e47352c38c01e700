"""What hangs on the hook: how a last layer is set in each round, and the gradient of one example behind the updates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from leakscope import rng as random
from leakscope.attack import CraftContext
from leakscope.matching.replays.replay import gradient_factor
from leakscope.networks import copy_network
from leakscope.types import Observation, SharedUpdate

# The one weight of feature fishing. The paper has 300; features behind sigmoids differ by less than a thousandth.
SHARPNESS = 1e6
# A score that nothing reaches.
_NEVER = -1e8
# Length of the body's gradient over that of the features.
_SHARE = 0.5
# How far from a whole number a count may be: between two examples the softmax changes gradually.
_WHOLE = 0.05
# A count below this share of the largest is rounding.
_ROUNDING = 1e-4


@dataclass(frozen=True)
class Hook:
    """How the last layer was set: for a class, or for the examples above a cut along one of its inputs.

    Attributes:
        head: name of the layer.
        target: class whose row is not zero.
        feature: the one input of the row that is not zero; None where all are.
        cut: examples with a larger feature get the class's probability; None where none does.
    """

    head: str
    target: int
    feature: int | None = None
    cut: float | None = None

    def write(self, head: nn.Linear, *, scale: float, lift: float) -> None:
        """Set weights and biases."""
        kept = head.bias[self.target].clone()
        head.weight.zero_()
        if self.feature is None:
            head.weight[self.target] = scale
            head.bias.fill_(lift)
            head.bias[self.target] = kept
            return
        head.weight[self.target, self.feature] = SHARPNESS
        head.bias.zero_()
        head.bias[self.target] = _NEVER if self.cut is None else -SHARPNESS * self.cut


@dataclass(frozen=True, eq=False)
class Catch:
    """One example's gradient, as if it had been alone with label `target` on `model`; or why there is none.

    `members` is None where the size of the batch is not known. `has_label` says whether that label is the example's
    own; a feature does not tell it.
    """

    target: int
    members: int | None
    note: str
    update: SharedUpdate | None = None
    model: nn.Module | None = None
    reason: str | None = None
    has_label: bool = True


@dataclass(frozen=True, eq=False)
class _HeadGradient:
    """Weight and bias gradient of the last layer, as a mean over the batch."""

    weight: Tensor
    bias: Tensor

    @classmethod
    def of(cls, seen: Observation) -> _HeadGradient:
        hook, factor = hook_of(seen), float(gradient_factor(seen))
        tensors = seen.update.tensors
        return cls(factor * tensors[f"{hook.head}.weight"].double(), factor * tensors[f"{hook.head}.bias"].double())


def hook_of(seen: Observation) -> Hook:
    """How the model of this round was set."""
    assert isinstance(seen.secret, Hook)
    return seen.secret


def plan_hook(context: CraftContext, head: str, *, classes: int, target: int | None, searches: int) -> Hook:
    """What to fish for in this round, from what earlier ones showed of the first client."""
    clients = sum(not one.earlier for one in context.history) or 1
    seen = context.history[::clients]
    if not seen:
        drawn = int(torch.randint(classes, (), generator=random.generator(context.seed, "class-fishing")))
        return Hook(head, drawn if target is None else target)
    counts = count_labels(seen[0])
    chosen = _choose_class(counts) if target is None else target
    if searches == 0 or round(float(counts[chosen])) == 1:
        return Hook(head, chosen)
    return _next_cut(seen, Hook(head, chosen))


def count_labels(seen: Observation) -> Tensor:
    """How many examples each class has, for a model set for a class, where p is 1/(N − 1) for all others.

    The share of the batch where its size is not known.
    """
    hook, gradient = hook_of(seen), _HeadGradient.of(seen)
    chances = torch.full_like(gradient.bias, 1 / (len(gradient.bias) - 1))
    chances[hook.target] = 0.0
    return (chances - gradient.bias) * (seen.num_examples or 1)


def _choose_class(counts: Tensor) -> int:
    """A class that occurs once, else the one that occurs least."""
    occurring = counts.masked_fill(counts < _ROUNDING * float(counts.max()), float("inf"))
    return int(occurring.argmin())


def _next_cut(seen: Sequence[Observation], hook: Hook) -> Hook:
    """The next round of a search: without a cut first, then a cut at the mean of those above the last one."""
    earlier = [one for one in seen if hook_of(one).feature is not None]
    if not earlier:
        features = _mean_features(seen[0])
        return Hook(hook.head, hook.target, int(features.argmax()))
    feature, last = hook_of(earlier[0]).feature, earlier[-1]
    assert feature is not None
    if hook_of(last).cut is None:
        return Hook(hook.head, hook.target, feature, float(_mean_features(seen[0])[feature]))
    count, total = _above(last, earlier[0])
    if round(count) <= 1:
        return hook_of(last)
    return Hook(hook.head, hook.target, feature, float(total[feature] / count))


def _mean_features(seen: Observation) -> Tensor:
    """Mean features of the batch, about: of the class with the largest gradient, which is absent or rare."""
    gradient = _HeadGradient.of(seen)
    others = gradient.bias.clone()
    others[hook_of(seen).target] = -float("inf")
    row = int(others.argmax())
    return gradient.weight[row] / gradient.bias[row].clamp_min(1e-12)


def _above(seen: Observation, without: Observation) -> tuple[float, Tensor]:
    """How many examples lie above the cut, and the sum of their features; `without` is the round that had no cut."""
    own, none = _HeadGradient.of(seen), _HeadGradient.of(without)
    target, size = hook_of(seen).target, seen.num_examples or 1
    return float(own.bias[target] - none.bias[target]) * size, (own.weight[target] - none.weight[target]) * size


def choose_catch(seen: Sequence[Observation]) -> Catch:
    """The best of all rounds: one example by its class, one by its feature, else a mixture, else a reason."""
    by_class = [one for one in seen if hook_of(one).feature is None]
    for one in by_class:
        if round(float(count_labels(one)[hook_of(one).target])) == 1 and one.num_examples is not None:
            return _by_class(one, 1)
    searched = [one for one in seen if hook_of(one).feature is not None]
    for one in searched[1:]:
        count, features = _above(one, searched[0])
        if abs(count - 1) < _WHOLE and one.num_examples is not None:
            return _by_feature(one, searched[0], features)
    for one in reversed(by_class):
        count = float(count_labels(one)[hook_of(one).target])
        if count > 1e-6:
            return _by_class(one, None if one.num_examples is None else max(2, round(count)))
    last = hook_of(by_class[-1])
    reason = f"no example of class {last.target} is in the batch: nothing came through; give another target"
    return Catch(last.target, 0, "", reason=reason)


def _by_class(seen: Observation, members: int | None) -> Catch:
    hook, gradient = hook_of(seen), _HeadGradient.of(seen)
    # p_t − 1 = −1 for every example of the class, so that its bias gradient is minus its share of the batch.
    share = -float(gradient.bias[hook.target])
    features = gradient.weight[hook.target] / gradient.bias[hook.target]
    factor = float(gradient_factor(seen)) / share
    tensors = {name: value * factor for name, value in seen.update.tensors.items()}
    note = f"class {hook.target} was fished for: {'unknown' if members is None else members} examples"
    update, model = _balance(seen, hook, tensors, features)
    return Catch(hook.target, members, note, update, model)


def _by_feature(seen: Observation, without: Observation, features: Tensor) -> Catch:
    hook = hook_of(without)
    size = float(seen.num_examples or 1)
    own, none = float(gradient_factor(seen)) * size, float(gradient_factor(without)) * size
    # Above the cut p_t is 1 and not 0: the difference is one example's gradient with the sign of p_t turned.
    tensors = {name: without.update.tensors[name] * none - value * own for name, value in seen.update.tensors.items()}
    note = f"one example lies above {hook_of(seen).cut:.6g} in feature {hook.feature}, and was fished for"
    update, model = _balance(without, hook, tensors, features)
    return Catch(hook.target, 1, note, update, model, has_label=False)


def _balance(
    seen: Observation, hook: Hook, tensors: dict[str, Tensor], features: Tensor
) -> tuple[SharedUpdate, nn.Module]:
    """The update of that one example, with body and last layer of comparable length, and the model that gives it.

    The last layer's gradient follows from the features, for p is known. The body's is proportional to the row of the
    class and may be a hundred times longer, most of it the same for any picture: a search that compares directions
    would not see the features. A smaller row, which leaves p as it is, makes it shorter.
    """
    slope = torch.full((seen.num_classes,), 1 / (seen.num_classes - 1), dtype=torch.float64, device=features.device)
    slope[hook.target] = -1.0
    weight, bias = f"{hook.head}.weight", f"{hook.head}.bias"
    body = {name: value for name, value in tensors.items() if name not in (weight, bias)}
    length = sum(float(value.double().square().sum()) for value in body.values()) ** 0.5
    factor = min(1.0, _SHARE * float(features.norm()) / max(length, 1e-30)) if body else 1.0
    head = {weight: torch.outer(slope, features).to(tensors[weight]), bias: slope.to(tensors[bias])}
    model = copy_network(seen.model)
    layer = model.get_submodule(hook.head)
    assert isinstance(layer, nn.Linear)
    with torch.no_grad():
        layer.weight.mul_(factor)
    scaled = {name: value * factor for name, value in body.items()}
    update = {name: ({**scaled, **head})[name] for name in tensors}
    return SharedUpdate("gradient", update, num_examples=1), model
