"""Wrong formulas in relative noise, global pruning, compression, joined rounds and the bytes on the wire."""

from __future__ import annotations

from mutants.mutant import Mutant

_NOISE = ("defences/test_defences.py",)
_DEFENCE = ("defences/test_compression.py",)
_DISTANCE = ("matching/test_compressed.py",)
_ROUNDS = ("matching/test_rounds.py",)
_WIRE = ("test_wire.py",)

MUTANTS = (
    Mutant(
        "relative noise by the root mean square",
        "defences/noise.py",
        "value.std(correction=0) if relative",
        "value.square().mean().sqrt() if relative",
        _NOISE,
    ),
    Mutant(
        "two relative noises simply added",
        "defences/noise.py",
        "(1 + recipe.relative_noise) * (1 + variance) - 1",
        "recipe.relative_noise + variance",
        _NOISE,
    ),
    Mutant(
        "who knows of noise joins no rounds",
        "defences/noise.py",
        "noise=recipe.noise + variance, joins_rounds=True",
        "noise=recipe.noise + variance",
        _NOISE,
    ),
    Mutant(
        "relative noise as a share of what is observed",
        "matching/distances/rescaled.py",
        "self.relative / (1 + self.relative) * flat",
        "self.relative * flat",
        _DISTANCE,
    ),
    Mutant(
        "relative noise by energy, not variance",
        "matching/distances/rescaled.py",
        "flat(value).var(1, correction=0)",
        "flat(value).square().mean(1)",
        _DISTANCE,
    ),
    Mutant("global pruning per tensor", "defences/prune.py", 'if self.scope == "global"', "if False", _NOISE),
    Mutant("pruned entries keep their sign", "defences/prune.py", "torch.zeros_like(value))", "value * 0)", _WIRE),
    Mutant(
        "top-k forgets what it held back",
        "defences/top_k.py",
        "name: value + _fitting(held_back, name, value)",
        "name: value + 0 * _fitting(held_back, name, value)",
        _DEFENCE,
    ),
    Mutant(
        "top-k holds back what it sent",
        "defences/top_k.py",
        "{name: value - sent[name] for",
        "{name: sent[name] for",
        _DEFENCE,
    ),
    Mutant(
        "top-k holds back only this round",
        "defences/top_k.py",
        "{name: value - sent[name] for name, value in total.items()}",
        "{name: value - sent[name] for name, value in update.tensors.items()}",
        _DEFENCE,
    ),
    Mutant(
        "who knows top-k compares zeros as well",
        "defences/top_k.py",
        "distance=recipe.distance.masked()",
        "distance=recipe.distance",
        _DEFENCE,
    ),
    Mutant(
        "signs times the largest entry",
        "defences/sign.py",
        "value.abs().mean() if self.scaled",
        "value.abs().max() if self.scaled",
        _DEFENCE,
    ),
    Mutant("signs turned round", "defences/sign.py", "value.sign() *", "-value.sign() *", _DEFENCE),
    Mutant(
        "who knows of bare signs scales them",
        "defences/sign.py",
        "SoftSigned(recipe.distance, scaled=self.scaled)",
        "SoftSigned(recipe.distance)",
        _DEFENCE,
    ),
    Mutant(
        "soft sign without the square of its width",
        "matching/distances/compressed.py",
        "(self.width * size).square()",
        "(self.width * size)",
        _DISTANCE,
    ),
    Mutant(
        "random rounding to the nearest",
        "defences/quantise.py",
        "random.uniform(tuple(value.shape), rng, like=exact) <",
        "0.5 <",
        _DEFENCE,
    ),
    Mutant(
        "random rounding always down",
        "defences/quantise.py",
        "(steps.floor() + up)",
        "(steps.floor() + 0 * up)",
        _DEFENCE,
    ),
    Mutant(
        "random rounding with one level too many",
        "defences/quantise.py",
        "return 2 ** (self.bits - 1) - 1",
        "return 2 ** (self.bits - 1)",
        _DEFENCE,
    ),
    Mutant(
        "random rounding by the largest entry",
        "defences/quantise.py",
        "torch.linalg.vector_norm(exact) / levels",
        "exact.abs().max() / levels",
        _DEFENCE,
    ),
    Mutant(
        "who knows of rounding compares as before",
        "defences/quantise.py",
        "distance=Rounded(recipe.distance, self.levels), joins_rounds=True",
        "joins_rounds=True",
        _DEFENCE,
    ),
    Mutant(
        "rounded tensors weighed by their error, not their precision",
        "matching/distances/compressed.py",
        ".pow(-power)",
        ".pow(power)",
        _DISTANCE,
    ),
    Mutant(
        "rounding counts in full however fine",
        "matching/distances/compressed.py",
        "power = (2 * zeros / entries).clamp(0.5, 1.0)",
        "power = (2 * zeros / entries).clamp(1.0, 1.0)",
        _DISTANCE,
    ),
    Mutant(
        "rounding counts by the share of zeros itself",
        "matching/distances/compressed.py",
        "power = (2 * zeros / entries)",
        "power = (zeros / entries)",
        _DISTANCE,
    ),
    Mutant(
        "steps of rounding by the whole norm",
        "matching/distances/compressed.py",
        "torch.linalg.vector_norm(value, dim=1) / self.levels",
        "whole / self.levels",
        _DISTANCE,
    ),
    Mutant("joined rounds not averaged", "matching/rounds.py", "weight=1 / len(matched)", "weight=1.0", _ROUNDS),
    Mutant(
        "joined rounds all of the latest model",
        "matching/rounds.py",
        "(seen, *reversed(seen.earlier)) if",
        "(seen,) * (1 + len(seen.earlier)) if",
        _ROUNDS,
    ),
    Mutant(
        "joined rounds added up for labels",
        "matching/rounds.py",
        "for one in rounds]).mean(0)",
        "for one in rounds]).sum(0)",
        _ROUNDS,
    ),
    Mutant(
        "one memory for all clients",
        "federated/memory.py",
        "[ClientMemory() for _ in range(clients)]",
        "[ClientMemory()] * clients",
        ("federated/test_training.py::test_every_client_has_a_memory_of_its_own",),
    ),
    Mutant(
        "audits forget what clients hold back",
        "audits/rounds.py",
        "held_back=played[-1].runs[place].held_back if played else None",
        "held_back=None",
        ("audits/test_rounds.py::test_what_a_client_holds_back_goes_into_its_next_round",),
    ),
    Mutant("wire: gaps one too long", "wire.py", "np.cumsum(gaps + 1) - 1", "np.cumsum(gaps + 1)", _WIRE),
    Mutant(
        "wire: codes a bit too short",
        "wire.py",
        "max(0, (colours - 1).bit_length())",
        "max(0, (colours - 1).bit_length() - 1)",
        _WIRE,
    ),
)
