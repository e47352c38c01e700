"""Small runs of every registered attack, as numbers: what a change of the code must leave alone.

python tests/golden/golden_runs.py out.json            record
python tests/golden/golden_runs.py new.json old.json   record, and print a table of equal and changed
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

import leakscope as ls
from leakscope.errors import LeakscopeError
from leakscope.registry import ATTACKS
from leakscope.testing import smallest_problem

STEPS = {
    "inverting-gradients": 60,
    "dlg-adam": 100,
    "sgd-cosine": 100,
    "adam-cosine": 60,
    "adam-l1": 60,
    "adam-l2": 60,
    "lbfgs-cosine": 8,
    "lbfgs-l2": 8,
    "dlg": 30,
    "idlg": 30,
    "cpl": 30,
    "gradinversion": 40,
    "geng": 20,
    "agic": 60,
    "grnn": 20,
    "grnn-refined": 20,
    "policy-aware": 24,
}
OPTIONS: dict[str, dict[str, Any]] = {
    "gias": {"prior": "smooth", "latent_steps": 40, "weight_steps": 20},
    "ggl": {"prior": "smooth", "population": 12, "steps": 20},
    "policy-aware": {"policy": "shift-x=0.2", "probe": 6},
}


def quick(name: str) -> Any:
    """The attack `name`, short enough for a test."""
    accepted = inspect.signature(ATTACKS[name]).parameters
    options: dict[str, Any] = {"steps": STEPS[name]} if name in STEPS else {}
    if "restarts" in accepted:
        options["restarts"] = min(2, accepted["restarts"].default)
    return ls.get_attack(name, **{**options, **OPTIONS.get(name, {})})


def convolutional() -> tuple[nn.Module, ls.Batch]:
    """Two digits behind two convolutions and a linear layer."""
    with torch.random.fork_rng():
        torch.manual_seed(11)
        model = nn.Sequential(
            nn.Conv2d(1, 6, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(6, 6, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(6 * 64, 10),
        )
    return model, ls.data.load("digits", indices=[5, 9])


def record() -> dict[str, dict[str, Any]]:
    """All runs by name."""
    torch.set_num_threads(1)
    problem = smallest_problem()
    network, pair = convolutional()
    one = ls.Batch(pair.inputs[:1], pair.targets[:1])
    rows: dict[str, dict[str, Any]] = {}
    for name in (name for name in ATTACKS if not quick(name).reads_tokens and not quick(name).is_malicious):
        rows[f"{name}: contract problem, scenario A"] = run_attack(quick(name), problem.model, problem.batch, "A")
        scenario = "B" if ls.Knowledge.LABELS in quick(name).needs else "C"
        rows[f"{name}: convolutions, scenario {scenario}"] = run_attack(quick(name), network, one, scenario)
    local = ls.LocalTraining(lr=0.05, steps=2, batch_size=1)
    for name in ("inverting-gradients", "agic", "gradinversion", "adam-l2", "fc-inversion", "gias"):
        for scenario in ("A", "D"):
            rows[f"{name}: delta of two, scenario {scenario}"] = run_attack(quick(name), network, pair, scenario, local)
    for name in ("inverting-gradients", "idlg", "grnn"):
        for place, row in enumerate(_run_together(quick(name), network, pair)):
            rows[f"{name}: victim {place} of two in lockstep, scenario C"] = row
    return rows


def _run_together(attack: Any, model: nn.Module, pair: ls.Batch) -> list[dict[str, Any]]:
    """Two victims of one model, one example each."""
    victims = [ls.Batch(pair.inputs[i : i + 1], pair.targets[i : i + 1]) for i in range(2)]
    first = ls.observe(model, ls.share(model, victims[0], seed=1), scenario="C", truth=victims[0])
    seen = [first]
    second = ls.share(model, victims[1], seed=1)
    seen.append(replace(first, update=second, num_examples=1))
    return [_row(found, victim) for found, victim in zip(attack.reconstruct(seen, 5), victims, strict=True)]


def run_attack(attack: Any, model: nn.Module, batch: ls.Batch, scenario: str, local: Any = None) -> dict[str, Any]:
    """One run as numbers, or why it was refused."""
    update = ls.share(model, batch, local=local, seed=1)
    try:
        seen = ls.observe(model, update, scenario=scenario, truth=batch)
        found = attack.reconstruct(seen, seed=5)
    except LeakscopeError as refusal:
        return {"status": f"refused: {type(refusal).__name__}"}
    return _row(found, batch)


def _row(found: ls.Reconstruction, batch: ls.Batch) -> dict[str, Any]:
    scores = ls.score(found, batch)
    return {
        "status": str(found.status),
        "psnr": [round(value, 4) for value in scores.psnr.tolist()],
        "loss": found.loss if math.isfinite(found.loss) else None,
        "evaluations": found.evaluations,
        "labels": None if found.targets is None else found.targets.tolist(),
        "inputs": hashlib.sha256(found.inputs.contiguous().numpy().tobytes()).hexdigest()[:16],
        "history": hashlib.sha256(json.dumps([repr(value) for value in found.history]).encode()).hexdigest()[:16],
    }


def compare(new: dict[str, Any], old: dict[str, Any]) -> list[str]:
    """One line a run: equal to the last bit, or what changed."""
    lines = []
    for name, before in old.items():
        now = new.get(name)
        if now == before:
            lines.append(f"equal    {name}")
            continue
        parts = (
            [] if now is None else [f"{k}: {before.get(k)} → {now.get(k)}" for k in before if before[k] != now.get(k)]
        )
        lines.append(f"changed  {name}: {'; '.join(parts) or 'gone'}")
    return lines


if __name__ == "__main__":
    found_rows = record()
    Path(sys.argv[1]).write_text(json.dumps(found_rows, indent=1) + "\n")
    if len(sys.argv) > 2:
        print("\n".join(compare(found_rows, json.loads(Path(sys.argv[2]).read_text()))))
