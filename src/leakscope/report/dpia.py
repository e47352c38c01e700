"""A draft for a data protection impact assessment: what the run can contribute to GDPR Article 35(7), in its words.

Every sentence follows from the summary. What a tool cannot know is left open in square brackets.
"""

from __future__ import annotations

from dataclasses import dataclass

from leakscope.report.evidence import NO_DEFENCE, group
from leakscope.report.gate import cells_to_judge
from leakscope.report.grades import GRADES
from leakscope.report.nouns import noun_of, reword
from leakscope.report.remedies import Advice
from leakscope.report.schema import Summary, Verdict
from leakscope.report.words import decibel, local_words, plural

DISCLAIMER = (
    "This draft is technical evidence, not legal advice. It does not certify compliance with the GDPR or any "
    "other law. The controller decides, after consulting the data protection officer, and completes what stands in "
    "brackets."
)
_MOST_NAMES = 12


@dataclass(frozen=True)
class Clause:
    """One point of Article 35(7), or of the EDPB's opinion, and what the run says to it."""

    reference: str
    title: str
    sentences: tuple[str, ...]


def draft_dpia(summary: Summary, verdict: Verdict, advice: Advice) -> tuple[Clause, ...]:
    """The clauses (a) to (d) of Article 35(7), and what Opinion 28/2024 asks of a claim of anonymity."""
    return (
        Clause("Art. 35(7)(a)", "The processing", _processing(summary)),
        Clause("Art. 35(7)(b)", "Necessity and proportionality", _necessity(summary)),
        Clause("Art. 35(7)(c)", "Risks to people", _risks(summary, verdict)),
        Clause("Art. 35(7)(d)", "Measures", _measures(summary, advice)),
        Clause("EDPB Opinion 28/2024", "Whether updates may be called anonymous", _anonymity(summary, verdict)),
    )


def _processing(summary: Summary) -> tuple[str, ...]:
    cells = summary.cells
    models = _names([cell.model for cell in cells])
    data = _names([cell.data for cell in cells])
    trainings = _names(["one gradient" if cell.local is None else local_words(cell.local) for cell in cells])
    return (
        f"Clients train {models} on data that stay with them ({data}) and share updates with a server: {trainings}.",
        "[Purpose of the processing, categories of people and data, recipients of the updates, retention.]",
    )


def _necessity(summary: Summary) -> tuple[str, ...]:
    measured = [cost for cost in summary.defences if cost.name == NO_DEFENCE and cost.accuracy is not None]
    known = "; ".join(
        f"{cost.model} on {cost.data} reached {100 * (cost.accuracy or 0):.1f} % without a defence"
        + (", which is what guessing gets" if cost.at_chance else "")
        for cost in measured[:_MOST_NAMES]
    )
    told = f"Accuracy in this run: {known}." if known else "This run measured no accuracy."
    return (
        "Raw data do not leave the client; updates do. Whether the purpose needs them, no measurement can tell.",
        told,
        "[Why federated training is necessary, and why less intrusive means do not suffice.]",
    )


def _risks(summary: Summary, verdict: Verdict) -> tuple[str, ...]:
    judged = cells_to_judge(summary.cells)
    above, total = judged.exposed(summary.threshold_psnr)
    worst = judged.worst
    scenarios = _names([cell.scenario for cell in summary.cells])
    attacks = _names([cell.attack for cell in summary.cells])
    found = [
        f"Whoever receives the updates was assumed to know what scenario {scenarios} grants, and to run {attacks}.",
        f"Outcome: {verdict.line or verdict.headline}.".replace("..", "."),
    ]
    if worst is not None:
        meaning = reword(GRADES[worst.level].meaning, noun_of(summary.cells))
        found.append(
            f"{above} of {plural(total, 'private example')} came back above {summary.threshold_psnr:g} dB; the worst "
            f"is graded {worst.grade}: {meaning} ({decibel(worst.psnr)})."
        )
    failed = [cell for cell in summary.cells if cell.status != "ok"]
    if failed:
        found.append(f"{plural(len(failed), 'result')} of {len(summary.cells)} did not end ok and show no protection.")
    if summary.not_tested:
        found.append("What the report lists as not tested was not tested; the risk there is unknown.")
    return (*found, "[Likelihood and severity for the people concerned, in view of who they are.]")


def _measures(summary: Summary, advice: Advice) -> tuple[str, ...]:
    found = [advice.headline]
    if advice.chosen is not None:
        told = advice.chosen.accuracy_words
        price = f"it costs {told}" if told else "its cost in accuracy was not measured"
        found.append(f"With {advice.chosen.name}: {advice.chosen.why}; {price}.")
    found += [f"{option.name} is not sufficient: {option.why}." for option in advice.options if not option.enough]
    return (*found[: _MOST_NAMES + 2], "[Measures beyond this run: access control, secure aggregation, contracts.]")


def _anonymity(summary: Summary, verdict: Verdict) -> tuple[str, ...]:
    rule = (
        "The opinion calls a model anonymous only if the likelihood of extracting personal data from it, with all "
        "means reasonably likely to be used, is insignificant; it is judged case by case, on documented evidence."
    )
    if verdict.status == "leak":
        found = "This run extracted private examples from updates without a defence: they cannot be called anonymous."
    elif verdict.status == "within":
        found = (
            f"This run extracted nothing above {summary.threshold_psnr:g} dB. That is evidence for the attackers "
            "tested, not proof that the likelihood is insignificant."
        )
    else:
        found = "This run is inconclusive and supports no claim of anonymity."
    tested = group(summary.cells)
    return (
        rule,
        found,
        f"The evidence is {plural(len(tested.evidence), 'scored reconstruction')}, reproducible from the run.",
    )


def _names(values: list[str]) -> str:
    names = list(dict.fromkeys(values))
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return (", ".join(names[:_MOST_NAMES]) or "nothing") + more
