"""What the tables of AGIC compare, as specs of attacks, and their printed rows as numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from leakscope.reproduction import PaperNumber
from leakscope.reproduction.recipe import Tag

PUBLISHED_BETA = 50
# An attack that is cut off is a fact about the attack, for all methods after as many steps.
EXPECTED = {
    "unfinished": "all methods are compared after the same number of steps",
    "diverged": "an attack that gave up counts as what it had found after the same number of steps",
}


def weigh_layers(beta: float, *, modifier: bool, schedule: str, steps: int, tv: float | None = None) -> str:
    """AGIC with these layer weights; β = 1 without the modifier is the plain cosine of Inverting Gradients."""
    told = f"agic:beta={beta:g},relu_modifier={str(modifier).lower()},schedule={schedule},steps={steps}"
    return told if tv is None else f"{told},tv={tv:g}"


def attack_gradient(method: str, *, schedule: str, steps: int) -> str:
    """DLG-Adam, InvG or AGIC on one gradient; `schedule` is that of AGIC and InvG alike."""
    if method == "DLG-Adam":
        return f"dlg-adam:steps={steps}"
    if method == "AGIC":
        return weigh_layers(PUBLISHED_BETA, modifier=True, schedule=schedule, steps=steps)
    if schedule == "held":
        # The registry has no Inverting Gradients at a held rate; this is the same objective by the same optimiser.
        return weigh_layers(1, modifier=False, schedule=schedule, steps=steps)
    return f"inverting-gradients:layers=all,schedule={schedule},steps={steps}"


def attack_delta(method: str, *, schedule: str, steps: int) -> str:
    """The same on a delta of several local steps, which the older two simulate."""
    if method == "InvG":
        return f"inverting-gradients:replay=simulate,layers=all,schedule={schedule},steps={steps}"
    if method == "AGIC, one batch":
        return weigh_layers(1, modifier=False, schedule=schedule, steps=steps)
    return attack_gradient("AGIC" if method.startswith("AGIC") else method, schedule=schedule, steps=steps)


def print_quality(
    where: str, row: str, column: str, values: Sequence[float], *, tags: Mapping[str, Tag]
) -> Iterator[PaperNumber]:
    """PSNR, SSIM and LPIPS of one row of a table."""
    for name, value in zip(("psnr", "ssim", "lpips"), values, strict=True):
        unit = "dB" if name == "psnr" else ""
        yield PaperNumber(where, row, f"{column}, {name.upper()}", value, unit, metric=name, tags=tags)
