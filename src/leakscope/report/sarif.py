"""A run as SARIF 2.1.0, which code hosts show beside the file that was audited."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from leakscope.report.checks import Check, list_checks
from leakscope.report.schema import Summary

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
# Id: name, level, what it means, what to do.
RULES = {
    "LS001": (
        "LeakAboveGate",
        "error",
        "A private example was rebuilt from an update better than the gate allows.",
        "Add a defence, or raise batch size and local steps, and audit again; the report shows what a defence costs.",
    ),
    "LS002": (
        "Inconclusive",
        "warning",
        "The audit gives no evidence that updates are safe: attacks failed, did not finish or did not run.",
        "Read the reasons in the report, give the attacks more time, and audit again. Treat it like a leak until then.",
    ),
    "LS003": (
        "CellWithoutEvidence",
        "note",
        "One attack ended without evidence, so what it would have shown is not known.",
        "See the cell in the report; `leakscope audit --retry-failed` runs failed cells again.",
    ),
    "LS004": (
        "LeakUnderDefence",
        "warning",
        "A private example was rebuilt above the gate although its client used the defence.",
        "Choose a stronger defence; the gate itself judges updates without one.",
    ),
}
_LEVELS = {"error": 8.0, "warning": 5.0, "note": 1.0}


def sarif_json(summary: Summary, *, location: str, exit_code: int) -> bytes:
    """The SARIF document of a finished run.

    Args:
        summary: What the run came to.
        location: The file that results point to, relative to the folder of the project: configuration or weights.
        exit_code: That of the audit.
    """
    order = list(RULES)
    results = [
        _result(check, rule, index=order.index(rule), location=location)
        for check in list_checks(summary)
        if (rule := _rule(check, summary.threshold_psnr)) is not None
    ]
    document = {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": _driver(summary)},
                "automationDetails": {"id": "leakscope/audit/"},
                "invocations": [{"executionSuccessful": True, "exitCode": exit_code}],
                "results": results,
                "columnKind": "utf16CodeUnits",
            }
        ],
    }
    return json.dumps(document, indent=1, allow_nan=False).encode()


def _driver(summary: Summary) -> dict[str, Any]:
    return {
        "name": "leakscope",
        "semanticVersion": summary.leakscope,
        "rules": [
            {
                "id": rule,
                "name": name,
                "shortDescription": {"text": text},
                "help": {"text": remedy},
                "defaultConfiguration": {"level": level},
                "properties": {"security-severity": f"{_LEVELS[level]:.1f}", "tags": ["security", "privacy"]},
            }
            for rule, (name, level, text, remedy) in RULES.items()
        ],
    }


def _rule(check: Check, threshold: float) -> str | None:
    is_gate = not check.key
    if check.ending == "leak":
        # The gate only repeats what its cells say.
        return None if is_gate else "LS001"
    if check.ending == "no-evidence":
        return "LS002" if is_gate else "LS003"
    is_above = not check.is_judged and check.psnr is not None and check.psnr > threshold
    return "LS004" if is_above else None


def _result(check: Check, rule: str, *, index: int, location: str) -> dict[str, Any]:
    return {
        "ruleId": rule,
        "ruleIndex": index,
        "level": RULES[rule][1],
        "message": {"text": f"{check.group}: {check.name}: {check.text}." if check.key else f"{check.text}."},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": quote(location)}, "region": {"startLine": 1}}}],
        "partialFingerprints": {"leakscopeCell/v1": check.key or check.name},
    }
