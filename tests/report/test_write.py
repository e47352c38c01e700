from __future__ import annotations

import json
import os

import pytest
import torch
from report_summaries import images_for, render, summary
from safetensors.torch import save_file

from leakscope.errors import BadInputError, StorageError
from leakscope.report import write_report
from leakscope.report.gallery import CellImages


@pytest.fixture
def run(tmp_path):
    content = summary(seeds=1, victims=2)
    (tmp_path / "summary.json").write_text(json.dumps(content))
    (tmp_path / "cells").mkdir()
    for key, (truth, reconstruction) in images_for(content, side=8).items():
        save_file({"truth": truth, "reconstruction": reconstruction}, tmp_path / "cells" / f"{key}.safetensors")
    return tmp_path


def first_cell(run):
    return sorted((run / "cells").iterdir())[0]


def test_without_images_by_default(run):
    path = write_report(run)
    assert path == run / "report.html"
    assert path.read_text(encoding="utf-8") == render(
        json.loads((run / "summary.json").read_text()), None, show_images=False
    )


def test_images_come_from_the_cells(run):
    page = write_report(run, show_images=True).read_text(encoding="utf-8")
    content = json.loads((run / "summary.json").read_text())
    assert page == render(content, images_for(content, side=8), show_images=True)
    assert "data:image/png" in page


def test_cells_without_a_file_are_counted(run):
    for path in (run / "cells").iterdir():
        path.unlink()
    assert "without stored pictures" in write_report(run, show_images=True).read_text(encoding="utf-8")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"schema": 1}', "\x00", "[" * 100_000])
def test_a_broken_summary_is_refused_and_the_old_report_stays(run, text):
    (run / "report.html").write_text("old")
    (run / "summary.json").write_text(text)
    with pytest.raises(BadInputError):
        write_report(run)
    assert (run / "report.html").read_text() == "old"


def test_a_missing_summary_is_named(tmp_path):
    with pytest.raises(BadInputError, match=r"summary\.json"):
        write_report(tmp_path)


def test_a_truncated_cell_is_named(run):
    path = first_cell(run)
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(BadInputError, match=path.name):
        CellImages(run / "cells")[path.stem]


def test_a_cell_that_kept_no_images_is_counted(run):
    for path in (run / "cells").iterdir():
        save_file({}, path)
    assert "without stored pictures" in write_report(run, show_images=True).read_text(encoding="utf-8")


def test_a_cell_without_reconstruction_is_named(run):
    path = first_cell(run)
    save_file({"truth": torch.zeros(1, 1, 2, 2)}, path)
    with pytest.raises(BadInputError, match="reconstruction"):
        CellImages(run / "cells")[path.stem]


@pytest.mark.parametrize("key", ["../summary", "/etc/passwd", "a\x00", "AB", "", "a" * 200])
def test_a_key_cannot_leave_the_directory(run, key):
    with pytest.raises(BadInputError, match="hex"):
        CellImages(run / "cells")[key]


def test_a_link_is_not_followed(run):
    (run / "cells" / "abc.safetensors").symlink_to(first_cell(run))
    with pytest.raises(BadInputError, match="symbolic link"):
        CellImages(run / "cells")["abc"]


def test_cell_images_list_their_keys(run):
    (run / "cells" / "notes.txt").write_text("x")
    images = CellImages(run / "cells")
    assert len(images) == len(list(images)) == len(json.loads((run / "summary.json").read_text())["cells"])


def test_a_failed_write_leaves_the_old_report_and_no_rest(run, monkeypatch):
    (run / "report.html").write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="disk is full"):
        write_report(run)
    assert (run / "report.html").read_text() == "old"
    assert not list(run.glob("*.tmp")) + list(run.glob(".*.tmp"))
