"""Does S_pri predict what an attack rebuilds? PSNR of a short attack on a sample of policies, beside their scores."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from statistics import fmean

import torch

from leakscope import rng as random
from leakscope.client import share
from leakscope.counts import check_count
from leakscope.defences.transforms import apply
from leakscope.defences.transforms.score_bench import PRIVACY, ScoreBench
from leakscope.defences.transforms.score_book import ScoreBook
from leakscope.defences.transforms.score_store import Key
from leakscope.defences.transforms.search_report import Correlation, pearson
from leakscope.errors import UsageError
from leakscope.metrics import score
from leakscope.observation.observe import observe
from leakscope.operations.policy import Policy
from leakscope.registry import attack_from_spec
from leakscope.types import Batch

ATTACK = "inverting-gradients:steps=60"
PICTURES = 2
_MOST = 1_000_000


def correlate(
    book: ScoreBook, policies: Sequence[Policy], *, count: int, attack: str = ATTACK, pictures: int = PICTURES
) -> Correlation:
    """Pearson's r of S_pri and PSNR over `count` of the policies, both on the same few pictures.

    PSNR is against the transformed picture, as in the papers. The sample is the first `count`: they were drawn at
    random. Higher S_pri is meant to go with higher PSNR; r near 0 says that it does not here.
    """
    check_count(count, "correlate", most=_MOST)
    if count < 4:
        raise UsageError(f"a correlation with an interval needs at least 4 policies, got {count}")
    sample, shown = list(policies)[:count], min(pictures, len(book.bench.pictures.inputs))
    if len(sample) < 4:
        raise UsageError(f"a correlation with an interval needs at least 4 policies, got {len(sample)}; draw more")
    kind, work = f"psnr {attack}", partial(measure_psnr, attack=attack)
    places = range(shown)
    book.fill([Key(PRIVACY, str(policy), 0, place) for policy in sample for place in places])
    book.fill([Key(kind, str(policy), 0, place) for policy in sample for place in places], work)
    privacy = [fmean(book.values(PRIVACY, policy, places)) for policy in sample]
    psnr = [fmean(book.values(kind, policy, places, work=work)) for policy in sample]
    return Correlation(*pearson(privacy, psnr), len(sample), shown, f"S_pri and PSNR of {attack}")


def measure_psnr(bench: ScoreBench, key: Key, *, attack: str) -> float:
    """PSNR of one transformed picture, with the coins that S_pri flipped, labels known."""
    coins = random.generator(bench.seed, "search", "coins", key.place)
    picture = apply(key.policy, bench.pictures.inputs[key.place, None], rng=coins)
    batch = Batch(picture, bench.pictures.targets[key.place, None])
    seen = observe(bench.trained, share(bench.trained, batch), scenario="B", truth=batch)
    rebuilt = attack_from_spec(attack).reconstruct(seen, seed=random.child_seed(bench.seed, "search", "psnr") % 2**31)
    return float(torch.as_tensor(score(rebuilt, batch).psnr).mean())
