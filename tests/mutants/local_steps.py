"""Wrong formulas of simulated local steps on the fast route."""

from __future__ import annotations

from mutants.mutant import Mutant

_STEPS = ("fastgrad/test_local_steps.py",)
_LOCAL = ("matching/test_local_route.py",)

MUTANTS = (
    Mutant(
        "several groups of a small network simulate local steps plainly",
        "matching/routes.py",
        "small = place.groups == 1 and count_parameters",
        "small = count_parameters",
        ("matching/test_local_route.py",),
    ),
    Mutant(
        "a large network simulates local steps plainly, a small one by rules",
        "matching/routes.py",
        "count_parameters(self._seen) < FEWEST_FOR_LOCAL_STEPS",
        "count_parameters(self._seen) >= FEWEST_FOR_LOCAL_STEPS",
        ("matching/test_local_route.py",),
    ),
    Mutant(
        "local steps gone through backwards with the sign of the rate wrong",
        "fastgrad/local_steps.py",
        "_scale(adjoint, -step.rate)",
        "_scale(adjoint, step.rate)",
        _STEPS,
    ),
    Mutant(
        "local steps go up the gradient",
        "fastgrad/local_steps.py",
        "_add(offset, first.gradients, -rate)",
        "_add(offset, first.gradients, rate)",
        _STEPS,
    ),
    Mutant(
        "a local step does not bear on the next",
        "fastgrad/local_steps.py",
        "adjoint = _add(adjoint, found.gradients, 1.0)",
        "adjoint = _add(adjoint, found.gradients, 0.0)",
        _STEPS,
    ),
    Mutant(
        "every local step at the weights of the first",
        "fastgrad/local_steps.py",
        "self.network.at(offset)",
        "self.network.at({})",
        _STEPS,
    ),
    Mutant(
        "local steps gone through backwards at the weights of the first",
        "fastgrad/local_steps.py",
        "found = step.network.derive(",
        "found = self.network.derive(",
        _STEPS,
    ),
    Mutant(
        "local steps keep the masks of the first",
        "fastgrad/local_steps.py",
        "            steps.append(TakenStep(network, places, rate, first))",
        "            for old, new in zip((steps[0].first if steps else first).memos, first.memos, strict=True):\n"
        "                new.pattern = old.pattern\n"
        "            steps.append(TakenStep(network, places, rate, first))",
        _STEPS,
    ),
    Mutant(
        "an example of several local steps counts in the first only",
        "fastgrad/local_steps.py",
        "to_inputs.index_add_(1, step.places, found.inputs)",
        "to_inputs[:, step.places] = found.inputs",
        _STEPS,
    ),
    Mutant(
        "every local step at the rate of the first",
        "fastgrad/local_steps.py",
        "steps.append(TakenStep(network, places, rate, first))",
        "steps.append(TakenStep(network, places, self.rates[0], first))",
        _STEPS,
    ),
    Mutant(
        "local steps pulled back without the factor",
        "fastgrad/local_steps.py",
        "adjoint = _scale(direction, self.factor)",
        "adjoint = _scale(direction, 1.0)",
        _STEPS,
    ),
    Mutant(
        "one length of differences for all local steps",
        "fastgrad/local_steps.py",
        "replace(self.network.at(offset), second=second)",
        "self.network.at(offset)",
        _STEPS,
    ),
    Mutant(
        "the Hessian without the motion of what enters a layer",
        "fastgrad/weighted.py",
        "weight += self.correlate(require(memo.upstream), memo.tangent, groups=memo.groups)",
        "pass",
        _STEPS,
    ),
    Mutant(
        "the Hessian of a folded norm without the motion of γ",
        "fastgrad/weights.py",
        "more.append((self.weight, weight * self._as_rows(gamma / self.norm.sigma)))",
        "pass",
        _STEPS,
    ),
    Mutant(
        "the Hessian of a folded norm without the motion of the weight",
        "fastgrad/weights.py",
        "more.append((self.norm.gamma, (weight * along).flatten(2).sum(2) / self.norm.sigma))",
        "pass",
        _STEPS,
    ),
    Mutant(
        "the Hessian of a folded norm without the motion of the bias",
        "fastgrad/weights.py",
        "more.append((self.norm.gamma, bias * shift / self.norm.sigma))",
        "pass",
        _STEPS,
    ),
    Mutant(
        "the Hessian of a folded norm: the bias without the motion of γ",
        "fastgrad/weights.py",
        "more.append((self.bias, bias * gamma / self.norm.sigma))",
        "pass",
        _STEPS,
    ),
    Mutant(
        "the Hessian of batch statistics without their motion",
        "fastgrad/batch_norm.py",
        "grad * normalised + upstream * one.project(x, normalised)",
        "grad * normalised",
        _STEPS,
    ),
    Mutant(
        "a folded norm that a local step does not move",
        "fastgrad/weights.py",
        "None if norm is None else norm.at(offset),",
        "norm,",
        _STEPS,
    ),
    Mutant(
        "a change of gradients in local steps not divided by the difference",
        "fastgrad/second_pass.py",
        "_divide(left - right, sizes) for left",
        "left - right for left",
        _STEPS,
    ),
    Mutant(
        "momentum in local steps simulated as if it were plain SGD",
        "matching/replays/simulation.py",
        'return "momentum" if local.momentum else "weight decay"',
        'return "weight decay"',
        _LOCAL,
    ),
    Mutant(
        "the order of the client's local steps is not followed",
        "matching/replays/replay.py",
        "order = seen.order or local.order(examples)",
        "order = local.order(examples)",
        _LOCAL,
    ),
    Mutant(
        "local steps are simulated at a constant rate",
        "matching/replays/simulation.py",
        "return tuple(self.local.lr * factor for factor",
        "return tuple(self.local.lr for factor",
        _LOCAL,
    ),
    Mutant(
        "some examples of local steps are compared",
        "matching/routes.py",
        "whole = self._local is not None or _mixes_examples(seen.model)",
        "whole = _mixes_examples(seen.model)",
        _LOCAL,
    ),
    Mutant(
        "simulated local steps take no room in lockstep",
        "matching/problem.py",
        "(6 + 2 * (steps - 1)) * count_parameters(seen)",
        "6 * count_parameters(seen)",
        _LOCAL,
    ),
)
