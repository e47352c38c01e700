"""What sealing costs: seal, add up and open an update of a million values for four clients.

    python benchmarks/sealing.py                              # CKKS with 1,000,000 values, Paillier with 100,000
    python benchmarks/sealing.py --scheme ckks
    python benchmarks/sealing.py --scheme paillier --values 1000000 --bits 2048

Printed are wall and processor seconds (of child processes too), bytes per value that one client sends, the largest
error of the opened sum beside the stated bound, and the time of python-phe with one value in each ciphertext, measured
on a sample with a key of the same length and multiplied up. Processor seconds are those to compare on a busy machine.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from leakscope.sealed import OpeningKeys, combine, error_bound, keygen, open_sealed, seal, to_bytes

USUAL_VALUES = {"ckks": 1_000_000, "paillier": 100_000}
# Examples of each client: weights that share no factor, the dearest case.
EXAMPLES = (601, 947, 1201, 499)
SAMPLED = 24


@dataclass(frozen=True)
class Taken:
    """Time of one piece of work, by the clock and by the processor."""

    wall: float
    processor: float

    def __add__(self, other: Taken) -> Taken:
        return Taken(self.wall + other.wall, self.processor + other.processor)


@dataclass(frozen=True)
class Sealing:
    """One measurement; times are of all clients together."""

    scheme: str
    values: int
    weights: str
    seal: Taken
    combine: Taken
    open: Taken
    bytes_per_value: float
    error: float
    bound: float

    @property
    def total(self) -> Taken:
        """Sealing, adding up and opening."""
        return self.seal + self.combine + self.open

    def __str__(self) -> str:
        parts = (("seal", self.seal), ("add up", self.combine), ("open", self.open), ("all", self.total))
        times = ", ".join(f"{name} {taken.wall:.2f} s ({taken.processor:.2f})" for name, taken in parts)
        return (
            f"{self.scheme:9} {self.values:>9,} values, {self.weights} weights: {times}; "
            f"{self.bytes_per_value:.1f} bytes a value; error {self.error:.1e}, stated {self.bound:.1e}"
        )


def processor_seconds() -> float:
    """Processor time of this process and of those it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def timed(work: Callable[[], Any]) -> tuple[Any, Taken]:
    """What `work` returns, and what it took."""
    began, used = time.perf_counter(), processor_seconds()
    found = work()
    return found, Taken(time.perf_counter() - began, processor_seconds() - used)


def measure(keys: OpeningKeys, *, values: int, clients: int, weights: list[float], name: str) -> Sealing:
    """Seal, add up and open random updates, and compare with the sum in double precision."""
    rng = torch.Generator().manual_seed(0)
    updates = [{"w": torch.randn(values, generator=rng, dtype=torch.float64).clamp(-8, 8)} for _ in range(clients)]
    # Tables and libraries are there from the second update on; a run has many.
    seal({"w": updates[0]["w"][:1]}, keys.public)
    sealed, sealing = timed(lambda: [seal(update, keys.public) for update in updates])
    total, combining = timed(lambda: combine(sealed, weights))
    opened, opening = timed(lambda: open_sealed(total, keys))
    exact = sum(weight * update["w"] for weight, update in zip(weights, updates, strict=True))
    return Sealing(
        scheme=keys.public.scheme,
        values=values,
        weights=name,
        seal=sealing,
        combine=combining,
        open=opening,
        bytes_per_value=len(to_bytes(sealed[0])) / values,
        error=float((opened["w"] - exact).abs().max()),
        bound=error_bound(keys.public, weights, [float(update["w"].abs().max()) for update in updates]),
    )


def measure_phe(bits: int, *, values: int, clients: int) -> float:
    """Processor seconds of python-phe with one value a ciphertext, from a sample of each kind of work."""
    import phe

    public, secret = phe.generate_paillier_keypair(n_length=bits)
    numbers = torch.randn(SAMPLED, generator=torch.Generator().manual_seed(0), dtype=torch.float64).tolist()
    sealed, sealing = timed(lambda: [public.encrypt(number, precision=2.0**-24) for number in numbers])
    total, adding = timed(lambda: [one * 601 + one * 947 for one in sealed])
    _, opening = timed(lambda: [secret.decrypt(one) for one in total])
    each = clients * sealing.processor + clients / 2 * adding.processor + opening.processor
    return each / SAMPLED * values


def main() -> None:
    """Print one line for each scheme and kind of weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scheme", action="append", choices=list(USUAL_VALUES))
    parser.add_argument("--values", type=int)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--bits", type=int, default=3072)
    told = parser.parse_args()
    for scheme in told.scheme or list(USUAL_VALUES):
        values = told.values or USUAL_VALUES[scheme]
        keys = keygen(scheme) if scheme == "ckks" else keygen(scheme, bits=told.bits, legacy=told.bits < 3072)
        counts = [float(EXAMPLES[place % len(EXAMPLES)]) for place in range(told.clients)]
        shares = [count / sum(counts) for count in counts]
        for name, weights in (("equal", [1 / told.clients] * told.clients), ("unequal", shares)):
            found = measure(keys, values=values, clients=told.clients, weights=weights, name=name)
            print(found, flush=True)
        if scheme == "paillier":
            alone = measure_phe(told.bits, values=values, clients=told.clients)
            ratio = alone / found.total.processor
            print(
                f"python-phe, {told.bits} bits, one value a ciphertext: {alone:,.0f} s; packed is {ratio:.0f} × faster"
            )


if __name__ == "__main__":
    main()
