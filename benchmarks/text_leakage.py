"""What the gradient of one word gives away of a recogniser: Inverting Gradients on `crnn-small`, text granted.

    LEAKSCOPE_DATA=<folder> python benchmarks/text_leakage.py --out runs/text-leakage [--weights crnn-small.safetensors]
    python benchmarks/text_leakage.py --out runs/text-leakage --permuted

Attacked are the first words of each style, before training and, with `--weights`, after it. `--permuted` attacks the
network as it was until columns were stacked: PyTorch then computes a wrong gradient of one picture behind the last
batch normalisation (docs/papers/crnn.md), for the client and for the attacker, but differentiates the right one a
second time, so that no search can follow it. Finished words are kept: the same command continues.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import leakscope as ls
from leakscope.files import write_atomic
from leakscope.models import load_weights
from leakscope.models.crnn import ColumnSequence
from text_recognition import STYLES, TASK, build_network


class PermutedColumns(nn.Module):
    """Columns as a view: what `ColumnSequence` did before, and what recognisers elsewhere do."""

    def forward(self, maps: Tensor) -> Tensor:
        """[n, channels, height, width] → [width, n, channels · height]."""
        return maps.permute(3, 0, 1, 2).flatten(2)


def make_network(weights: Path | None, *, permuted: bool) -> nn.Module:
    """The recogniser that is attacked."""
    model = build_network("crnn-small", seed=0)
    if weights is not None:
        load_weights(model, weights)
    if permuted:
        (name,) = (name for name, module in model.named_children() if isinstance(module, ColumnSequence))
        setattr(model, name, PermutedColumns())
    return model


def attack(model: nn.Module, style: str, place: int, told: argparse.Namespace) -> dict[str, Any]:
    """One word."""
    batch = ls.data.load(f"words-{style}", indices=[place])
    began = time.process_time()
    chosen = ls.get_attack("inverting-gradients", steps=told.steps)
    found = ls.audit(model, batch, chosen, task=TASK, scenario="B", prior_alone=False)
    # An update in the clear always has scores.
    assert found.scores is not None
    assert found.baseline_psnr is not None
    return {
        "style": style,
        "text": ls.data.decode_texts(batch.targets)[0],
        "status": str(found.status),
        "psnr": float(found.scores.psnr[0]),
        "guess": float(found.baseline_psnr[0]),
        "ssim": float(found.scores.ssim[0]),
        "distance": [float(found.history[0]), float(found.history[-1])],
        "seconds": time.process_time() - began,
    }


def main() -> None:
    """Attack every word that was not attacked yet, and print all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--weights", type=Path, default=None, help="of a trained recogniser, as text_recognition.py has"
    )
    parser.add_argument("--words", type=int, default=4, help="of each style")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--permuted", action="store_true")
    told = parser.parse_args()
    torch.set_num_threads(1)
    state = f"{'untrained' if told.weights is None else 'trained'}{', permuted' if told.permuted else ''}"
    model = make_network(told.weights, permuted=told.permuted)
    file = told.out / f"{state.replace(', ', '-')}.json"
    rows: list[dict[str, Any]] = json.loads(file.read_text()) if file.exists() else []
    for place in range(told.words):
        for style in STYLES:
            if len(rows) <= place * len(STYLES) + STYLES.index(style):
                rows.append(attack(model, style, place, told))
                write_atomic(file, json.dumps(rows, indent=1).encode())
    print(f"{state}, {told.steps} steps")
    for row in rows:
        first, last = row["distance"]
        print(
            f"{row['style']:6} {row['text']:10} {row['status']:12} {row['psnr']:5.1f} dB, "
            f"guess {row['guess']:5.1f} dB, SSIM {row['ssim']:.2f}, "
            f"distance {first:.3f} → {last:.4f}, {row['seconds']:.0f} s"
        )


if __name__ == "__main__":
    main()
