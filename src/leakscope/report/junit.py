"""A run as JUnit XML, which build servers show: a test case for the gate and one for every cell.

A failure is a leak above the gate, an error is a cell without evidence, skipped are cells that were refused or never
ran. Names, decibels and statuses are in it; pictures, labels and the name of the machine are not.
"""

from __future__ import annotations

import re
from datetime import datetime, timezone
from xml.etree import ElementTree

from leakscope.report.checks import Check, list_checks
from leakscope.report.schema import Summary

# Characters that no XML document may hold.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(summary: Summary) -> bytes:
    """The JUnit document of a run."""
    checks = list_checks(summary)
    root = ElementTree.Element("testsuites", name="leakscope")
    suite = ElementTree.SubElement(
        root,
        "testsuite",
        name=_clean(summary.title) or "leakscope",
        tests=str(len(checks)),
        failures=_count(checks, "leak"),
        errors=_count(checks, "no-evidence"),
        skipped=_count(checks, "skipped"),
        time=f"{sum(check.seconds for check in checks):.3f}",
        timestamp=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S"),
        hostname="localhost",
        id="0",
        package="leakscope",
    )
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in (("leakscope", summary.leakscope), ("gate in dB", f"{summary.threshold_psnr:g}")):
        ElementTree.SubElement(properties, "property", name=name, value=_clean(value))
    for check in checks:
        _add(suite, check)
    ElementTree.indent(root, " ")
    return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)


def _count(checks: list[Check], ending: str) -> str:
    return str(sum(check.ending == ending for check in checks))


def _add(suite: ElementTree.Element, check: Check) -> None:
    case = ElementTree.SubElement(
        suite, "testcase", classname=_clean(check.group), name=_clean(check.name), time=f"{check.seconds:.3f}"
    )
    text = _clean(check.text)
    if check.ending == "leak":
        ElementTree.SubElement(case, "failure", type="leak", message=text).text = text
    elif check.ending == "no-evidence":
        ElementTree.SubElement(case, "error", type=_clean(check.status), message=text).text = text
    elif check.ending == "skipped":
        ElementTree.SubElement(case, "skipped").text = f"{_clean(check.status)}: {text}"
    else:
        ElementTree.SubElement(case, "system-out").text = text


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("�", text)
