"""Wrong formulas in reproductions: intervals, pairs, verdicts, victims, keys, and the shapes of layer weights."""

from __future__ import annotations

from mutants.mutant import Mutant

_STATISTICS = ("reproduction/test_statistics.py",)
_JUDGING = ("reproduction/test_judging.py",)
_VICTIMS = ("reproduction/test_victims.py",)
_OUTPUTS = ("reproduction/test_outputs.py",)
_RECIPES = ("reproduction/test_recipes.py::test_keys_cover_what_is_read_and_what_computes",)
_KINDS = ("reproduction/test_kinds.py",)
_RAMPS = ("matching/test_layer_ramps.py",)
_FILE = "reproduction/statistics.py"

MUTANTS = (
    Mutant(
        "one degree of freedom too many",
        _FILE,
        "_student(count - 1, confidence)",
        "_student(count, confidence)",
        _STATISTICS,
    ),
    Mutant(
        "spread instead of standard error", _FILE, "* stdev(values) / math.sqrt(count)", "* stdev(values)", _STATISTICS
    ),
    Mutant(
        "differences the other way round",
        _FILE,
        "[one - other for one, other",
        "[other - one for one, other",
        _STATISTICS,
    ),
    Mutant("Fisher's interval with n", _FILE, "math.sqrt(count - 3)", "math.sqrt(count)", _STATISTICS),
    Mutant(
        "Welch adds spreads, not variances",
        _FILE,
        "stdev(values) ** 2 / len(values)",
        "stdev(values) / len(values)",
        _STATISTICS,
    ),
    Mutant("one tail of 5 %", _FILE, "tail = (1 - confidence) / 2", "tail = 1 - confidence", _STATISTICS),
    Mutant(
        "holds by its estimate alone",
        "reproduction/judging.py",
        '"holds" if low > least else',
        '"holds" if estimate.value > least else',
        _JUDGING,
    ),
    Mutant(
        "one side below a guess is enough to be silent",
        "reproduction/judging.py",
        "max(fmean(left), fmean(right)) <= fmean(guessed)",
        "min(fmean(left), fmean(right)) <= fmean(guessed)",
        _JUDGING,
    ),
    Mutant(
        "failed cells are evidence",
        "reproduction/results.py",
        'if ended == "ok" and not (one.is_ok and other.is_ok):',
        "if False:",
        _JUDGING,
    ),
    Mutant(
        "every example is a unit",
        "reproduction/results.py",
        "return [fmean(map(_number, unit)) if isinstance(unit, list) else _number(unit) for unit in units]",
        "return self.examples(metric)",
        _JUDGING,
    ),
    Mutant(
        "any ending is explained",
        "reproduction/results.py",
        "self.is_ok or self.status in self.cell.expected",
        "self.is_ok or bool(self.cell.expected)",
        _JUDGING,
    ),
    Mutant(
        "victims are those that were tuned on, too",
        "reproduction/victims.py",
        "free = [place for place in order if place not in left_out]",
        "free = list(order)",
        _VICTIMS,
    ),
    Mutant(
        "all recipes have the same victims",
        "reproduction/victims.py",
        'generator(seed, "victims", recipe, scale, data)',
        'generator(seed, "victims", scale, data)',
        _VICTIMS,
    ),
    Mutant(
        "smoke counts as evidence on the page of claims",
        "reproduction/claims.py",
        '_EVIDENCE = ("paper", "cpu")',
        '_EVIDENCE = ("paper", "cpu", "smoke")',
        _OUTPUTS,
    ),
    Mutant(
        "cells that failed are no reason to say so",
        "reproduction/run.py",
        "return [one for one in self.results if not one.is_explained]",
        "return []",
        _OUTPUTS,
    ),
    Mutant(
        "the key forgets the software",
        "reproduction/keys.py",
        '"software": software(), ',
        "",
        _RECIPES,
    ),
    Mutant(
        "the key forgets what is read",
        "reproduction/keys.py",
        "    for batch in _read(spec):",
        "    for batch in []:",
        _KINDS,
    ),
    Mutant(
        "a central training that stays federated",
        "reproduction/trainings.py",
        'if how.get("central", False):',
        "if False:",
        _KINDS,
    ),
    Mutant(
        "a trained network is not the trained one",
        "reproduction/networks.py",
        "model.load_state_dict(_train_once(spec, model, trained))",
        "_train_once(spec, model, trained)",
        _KINDS,
    ),
    Mutant(
        "the exponential ramp is a straight line",
        "matching/distances/layer_weights.py",
        "math.expm1(place) / math.expm1(last)",
        "place / last",
        _RAMPS,
    ),
    Mutant(
        "the logarithm begins at 0",
        "matching/distances/layer_weights.py",
        "math.log1p(place) / math.log1p(last)",
        "math.log(place + 2) / math.log(last + 2)",
        _RAMPS,
    ),
)
