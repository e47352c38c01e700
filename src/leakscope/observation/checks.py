"""Does an update, and do labels, fit the model they are said to belong to?"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from leakscope.errors import BadInputError, UnsuitableError, suggest
from leakscope.tasks import check_labels as check_labels  # callers know it from here
from leakscope.types import SharedUpdate, Tensors


def check_fits(tensors: Tensors, model: nn.Module) -> None:
    """Insist that every shared tensor is a parameter of `model` with the same shape, and finite."""
    parameters = dict(model.named_parameters())
    for name, value in tensors.items():
        if name not in parameters and name in dict(model.named_parameters(remove_duplicate=False)):
            raise BadInputError(
                f"update tensor {name!r} is a second name of a parameter that two layers share; give it once, under "
                "its first name, or pass the update through leakscope.files.check_update"
            )
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


def check_not_zero(tensors: Tensors) -> None:
    """Refuse an update that holds nothing, before its grey reconstruction looks like protection."""
    if not any(bool(value.any()) for value in tensors.values()):
        raise UnsuitableError(
            "every tensor of the update is zero: nothing can be learnt from it, by anyone; if that was not meant, "
            "check that the client trained (learning rate, requires_grad) and what its defence left over"
        )


def as_precise(update: SharedUpdate, model: nn.Module) -> SharedUpdate:
    """The update in the dtype of the parameters it will be compared with."""
    parameters = dict(model.named_parameters())
    if all(value.dtype == parameters[name].dtype for name, value in update.tensors.items()):
        return update
    return replace(update, tensors={k: value.to(parameters[k].dtype) for k, value in update.tensors.items()})


def not_shared(update: SharedUpdate, model: nn.Module) -> tuple[str, ...]:
    """A note on trained parameters that the update leaves out."""
    trained = [name for name, value in model.named_parameters() if value.requires_grad]
    absent = [name for name in trained if name not in update.tensors]
    if not absent:
        return ()
    return (
        f"{len(absent)} of {len(trained)} trained parameters were not shared ({', '.join(absent[:3])}"
        f"{', …' if len(absent) > 3 else ''})",
    )
