"""What a defence proves, in sentences beside what attacks reached."""

from __future__ import annotations

from leakscope.report.schema import DefenceCost, GuaranteeRecord

# The guess that a sentence is about; the others are in summary.json.
_SPOKEN_PRIOR = "0.1"


def guarantee_words(cost: DefenceCost) -> list[str]:
    """ε with everything it depends on, what it means for reconstruction, and what it assumes; empty for nothing."""
    whole, one = cost.guarantee, cost.guarantee_of_one
    if whole is None:
        return []
    found = [
        f"{_epsilon(whole)}, unit: {whole.unit}, sampling rate {whole.sampling_rate:.3g}, {_rounds(whole)}.",
        f"Over all rounds {_success(whole)}.",
    ]
    found += [] if one is None else [f"From {_one(one)} ({_epsilon(one)}) {_success(one)}."]
    return [*found, f"Holds where {whole.assumes}." if whole.assumes else ""]


def _rounds(record: GuaranteeRecord) -> str:
    rounds = f"rounds {record.steps // record.local_steps:,}"
    return rounds if record.local_steps == 1 else f"{rounds} of {record.local_steps:,} local steps each"


def _one(record: GuaranteeRecord) -> str:
    return "one gradient" if record.local_steps == 1 else f"one update of {record.local_steps:,} local steps"


def _epsilon(record: GuaranteeRecord) -> str:
    if record.epsilon is None:
        return "ε is infinite: no noise"
    return f"ε = {record.epsilon:.3g} at δ = {record.delta:g}"


def _success(record: GuaranteeRecord) -> str:
    success = record.reconstruction.get(_SPOKEN_PRIOR)
    if success is None or success > 0.9995:
        return "nothing is proven of reconstruction"
    return (
        f"no attacker succeeds with more than {100 * success:.1f} % where a guess succeeds in "
        f"{100 * float(_SPOKEN_PRIOR):g} %"
    )
