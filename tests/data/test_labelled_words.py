from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from data_folder import data_root, needs
from leakscope import data
from leakscope.data.labelled_words import open_labelled
from leakscope.errors import BadInputError, MissingDataError


def write_words(folder: Path, rows: list[tuple[str, str, tuple[int, int]]]) -> Path:
    """Pictures of a brightness of their own, (file, text, (width, height)), and their table."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, (file, _text, size) in enumerate(rows):
        Image.new("RGB", size, (10 * number, 20, 30)).save(folder / file)
    (folder / "labels.csv").write_text("".join(f"{file},{text}\n" for file, text, _ in rows), encoding="utf-8")
    return folder


WIDE = (200, 40)
ROWS = [
    ("kept.png", "Stop9", WIDE),
    ("two.png", "Of", WIDE),
    ("sign.png", "don't", WIDE),
    ("long.png", "A" * 13 + "B" * 13, (900, 32)),
    ("narrow.png", "CAFE", (99, 32)),
    ("just.png", "CAFE", (100, 32)),
    ("tall.png", "HOUSE", (110, 40)),
    ("umlaut.png", "CAFÉ", WIDE),
    ("last.png", "abcdefghijklmnopqrstuvwxy", (100, 32)),
    ("repeats.png", "AABBCCDDEEFFGGHHI", (100, 32)),
]


def test_words_that_count_are_those_of_the_published_test(tmp_path: Path) -> None:
    write_words(tmp_path / "iiit5k", ROWS)
    batch = data.load("iiit5k", root=tmp_path)
    # Upper case; AABB… has 17 letters of which 8 repeat, just 25 steps.
    assert data.decode_texts(batch.targets) == ["STOP9", "CAFE", "ABCDEFGHIJKLMNOPQRSTUVWXY", "AABBCCDDEEFFGGHHI"]
    assert batch.inputs.shape == (4, 3, 32, 100)
    assert (batch.inputs[:, 0, 0, 0] * 255).round().tolist() == [0, 50, 80, 90]
    assert torch.equal(data.load("iiit5k", root=tmp_path, split="all").targets, batch.targets)
    with pytest.raises(MissingDataError, match="for testing only"):
        data.load("iiit5k", root=tmp_path, split="train")


def test_a_text_without_an_alignment_does_not_count(tmp_path: Path) -> None:
    rows = [("fits.png", "AABBCCDDEEFFGGHHI", WIDE), ("not.png", "AABBCCDDEEFFGGHHII", WIDE)]
    assert len(open_labelled(write_words(tmp_path / "words", rows), "test")) == 1


def test_the_whole_picture_is_squeezed_and_nothing_is_cut(tmp_path: Path) -> None:
    write_words(tmp_path / "words", [("a.png", "WORD", (400, 64))])
    pixels = np.zeros((64, 400, 3), dtype=np.uint8)
    pixels[:, :200] = 255
    Image.fromarray(pixels).save(tmp_path / "words" / "a.png")
    batch = data.load(str(tmp_path / "words"))
    assert bool((batch.inputs[0, :, :, :49] == 1).all())
    assert bool((batch.inputs[0, :, :, 51:] == 0).all())


def test_a_folder_of_ones_own_with_a_table_holds_words(tmp_path: Path) -> None:
    folder = write_words(tmp_path / "signs", ROWS)
    facts = data.info(str(folder))
    assert facts.task == data.info("iiit5k").task
    assert (facts.num_classes, facts.image_size) == (37, (32, 100))
    assert len(data.load(str(folder))) == 4
    assert len(open_labelled(folder, "test", least_width=0)) == 6


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("a.png\n", "line 1: expected the name of a picture in this folder and its text"),
        ("a.png,WORD,3\n", "line 1"),
        ("../a.png,WORD\n", "line 1"),
        ("b.png,WORD\n", "b.png"),
        ("a.png,NO\n", "none of 1 words counts"),
        ("", "none of 0 words counts"),
    ],
)
def test_wrong_tables_are_bad_input(tmp_path: Path, table: str, message: str) -> None:
    write_words(tmp_path / "words", [("a.png", "WORD", WIDE)])
    (tmp_path / "words" / "labels.csv").write_text(table, encoding="utf-8")
    with pytest.raises(BadInputError, match=message):
        data.load(str(tmp_path / "words"))


@needs("iiit5k")
def test_the_words_of_iiit5k() -> None:
    batch = data.load("iiit5k", indices=range(5), root=data_root())
    assert data.decode_texts(batch.targets)[0] == "MISSION"
    assert 0.1 < float(batch.inputs.mean()) < 0.9
