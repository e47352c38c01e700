"""What `leakscope inspect` prints and writes: one JSON file and one page, and lines on a terminal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from leakscope.audits.inputs import redact_paths
from leakscope.audits.may_train import TrainingAdvice, describe
from leakscope.audits.passive import PassiveRisk
from leakscope.cli.terminal import echo
from leakscope.files import private_folder, write_atomic
from leakscope.inspection import Finding, Inspection, Measured, calibration
from leakscope.report.inspection_page import render_inspection

RESULT, PAGE = "inspection.json", "inspection.html"


def describe_inspection(
    found: Inspection,
    risk: PassiveRisk | None,
    advice: TrainingAdvice,
    *,
    title: str,
    leakscope: str,
    command: str,
    private_paths: Sequence[tuple[str, str]],
) -> dict[str, Any]:
    """Everything as JSON has it; no example and no path of the user's is in it."""
    return {
        "title": title,
        "leakscope": leakscope,
        "command": redact_paths(command, private_paths),
        "answer": advice.word,
        "line": advice.line,
        "exit_code": advice.exit_code,
        "findings": [_finding(one) for one in found.findings],
        "measured": [_largest(name, figure, found) for name in found.measured for figure in _figures(found, name)],
        "not_checked": dict(found.skipped),
        "not_detected": list(found.not_detected),
        "passive": None if risk is None else _risk(risk),
        "fingerprint": found.fingerprint,
        "structure": found.structure,
        "calibration": _rates(),
    }


def write_inspection(result: dict[str, Any], out: Path) -> Path:
    """Write the numbers and the page; return the page."""
    private_folder(out)
    write_atomic(out / RESULT, json.dumps(result, indent=1, allow_nan=False).encode())
    return write_atomic(out / PAGE, render_inspection(result).encode())


def print_inspection(result: dict[str, Any], page: Path) -> None:
    """Lines for people, the answer first."""
    echo(result["line"])
    for place, one in enumerate(result["findings"]):
        echo(f"{one['severity']}: {one['detector']}: {one['evidence'][0]['words']} (limit {one['limit']:.4g})")
        for other in one["evidence"][1:4]:
            echo(f"  also {other['words']}")
        following = result["findings"][place + 1 :]
        # Said once for all figures of a detector.
        if one["detector"] not in [other["detector"] for other in following]:
            echo(f"  {one['meaning']}")
            echo(f"  what to do: {one['advice']}")
    for one in (result["passive"] or {}).get("attacks", []):
        echo(f"honest server: {one['words']}")
    for name, reason in (result["passive"] or {}).get("refused", []):
        echo(f"honest server: {name} does not work here: {reason}")
    for name, lacking in result["not_checked"].items():
        echo(f"not checked: {name}: needs {lacking}")
    for one in result["not_detected"]:
        echo(f"not detected: {one}")
    echo(f"how often the limits err: {result['calibration']['words']}")
    echo(f"fingerprint: {result['fingerprint']}")
    echo(f"page: {page}")


def _finding(one: Finding) -> dict[str, Any]:
    return {
        "detector": one.detector,
        "severity": str(one.severity),
        "figure": one.figure,
        "limit": one.limit,
        "evidence": [_evidence(place) for place in one.evidence[:100]],
        "meaning": one.meaning,
        "advice": one.advice,
    }


def _evidence(one: Measured) -> dict[str, Any]:
    return {
        "tensor": one.tensor,
        "indices": list(one.places[:100]),
        "value": one.value,
        "detail": one.detail,
        "words": str(one),
    }


def _figures(found: Inspection, name: str) -> list[str]:
    return list(dict.fromkeys(one.figure for one in found.measured[name]))


def _largest(name: str, figure: str, found: Inspection) -> dict[str, Any]:
    worst = max((one for one in found.measured[name] if one.figure == figure), key=lambda one: one.value)
    limit = found.limits[name][figure]
    return {"detector": name, "figure": figure, "limit": limit, **_evidence(worst), "above": worst.value > limit}


def _risk(risk: PassiveRisk) -> dict[str, Any]:
    return {
        "examples": risk.examples,
        "seconds": round(risk.seconds, 2),
        "attacks": [
            {
                "attack": one.attack,
                "status": str(one.status),
                "grade": one.grade,
                "psnr": one.psnr,
                "without": one.without,
                "words": describe(one, risk),
            }
            for one in risk.rebuilt
        ],
        "refused": [list(one) for one in risk.refused],
    }


def _rates() -> dict[str, Any]:
    """How often the limits erred on models they were not fitted on."""
    held = calibration()["held_out"]
    rates = {name: held[name] for name in ("honest", "false_alarms", "crafted", "detected")}
    words = (
        f"on models that they were not fitted on, {rates['false_alarms']} of {rates['honest']} honest ones raised a "
        f"false alarm, and {rates['detected']} of {rates['crafted']} crafted ones were found"
    )
    return rates | {"words": words}
