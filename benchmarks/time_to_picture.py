"""Time to the picture: a tuned plain loop, breaching and leakscope race for the same victims.

    sh benchmarks/peers/setup.sh                                                # once: breaching's environment
    python benchmarks/time_to_picture.py --tune convnet:normalised:1            # settings, on four tuning victims
    python benchmarks/time_to_picture.py --run convnet:normalised:1             # six held-out victims
    python benchmarks/time_to_picture.py --table                                # Markdown of all kept results
    python benchmarks/time_to_picture.py --figure                               # docs/images/picture-time-*.svg

A case is network:normalised|plain:1|4|8|fedavg (`--cases` lists them). LEAKSCOPE_DATA names the folder of CIFAR-10.

The rules:

1. Contestants are a plain loop of thirty lines of PyTorch (`peers/plain_loop.py`), breaching's `invertinggradients` as
   it comes and with its TV weight tuned, leakscope's `inverting-gradients` at its defaults and, on residual networks,
   its `agic:schedule=held`. Labels are known to all. What is tuned is tuned on training images behind other weights.
   leakscope's defaults were chosen on images too, some of them these, none of them held out here.
2. Everyone runs alone on one thread, in turns on the same victim, and processor time counts, set-up included; importing
   libraries and sharing the update are not. All are told how the update was made, so leakscope does not look for
   another description of it (`diagnosing`) when it has its picture.
3. A rate that falls to nothing over its run knows its end. Such a contestant has one run per budget (5, 10, 20, 40 and
   80 s), as long as its pace on the tuning victims lets it be; one that holds its rate has a single run. Neither is
   ever charged for the other's runs.
4. *dB at t seconds* is the picture of the longest run expected to fit into t, a length fixed before the run; if it took
   longer, its iterate at t. *Time to a mark* is the first snapshot at the mark in runs of one length, the same for all
   victims; of the lengths that were run the one with the lowest median counts, for every contestant alike.
5. A victim that never reaches a mark counts as infinite and is never dropped. The plateau is the victim's own: the best
   that the plain loop had within 120 evaluations, less 0.3 dB.

Every run is kept as a file under `--work`; a benchmark that was killed goes on where it stopped. Results are condensed
into benchmarks/results/picture_time.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from picture_time import page
from picture_time.cases import TUNING_IMAGES, Case, all_cases, parse_case
from picture_time.contest import BUDGETS, hold, read_entry
from picture_time.contestants import CONTESTANTS, chosen_contestants
from picture_time.running import write_json
from picture_time.tuning import LENGTHS, tune

PROJECT = Path(__file__).resolve().parents[1]
RESULTS = PROJECT / "benchmarks" / "results" / "picture_time"
IMAGES = PROJECT / "docs" / "images"
WORK = PROJECT / "runs" / "picture_time"


def read_tuned(results: Path) -> dict[str, dict[str, Any]]:
    """What was tuned so far: by case, then by contestant."""
    path = results / "tuned.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def tune_case(case: Case, args: argparse.Namespace) -> None:
    """Tune every contestant of a case; each is written as soon as it is known."""
    for contestant in chosen_contestants(args.contestants, case):
        victims = min(args.victims or len(TUNING_IMAGES), len(TUNING_IMAGES))
        found = tune(contestant, case, folder=args.work, victims=victims, lengths=args.tuning_lengths)
        # Read again: another process may have tuned another case meanwhile.
        everything = read_tuned(args.results)
        everything.setdefault(case.name, {})[contestant.name] = asdict(found)
        write_json(args.results / "tuned.json", everything)
        print(f"{case.name} {contestant.name}: {found.settings}, {1e3 * found.pace['evaluation']:.0f} ms/evaluation")
        for one in sorted(found.tried, key=lambda one: -one["mean"]):
            print(f"    {one['mean']:.2f} dB  {one['settings']}  {' '.join(map(str, one['dB']))}")
        if found.at_the_end_of_its_grid:
            print(f"    at the end of its grid, the best may lie beyond: {', '.join(found.at_the_end_of_its_grid)}")


def run_case(case: Case, args: argparse.Namespace) -> None:
    """Measure a case on held-out victims and keep the small file of it."""
    tuned = read_tuned(args.results).get(case.name, {})
    entries = [read_entry(one, tuned) for one in chosen_contestants(args.contestants, case)]
    result = hold(case, entries, folder=args.work, victims=args.victims or 6, budgets=args.budgets)
    write_json(args.results / f"{case.file_name}.json", result)
    print(page.render([result]))


def read_results(results: Path) -> list[dict[str, Any]]:
    """All kept results, in the order of the cases."""
    paths = [results / f"{case.file_name}.json" for case in all_cases()]
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.exists()]


def draw_all(results: Sequence[dict[str, Any]], images: Path) -> None:
    """One drawing per case."""
    for result in results:
        path = images / f"picture-time-{result['case'].replace(':', '-')}.svg"
        path.write_text(page.draw(result), encoding="utf-8")
        print(path)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    todo = parser.add_mutually_exclusive_group(required=True)
    todo.add_argument("--tune", nargs="+", metavar="CASE", type=parse_case, help="choose settings on tuning victims")
    todo.add_argument("--run", nargs="+", metavar="CASE", type=parse_case, help="measure on held-out victims")
    todo.add_argument("--table", action="store_true", help="print all kept results as Markdown")
    todo.add_argument("--figure", action="store_true", help="draw all kept results")
    todo.add_argument("--cases", action="store_true", help="list the cases")
    parser.add_argument("--contestants", nargs="+", choices=list(CONTESTANTS), default=list(CONTESTANTS))
    parser.add_argument("--victims", type=int, help="how many; 4 when tuning, 6 otherwise")
    parser.add_argument("--tuning-lengths", type=int, nargs="+", default=list(LENGTHS), help="evaluations of a run")
    parser.add_argument("--budgets", type=float, nargs="+", default=list(BUDGETS), help="processor seconds of a run")
    parser.add_argument("--work", type=Path, default=WORK, help="where every run is kept")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where settings and results are kept")
    parser.add_argument("--images", type=Path, default=IMAGES, help="where figures go")
    return parser.parse_args(arguments)


def main() -> None:
    """Do one of the five things."""
    args = parse()
    for case in args.tune or ():
        tune_case(case, args)
    for case in args.run or ():
        run_case(case, args)
    if args.table:
        print(page.render(read_results(args.results)))
    if args.figure:
        draw_all(read_results(args.results), args.images)
    if args.cases:
        print("\n".join(case.name for case in all_cases()))


if __name__ == "__main__":
    sys.exit(main())
