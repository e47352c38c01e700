"""Wrong formulas of the fast route: what it keeps alive, when it is trusted, its rules, statistics from buffers."""

from __future__ import annotations

from mutants.mutant import Mutant

_MEMORY = ("matching/test_memory.py",)
_TRUST = ("matching/test_trust.py",)
_NORM = ("fastgrad/test_batch_statistics.py",)
_SENT = ("observation/test_sent_buffers.py",)

MUTANTS = (
    Mutant(
        "scratch memory keyed by the layer that holds it",
        "fastgrad/winograd.py",
        "self._scratch.take(self._place,",
        "self._scratch.take(self,",
        _MEMORY,
    ),
    Mutant(
        "a tracer that keeps its network",
        "networks/chain.py",
        "tracer.root, tracer.tensor_attrs, tracer.submodule_paths = nn.Module(), {}, None",
        "pass",
        _MEMORY,
    ),
    Mutant(
        "the derivative in soft targets is not compared",
        "matching/trust.py",
        "targets = _relative(found.targets, reference.targets)",
        "targets = 0.0",
        _TRUST,
    ),
    Mutant(
        "a relative error measured by the length alone",
        "matching/trust.py",
        "float((left - right).norm()), float(right.norm())",
        "abs(float(left.norm() - right.norm())), float(right.norm())",
        _TRUST,
    ),
    Mutant(
        "the tolerance of the start ten times too wide",
        "matching/trust.py",
        "START_ERROR = 5e-3",
        "START_ERROR = 5e-2",
        _TRUST,
    ),
    Mutant(
        "a derivative that has vanished excuses any error",
        "matching/trust.py",
        "return min(MOST_ERROR, LATER_ERROR * max(1.0, start / max(here, 1e-300)))",
        "return LATER_ERROR * max(1.0, start / max(here, 1e-300))",
        _TRUST,
    ),
    Mutant(
        "what is harmless grows with the reach of a step",
        "matching/trust.py",
        "return HARMLESS * distance / max(here * reach, 1e-300)",
        "return HARMLESS * distance * reach / max(here, 1e-300)",
        _TRUST,
    ),
    Mutant(
        "a tenth of the distance is harmless",
        "matching/trust.py",
        "HARMLESS = 1e-2",
        "HARMLESS = 1e-1",
        _TRUST,
    ),
    Mutant(
        "rounding of a vanished distance is taken for a wrong rule",
        "matching/trust.py",
        "apart / max(size, least, 1e-300)",
        "apart / max(size, 1e-300)",
        _TRUST,
    ),
    Mutant(
        "a vanished distance may be anything",
        "matching/trust.py",
        "DISTANCE_ROUNDING = 4.0",
        "DISTANCE_ROUNDING = 400.0",
        _TRUST,
    ),
    Mutant(
        "the derivative here and that of the start exchanged",
        "matching/trust.py",
        "max(1.0, start / max(here, 1e-300))",
        "max(1.0, here / max(start, 1e-300))",
        _TRUST,
    ),
    Mutant(
        "the start of a run has the limit of later checks",
        "matching/routes.py",
        "limit = START_ERROR if starts else self._later_limit(",
        "limit = self._later_limit(",
        _TRUST,
    ),
    Mutant(
        "ties excuse any disagreement",
        "matching/trust.py",
        "return RouteAgreement(good, (apart if good else gap).error, ties=good)",
        "return RouteAgreement(True, (apart if good else gap).error, ties=good)",
        _TRUST,
    ),
    Mutant(
        "ties are looked for in a group on its own",
        "matching/trust.py",
        "shaken = place.jitter(*limits_of(self.plain.seen.bounds, place.images), self.seed)\n"
        "        apart, good = self._measure(take_group(shaken.evaluate(route), group), shaken.group(group), limit)",
        "shaken = own.jitter(*limits_of(self.plain.seen.bounds, own.images), self.seed)\n"
        "        apart, good = self._measure(shaken.evaluate(route), shaken, limit)",
        _TRUST,
    ),
    Mutant(
        "rounding of the reference is taken for a wrong rule",
        "matching/trust.py",
        "return gap, measure_gap(found, exact, least).as_good_as(measure_gap(plain, exact, least), limit)",
        "return gap, False",
        _TRUST,
    ),
    Mutant(
        "the end of a run is not checked",
        "matching/checked_run.py",
        "return range(self._groups) if self._long else self.groups_between()",
        "return self.groups_between()[:0]",
        _TRUST,
    ),
    Mutant(
        "a run that begins again keeps what was wrong",
        "matching/checked_run.py",
        "self._kept = self._kept[: self._good] if",
        "self._kept = self._kept if",
        _TRUST,
    ),
    Mutant(
        "a good check is not remembered",
        "matching/checked_run.py",
        "self._good = self.calls + 1",
        "self._good = 0",
        _TRUST,
    ),
    Mutant(
        "batch norm's projection without the mean",
        "fastgrad/batch_norm.py",
        "centred = values - mean_positions(values) - normalised",
        "centred = values - normalised",
        _NORM,
    ),
    Mutant(
        "batch norm's projection not divided by σ",
        "fastgrad/batch_norm.py",
        "return centred * along_channels(self.scale, values)",
        "return centred",
        _NORM,
    ),
    Mutant(
        "the motion of batch statistics with the wrong sign",
        "fastgrad/batch_norm.py",
        "result = result - _move_statistics(",
        "result = result + _move_statistics(",
        _NORM,
    ),
    Mutant(
        "the motion of σ left out",
        "fastgrad/batch_norm.py",
        "one.project(values, normalised) * mean_positions(normalised * x)",
        "0 * one.project(values, normalised)",
        _NORM,
    ),
    Mutant(
        "the tangent of γ left out of the pull",
        "fastgrad/batch_norm.py",
        "grad * factor + upstream * along_channels(scaled, grad)",
        "grad * factor",
        _NORM,
    ),
    Mutant(
        "batch statistics of tiles split along the rows",
        "fastgrad/batch_norm.py",
        "for part in values.chunk(groups, dim=2)",
        "for part in values.chunk(groups, dim=3)",
        _NORM,
    ),
    Mutant(
        "buffers undone with the wrong share",
        "observation/sent_buffers.py",
        "- (1 - share) * before.double()",
        "- share * before.double()",
        _SENT,
    ),
    Mutant(
        "several steps undone as one",
        "observation/sent_buffers.py",
        "return 1 - (1 - layer.momentum) ** steps",
        "return layer.momentum",
        _SENT,
    ),
    Mutant(
        "a sent variance taken for the biased one",
        "observation/sent_buffers.py",
        "statistics[1] * (values - 1) / values",
        "statistics[1]",
        _SENT,
    ),
    Mutant(
        "positions are not counted in the variance",
        "observation/sent_buffers.py",
        "examples * sizes[name]",
        "examples",
        _SENT,
    ),
    Mutant(
        "cumulative statistics undone as if the network were new",
        "observation/sent_buffers.py",
        "return steps / (before + steps) if steps else 0.0",
        "return 1.0 if steps else 0.0",
        _SENT,
    ),
    Mutant(
        "public inputs come before what was sent",
        "observation/sent_buffers.py",
        "    if sent.tensors:\n",
        "    if sent.tensors and proxy is None:\n",
        _SENT,
    ),
)
