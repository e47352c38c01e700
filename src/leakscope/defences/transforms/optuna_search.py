"""Candidates that Optuna proposes from the scores so far: TPE on S_pri, NSGA-II on both scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from leakscope.defences.transforms.candidates import EMPTY, SLOTS, policy_of
from leakscope.errors import MissingExtraError, install_line
from leakscope.operations.library import NUMBER_OF_OPERATIONS
from leakscope.operations.policy import Policy
from leakscope.rng import child_seed

Sampler = Literal["tpe", "nsga2"]
# Values to minimise, one list for each policy: one value for TPE, two for NSGA-II.
Evaluate = Callable[[Sequence[Policy]], list[list[float]]]
# Proposed together, whatever the number of workers, so that the proposals do not depend on it.
GENERATION = 16


def propose(sampler: Sampler, count: int, *, evaluate: Evaluate, seed: int) -> list[Policy]:
    """The different policies among `count` proposed ones.

    The study lives in memory: a search that is continued asks for the same policies again, and their scores are known.

    Raises:
        MissingExtraError: Optuna is not installed.
    """
    optuna = _library()
    number = child_seed(seed, "search", sampler) % 2**32
    if sampler == "tpe":
        chosen, objectives = optuna.samplers.TPESampler(seed=number, n_startup_trials=min(32, max(1, count // 4))), 1
    else:
        chosen, objectives = optuna.samplers.NSGAIISampler(seed=number, population_size=GENERATION), 2
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        study = optuna.create_study(sampler=chosen, directions=["minimize"] * objectives)
        return _ask(study, optuna, count, evaluate)
    finally:
        optuna.logging.set_verbosity(before)


def _ask(study: Any, optuna: Any, count: int, evaluate: Evaluate) -> list[Policy]:
    # Numbers are names here: 7 is no nearer to 8 than to 40.
    slot = optuna.distributions.CategoricalDistribution(tuple(range(EMPTY, NUMBER_OF_OPERATIONS)))
    slots = {f"slot {place}": slot for place in range(SLOTS)}
    found: dict[Policy, None] = {}
    for begin in range(0, count, GENERATION):
        trials = [study.ask(slots) for _ in range(min(GENERATION, count - begin))]
        policies = [policy_of([trial.params[name] for name in slots]) for trial in trials]
        for trial, values in zip(trials, evaluate(policies), strict=True):
            study.tell(trial, values)
        found.update(dict.fromkeys(policies))
    return list(found)


def _library() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise MissingExtraError(
            f"this search needs Optuna; install it {install_line('search')}, or use --mode race"
        ) from error
    return optuna
