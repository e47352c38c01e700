"""Realistic summaries for the report's tests, made from one seed."""

from __future__ import annotations

import hashlib
import math
import random
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from leakscope import report
from leakscope.report import CellRecord, DefenceCost, SelfCheck, Verdict

ATTACKS = {
    "inverting-gradients": "Geiping et al., Inverting Gradients, NeurIPS 2020",
    "agic": "Xu et al., AGIC, SRDS 2022",
    "dlg": "Zhu et al., Deep Leakage from Gradients, NeurIPS 2019",
}
# name → (accuracy lost, dB taken from an unaware attacker, dB taken from one who knows)
DEFENCES = {
    "none": (0.0, 0.0, 0.0),
    "prune 0.9": (0.012, 13.0, 4.0),
    "gaussian-noise 0.01": (0.041, 15.0, 14.0),
    "soteria 0.8": (0.006, 11.0, 2.0),
}
STRENGTH = {"inverting-gradients": 24.0, "agic": 21.0, "dlg": 18.0}


def cell(
    attack: str = "inverting-gradients",
    defence: str = "none",
    *,
    psnr: list[float | None] | None = None,
    ssim: list[float | None] | None = None,
    seed: int = 0,
    adaptive: bool = False,
    status: str = "ok",
    **fields: Any,
) -> dict[str, Any]:
    """One cell; only what matters to the test has to be said."""
    # What failed has scores only where a test says so: a worker that ran out of memory returns nothing.
    values = ([30.0] if status == "ok" else []) if psnr is None else psnr
    key = hashlib.sha256(f"{attack}/{defence}/{seed}/{adaptive}/{sorted(fields.items())}".encode()).hexdigest()[:32]
    known = [value for value in values if value is not None]
    found = {
        "key": key,
        "model": "resnet20",
        "data": "cifar10",
        "attack": attack,
        "attack_paper": ATTACKS.get(attack, ""),
        "defence": defence,
        "adaptive": adaptive,
        "scenario": "C",
        "seed": seed,
        "local": None,
        "victims": max(1, len(values)),
        "batch_size": 1,
        "status": status,
        "error": None if status == "ok" else f"stopped: {status}",
        "n": len(values),
        "scores": {
            "psnr": values,
            "ssim": [min(0.99, max(0.02, (v - 8) / 24)) if v is not None else None for v in values]
            if ssim is None
            else ssim,
            "mse": [10 ** (-v / 10) if v is not None else None for v in values],
            "lpips": None,
            "label_correct": [True] * len(values),
            "baseline_psnr": [12.0] * len(values),
        },
        "stats": {"psnr": {"ci_low": min(known) - 1, "ci_high": max(known) + 1}} if known else {},
        "loss": 0.01,
        "history": [],
        "evaluations": 480,
        "notes": [],
    }
    return {**found, **fields}


def records(*cells: dict[str, Any]) -> list[CellRecord]:
    """Cells as the report reads them."""
    return [CellRecord.model_validate(one) for one in cells]


def render(content: dict[str, Any], images: Any, *, show_images: bool) -> str:
    """The page of a summary as it stands in a file."""
    return report.render(report.parse_summary(content), images, show_images=show_images)


def verdict(
    cells: list[dict[str, Any]],
    threshold: float,
    *,
    defences: list[dict[str, Any]] | None = None,
    self_check: dict[str, Any] | None = None,
) -> Verdict:
    """The verdict on cells as they stand in a file."""
    return report.verdict(
        records(*cells),
        threshold,
        defences=[DefenceCost.model_validate(row) for row in defences or []],
        self_check=None if self_check is None else SelfCheck.model_validate(self_check),
    )


def summary(*, seeds: int = 2, victims: int = 4, seed: int = 7) -> dict[str, Any]:
    """Three attacks × four defences, both attackers, with one diverged and one refused cell."""
    rng = random.Random(seed)
    cells = [
        _drawn(attack, defence, trial, adaptive=adaptive, rng=rng, victims=victims)
        for attack in ATTACKS
        for defence in DEFENCES
        for adaptive in ((False,) if defence == "none" else (False, True))
        for trial in range(seeds)
    ]
    cells[-1] |= {"status": "diverged", "error": "loss grew for 50 steps"}
    cells[-2] |= {"status": "refused", "error": "dlg needs the batch size"}
    return _around(cells)


def images_for(content: dict[str, Any], *, side: int = 32, seed: int = 3) -> dict[str, tuple[Tensor, Tensor]]:
    """Smooth random pictures; each reconstruction carries noise that fits its PSNR."""
    rng = torch.Generator().manual_seed(seed)
    found = {}
    for item in content["cells"]:
        count = len(item["scores"]["psnr"])
        coarse = torch.rand(count, 3, 5, 5, generator=rng)
        truth = functional.interpolate(coarse, size=(side, side), mode="bicubic", align_corners=False).clamp(0, 1)
        mse = torch.tensor([value or 0.1 for value in item["scores"]["mse"]]).sqrt()
        noise = torch.randn(truth.shape, generator=rng) * mse[:, None, None, None]
        found[item["key"]] = (truth, (truth + noise).clamp(0, 1))
    return found


def _drawn(
    attack: str, defence: str, trial: int, *, adaptive: bool, rng: random.Random, victims: int
) -> dict[str, Any]:
    _, unaware, knowing = DEFENCES[defence]
    centre = STRENGTH[attack] - (knowing if adaptive else unaware)
    psnr = [max(8.0, centre + rng.gauss(0, 3)) for _ in range(victims)]
    floor = 10 ** (-median(psnr) / 10)
    history = [floor + math.exp(-step / 12) * (1 + 0.05 * rng.random()) for step in range(90)]
    return cell(attack, defence, psnr=list(psnr), seed=trial, adaptive=adaptive, history=history)


def _around(cells: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "schema": 1,
        "title": "Chest clinic pilot, round 3",
        "leakscope": "0.1.0",
        "command": "leakscope audit --model resnet20 --data cifar10 --out run",
        "config": {"model": "resnet20", "data": "cifar10", "attacks": list(ATTACKS), "steps": 480},
        "environment": {"python": "3.11", "torch": "2.13.0", "platform": "Linux x86_64", "threads": 1},
        "code": {"version": "0.1.0", "seeds": [0, 1]},
        "self_check": {"name": "fc-inversion on a planted image", "psnr": 87.3, "passed": True},
        "threshold_psnr": 18.0,
        "verdict": None,
        "scenarios": {
            "C": {
                "grants": ["how many examples are behind the update", "the client's learning rate"],
                "withholds": ["the labels of the examples", "the exact batch statistics"],
                "text": "The server follows the protocol but keeps what it receives. Labels are inferred.",
            }
        },
        "cells": cells,
        "defences": [
            {
                "name": name,
                "paper": "" if name == "none" else f"The paper of {name}",
                "model": "resnet20",
                "data": "cifar10",
                "accuracy": 0.884 - drop,
                "ci": [0.878 - drop, 0.890 - drop],
                "accuracy_drop": drop,
                "step_time_ratio": 1 + drop * 3,
                "upload_ratio": 0.12 if name.startswith("prune") else 1.0,
                "diverged": False,
            }
            for name, (drop, _, _) in DEFENCES.items()
        ],
        "counts": {"total": len(cells), "ok": len(cells) - 2, "failed": {"diverged": 1, "refused": 1}},
        "not_tested": ["malicious servers that send a crafted model", "several updates of the same client"],
        "reproduce": ["leakscope audit --config run/config.yaml --out run"],
        "timings": {item["key"]: 12.5 for item in cells},
    }
