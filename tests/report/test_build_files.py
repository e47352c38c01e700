"""JUnit and SARIF: what they say follows the gate, and what they are follows the published schemas.

`make schemas` fetches the schemas into `.schemas`; where they, or the validators, are absent, the hand-written checks
of structure below are what runs.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import report_summaries as made

from leakscope.report import Summary, parse_summary
from leakscope.report.checks import list_checks
from leakscope.report.junit import junit_xml
from leakscope.report.sarif import RULES, sarif_json

SCHEMAS = Path(os.environ.get("LEAKSCOPE_SCHEMAS", Path(__file__).parents[2] / ".schemas"))
_HOSTILE = "net\x1b[31m<!--]]>&\x00\"'\ud800é"


def _summary(*cells: dict[str, Any], gate: float = 20.0) -> Summary:
    content = made.summary(seeds=1, victims=1)
    content |= {"cells": list(cells), "threshold_psnr": gate, "verdict": None, "timings": {cells[0]["key"]: 1.5}}
    return parse_summary(content)


def _everything() -> Summary:
    """Every way in which a cell can end."""
    bad = ("error", "timeout", "oom", "nan", "diverged", "unexplained", "unfinished")
    return _summary(
        made.cell("dlg", psnr=[25.0, 12.0]),
        made.cell("agic", psnr=[12.0]),
        made.cell("agic", "prune 0.9", psnr=[24.0], adaptive=True),
        *(made.cell("dlg", status=status, seed=place, error=f"it was {status}") for place, status in enumerate(bad, 1)),
        made.cell("dlg", status="refused", seed=20, error="needs the labels"),
        made.cell("dlg", status="not-run", seed=21, error="interrupted before it ran"),
        made.cell("unfinished-but-leaks", status="unfinished", psnr=[22.0]),
    )


def _cases(found: Summary) -> dict[str, ElementTree.Element]:
    return {case.attrib["name"]: case for case in ElementTree.fromstring(junit_xml(found)).iter("testcase")}


def test_a_leak_is_a_failure_and_nothing_else_is() -> None:
    cases = _cases(_everything())
    failures = {name for name, case in cases.items() if case.find("failure") is not None}
    assert failures == {
        "gate",
        "dlg against none, scenario C, seed 0",
        "unfinished-but-leaks against none, scenario C, seed 0",
    }
    assert "25.0 dB > 20 dB" in cases["dlg against none, scenario C, seed 0"].find("failure").attrib["message"]


def test_cells_without_evidence_are_errors_and_those_that_did_not_run_are_skipped() -> None:
    cases = _cases(_everything())
    errors = {case.find("error").attrib["type"] for case in cases.values() if case.find("error") is not None}
    assert errors == {"error", "timeout", "oom", "nan", "diverged", "unexplained", "unfinished"}
    skipped = [case.find("skipped").text for case in cases.values() if case.find("skipped") is not None]
    assert skipped == ["refused: needs the labels", "not-run: interrupted before it ran"]
    passed = [name for name, case in cases.items() if case.find("system-out") is not None]
    assert passed == ["agic against none, scenario C, seed 0", "agic against prune 0.9 knowing it, scenario C, seed 0"]


def test_counts_are_those_of_the_cases() -> None:
    suite = ElementTree.fromstring(junit_xml(_everything())).find("testsuite")
    for attribute, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert int(suite.attrib[attribute]) == len(list(suite.iter(tag))), attribute
    assert suite.attrib["hostname"] == "localhost", "no name of a machine"


@pytest.mark.parametrize(
    ("cells", "ending"),
    [
        ([made.cell("dlg", psnr=[19.0])], "passed"),
        ([made.cell("dlg", psnr=[21.0])], "leak"),
        ([made.cell("dlg", status="error", error="boom")], "no-evidence"),
        ([made.cell("dlg", psnr=[19.0]), made.cell("dlg", status="not-run", seed=1)], "no-evidence"),
        # Without a cell that has no defence, the defended ones are judged.
        ([made.cell("dlg", "prune 0.9", psnr=[21.0])], "leak"),
    ],
)
def test_the_gate_is_a_check_of_its_own(cells: list[dict[str, Any]], ending: str) -> None:
    assert list_checks(_summary(*cells))[0].ending == ending


@pytest.mark.parametrize(("code", "ending"), [(0, "passed"), (1, "leak"), (3, "no-evidence")])
def test_the_gate_says_what_the_exit_code_said(code: int, ending: str) -> None:
    judged = {"grade": "A", "status": "x", "headline": "h", "sentences": [], "line": "the line", "exit_code": code}
    content = made.summary(seeds=1, victims=1) | {"verdict": judged}
    gate = list_checks(parse_summary(content))[0]
    assert (gate.ending, gate.text) == (ending, "the line")


def _results(found: Summary, code: int = 1) -> list[dict[str, Any]]:
    return json.loads(sarif_json(found, location="conf/my audit.yaml", exit_code=code))["runs"][0]["results"]


def test_sarif_names_what_leaks_and_where() -> None:
    results = _results(_everything())
    by_rule = {rule: [one for one in results if one["ruleId"] == rule] for rule in RULES}
    assert {rule: len(found) for rule, found in by_rule.items()} == {"LS001": 2, "LS002": 0, "LS003": 7, "LS004": 1}
    assert all(one["level"] == "error" for one in by_rule["LS001"])
    place = results[0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "conf/my%20audit.yaml"
    assert len({json.dumps(one["partialFingerprints"]) for one in results}) == len(results)


def test_an_inconclusive_run_is_a_finding_and_a_safe_one_has_none() -> None:
    (first, second) = _results(_summary(made.cell("dlg", status="error", error="boom")), 3)
    assert [first["ruleId"], second["ruleId"]] == ["LS002", "LS003"]
    assert _results(_summary(made.cell("dlg", psnr=[10.0])), 0) == []


def _check_sarif(document: dict[str, Any]) -> None:
    """The parts of the schema that a document of ours touches."""
    assert document["version"] == "2.1.0"
    (run,) = document["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert run["tool"]["driver"]["name"] == "leakscope"
    for rule in rules:
        assert rule["defaultConfiguration"]["level"] in ("none", "note", "warning", "error")
        assert rule["shortDescription"]["text"]
        assert rule["help"]["text"]
    for one in run["results"]:
        assert rules[one["ruleIndex"]]["id"] == one["ruleId"]
        assert one["message"]["text"]
        place = one["locations"][0]["physicalLocation"]
        assert re.fullmatch(r"[\w./%-]+", place["artifactLocation"]["uri"])
        assert place["region"]["startLine"] >= 1


def test_structure_of_sarif_and_of_hostile_names() -> None:
    for found in (_everything(), _hostile()):
        _check_sarif(json.loads(sarif_json(found, location="c.yaml", exit_code=1)))


def test_hostile_names_make_whole_xml() -> None:
    text = junit_xml(_hostile())
    assert b"\x1b" not in text
    assert b"\x00" not in text
    assert len(list(ElementTree.fromstring(text).iter("testcase"))) == 2


def _hostile() -> Summary:
    content = made.summary(seeds=1, victims=1)
    leaking = made.cell("dlg", psnr=[25.0]) | {"model": _HOSTILE, "error": _HOSTILE, "status": "error"}
    return parse_summary(content | {"cells": [leaking], "title": _HOSTILE, "verdict": None})


@pytest.mark.parametrize("which", ["everything", "hostile"])
def test_sarif_fits_the_published_schema(which: str) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    path = SCHEMAS / "sarif-2.1.0.json"
    if not path.exists():
        pytest.skip("no schema here; `make schemas` fetches it")
    schema = json.loads(path.read_text(encoding="utf-8-sig"))
    found = _everything() if which == "everything" else _hostile()
    document = json.loads(sarif_json(found, location="conf/my audit.yaml", exit_code=1))
    check = jsonschema.validators.validator_for(schema)(schema)
    assert list(check.iter_errors(document)) == []
    document["runs"][0]["results"][0]["level"] = "fatal"
    assert list(check.iter_errors(document)), "the schema knows a wrong document"


@pytest.mark.parametrize("which", ["everything", "hostile"])
def test_junit_fits_the_published_schema(which: str) -> None:
    xmlschema = pytest.importorskip("xmlschema")
    path = SCHEMAS / "jenkins-junit.xsd"
    if not path.exists():
        pytest.skip("no schema here; `make schemas` fetches it")
    schema = xmlschema.XMLSchema(str(path))
    text = junit_xml(_everything() if which == "everything" else _hostile()).decode()
    schema.validate(text)
    assert not schema.is_valid(text.replace("<testcase ", "<testcase wrong='1' ", 1)), "the schema knows a wrong one"
