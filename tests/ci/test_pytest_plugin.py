from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from leakscope.audits import audit as audit_module
from leakscope.errors import UsageError
from leakscope.pytest_plugin import LeakageError, LeakageInconclusiveError, check_leakage_below
from leakscope.results import AuditResult, Scores, Status
from tiny import batch_of, dense

pytest_plugins = ["pytester"]
ROOT = Path(__file__).parents[2]
_HEAD = """
import torch
from leakscope import Batch

def build():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 16), torch.nn.Sigmoid(), torch.nn.Linear(16, 10))

def batch():
    return Batch(torch.rand(1, 1, 8, 8, generator=torch.Generator().manual_seed(1)), torch.tensor([3]))
"""


def test_a_leaking_network_fails_a_sealed_limit_passes_and_a_weak_attack_is_inconclusive(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        _HEAD
        + """
def test_leak(assert_leakage_below):
    assert_leakage_below(build(), batch(), psnr=30, attack="fc-inversion")

def test_within(assert_leakage_below):
    found = assert_leakage_below(build(), batch(), psnr=1000, attack="fc-inversion", seed=1)
    assert len(found) == 1 and found[0].attack == "fc-inversion"

def test_inconclusive(assert_leakage_below):
    assert_leakage_below(build(), batch(), psnr=1000, attack="adam-l1:steps=5", scenario="C")
"""
    )
    # The installed package brings the fixture by its entry point; naming the plugin as well would register it twice.
    done = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-rf")
    done.assert_outcomes(passed=1, failed=2)
    done.stdout.fnmatch_lines(
        [
            "*LeakageError: leakage above 30 dB: fc-inversion against none reached * dB (scenario C, seed 0, *",
            "*LeakageInconclusiveError: inconclusive, so nothing is known about 1000 dB: refused: *needs the labels*",
        ]
    )


def test_the_entry_point_is_declared() -> None:
    declared = '[project.entry-points.pytest11]\nleakscope = "leakscope.pytest_plugin"\n'
    assert declared in (ROOT / "pyproject.toml").read_text()


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.OK])
def test_only_ok_is_evidence(monkeypatch: pytest.MonkeyPatch, status: Status) -> None:
    _pretend(monkeypatch, status=status, psnr=[5.0])
    with pytest.raises(LeakageInconclusiveError, match=f"status {status}"):
        check_leakage_below(dense(), batch_of([1]), psnr=20)


@pytest.mark.parametrize("status", list(Status))
def test_what_came_back_leaks_whatever_the_status(monkeypatch: pytest.MonkeyPatch, status: Status) -> None:
    _pretend(monkeypatch, status=status, psnr=[math.nan, 20.1])
    with pytest.raises(LeakageError, match=r"leakage above 20 dB.*20\.1 dB"):
        check_leakage_below(dense(), batch_of([1]), psnr=20)


def test_a_score_that_is_no_number_is_no_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    _pretend(monkeypatch, status=Status.OK, psnr=[math.nan, 5.0])
    with pytest.raises(LeakageInconclusiveError):
        check_leakage_below(dense(), batch_of([1]), psnr=20)
    _pretend(monkeypatch, status=Status.OK, psnr=None)
    with pytest.raises(LeakageInconclusiveError, match="no score"):
        check_leakage_below(dense(), batch_of([1]), psnr=20)


def test_every_attack_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    _pretend(monkeypatch, status=Status.OK, psnr=[5.0], also=[25.0])
    with pytest.raises(LeakageError):
        check_leakage_below(dense(), batch_of([1]), psnr=20)
    _pretend(monkeypatch, status=Status.OK, psnr=[20.0], also=[19.0])
    assert len(check_leakage_below(dense(), batch_of([1]), psnr=20, attack=["dlg", "idlg"])) == 4


@pytest.mark.parametrize("psnr", [math.nan, math.inf, -math.inf])
def test_a_limit_that_is_no_number_is_refused(psnr: float) -> None:
    with pytest.raises(UsageError, match="finite"):
        check_leakage_below(dense(), batch_of([1]), psnr=psnr)
    with pytest.raises(UsageError, match="no attack"):
        check_leakage_below(dense(), batch_of([1]), psnr=20, attack=[])


def _pretend(
    monkeypatch: pytest.MonkeyPatch, *, status: Status, psnr: list[float] | None, also: list[float] | None = None
) -> None:
    """Attacks that come to what a test says."""

    def result(values: list[float] | None) -> AuditResult:
        if values is None:
            return AuditResult("dlg", "none", "C", 0, status, None)
        places = torch.arange(len(values))
        scores = Scores({"psnr": torch.tensor(values)}, label_correct=places >= 0, assignment=places)
        return AuditResult("dlg", "none", "C", 0, status, scores)

    def audit(*_: object, **__: object) -> AuditResult:
        return replace(result(psnr), also=() if also is None else (result(also),))

    monkeypatch.setattr(audit_module, "audit", audit)
