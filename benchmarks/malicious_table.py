"""Put what `malicious_servers.py` measured on LeNet-5 beside Table 2 of the MKOR paper, in the page on MKOR.

python benchmarks/malicious_table.py runs/malicious.jsonl   # keep these rows in the tree, then write the page
python benchmarks/malicious_table.py                        # the page from the rows of the tree
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from pathlib import Path
from statistics import mean
from typing import Any

from page_part import replace_part

from leakscope.files import write_atomic

KEPT = Path(__file__).resolve().parent / "results" / "malicious-servers.jsonl"
# Largest and mean SSIM, largest and mean PSNR as printed; class fishing rebuilds one picture and has no mean.
PAPER = {
    ("mkor", "lenet5"): "0.54, 0.27, 17.06, 12.79",
    ("mkor", "lenet5-strided"): "0.69, 0.38, 18.72, 13.53",
    ("inverting-gradients", "lenet5"): "0.30, 0.13, 15.64, 11.44",
    ("inverting-gradients", "lenet5-strided"): "0.41, 0.18, 15.96, 11.48",
    ("class-fishing", "lenet5"): "0.21, –, 14.63, –",
    ("class-fishing", "lenet5-strided"): "0.42, –, 15.95, –",
    ("dlg", "lenet5"): "0.13, 0.02, 2.00, 0.52",
    ("dlg", "lenet5-strided"): "0.08, 0.01, 1.21, 0.20",
    ("idlg, labels known", "lenet5"): "0.11, 0.03, 1.28, 0.18",
    ("idlg, labels known", "lenet5-strided"): "0.14, 0.04, 1.29, 0.26",
}
NAMES = {"lenet5": "original", "lenet5-strided": "modified"}
Row = dict[str, Any]


def describe(rows: list[Row]) -> str:
    """One line for each attack and network, over all batches."""
    groups: dict[tuple[str, str, Any], list[Row]] = defaultdict(list)
    for row in rows:
        if row["part"] == "lenet":
            groups[row["network"], row["attack"], row.get("steps")].append(row)
    lines = [
        "| LeNet-5 | attack | steps | batches | SSIM max, mean | PSNR max, mean | paper, the same four | status |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (network, attack, steps), several in groups.items():
        has_mean = attack != "class-fishing"
        shown = [
            f"{_over(several, f'{name}_max', max)}, {_over(several, name, mean) if has_mean else '–'}"
            for name in ("ssim", "psnr")
        ]
        ends = ", ".join(f"{count} {status}" for status, count in Counter(row["status"] for row in several).items())
        told = [NAMES[network], attack, steps or "–", len(several), *shown, PAPER.get((attack, network), "–"), ends]
        lines.append(f"| {' | '.join(map(str, told))} |")
    return "\n".join(lines)


def _over(rows: list[Row], name: str, reduce: Any) -> str:
    return f"{reduce([row[name] for row in rows]):.2f}"


def main() -> None:
    """Keep the rows that were given, and write the page."""
    for path in sys.argv[1:]:
        write_atomic(KEPT, Path(path).read_bytes())
    told = describe([json.loads(line) for line in KEPT.read_text().splitlines()])
    replace_part("papers/mkor.md", "table 2", told)
    print(told)


if __name__ == "__main__":
    main()
