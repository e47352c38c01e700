"""The one answer: which half decides, and what it says to a program."""

from __future__ import annotations

from types import MappingProxyType

import pytest

from leakscope.audits.may_train import advise_training
from leakscope.audits.passive import PassiveRisk, Rebuilt
from leakscope.inspection import Finding, Inspection, Measured, Severity
from leakscope.types import Status

FINDING = Finding("zeros", Severity.CRITICAL, "share", 0.5, (Measured("share", 0.9, "fc.weight"),), "…", "…")


def inspection(*findings: Finding) -> Inspection:
    return Inspection(findings, {}, {}, MappingProxyType({}), "f", "s")


def risk(*rebuilt: Rebuilt) -> PassiveRisk:
    return PassiveRisk(1, 1.0, rebuilt, ())


NEAR_COPY = Rebuilt("fc-inversion", Status.OK, "F", 5, 60.0, 12.0)
FAINT = Rebuilt("inverting-gradients", Status.OK, "B", 1, 14.0, 12.0)
SHORT = Rebuilt("inverting-gradients", Status.UNFINISHED, "A", 0, 12.0, 12.0)


@pytest.mark.parametrize(
    ("findings", "found", "gate", "word", "code"),
    [
        ((FINDING,), None, None, "no", 1),
        ((FINDING,), risk(FAINT), None, "no", 1),
        ((), risk(NEAR_COPY, FAINT), None, "only with a defence", 0),
        ((), risk(NEAR_COPY, SHORT), None, "only with a defence", 0),
        ((), risk(NEAR_COPY), 30.0, "only with a defence", 1),
        ((), risk(FAINT), 13.0, "only with a defence", 1),
        ((), risk(FAINT), 14.0, "yes", 0),
        ((), risk(FAINT), None, "yes", 0),
        ((), risk(FAINT, SHORT), None, "not known", 3),
        ((), risk(), None, "not known", 3),
        ((), None, None, "yes", 0),
    ],
)
def test_a_finding_decides_then_a_leak_then_whether_anything_is_known(findings, found, gate, word, code):
    advice = advise_training(inspection(*findings), found, has_examples=True, fail_above=gate)
    assert (advice.word, advice.exit_code) == (word, code)


def test_without_examples_nothing_is_called_safe():
    advice = advise_training(inspection(), None, has_examples=False)
    assert (advice.word, advice.exit_code) == ("weights only", 0)
    assert "--batch" in advice.line


def test_the_line_names_the_attack_the_grade_and_what_is_reached_without_the_update():
    line = advise_training(inspection(), risk(NEAR_COPY), has_examples=True).line
    assert "fc-inversion on an update of 1 example: grade F, 60.0 dB, 12.0 dB without the update" in line
