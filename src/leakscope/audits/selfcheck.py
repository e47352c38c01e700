"""Known-answer attacks that must succeed before any other result is believed."""

from __future__ import annotations

from leakscope import data, models
from leakscope.audits.audit import audit
from leakscope.errors import InconclusiveError
from leakscope.report import SelfCheck
from leakscope.types import Status

# A closed form is exact up to rounding; an optimiser on an easy problem must get near.
CANARIES = (("fc-inversion", 40.0), ("inverting-gradients:steps=150", 25.0))


def self_check() -> SelfCheck:
    """Rebuild a planted image in closed form and by optimisation; report the weaker of the two."""
    model = models.build("mlp", num_classes=10, in_channels=1, image_size=8, hidden=[64], activation="sigmoid", seed=7)
    planted = data.load("digits", split="test", indices=[3])
    rows = []
    for spec, least in CANARIES:
        result = audit(model, planted, spec, scenario="C", seed=7)
        psnr = float(result.scores.psnr.min()) if result.scores is not None else 0.0
        passed = result.status is Status.OK and psnr >= least
        name = f"{spec.split(':')[0]} on a planted image"
        rows.append((psnr - least, SelfCheck(name=name, psnr=psnr, passed=passed)))
    return min(rows, key=lambda row: row[0])[1]


def require_self_check() -> SelfCheck:
    """As `self_check`, but refuse to go on when the instrument is broken."""
    found = self_check()
    if not found.passed:
        raise InconclusiveError(
            f"the self-check failed: {found.name} reached only {found.psnr or 0.0:.1f} dB where it must succeed; "
            "no result of this installation can be trusted, run `leakscope doctor`"
        )
    return found
