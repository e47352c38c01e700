"""Batch statistics that follow from the buffers a client sends: what batch norm kept before, and keeps after.

A step of training moves what a layer keeps towards the batch, r ← (1 − m)·r + m·s, where s is the batch mean, or the
unbiased variance: n/(n − 1) times the biased one, n the numbers of a channel in the batch. After k steps

    (r_after − (1 − m)^k · r_before) / (1 − (1 − m)^k)  =  Σ_j w_j s_j  with  w_j ∝ (1 − m)^(k − j),

which is the statistic itself for one step, and of several steps a mean in which later ones count more. Layers without a
momentum keep the plain mean of all batches they ever saw, t of them: (t_after · r_after − t_before · r_before) / k.

Nothing of the private examples is read here: it is knowledge of the update, in every scenario.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from leakscope.networks import batch_statistics, noise_inputs, norm_layers, record_inputs
from leakscope.types import SharedUpdate, Tensors

# Below this share of what is kept a variance may come out negative by rounding; further down it is another model's.
_ROUNDING = 1e-3


@dataclass(frozen=True)
class SentStatistics:
    """Mean and variance by layer, as `Observation.batch_statistics` names them, and what to say of them.

    Attributes:
        tensors: `layer.mean` and `layer.var`, the variance biased where the batch size is known.
        steps: local steps that the buffers went through; 1: the statistics are exact.
        notes: where they come from, and what they are worth.
    """

    tensors: Tensors = field(default_factory=dict)
    steps: int = 0
    notes: tuple[str, ...] = ()


def choose_statistics(
    granted: Tensors | None, update: SharedUpdate, *, model: nn.Module, shape: tuple[int, ...], proxy: Tensor | None
) -> tuple[Tensors | None, tuple[str, ...]]:
    """Batch statistics: those granted, else what sent buffers tell, else those of public inputs; and a note on them."""
    if granted is not None:
        return granted, ()
    sent = read_sent_statistics(model, update, shape)
    if sent.tensors:
        return sent.tensors, sent.notes
    if proxy is None or not norm_layers(model):
        return None, ()
    note = f"batch statistics are those of {len(proxy)} public inputs that stand for the client's"
    return batch_statistics(model, proxy.to(noise_inputs(model, shape))), (note,)


def read_sent_statistics(model: nn.Module, update: SharedUpdate, input_shape: tuple[int, ...]) -> SentStatistics:
    """What the buffers of `update` say of the batch, beside those of `model`, from which the client started.

    Examples and steps are taken from the update as far as it carries them. A counter of batches
    (`num_batches_tracked`) that was sent comes before them.
    """
    layers = {name: layer for name, layer in norm_layers(model).items() if _is_sent(name, layer, update.buffers)}
    found: dict[str, Tensor] = {}
    counts: set[int] = set()
    sizes = _count_values(model, tuple(layers), input_shape)
    for name, layer in layers.items():
        steps = _count_steps(name, layer, update)
        statistics = None if steps is None else _undo(name, layer, update.buffers, steps)
        if steps is None or statistics is None:
            continue
        counts.add(steps)
        examples = _examples_per_step(update, steps)
        values = None if examples is None else examples * sizes[name]
        biased = statistics[1] if values is None or values < 2 else statistics[1] * (values - 1) / values
        found |= {f"{name}.mean": statistics[0], f"{name}.var": biased.clamp_min(0)}
    if not found:
        return SentStatistics()
    return SentStatistics(found, max(counts), (_describe(len(found) // 2, max(counts), update),))


def _is_sent(name: str, layer: nn.modules.batchnorm._BatchNorm, buffers: Tensors) -> bool:
    kept = {"running_mean": layer.running_mean, "running_var": layer.running_var}
    sent = [buffers.get(f"{name}.{part}") for part in kept]
    return all(
        before is not None and after is not None and after.shape == before.shape and bool(torch.isfinite(after).all())
        for before, after in zip(kept.values(), sent, strict=True)
    )


def _count_values(model: nn.Module, layers: tuple[str, ...], input_shape: tuple[int, ...]) -> dict[str, int]:
    """Numbers of one channel that one example gives each layer."""
    if not layers:
        return {}
    seen = record_inputs(model, noise_inputs(model, input_shape), layers)
    return {name: seen[name][0][0, 0].numel() if name in seen else 1 for name in layers}


def _count_steps(name: str, layer: nn.modules.batchnorm._BatchNorm, update: SharedUpdate) -> int | None:
    """Steps between the two states; None where nobody knows, 0 where the layer never ran in training mode."""
    before, after = layer.num_batches_tracked, update.buffers.get(f"{name}.num_batches_tracked")
    if before is not None and after is not None and after.numel() == 1:
        return max(0, int(after) - int(before))
    if layer.momentum is None:
        return None
    if update.kind == "gradient":
        return 1
    if update.local is None or (update.local.steps is None and update.num_examples is None):
        return None
    return update.local.count_steps(update.num_examples or 1)


def _undo(
    name: str, layer: nn.modules.batchnorm._BatchNorm, buffers: Tensors, steps: int
) -> tuple[Tensor, Tensor] | None:
    """Mean and unbiased variance of the batch; None where nothing moved, or the two states do not belong together."""
    share = _share(layer, steps)
    assert layer.running_mean is not None  # asked by `_is_sent`
    assert layer.running_var is not None
    if not 0 < share <= 1:
        return None
    pairs = ((layer.running_mean, "running_mean"), (layer.running_var, "running_var"))
    # In double precision: what was kept is nearly the same before and after.
    mean, variance = (
        (buffers[f"{name}.{part}"].to(before).double() - (1 - share) * before.double()) / share
        for before, part in pairs
    )
    slack = _ROUNDING * layer.running_var.double().abs().max() / share
    if not bool((variance >= -slack).all()):
        return None
    return mean.to(layer.running_mean), variance.to(layer.running_var)


def _share(layer: nn.modules.batchnorm._BatchNorm, steps: int) -> float:
    """How much of what is kept afterwards comes from the batches of these steps."""
    if layer.momentum is not None:
        return 1 - (1 - layer.momentum) ** steps
    before = 0 if layer.num_batches_tracked is None else int(layer.num_batches_tracked)
    return steps / (before + steps) if steps else 0.0


def _examples_per_step(update: SharedUpdate, steps: int) -> int | None:
    if update.local is not None:
        known = update.num_examples
        return update.local.batch_size if known is None else min(update.local.batch_size, known)
    return update.num_examples if steps == 1 else None


def _describe(layers: int, steps: int, update: SharedUpdate) -> str:
    many = f"{layers} normalisation layer{'s' if layers > 1 else ''}"
    source = f"batch statistics of {many} follow from the buffers that the client sent"
    if steps > 1:
        return f"{source}, as a mean over {steps} local steps in which later ones count more: approximate"
    if _examples_per_step(update, steps) is None:
        return f"{source}; the number of examples is not known, so their variances are the unbiased ones"
    return f"{source}: exact for one step"
