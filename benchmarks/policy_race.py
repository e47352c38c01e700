"""Does the race find what scoring everything finds? Overlap of the best, rank correlation and time ratio.

    python benchmarks/policy_race.py [--data cifar10] [--model resnet20] [--candidates 60] [--images 40] [--first 2 3]

The race is the one that `leakscope search` runs: coarse scores in all rounds but the last; `--every 1` makes all full.
All candidates are scored on all pictures once, in one process of one thread; the time of every single score is kept,
and that of the coarse ones which a race asks for. A race's time is the sum of what it needs, full scores of the
exhaustive run among them: both are measured in the same run, in processor time.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from scipy.stats import spearmanr

from leakscope.defences.transforms.accuracy_score import is_accepted
from leakscope.defences.transforms.candidates import draw_candidates
from leakscope.defences.transforms.race import race
from leakscope.defences.transforms.score_bench import ACCURACY, PRIVACY, ScoreBench, measure_key, privacy_kind
from leakscope.defences.transforms.score_store import Key
from leakscope.defences.transforms.search import SearchSettings
from leakscope.defences.transforms.search_setup import SearchSubject, prepare
from leakscope.operations.policy import Policy


class Timed:
    """Scores with the processor time that each took; asked twice, it is computed and counted once."""

    def __init__(self, bench: ScoreBench, known: dict[Key, tuple[float, float]] | None = None) -> None:
        self.bench, self.known, self.used = bench, {} if known is None else known, set[Key]()

    def means(self, kind: str, policies: Sequence[Policy], places: int) -> dict[Policy, float]:
        """Mean of each policy over the first `places`."""
        found = {}
        for policy in policies:
            keys = [Key(kind, str(policy), 0, place) for place in range(places)]
            self.used.update(keys)
            for key in keys:
                if key not in self.known:
                    began = time.process_time()
                    self.known[key] = (measure_key(self.bench, key), time.process_time() - began)
            found[policy] = sum(self.known[key][0] for key in keys) / places
        return found

    @property
    def seconds(self) -> float:
        """Processor time of all that was asked."""
        return sum(self.known[key][1] for key in self.used)


def run(
    bench: ScoreBench, policies: list[Policy], *, first: int, top: int, every: int, known: dict
) -> tuple[Timed, list[Policy]]:
    """One race on scores that may be known already, with what it used."""
    scores, limit = Timed(bench, known), SearchSettings().limit(bench.variant)

    def accept(asked: Sequence[Policy]) -> dict[Policy, bool]:
        found = scores.means(ACCURACY, asked, len(bench.batches))
        return {one: is_accepted(value, limit, bench.variant) for one, value in found.items()}

    found = race(
        policies,
        measure=lambda asked, rung: scores.means(privacy_kind(rung.every), asked, rung.pictures),
        accept=accept,
        pictures=len(bench.pictures.inputs),
        first=first,
        finalists=top,
        every=every,
    )
    return scores, [one for one, _ in found.ranking]


def main() -> None:
    """Print one line for every size of the first round."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--model", default="resnet20")
    parser.add_argument("--candidates", type=int, default=60)
    parser.add_argument("--images", type=int, default=40)
    parser.add_argument("--first", type=int, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument("--every", type=int, default=SearchSettings().every)
    parser.add_argument("--top", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    subject = SearchSubject(given.data, given.model, images=given.images, epochs=given.epochs, seed=given.seed)
    with tempfile.TemporaryDirectory() as folder:
        bench = prepare(subject, Path(folder))
    policies = draw_candidates(2 * given.candidates, seed=given.seed)[: given.candidates]
    # The first score of a process also pays for what torch prepares once.
    measure_key(bench, Key(PRIVACY, "28", 0, 0))
    everything, best = run(bench, policies, first=given.images, top=given.top, every=1, known={})
    full = everything.means(PRIVACY, policies, given.images)
    for first in given.first:
        raced, found = run(bench, policies, first=first, top=given.top, every=given.every, known=everything.known)
        early = raced.means(privacy_kind(given.every if first < given.images else 1), policies, first)
        line = {
            "first": first,
            "every": given.every,
            "policies": len(policies),
            "overlap": f"{len({*best} & {*found})}/{len(best)}",
            "rank_correlation_of_the_first_round": round(
                float(spearmanr([early[one] for one in policies], [full[one] for one in policies]).statistic), 3
            ),
            "exhaustive_seconds": round(everything.seconds, 1),
            "race_seconds": round(raced.seconds, 1),
            "ratio": round(everything.seconds / raced.seconds, 2),
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
