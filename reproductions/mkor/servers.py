"""Attacks on large batches, counted as the MKOR paper counts: every picture beside the result of its class."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

import leakscope as ls
from leakscope.attack import Attack
from leakscope.attacks.idlg import idlg
from leakscope.audits.rounds import Federation, Round, play
from leakscope.matching.labels import Known
from leakscope.metrics import psnr, score, ssim
from leakscope.metrics.legacy import psnr_target_peak
from leakscope.observation.scenario import get_scenario
from leakscope.registry import attack_from_spec, defence_from_spec
from leakscope.reproduction import CallValues
from leakscope.reproduction.networks import build_network
from leakscope.tasks import Classification
from leakscope.types import Batch, Reconstruction, Status

# The loss of the released client: minus the score of the label, without a softmax before it.
RAW_NLL = Classification(loss=functional.nll_loss)
LOSSES = {"raw-nll": RAW_NLL, "cross-entropy": None}
METRICS = {"psnr": psnr, "ssim": ssim, "psnr_target_peak": psnr_target_peak}


@dataclass(frozen=True)
class Compared:
    """Pictures of a batch beside what was rebuilt of them; `known` says which have a result at all."""

    guesses: Tensor
    known: Tensor


def attack_batch(
    *,
    attack: str,
    data: str,
    indices: Sequence[Sequence[int]],
    model: Mapping[str, Any],
    loss: str = "cross-entropy",
    different: int | None = None,
    size: int | None = None,
    defence: str = "none",
    scenario: str = "B",
    seed: int = 0,
    pictures: int = 0,
) -> CallValues:
    """Attack one batch; means and largest values over its pictures, in our PSNR and in that of the paper.

    With `different` the client holds so many pictures of different classes, the first of each among the drawn ones.
    MKOR's result of a class stands beside all pictures of it; what other attacks return is assigned by least error.
    `rebuilt` is the share of pictures that have a result, `assigned_psnr` what an audit would report, where a result
    belongs to one picture at most and a picture without one counts 0 dB. `trained_…` compares with what was trained on.
    """
    batch = ls.data.load(data, split="test", indices=[place for one in indices for place in one], size=size)
    batch = batch if different is None else take_different(batch, different)
    attacker = make_attack(attack)
    network = build_network(model, data, batch)
    federation = Federation(
        network,
        (batch,),
        defence_from_spec(defence),
        None,
        get_scenario(scenario),
        seed,
        LOSSES[loss],
        rounds=attacker.rounds,
    )
    last = play(federation, attacker)[-1]
    # The updates are the audit's own: nothing about them needs to be doubted.
    found = attacker.reconstruct(list(last.seen), seed, diagnosing=False)[0]
    compared = compare(found, batch, by_class=attacker.name == "mkor")
    values = summarise(compared, batch.inputs, mean=attacker.name != "class-fishing")
    trained = summarise(compared, _trained(last, batch), mean=attacker.name != "class-fishing")
    values |= {f"trained_{name}": value for name, value in trained.items()}
    values |= {"rebuilt": float(compared.known.float().mean()), "ended_ok": float(found.status is Status.OK)}
    values |= {"assigned_psnr": float(score(found, batch).psnr.mean())}
    shown = {"truth": batch.inputs[:pictures], "reconstruction": compared.guesses[:pictures]} if pictures else {}
    return CallValues(values, pictures=shown, notes=(f"loss: {loss}", f"status: {found.status}", *found.notes))


def make_attack(spec: str) -> Attack:
    """An attack by its spec; iDLG, whose rule reads one label, is granted the labels of a batch."""
    if spec.partition(":")[0] != "idlg":
        return attack_from_spec(spec)
    steps = int(spec.rpartition("steps=")[2])
    known = idlg(steps=steps, retries=0).revised(lambda recipe: replace(recipe, labels=Known()))
    return replace(known, num_examples=None)


def take_different(batch: Batch, count: int) -> Batch:
    """The first picture of each class, `count` of them, in the order drawn."""
    labels = batch.targets.tolist()
    first = [place for place, label in enumerate(labels) if label not in labels[:place]][:count]
    if len(first) < count:
        raise ValueError(f"expected pictures of {count} classes among those drawn, found {len(first)}; draw more")
    return Batch(batch.inputs[first], batch.targets[first], batch.bounds)


def compare(found: Reconstruction, batch: Batch, *, by_class: bool) -> Compared:
    """The result that stands beside every picture: that of its class, or the one assigned to it."""
    if by_class:
        labels = [] if found.targets is None else found.targets.tolist()
        places = [labels.index(label) if label in labels else -1 for label in batch.targets.tolist()]
    else:
        places = score(found, batch).assignment.tolist()
    known = torch.tensor([place >= 0 for place in places])
    guesses = torch.full_like(batch.inputs, 0.5)
    guesses[known] = found.inputs[[place for place in places if place >= 0]].clamp(0, 1).to(guesses)
    return Compared(guesses.nan_to_num(0.5), known)


def summarise(compared: Compared, truth: Tensor, *, mean: bool) -> dict[str, float]:
    """Mean and largest value of every metric; a picture without a result counts 0 in the mean.

    Where only one picture is rebuilt there is no mean, as in the paper.
    """
    found = {}
    for name, metric in METRICS.items():
        if not bool(compared.known.any()):
            values = torch.zeros(1)
        else:
            values = metric(compared.guesses[compared.known], truth[compared.known])
        found[f"{name}_max"] = float(values.max())
        if mean:
            found[name] = float(values.sum()) / len(truth)
    return found


def scale_noise(sigma: float, *, rows: float, paper_rows: float) -> float:
    """Noise that hides as much of a class's row as `sigma` did in the paper's setting.

    Noise is relative to the deviation of a whole tensor, and only rows of classes that occur are not zero: with a share
    f of rows in use the deviation is √f of what it is with all. `rows` and `paper_rows` are those shares.

    Example:
        >>> round(scale_noise(0.1, rows=10 / 4096, paper_rows=1000 / 4096), 6)
        1.0
    """
    return sigma * math.sqrt(paper_rows / rows)


def _trained(last: Round, batch: Batch) -> Tensor:
    """What the client trained on, in the range of pictures; the pictures themselves where no defence changed them."""
    trained = last.runs[0].trained
    return trained[0].inputs.clamp(0, 1) if trained else batch.inputs
