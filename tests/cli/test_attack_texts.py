"""`leakscope attack` on updates of texts: recall and precision are printed, which tokens only on request."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

import leakscope as ls

Command = Callable[..., tuple[int, str, str]]
WORDS, LENGTH = 50, 6

MODULE = """
import torch
from torch import nn

class Words(nn.Module):
    def __init__(self, everywhere):
        super().__init__()
        self.word = nn.Embedding(50, 16)
        self.head = nn.Linear(16, 50 if everywhere else 3)
        self.everywhere = everywhere

    def forward(self, ids):
        hidden = torch.tanh(self.word(ids))
        return self.head(hidden if self.everywhere else hidden.mean(1))

def classify():
    torch.manual_seed(0)
    return Words(False)

def predict():
    torch.manual_seed(0)
    return Words(True)

def texts():
    return torch.tensor([[3, 4, 5, 6, 7, 8]]), torch.tensor([1])
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "textnet", raising=False)
    (tmp_path / "textnet.py").write_text(MODULE)
    return tmp_path


def _save(here: Path, kind: str, count: int = 2) -> torch.Tensor:
    """One update and its truth; the private tokens, which are above 9 so that no other number is taken for one."""
    import textnet  # type: ignore[import-not-found]

    ids = torch.randint(10, WORDS, (count, LENGTH + 1), generator=torch.Generator().manual_seed(count))
    targets = ids[:, 1:].clone() if kind == "predict" else torch.arange(count) % 3
    batch = ls.Batch(ids[:, :-1].clone(), targets)
    update = ls.share(getattr(textnet, kind)(), batch, seed=0)
    assert isinstance(update, ls.SharedUpdate)
    ls.save_update(here / "u.safetensors", update)
    np.savez(here / "truth.npz", inputs=batch.inputs.numpy(), targets=batch.targets.numpy())
    return batch.inputs.unique()


def _attack(command: Command, kind: str, *words: str, update: str = "u.safetensors") -> tuple[int, str, str]:
    given = ("--model", f"textnet:{kind}", "--input-shape", str(LENGTH), "--attack", "embedding-tokens", "--out", "out")
    return command("attack", update, *given, *words)


@pytest.mark.parametrize("scenario", ["A", "C", "E"])
@pytest.mark.parametrize("kind", ["classify", "predict"])
def test_recall_and_precision_are_printed_and_no_token(command: Command, here: Path, kind: str, scenario: str) -> None:
    private = _save(here, kind)
    code, out, err = _attack(command, kind, "--truth", "truth.npz", "--scenario", scenario)
    assert (code, err) == (0, "")
    assert f"{len(private)} different tokens found, out of {WORDS}" in out
    assert "100 % of the tokens of the worst text, precision 100 %" in out
    assert "as many drawn blindly" in out
    result = json.loads((here / "out" / "result.json").read_text())
    assert result["tokens"]["found"] == len(private)
    assert "ids" not in result["tokens"]
    assert result["scores"]["token_recall"] == [1.0, 1.0]
    # The pictures of an attack are files of its folder, and so are tokens.
    found = safetensors.torch.load_file(here / "out" / "inputs.safetensors")["tokens"]
    assert found.tolist() == private.tolist()
    page = (here / "out" / "report.html").read_text()
    assert "Updates give away tokens of private texts" in page
    assert "none is needed" not in page
    assert "could not be scored" not in page
    assert "Give the true examples" not in page
    listed = ", ".join(map(str, private.tolist()))
    assert all(listed not in text for text in (out, page, (here / "out" / "result.json").read_text()))
    assert not (kind == "predict" and result["labels"])


def test_tokens_are_shown_on_request(command: Command, here: Path) -> None:
    private = _save(here, "classify")
    _, out, _ = _attack(command, "classify", "--truth", "truth.npz", "--show-images")
    assert f"tokens: {', '.join(map(str, private.tolist()))}" in out
    assert json.loads((here / "out" / "result.json").read_text())["tokens"]["ids"] == private.tolist()


def test_without_truth_the_number_of_tokens_is_told(command: Command, here: Path) -> None:
    private = _save(here, "predict")
    code, out, _ = _attack(command, "predict")
    assert code == 0
    assert f"{len(private)} different tokens found" in out
    assert "precision" not in out
    page = (here / "out" / "report.html").read_text()
    assert "No true examples were given" in page


def test_a_folder_and_a_function_work_as_well(command: Command, here: Path) -> None:
    import textnet  # type: ignore[import-not-found]

    (here / "updates").mkdir()
    update = ls.share(textnet.classify(), ls.Batch(*textnet.texts()), seed=0)
    assert isinstance(update, ls.SharedUpdate)
    ls.save_update(here / "updates" / "a.safetensors", update)
    code, out, err = _attack(command, "classify", "--truth", "textnet:texts", update="updates")
    assert (code, err) == (0, "")
    assert "precision 100 %" in out


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"inputs": np.full((2, LENGTH), 0.5), "targets": np.array([0, 1])}, "texts as whole numbers"),
        ({"inputs": np.full((2, LENGTH), WORDS), "targets": np.array([0, 1])}, "tokens must lie in 0…49"),
        ({"inputs": np.ones((2, 2, LENGTH), dtype=int), "targets": np.array([0, 1])}, "texts as whole numbers"),
    ],
)
def test_a_truth_that_holds_no_such_texts_is_a_bad_file(command: Command, here: Path, arrays: dict, said: str) -> None:
    _save(here, "classify")
    np.savez(here / "truth.npz", **arrays)
    code, _, err = _attack(command, "classify", "--truth", "truth.npz")
    assert code == 4
    assert said in err


@pytest.mark.parametrize("words", [("--bounds", "0,1"), ("--fail-above", "20", "--truth", "truth.npz")])
def test_options_of_pictures_have_no_effect_on_texts(command: Command, here: Path, words: tuple[str, ...]) -> None:
    _save(here, "classify")
    code, _, err = _attack(command, "classify", *words)
    assert code == 2
    assert f"{words[0]} has no effect" in err


def test_an_audit_in_a_scenario_without_batch_size_keeps_the_set(here: Path) -> None:
    import textnet  # type: ignore[import-not-found]

    ids = torch.randint(10, WORDS, (3, LENGTH), generator=torch.Generator().manual_seed(0))
    result = ls.audit(textnet.classify(), ls.Batch(ids, torch.tensor([0, 1, 2])), "embedding-tokens", scenario="E")
    assert result.scores is not None
    assert result.scores["token_recall"].tolist() == [1.0] * 3
