"""What a notebook and a prompt show of a result: short, escaped, no tensors."""

from __future__ import annotations

from dataclasses import replace

import torch

from leakscope.types import AuditResult, Scores, Status

SCORES = Scores(
    metrics={"psnr": torch.tensor([12.0, 31.25]), "ssim": torch.tensor([0.1, 0.9])},
    label_correct=torch.tensor([True, False]),
    assignment=torch.tensor([0, 1]),
)
RESULT = AuditResult(
    attack="idlg",
    defence="none",
    scenario="C",
    seed=3,
    status=Status.OK,
    scores=SCORES,
    baseline_psnr=torch.tensor([11.0, 10.5]),
    baselines={"blind guess": torch.tensor([11.0, 9.25]), "prior alone": torch.tensor([8.0, 10.5])},
    reconstruction=torch.rand(2, 3, 32, 32),
    truth=torch.rand(2, 3, 32, 32),
    notes=("<script>alert(1)</script>",),
)


def test_the_line_is_short_and_says_what_matters():
    assert repr(RESULT) == "AuditResult(idlg, against no defence, scenario C, seed 3: ok, up to 31.2 dB on 2 examples)"
    knowing = replace(RESULT, defence="prune", adaptive=True, scores=None, status=Status.TIMEOUT)
    assert "prune (known to the attacker)" in repr(knowing)
    assert "timeout, no score" in repr(knowing)


def test_the_table_has_a_line_per_example_and_no_markup_of_others():
    html = RESULT._repr_html_()
    assert html.count("<tr>") == 3
    heads = ("psnr", "ssim", "blind guess", "prior alone", "best without the update", "gain", "label")
    assert "".join(f"<th>{head}</th>" for head in heads) in html
    values = ("31.25", "0.90", "9.25", "10.50", "10.50", "20.75", "wrong")
    assert "".join(f"<td>{value}</td>" for value in values) in html
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "tensor" not in html
    assert len(html) < 2_000


def test_without_scores_there_is_no_table():
    html = replace(RESULT, scores=None, attack="<b>")._repr_html_()
    assert "<table>" not in html
    assert "&lt;b&gt;" in html


def test_a_result_of_tokens_has_a_line_and_a_table():
    found = Scores({"token_recall": torch.tensor([0.5, 1.0])}, SCORES.label_correct, SCORES.assignment)
    tokens = replace(RESULT, scores=found, baseline_psnr=None, baselines={"random tokens": torch.tensor([0.01, 0.02])})
    assert repr(tokens).endswith("up to 100 % of the tokens on 2 examples)")
    assert "<th>token_recall</th><th>random tokens</th><th>label</th>" in tokens._repr_html_()
    assert "<td>0.50</td><td>0.01</td><td>right</td>" in tokens._repr_html_()
