"""Wrong formulas in the transformations of pictures, the defence and the attacker who knows it."""

from __future__ import annotations

from mutants.mutant import Mutant

_TRANSFORMS = ("defences/test_transforms.py",)
_OPERATIONS = ("operations/test_eight_bit.py",)

MUTANTS = (
    Mutant(
        "one coin for all pictures",
        "defences/transforms/policy.py",
        "signs = 2.0 * (random.uniform((len(levels),), drawing",
        "signs = 2.0 * (random.uniform((1,), drawing",
        _TRANSFORMS,
    ),
    Mutant(
        "a hybrid always takes its first policy",
        "defences/transforms/policy.py",
        "chosen = (share * len(reduced.parts)).long()",
        "chosen = (0 * share).long()",
        _TRANSFORMS,
    ),
    Mutant(
        "crop and flip after the policy",
        "defences/transforms/defence.py",
        'pictures = batch.inputs if self.augment == "none" else crop_and_flip(batch.inputs, rng)\n'
        "        return replace(batch, inputs=apply(self.policy, pictures, rng=rng))",
        "pictures = apply(self.policy, batch.inputs, rng=rng)\n"
        '        return replace(batch, inputs=pictures if self.augment == "none" else crop_and_flip(pictures, rng))',
        _TRANSFORMS,
    ),
    Mutant(
        "the informed attacker knows one sign only",
        "matching/candidates/alternatives.py",
        "both = (amount, -amount) if entry.signed else (amount,)",
        "both = (amount,)",
        _TRANSFORMS,
    ),
    Mutant(
        "originals are what was trained on",
        "matching/candidates/alternatives.py",
        'The picture before the policy."""\n        return self.base.decode(seen, variables)',
        'The picture before the policy."""\n        return self.decode(seen, variables)',
        _TRANSFORMS,
    ),
    Mutant(
        "blending rounds instead of cutting off",
        "operations/eight_bit.py",
        "(levels.float() - base)).clamp(0, 255)",
        "(levels.float() - base)).round().clamp(0, 255)",
        _OPERATIONS,
    ),
    Mutant(
        "Pillow's cubic with another slope",
        "operations/eight_bit.py",
        "slope, bend, twist = three - one, ",
        "slope, bend, twist = 0.5 * (three - one), ",
        _OPERATIONS,
    ),
    Mutant(
        "black behind a turned picture",
        "operations/eight_bit.py",
        "_BEHIND = 128",
        "_BEHIND = 0",
        _OPERATIONS,
    ),
    Mutant(
        "content moves the other way",
        "operations/eight_bit.py",
        "+ 0.5 + (amounts * side)[:, None]).floor()",
        "+ 0.5 - (amounts * side)[:, None]).floor()",
        _OPERATIONS,
    ),
)
