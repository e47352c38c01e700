"""Measure the claims again and print a table: one row per claim, with the bar and whether it holds.

    LEAKSCOPE_DATA=… python -m reproductions.check attacks
    python -m reproductions.check attacks --only dlg idlg      # some rows
    python -m reproductions.check attacks --quick              # all rows of two minutes or less
    python -m reproductions.check --list                       # every row with its scenario and its cost

A finished row is kept under runs/reproductions and not measured again until the code changes or `--again` is
given, so that a killed run continues where it stopped. Exit code 0: every claim holds; 1: some claim that is said to
hold does not; 3: only rows that are marked as failing, with the reason, do not hold.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

# Read once, when torch is first imported: figures must not depend on the number of cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from reproductions.rows import Measured, Row

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "runs" / "reproductions"
QUICK_MINUTES = 2
EXPECTED_FAILURE = 3


def code_version() -> str:
    """Hash of everything a figure can depend on."""
    digest = hashlib.sha256()
    for folder in ("src/leakscope", "reproductions"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def main() -> None:
    """Run the chosen rows and print the table."""
    args = parse()
    from reproductions import attacks

    groups = {"attacks": attacks.ROWS}
    if args.list:
        for group, rows in groups.items():
            print("\n".join(listed(group, rows)))
        return
    rows = chosen(groups[args.group], args.only, longest=QUICK_MINUTES if args.quick else None)
    kept = KEPT / f"{args.group}-{code_version()}.jsonl"
    done = {} if args.again else remembered(kept)
    results = [measured(row, done, kept, place=place, total=len(rows)) for place, row in enumerate(rows, start=1)]
    print("\n".join(table(rows, results)))
    sys.exit(exit_code(rows, [result for result, _seconds in results]))


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Measure claims again.")
    parser.add_argument("group", nargs="?", default="attacks", choices=("attacks",))
    parser.add_argument("--only", nargs="+", help="names of rows")
    parser.add_argument("--quick", action="store_true", help=f"rows of at most {QUICK_MINUTES} minutes")
    parser.add_argument("--again", action="store_true", help="measure finished rows again")
    parser.add_argument("--list", action="store_true", help="list the claims")
    return parser.parse_args()


def listed(group: str, rows: Sequence[Row]) -> list[str]:
    """One line a row: what is measured, what must hold, what it costs, and whether it is known to fail."""
    lines = [
        f"{group}: {row.name}: {row.setting}: {row.bar}: about {row.minutes:g} min"
        + (f": FAILS: {row.fails}" if row.fails else "")
        for row in rows
    ]
    return [
        *lines,
        f"{group}: {len(rows)} rows, about {sum(row.minutes for row in rows):.0f} minutes of one quiet core",
    ]


def chosen(rows: Iterable[Row], only: list[str] | None, *, longest: float | None = None) -> list[Row]:
    """The named rows, or all; of them those of at most `longest` minutes."""
    found = [row for row in rows if only is None or row.name in only]
    missing = set(only or ()) - {row.name for row in found}
    if missing:
        raise SystemExit(f"no such row: {', '.join(sorted(missing))}; --list shows them")
    return [row for row in found if longest is None or row.minutes <= longest]


def exit_code(rows: Sequence[Row], results: Sequence[Measured]) -> int:
    """0 where all claims hold, 1 where one fails that is said to hold, 3 where only those fail that are said to."""
    failing = [row for row, result in zip(rows, results, strict=True) if not result.holds]
    if not failing:
        return 0
    return EXPECTED_FAILURE if all(row.fails for row in failing) else 1


def remembered(path: Path) -> dict[str, tuple[Measured, float]]:
    """Rows finished by an earlier run of the same code; a torn last line is ignored."""
    found: dict[str, tuple[Measured, float]] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            continue
        value = entry["measured"]
        found[entry["name"]] = (Measured(**{**value, "values": tuple(value["values"])}), entry["seconds"])
    return found


def measured(
    row: Row, done: dict[str, tuple[Measured, float]], kept: Path, *, place: int, total: int
) -> tuple[Measured, float]:
    """The row's result, from before or measured now; processor seconds beside it."""
    if row.name in done:
        return done[row.name]
    say(f"[{place}/{total}] {row.name}: {row.setting}")
    began = time.process_time()
    result = row.run(say)
    seconds = time.process_time() - began
    say(f"[{place}/{total}] {row.name}: {result.note}")
    said = "holds" if result.holds else "DOES NOT HOLD"
    say(f"[{place}/{total}] {row.name}: median {result.middle:.4g} {result.unit}, {said}, {seconds:.0f} s")
    kept.parent.mkdir(parents=True, exist_ok=True)
    with kept.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"name": row.name, "measured": asdict(result), "seconds": seconds}) + "\n")
    return result, seconds


def table(rows: list[Row], results: list[tuple[Measured, float]]) -> list[str]:
    """A Markdown table."""
    columns = ("row", "setting", "scenario", "n", "median", "worst", "bar", "holds", "CPU s", "")
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for row, (result, seconds) in zip(rows, results, strict=True):
        middle, worst = (f"{number:.4g} {result.unit}" for number in (result.middle, result.worst))
        cells = (row.name, row.network, row.scenario, len(result.values), middle, worst, row.bar, verdict(row, result))
        lines.append(f"| {' | '.join(map(str, cells))} | {seconds:.0f} | {result.note} |")
    return lines


def verdict(row: Row, result: Measured) -> str:
    """Whether the claim holds, and whether that was expected."""
    if result.holds:
        return f"yes, though marked as failing: {row.fails}" if row.fails else "yes"
    return f"**no**, as expected: {row.fails}" if row.fails else "**no**"


def say(text: str) -> None:
    """Progress goes to standard error, so that the table can be redirected."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
