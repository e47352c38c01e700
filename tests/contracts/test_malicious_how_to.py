"""The malicious server on the page "Add a malicious server" is complete and works."""

from __future__ import annotations

import importlib.util
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import leakscope as ls
from leakscope.errors import UnsuitableError
from tiny import batch_of, dense

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "add-a-malicious-server.md"
FILES = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)


@pytest.fixture
def printed(tmp_path, monkeypatch):
    """The page's file, imported as the command line would."""
    assert len(FILES) == 1
    path = tmp_path / "openrow.py"
    path.write_text(FILES[0])
    spec = importlib.util.spec_from_file_location("openrow", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "openrow", module)
    spec.loader.exec_module(module)
    return module


def test_two_rounds_give_the_input_away(printed):
    result = ls.audit(dense(), [batch_of([0]), batch_of([2], seed=1)], printed.open_row())
    assert (result.rounds, result.server, str(result.status)) == (2, "malicious", "ok")
    assert result.scores.psnr.min() > 100


def test_both_rounds_are_used(printed):
    noise = ls.get_defence("gaussian-noise", sigma=0.003)
    victims = [batch_of([0], seed=place) for place in range(8)]

    class First(printed.OpenRow):
        def _reconstruct(self, seen, seed, watch):
            return super()._reconstruct(seen.earlier[0], seed, watch)

    class Last(printed.OpenRow):
        def _reconstruct(self, seen, seed, watch):
            return super()._reconstruct(replace(seen, earlier=()), seed, watch)

    both, first, last = (
        ls.audit(dense(), victims, one, defence=noise).scores.psnr for one in (printed.open_row(), First(), Last())
    )
    assert float((both - first).mean()) > 0.3
    assert float((both - last).mean()) > 0.3


def test_without_its_secret_it_reads_nothing(printed):
    class Forgets(printed.OpenRow):
        def _reconstruct(self, seen, seed, watch):
            wrong = [replace(one, secret=(one.secret + 1) % 24) for one in (*seen.earlier, seen)]
            return super()._reconstruct(replace(wrong[-1], earlier=tuple(wrong[:-1])), seed, watch)

    result = ls.audit(dense(), batch_of([0]), Forgets())
    assert not result.scores.psnr.max() > result.baseline_psnr.max() + 3


def test_a_network_it_cannot_use_is_refused(printed):
    model = ls.models.build("lenet-dlg", num_classes=10, in_channels=1, image_size=8, seed=0)
    with pytest.raises(UnsuitableError, match="first layer that is linear"):
        ls.audit(model, ls.data.load("digits", split="test", indices=[0]), printed.open_row())
