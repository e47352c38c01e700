"""The page of an inspection is inert: whatever a tensor is called, it stays text."""

from __future__ import annotations

import re

from leakscope.report.inspection_page import render_inspection

HOSTILE = "<script>alert(1)</script>\"><img src=x onerror=alert(1)>'</style>&amp;{{7*7}}\ud800"


def result(text: str = "fc.weight") -> dict:
    place = {"tensor": text, "indices": list(range(40)), "value": 0.9, "detail": text, "words": text}
    finding = {
        "detector": text,
        "severity": "critical",
        "figure": "share",
        "limit": 0.5,
        "meaning": text,
        "advice": text,
    }
    attack = {"attack": text, "status": "ok", "grade": "F", "psnr": None, "without": 11.0, "words": text}
    return {
        "title": text,
        "leakscope": "1",
        "command": text,
        "answer": "no",
        "line": text,
        "exit_code": 1,
        "findings": [{**finding, "evidence": [place]}],
        "measured": [{"detector": text, "figure": "share", "limit": 0.5, **place, "above": True}],
        "not_checked": {text: text},
        "not_detected": [text],
        "passive": {"examples": 1, "seconds": 1.0, "attacks": [attack], "refused": [[text, text]]},
        "fingerprint": "ab",
        "structure": "cd",
        "calibration": {"honest": 100, "false_alarms": 1, "words": "1 of 100 honest, 90 of 90 crafted"},
    }


def test_hostile_text_adds_no_element():
    plain, hostile = render_inspection(result()), render_inspection(result(HOSTILE))
    elements = [re.findall(r"<([a-z0-9]+)\b", page) for page in (plain, hostile)]
    assert elements[0] == elements[1]
    assert "script" not in elements[1]
    assert "49" not in hostile.split("</style>")[1]


def test_nothing_is_fetched_and_no_script_may_run():
    page = render_inspection(result())
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page).group(1)
    assert "default-src &#39;none&#39;" in policy or "default-src 'none'" in policy
    assert "script-src" not in policy
    assert not re.search(r'(src|href)="(?!#|data:)', page)


def test_it_says_the_answer_the_evidence_and_the_rates():
    page = render_inspection(result())
    for text in (
        "May I train on this model?",
        "fc.weight",
        "limit 0.5",
        "0, 1, 2",
        " …",
        "1 of 100 honest",
        "90 of 90",
    ):
        assert text in page


def test_an_inspection_without_findings_and_attacks_has_a_page_too():
    page = render_inspection({**result(), "findings": [], "passive": None, "not_checked": {}, "calibration": {}})
    assert "no proof of an honest server" in page
    assert "no examples or no time was given" in page
