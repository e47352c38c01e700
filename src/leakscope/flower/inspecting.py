"""A client mod that looks at the model it was handed before it trains on it."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from flwr.app import Context, Message
from torch import Tensor, nn

from leakscope.errors import LeakscopeError, UsageError
from leakscope.flower.defending import CallNext
from leakscope.flower.records import load_arrays, read_arrays, refuse
from leakscope.types import Batch

_LOG = logging.getLogger("flwr")
# Takes the tensors that were handed out, by name; what it returns is what is wrong with them.
Check = Callable[[dict[str, Tensor]], Sequence[Any]]


def inspection_mod(
    check: Check | None = None,
    *,
    model: Callable[[], nn.Module] | None = None,
    examples: Callable[[], Batch] | None = None,
    pruned: float = 0.0,
) -> InspectionMod:
    """A mod for `ClientApp(mods=[…])` that refuses to work on a model which `check` finds something wrong with.

    It looks at every message that hands out arrays, those of an evaluation included, and comes before everything else:
    put it first.

    Args:
        check: Takes the tensors by name and returns findings; nothing found lets the message pass. By default
            `leakscope.inspect`.
        model: Builds the network, for the default check; without it only tensors are looked at.
        examples: Loads examples of the client's own, of which 64 are enough, for firing rates and gradients; they stay
            with the client.
        pruned: Share of weights that the federation has agreed to set to zero.

    Raises:
        UsageError: Options of the default check beside a check of one's own, or examples without a network.
    """
    if check is not None:
        if model is not None or examples is not None or pruned:
            raise UsageError("model=, examples= and pruned= are for the default check; drop them, or check=")
        return InspectionMod(check)
    if model is None and examples is not None:
        raise UsageError("examples= needs the network to run them on; give model= as well")
    return InspectionMod(_default_check(model, examples, pruned))


@dataclass(frozen=True)
class InspectionMod:
    """What `inspection_mod` returns; Flower calls it with every message to the client."""

    check: Check

    def __call__(self, message: Message, context: Context, call_next: CallNext) -> Message:
        """Pass a message on only where nothing is wrong with the model in it."""
        if not message.content.array_records:
            return call_next(message, context)
        try:
            findings = list(self.check(read_arrays(message).tensors))
        except LeakscopeError as error:
            return self._refuse(message, f"the model that was handed out cannot be inspected: {error}")
        if findings:
            more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
            return self._refuse(message, f"the model that was handed out looks crafted: {findings[0]}{more}")
        return call_next(message, context)

    @staticmethod
    def _refuse(message: Message, reason: str) -> Message:
        _LOG.warning("%s", reason)
        return refuse(message, reason)


def _default_check(model: Callable[[], nn.Module] | None, examples: Callable[[], Batch] | None, pruned: float) -> Check:
    try:
        inspection = importlib.import_module("leakscope.inspection")
    except ModuleNotFoundError as error:
        raise UsageError("this leakscope has no inspection of models; give inspection_mod(check=…)") from error

    def check(tensors: dict[str, Tensor]) -> Sequence[Any]:
        if model is None:
            return inspection.check_tensors(tensors, pruned=pruned)
        batch = None if examples is None else examples()
        return inspection.inspect(load_arrays(model(), tensors), batch=batch, pruned=pruned)

    return check
