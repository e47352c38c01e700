"""Wrong formulas of a search that compares steady layers alone, and of the network that is cut for it."""

from __future__ import annotations

from mutants.mutant import Mutant

_STEADY = ("matching/test_steadiness.py",)
_TAIL = ("fastgrad/test_tail.py",)
_MEASURE = "matching/steadiness.py"
_SEARCH = "matching/gradient_matching.py"

MUTANTS = (
    Mutant(
        "steady layers are left out",
        _MEASURE,
        "if one.steadiness < self.least",
        "if one.steadiness > self.least",
        _STEADY,
    ),
    Mutant(
        "only the first unsteady layer is left out",
        _MEASURE,
        "last = max((place",
        "last = min((place",
        _STEADY,
    ),
    Mutant(
        "the last layer receives little enough",
        _MEASURE,
        "layers[place].received >= enough",
        "layers[place].received <= enough",
        _STEADY,
    ),
    Mutant(
        "room for the input once, not as often as was asked",
        _MEASURE,
        "enough = self.room * torch",
        "enough = torch",
        _STEADY,
    ),
    Mutant("steadiness without its sign", _MEASURE, "float(left @ right) /", "abs(float(left @ right)) /", _STEADY),
    Mutant("steadiness by length squared", _MEASURE, "left.norm() * right.norm())", "left.norm() ** 2)", _STEADY),
    Mutant("what the whole batch received", _MEASURE, "values[0][0].numel()", "values[0].numel()", _STEADY),
    Mutant("long runs take a smaller rate", _MEASURE, "max(1.0, self.pace / steps)", "self.pace / steps", _STEADY),
    Mutant(
        "the shorter the run, the smaller its rate",
        _MEASURE,
        "max(1.0, self.pace / steps)",
        "max(1.0, steps / self.pace)",
        _STEADY,
    ),
    Mutant("the rate without its limit", _MEASURE, "min(self.haste, ", "max(self.haste, ", _STEADY),
    Mutant(
        "the rate stays as it is",
        "matching/optimisers/first_order.py",
        "lr=factor * self.lr",
        "lr=self.lr",
        _STEADY,
    ),
    Mutant(
        "a given rate is changed, too",
        "matching/presets.py",
        "SteadyLayers() if lr is None else SteadyLayers(haste=1.0)",
        "SteadyLayers()",
        _STEADY,
    ),
    Mutant(
        "the paper's search leaves layers out",
        "matching/presets.py",
        'accelerated="steady", paper="all"',
        'accelerated="steady", paper="steady"',
        _STEADY,
    ),
    Mutant(
        "the left-out layers are the ones compared",
        "matching/recipe.py",
        "name for name in matched if name not in unsteady",
        "name for name in matched if name in unsteady",
        _STEADY,
    ),
    Mutant(
        "who knows of noise leaves layers out, too",
        "matching/recipe.py",
        "if self.steady is None or self.is_noisy:",
        "if self.steady is None:",
        _STEADY,
    ),
    Mutant(
        "tensors are weighed by noise beside a prior, and not without one",
        "matching/recipe.py",
        "weighs_tensors=not self.penalties",
        "weighs_tensors=bool(self.penalties)",
        ("matching/test_distances.py",),
    ),
    Mutant(
        "who knows of random rounding leaves layers out",
        "defences/quantise.py",
        ", joins_rounds=True, steady=None",
        ", joins_rounds=True",
        _STEADY,
    ),
    Mutant(
        "who knows of signs leaves layers out",
        "defences/sign.py",
        "scaled=self.scaled), steady=None",
        "scaled=self.scaled)",
        _STEADY,
    ),
    Mutant(
        "what a defence leaves out is compared again",
        "matching/recipe.py",
        "matched = self.matched(seen).update.tensors",
        "matched = seen.update.tensors",
        _STEADY,
    ),
    Mutant(
        "a result has to explain the compared layers alone",
        _SEARCH,
        "MatchedPart(self.recipe.matched(seen)",
        "MatchedPart(self._narrowed(seen).recipe.matched(seen)",
        _STEADY,
    ),
    Mutant(
        "the loss is computed again over all layers",
        _SEARCH,
        "problem = self._narrowed(seen)._problem([seen])",
        "problem = self._problem([seen])",
        _STEADY,
    ),
    Mutant(
        "the search compares all layers",
        _SEARCH,
        "found = self._narrowed(together[0])._chunk(",
        "found = self._chunk(",
        _STEADY,
    ),
    Mutant(
        "the way back through the head with the wrong sign",
        "fastgrad/tail.py",
        "self.head.run_backward(first.memos, at_cut.flatten(0, 1))",
        "self.head.run_backward(first.memos, -at_cut.flatten(0, 1))",
        _TAIL,
    ),
    Mutant(
        "cut as early as possible",
        "fastgrad/tail.py",
        "for place in range(first, 0, -1):",
        "for place in range(1, first + 1):",
        _TAIL,
    ),
    Mutant(
        "a cut may be behind a compared layer",
        "fastgrad/tail.py",
        "for place in range(first, 0, -1):",
        "for place in range(first + 1, 0, -1):",
        _TAIL,
    ),
    Mutant(
        "the tail does not read what the head hands on",
        "fastgrad/tail.py",
        "inputs=tuple(0 if one == value else one for one in instruction.inputs)",
        "inputs=instruction.inputs",
        _TAIL,
    ),
)
