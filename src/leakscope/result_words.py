"""An audit's result in one line, and as a small table for notebooks; no tensor is printed."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leakscope.results import AuditResult, Scores

_SHOWN = ("psnr", "ssim", "lpips", "columns_recovered", "token_recall", "token_precision", "target_recall")


def result_line(result: AuditResult) -> str:
    """One line: what was attacked, how it ended, and how close the closest example came."""
    parts = [result.attack, f"against {_defence(result)}", f"scenario {result.scenario}", f"seed {result.seed}"]
    return f"AuditResult({', '.join(parts)}: {result.status}, {_figures(result)})"


def result_table(result: AuditResult) -> str:
    """The result as HTML: one line per example. Names are escaped."""
    heads = ["example"]
    columns: list[list[str]] = []
    if result.scores is not None:
        metrics = [name for name in _SHOWN if name in result.scores.metrics]
        columns = [[f"{value:.2f}" for value in result.scores[name].tolist()] for name in metrics]
        heads += metrics
        heads += result.baselines
        columns += [[f"{value:.2f}" for value in values.tolist()] for values in result.baselines.values()]
        if result.baseline_psnr is not None:
            best = result.baseline_psnr
            heads += ["best without the update", "gain"]
            columns += [[f"{value:.2f}" for value in values.tolist()] for values in (best, result.scores.psnr - best)]
        heads.append("label")
        columns.append(["right" if right else "wrong" for right in result.scores.label_correct.tolist()])
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    rows = [
        f"<tr><td>{place}</td>{''.join(f'<td>{escape(value)}</td>' for value in values)}</tr>"
        for place, values in enumerate(zip(*columns, strict=True))
    ]
    body = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>" if rows else ""
    notes = "".join(f"<li>{escape(note)}</li>" for note in result.notes)
    title = f"<p><b>{escape(result.attack)}</b> against {escape(_defence(result))}: {escape(str(result.status))}</p>"
    return f"<div>{title}{body}{f'<ul>{notes}</ul>' if notes else ''}</div>"


def _defence(result: AuditResult) -> str:
    name = "no defence" if result.defence == "none" else result.defence
    seen = f"{name}, seen by {result.viewer}" if result.viewer else name
    return f"{seen} (known to the attacker)" if result.adaptive else seen


def _figures(result: AuditResult) -> str:
    scores = result.scores
    if scores is None or len(scores) == 0:
        return "no score"
    count = len(scores)
    reached = _reached(scores)
    return f"{reached}{' on ' if reached else ''}{count} {'example' if count == 1 else 'examples'}"


def _reached(scores: Scores) -> str:
    """How close the closest example came, in what was measured of it."""
    if "psnr" in scores.metrics:
        return f"up to {float(scores.psnr.max()):.1f} dB"
    if "token_recall" not in scores.metrics:
        return ""
    recall, precision = (100 * float(scores[name].max()) for name in ("token_recall", "token_precision"))
    return f"up to {recall:.0f} % of the tokens at a precision of {precision:.0f} %"
