"""Hypotheses that a mark of the update decides, and those that only another run of the attack can tell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from torch import nn

from leakscope.explanation.description import count_steps, replays
from leakscope.explanation.hypotheses import Case, Hypothesis
from leakscope.explanation.signatures import behind_dropout, empty_columns, shown_decay
from leakscope.explanation.unrelated import unrelated_inputs
from leakscope.networks.freeze import copy_network
from leakscope.observation.consistency import ANOTHER_MODEL, is_reversal
from leakscope.observation.making import looks_like_adam, peak
from leakscope.observation.scenario import RATE_AND_STEPS
from leakscope.tensors import scale
from leakscope.types import LocalTraining

# More inputs of a layer without a gradient than this, beyond those of any replay, is dropout. On the 84 inputs behind
# the dropout of the quick-start network, eight clients each: with two examples dropout of 0.5 left out 8 to 21 % more
# than any replay, with three or four −6 to 11 %, other weights −11 to 7 %, right declarations 0 % at most.
_MORE_EMPTY = 0.15
_MORE_EMPTY_OF_MANY = 0.075
_MANY_INPUTS = 64
# Room for inputs that were normalised outside the network: the usual constants stay within it.
_WIDE = 2.7
# Results of rightly declared pictures stay inside their bounds when these are widened, and explain less: that inputs
# leave them counts, and that this does not make matters worse.
_MORE_ROOM = 0.95


def marked(case: Case) -> Iterator[Hypothesis]:
    """Hypotheses that the update itself decides, strongest first."""
    yield from _reversed(case)
    yield from _adam(case)
    yield from _decay(case)
    yield from _another_model(case)
    yield from _dropout(case)


def to_run(case: Case) -> Iterator[Hypothesis]:
    """Hypotheses that need another run, likeliest first."""
    yield from _other_mode(case)
    yield from _unknown_rate(case)
    yield from _outside_normalisation(case)


def _reversed(case: Case) -> Iterator[Hypothesis]:
    seen = case.seen
    if any(is_reversal(note) for note in seen.contradictions):
        other = "delta" if seen.update.kind == "gradient" else "gradient"
        negated = replace(seen.update, tensors=scale(seen.update.tensors, -1.0))
        yield Hypothesis(
            "with its sign reversed",
            f"declare it as kind={other!r}, or share after − before",
            "the last layer's gradient is negative where no label can be",
            other=replace(seen, update=negated, contradictions=()),
            certain=True,
            by_direction=True,
        )


def _adam(case: Case) -> Iterator[Hypothesis]:
    seen, local = case.seen, case.seen.local
    declared = local is not None and local.optimiser != "sgd"
    if declared or not looks_like_adam(seen.update.tensors):
        return
    other = None
    rate = ""
    if local is not None:
        steps = count_steps(seen, len(case.inputs))
        lr = max(float(value.abs().max()) for value in seen.update.tensors.values()) / steps
        other = case.with_local(_as_adam(local, lr))
        rate = f" with a rate of about {lr:.2g}"
    kind = "" if seen.update.kind == "delta" else "kind='delta', "
    yield Hypothesis(
        "as Adam" + rate,
        f"declare {kind}optimiser='adam'",
        f"all weights moved by about the same amount: the largest by {peak(seen.update.tensors):.1f} times the root "
        "mean square",
        other=other,
        certain=True,
        by_direction=True,
    )


def _as_adam(local: LocalTraining, lr: float) -> LocalTraining:
    return LocalTraining(
        lr,
        steps=local.steps,
        batch_size=local.batch_size,
        epochs=local.epochs,
        optimiser="adam",
        shuffle=local.shuffle,
        drop_last=local.drop_last,
    )


def _decay(case: Case) -> Iterator[Hypothesis]:
    shown, local = shown_decay(case.seen), case.seen.local
    if shown is None or (local is not None and (local.weight_decay or not local.adds_gradients)):
        return
    evidence = f"the last layer's rows sum to a multiple of its weights' ({100 * shown.along:.0f} % of it)"
    if local is None:
        yield Hypothesis("with weight decay", "declare weight_decay=", evidence, certain=True)
        return
    decay = -shown.factor / local.total_rate(count_steps(case.seen, len(case.inputs)))
    if decay > 0:
        yield Hypothesis(
            f"with weight decay {decay:.2g}",
            f"declare weight_decay={decay:.2g}",
            evidence,
            other=case.with_local(replace(local, weight_decay=decay)),
            certain=True,
        )


def _dropout(case: Case) -> Iterator[Hypothesis]:
    seen = case.seen
    names = [name for name in behind_dropout(seen.model) if name in seen.update.tensors]
    if not names:
        return
    way = replays(seen, len(case.inputs))[0]
    made = [way(inputs, case.targets) for inputs in (case.inputs, *unrelated_inputs(seen, len(case.inputs)))]
    for name in names:
        shown, usual = empty_columns(seen.update.tensors, name), max(empty_columns(one, name) for one in made)
        many = seen.update.tensors[name].shape[1] >= _MANY_INPUTS
        if shown > usual + (_MORE_EMPTY_OF_MANY if many else _MORE_EMPTY):
            yield Hypothesis(
                "with active dropout",
                "dropout was active at the client: no attack knows its masks; audit updates made without it",
                f"{100 * shown:.0f} % of the inputs of {name!r} got no gradient, without dropout at most "
                f"{100 * usual:.0f} %",
                certain=True,
            )
            return


def _another_model(case: Case) -> Iterator[Hypothesis]:
    if ANOTHER_MODEL in case.seen.contradictions:
        yield Hypothesis(
            "as an update of other weights",
            "attack it with the weights the client started from",
            "the last layer's gradient does not follow from the last layer's weights",
            certain=True,
        )


def _unknown_rate(case: Case) -> Iterator[Hypothesis]:
    """Without rate and steps an update has only a direction; what explains that tells its length."""
    seen = case.seen
    if seen.update.kind == "delta" and seen.local is not None and seen.local.adds_gradients:
        free = replace(
            seen, local=None, knowledge=seen.knowledge - RATE_AND_STEPS, update=replace(seen.update, local=None)
        )
        yield Hypothesis(
            "with rate and steps left open",
            "declare the rate and the steps of the client",
            other=free,
            by_direction=True,
            tells_rate=True,
        )


def _outside_normalisation(case: Case) -> Iterator[Hypothesis]:
    seen = case.seen
    # The columns of a table have ranges of their own, which nobody normalises as pictures are.
    if isinstance(seen.bounds, tuple):
        low, high = seen.bounds
        width = high - low
        yield Hypothesis(
            f"with inputs outside [{low:g}, {high:g}]",
            "they were normalised outside the network: put Normalise(mean, std) in front of it, or widen the bounds",
            other=replace(seen, bounds=(low - _WIDE * width, high + (_WIDE - 1) * width)),
            leaves_bounds=seen.bounds,
            by_direction=True,
            leaves=_MORE_ROOM,
        )


def _other_mode(case: Case) -> Iterator[Hypothesis]:
    """Batch normalisation with the statistics of the batch instead of the stored ones, or the other way."""
    kinds = (nn.modules.batchnorm._BatchNorm,)
    layers = [one for one in case.seen.model.modules() if isinstance(one, kinds) and one.running_mean is not None]
    if not layers:
        return
    training = layers[0].training
    other = copy_network(case.seen.model)
    for module in other.modules():
        if isinstance(module, kinds):
            module.training = not training
    now, then = ("evaluation", "eval()") if training else ("training", "train()")
    yield Hypothesis(
        f"with batch normalisation in {now} mode",
        f"put the network in the client's mode with model.{then}",
        other=replace(case.seen, model=other),
        by_direction=True,
    )
