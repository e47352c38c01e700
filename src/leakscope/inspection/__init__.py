"""What a client checks in a received model before it trains on it, one detector per file."""

from __future__ import annotations

from leakscope.inspection.detector import Detector
from leakscope.inspection.examine import DETECTORS, Inspection, check_tensors, examine, inspect
from leakscope.inspection.finding import Finding, Measured, Severity
from leakscope.inspection.fingerprint import fingerprint, structure_hash
from leakscope.inspection.received import Received, receive
from leakscope.inspection.thresholds import calibration

__all__ = [
    "DETECTORS",
    "Detector",
    "Finding",
    "Inspection",
    "Measured",
    "Received",
    "Severity",
    "calibration",
    "check_tensors",
    "examine",
    "fingerprint",
    "inspect",
    "receive",
    "structure_hash",
]
