"""What an attack gets out of one update, measured by the client that is about to send it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from leakscope.attack import Attack
from leakscope.errors import LeakscopeError
from leakscope.metrics import score
from leakscope.types import Batch, Observation, Reconstruction, Status


class _OutOfTimeError(BaseException):
    """Not an `Exception`: whoever catches those on the way must not catch this."""


@dataclass(frozen=True)
class OwnLeakage:
    """What came back of the client's own examples.

    Attributes:
        attack: name of the attack.
        status: judged with the truth; only `ok` is evidence that an update is safe.
        worst_psnr: of the example that came back best, in dB; None where nothing came back that can be compared so.
        explained: the share of the update that the result explains.
        reason: why there is no result, in words.
    """

    attack: str
    status: Status
    worst_psnr: float | None = None
    explained: float | None = None
    reason: str = ""


def measure_own_update(attack: Attack, seen: Observation, truth: Batch, *, seconds: float, seed: int = 0) -> OwnLeakage:
    """Attack an update whose examples are at hand, for at most so many seconds, and score the result.

    The time is checked at every step of the attack, so that this also works beside the main thread; a closed form has
    no steps and runs to its end.
    """
    try:
        # The client made this update itself: its description is right.
        found = attack.reconstruct(seen, seed, watch=_clock(seconds), diagnosing=False)
    except _OutOfTimeError:
        return OwnLeakage(attack.name, Status.TIMEOUT, reason=f"no result within {seconds:g} s")
    except LeakscopeError as error:
        return OwnLeakage(attack.name, Status.REFUSED, reason=str(error))
    judged = attack.judge(seen, found, (truth,))
    return OwnLeakage(
        attack.name,
        judged.status,
        _worst_psnr(judged, truth),
        None if judged.fit is None else judged.fit.explained,
        "" if judged.status is Status.OK else f"the attack ended {judged.status}",
    )


def _worst_psnr(found: Reconstruction, truth: Batch) -> float | None:
    scores = score(found, truth)
    return float(scores.psnr.max()) if "psnr" in scores.metrics else None


def _clock(seconds: float) -> Callable[[int, Tensor, Tensor], None]:
    end = time.monotonic() + seconds

    def watch(_step: int, _inputs: Tensor, _distances: Tensor) -> None:
        if time.monotonic() > end:
            raise _OutOfTimeError

    return watch
