"""Scores by policy: read where they are stored, computed on the workers and stored where they are not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from leakscope.defences.transforms.score_bench import ACCURACY, ScoreBench, cost_of, measure_key, privacy_kind
from leakscope.defences.transforms.score_pool import ScorePool
from leakscope.defences.transforms.score_store import Key, ScoreStore
from leakscope.errors import UnsuitableError
from leakscope.operations.policy import Policy
from leakscope.progress import Counter

Work = Callable[[ScoreBench, Key], float]


@dataclass
class ScoreBook:
    """All scores of one search.

    Attributes:
        bench: what is scored on.
        pool: who computes.
        store: where scores are kept.
        counter: shows how far it is.
        planned: what the search is going to cost, see `cost_of`; more is told as it comes up.
    """

    bench: ScoreBench
    pool: ScorePool[ScoreBench]
    store: ScoreStore
    counter: Counter
    planned: int = 0
    _known: dict[Key, float] = field(init=False)
    _asked: set[Key] = field(init=False, default_factory=set)
    _total: int = field(init=False, default=0)
    _missing: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._known = self.store.read()

    def privacy(self, policies: Sequence[Policy], pictures: int, *, every: int = 1) -> dict[Policy, float]:
        """Mean S_pri of each policy over the first `pictures` pictures, by every so-manyth point of their lines."""
        return self._means(privacy_kind(every), policies, pictures)

    def accuracy(self, policies: Sequence[Policy]) -> dict[Policy, float]:
        """Mean S_acc of each policy over all batches."""
        return self._means(ACCURACY, policies, len(self.bench.batches))

    def values(
        self, kind: str, policy: Policy, places: Iterable[int], *, draw: int = 0, work: Work = measure_key
    ) -> list[float]:
        """Single scores of one policy, in the order of `places`."""
        keys = [Key(kind, str(policy), draw, place) for place in places]
        self.fill(keys, work)
        return [self._known[key] for key in keys]

    def fill(self, keys: Sequence[Key], work: Work = measure_key) -> None:
        """Compute what is not known yet."""
        self._total += sum(cost_of(key.kind) for key in {*keys} - self._asked)
        self._asked.update(keys)
        missing = list(dict.fromkeys(key for key in keys if key not in self._known))
        self._missing = sum(cost_of(key.kind) for key in missing)
        self._show("")
        self.pool.run(work, missing, done=self._keep)

    def _means(self, kind: str, policies: Sequence[Policy], places: int) -> dict[Policy, float]:
        # Picture by picture: were the power to fail, all candidates would have got equally far.
        self.fill([Key(kind, str(policy), 0, place) for place in range(places) for policy in policies])
        return {
            policy: math.fsum(self._known[Key(kind, str(policy), 0, place)] for place in range(places)) / places
            for policy in policies
        }

    def _keep(self, key: Key, value: float) -> None:
        if not math.isfinite(value):
            raise UnsuitableError(
                f"the {key.kind} score of policy {key.policy} on picture {key.place} is {value}; the network does not "
                "give finite gradients there: train it longer or with a smaller rate, or give other --weights"
            )
        self.store.write([(key, value)])
        self._known[key] = value
        self._missing -= cost_of(key.kind)
        self._show(f"{key.kind} of {key.policy}")

    def _show(self, text: str) -> None:
        done = self._total - self._missing
        if done:
            self.counter.update(done, text, total=max(self.planned, self._total))
