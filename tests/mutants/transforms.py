"""Wrong formulas in the transformations of pictures, the defence and the attacker who knows it."""

from __future__ import annotations

from mutants.mutant import Mutant

_TRANSFORMS = ("defences/test_transforms.py",)
_OPERATIONS = ("operations/test_eight_bit.py",)
_SCORES = ("defences/test_policy_scores.py",)
_PRODUCTS = ("defences/test_gradient_products.py",)
_SEARCH = ("defences/test_policy_search.py",)

MUTANTS = (
    Mutant(
        "who knows a policy does not send pictures through it",
        "defences/transforms/defence.py",
        "candidate=Alternatives(chains, recipe.candidate), draws_anew=True",
        "draws_anew=True",
        _TRANSFORMS,
    ),
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
    Mutant(
        "the papers' GradSim under the released name",
        "defences/transforms/privacy_score.py",
        'if variant == "paper":\n        return _cosines(dots.sum(1',
        "if True:\n        return _cosines(dots.sum(1",
        _SCORES,
    ),
    Mutant(
        "a right sum instead of the left one",
        "defences/transforms/privacy_score.py",
        "return trapezoids - (path[-1] - path[0])",
        "return trapezoids + (path[-1] - path[0])",
        _SCORES,
    ),
    Mutant(
        "every point counts the same in the trapezoid rule",
        "defences/transforms/privacy_score.py",
        "trapezoids = ((path[:-1] + path[1:]) / 2).mean()",
        "trapezoids = path.mean()",
        _SCORES,
    ),
    Mutant(
        "a coarse left sum of its own few bins",
        "defences/transforms/privacy_score.py",
        "/ (2 * bins) if variant",
        "/ (2 * (len(path) - 1)) if variant",
        _SCORES,
    ),
    Mutant(
        "a whole bin between the left sum and trapezoids",
        "defences/transforms/privacy_score.py",
        "/ (2 * bins) if variant",
        "/ bins if variant",
        _SCORES,
    ),
    Mutant(
        "the last round is coarse, too",
        "defences/transforms/race.py",
        "return [*rungs, Rung(left, pictures)]",
        "return [*rungs, Rung(left, pictures, every)]",
        _SEARCH,
    ),
    Mutant(
        "coarse scores stored as full ones",
        "defences/transforms/score_bench.py",
        "return PRIVACY if every == 1 else",
        "return PRIVACY if every else",
        _SEARCH,
    ),
    Mutant(
        "coarse scores computed as full ones",
        "defences/transforms/score_bench.py",
        "every=_every(key.kind)",
        "every=1",
        _SEARCH,
    ),
    Mutant(
        "threads of the training left to the machine",
        "defences/transforms/tiny_model.py",
        "fixed_threads(_count_threads(found))",
        "fixed_threads(torch.get_num_threads())",
        _SEARCH,
    ),
    Mutant(
        "the gradient of a norm's scale without its mean",
        "defences/transforms/layer_gradients.py",
        "moved = entered - mean.reshape(-1, 1, 1)",
        "moved = entered",
        _PRODUCTS,
    ),
    Mutant(
        "the gradient of a norm's scale by the variance",
        "defences/transforms/layer_gradients.py",
        "(variance + layer.eps).sqrt()",
        "(variance + layer.eps)",
        _PRODUCTS,
    ),
    Mutant(
        "the first point of a pass stands for all",
        "defences/transforms/layer_gradients.py",
        "one = slice(place, place + 1)",
        "one = slice(0, 1)",
        _PRODUCTS,
    ),
    Mutant(
        "products with the last point of each pass",
        "defences/transforms/gradient_products.py",
        "        begin = max(0, end - step)\n",
        "        begin, last = max(0, end - step), {}\n",
        _PRODUCTS,
    ),
    Mutant(
        "a pass that forgets a term is not noticed",
        "defences/transforms/gradient_products.py",
        "return found is not None and _agree(",
        "return found is not None or _agree(",
        _PRODUCTS,
    ),
    Mutant(
        "gradients multiplied beyond the range of float32",
        "defences/transforms/gradient_products.py",
        "_SAFE = (1e-20, 1e30)",
        "_SAFE = (-1.0, float('inf'))",
        _PRODUCTS,
    ),
    Mutant(
        "S_pri of the picture before the policy",
        "defences/transforms/privacy_score.py",
        "path = similarities(model, start, end,",
        "path = similarities(model, start, picture[None],",
        _SCORES,
    ),
    Mutant(
        "dead tensors pull the mean down",
        "defences/transforms/privacy_score.py",
        "alive = squares[-1] > 0",
        "alive = squares[-1] >= 0",
        _SCORES,
    ),
    Mutant(
        "S_acc with the papers' sign",
        "defences/transforms/accuracy_score.py",
        "else -terms.sum()",
        "else terms.sum()",
        _SCORES,
    ),
    Mutant(
        "the papers' S_acc without 1/N",
        "defences/transforms/accuracy_score.py",
        "return terms.mean() if",
        "return terms.sum() if",
        _SCORES,
    ),
    Mutant(
        "rows compared without taking their mean off",
        "defences/transforms/accuracy_score.py",
        "centred = rows.double() - rows.double().mean(1, keepdim=True)",
        "centred = rows.double()",
        _SCORES,
    ),
    Mutant(
        "the race keeps the worse half",
        "defences/transforms/race.py",
        "key=lambda one: (scores[one], one))",
        "key=lambda one: (-scores[one], one))",
        _SEARCH,
    ),
    Mutant(
        "the noise floor is that of one picture",
        "defences/transforms/search_report.py",
        "_pool(single) / math.sqrt(len(bench.pictures.inputs))",
        "_pool(single)",
        _SEARCH,
    ),
    Mutant(
        "Fisher's interval of n instead of n − 3",
        "defences/transforms/search_report.py",
        "/ math.sqrt(count - 3)",
        "/ math.sqrt(count)",
        _SEARCH,
    ),
)
