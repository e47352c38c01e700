"""Every operation of the transformation library beside Pillow's: largest and mean difference in grey levels.

    LEAKSCOPE_DATA=… python benchmarks/operations_against_pillow.py [--data cifar10] [--pictures 100]

`client` is what a client trains on, which must be Pillow's picture to the level; `attacker` is the version with
derivatives, which an attacker optimises through. An operation with a sign is shown with the worse of both.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from torch import Tensor

from leakscope.data import load
from leakscope.matching.candidates import TRANSFORMS
from leakscope.operations import eight_bit
from leakscope.operations.library import LIBRARY, Entry

# The reference is that of the tests; there is no second one.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from pillow_operations import by_pillow  # pyright: ignore[reportMissingImports]


def main() -> None:
    """Print a line for each distinct operation, with the places of the library that it has."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--pictures", type=int, default=100)
    args = parser.parse_args()
    levels = eight_bit.quantise(load(args.data, split="test", indices=list(range(args.pictures))).inputs)
    print(f"{len(levels)} pictures of {args.data}; grey levels, most and mean")
    print(
        "| operation | places in the library | client: most | mean | attacker: most | mean |\n|---|---|---|---|---|---|"
    )
    for entry in dict.fromkeys(LIBRARY):
        places = ", ".join(str(place) for place, one in enumerate(LIBRARY) if one == entry)
        gaps = [differences(levels, entry, sign) for sign in ((1, -1) if entry.signed else (1,))]
        columns = " | ".join(f"{max(gap[column] for gap in gaps):.3g}" for column in range(4))
        print(f"| {entry.name} {entry.amount:.3g} | {places} | {columns} |")


def differences(levels: Tensor, entry: Entry, sign: int) -> tuple[float, float, float, float]:
    """Most and mean difference from Pillow's picture, of the client's operation and of the attacker's."""
    wanted = by_pillow(levels, entry, sign).double()
    amounts = torch.full((len(levels),), entry.amount * sign, dtype=torch.float64)
    client = (eight_bit.OPERATIONS[entry.name](levels, amounts).double() - wanted).abs()
    transform = TRANSFORMS["rotate-grey" if entry.name == "rotate" else entry.name]
    amount = {"invert": 1.0, "solarise": entry.amount / 255}.get(entry.name, entry.amount * sign)
    rows = torch.full((len(levels), len(transform.start)), amount, dtype=torch.float64)
    attacker = (transform.apply(levels.double() / 255, rows) * 255 - wanted).abs()
    return float(client.max()), float(client.mean()), float(attacker.max()), float(attacker.mean())


if __name__ == "__main__":
    main()
