from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from leakscope import data
from leakscope.errors import BadInputError, MissingDataError, UsageError


def paint(path: Path, *, size: tuple[int, int] = (6, 6), value: int = 100, mode: str = "RGB") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    colour = (value,) * 3 if mode == "RGB" else value
    Image.new(mode, size, colour).save(path)
    return path


def test_sub_folders_are_classes_in_order_of_their_names(tmp_path: Path) -> None:
    paint(tmp_path / "dog" / "a.png", value=255)
    paint(tmp_path / "cat" / "b.png", value=0)
    paint(tmp_path / "cat" / "a.jpg", value=0)
    (tmp_path / "empty").mkdir()
    (tmp_path / "cat" / "notes.txt").write_text("not a picture")
    batch = data.load(f"folder:{tmp_path}")
    assert batch.targets.tolist() == [0, 0, 1]
    assert batch.inputs.shape == (3, 3, 6, 6)
    assert float(batch.inputs[2].min()) == 1
    assert data.info(f"folder:{tmp_path}").num_classes == 2


def test_class_index_before_the_wordnet_id_is_the_label(tmp_path: Path) -> None:
    paint(tmp_path / "0007_n01514668_cock.JPEG")
    paint(tmp_path / "0123_n01985128_crayfish.JPEG")
    assert data.load(f"folder:{tmp_path}").targets.tolist() == [7, 123]


def test_own_pictures_are_all_of_class_zero(tmp_path: Path) -> None:
    paint(tmp_path / "2023_holiday.png")
    paint(tmp_path / "2024_holiday.png")
    assert data.load(f"folder:{tmp_path}").targets.tolist() == [0, 0]


def test_splits_are_folders_and_share_their_class_numbers(tmp_path: Path) -> None:
    for split, name in (("train", "ant"), ("train", "bee"), ("val", "bee")):
        paint(tmp_path / split / name / "a.png")
    assert data.load(f"folder:{tmp_path}", split="train").targets.tolist() == [0, 1]
    assert data.load(f"folder:{tmp_path}", split="test").targets.tolist() == [1]
    assert data.load(f"folder:{tmp_path}", split="all").targets.tolist() == [0, 1, 1]


def test_a_folder_without_splits_has_no_training_examples(tmp_path: Path) -> None:
    paint(tmp_path / "a.png")
    assert len(data.load(f"folder:{tmp_path}", split="all")) == 1
    with pytest.raises(MissingDataError, match="has no train sub-folder"):
        data.load(f"folder:{tmp_path}", split="train")


def test_tiny_imagenet_as_distributed(tmp_path: Path) -> None:
    home = tmp_path / "tiny-imagenet-200"
    paint(home / "train" / "n01" / "images" / "n01_0.JPEG", size=(64, 64))
    paint(home / "train" / "n02" / "images" / "n02_0.JPEG", size=(64, 64))
    paint(home / "val" / "images" / "val_0.JPEG", size=(64, 64))
    (home / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn02\t0\t0\t62\t62\n")
    assert data.load("tiny-imagenet", split="train", root=tmp_path).targets.tolist() == [0, 1]
    assert data.load("tiny-imagenet", root=tmp_path).targets.tolist() == [1]
    (home / "val" / "val_annotations.txt").write_text("../../secret.png\tn02\n")
    with pytest.raises(BadInputError, match=r"val_annotations.txt: expected lines"):
        data.load("tiny-imagenet", root=tmp_path)


def test_pictures_of_different_sizes_need_a_size(tmp_path: Path) -> None:
    paint(tmp_path / "a.png", size=(6, 6))
    paint(tmp_path / "b.png", size=(9, 5))
    with pytest.raises(UsageError, match=r"differ in size \(9×5, 6×6, …\); pass size"):
        data.load(f"folder:{tmp_path}")
    assert data.load(f"folder:{tmp_path}", size=4).inputs.shape == (2, 3, 4, 4)


def test_the_middle_is_kept_when_a_picture_is_cut(tmp_path: Path) -> None:
    pixels = np.zeros((4, 12, 3), np.uint8)
    pixels[:, 4:8] = 255
    Image.fromarray(pixels).save(tmp_path / "a.png")
    assert float(data.load(f"folder:{tmp_path}", size=4).inputs.min()) == 1
    # The height comes first: the whole picture fits into 4×12, and 12×4 shows a third of it.
    whole = data.load(f"folder:{tmp_path}", size=(4, 12)).inputs
    assert whole.shape == (1, 3, 4, 12)
    assert float(whole[..., :4].max()) == 0 == float(whole[..., 8:].max())
    assert data.load(f"folder:{tmp_path}", size=(12, 4)).inputs.shape == (1, 3, 12, 4)


def test_sideways_photographs_are_turned_upright(tmp_path: Path) -> None:
    picture = Image.new("RGB", (8, 4))
    exif = picture.getexif()
    exif[0x0112] = 6
    picture.save(tmp_path / "a.jpg", exif=exif)
    assert data.load(f"folder:{tmp_path}").inputs.shape == (1, 3, 8, 4)


@pytest.mark.parametrize(("mode", "value", "expected"), [("L", 51, 0.2), ("I;16", 13107, 0.2), ("1", 1, 1.0)])
def test_gray_pictures_become_three_equal_channels(tmp_path: Path, mode: str, value: int, expected: float) -> None:
    paint(tmp_path / "a.png", mode=mode, value=value)
    images = data.load(f"folder:{tmp_path}").inputs
    assert images.shape == (1, 3, 6, 6)
    assert images.unique().tolist() == pytest.approx([expected])


def test_transparent_palettes_are_read_without_a_warning(tmp_path: Path) -> None:
    picture = Image.new("P", (4, 4))
    picture.putpalette([10, 20, 30] * 256)
    picture.save(tmp_path / "a.png", transparency=bytes(range(256)))
    assert (data.load(f"folder:{tmp_path}").inputs[0, :, 0, 0] * 255).round().tolist() == [10, 20, 30]


def bomb(side: int) -> bytes:
    """Return a valid PNG header that declares side × side pixels."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.parametrize("side", [9_000, 10_000, 60_000])
def test_decompression_bombs_are_refused_by_their_header(tmp_path: Path, side: int) -> None:
    (tmp_path / "bomb.png").write_bytes(bomb(side))
    with pytest.raises(BadInputError, match=r"bomb.png: more than 64 million pixels"):
        data.load(f"folder:{tmp_path}")
    assert Image.MAX_IMAGE_PIXELS is not None


def test_programs_dressed_as_pictures_are_not_started(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n")
    with pytest.raises(BadInputError, match=r"a.png: not a readable picture"):
        data.load(f"folder:{tmp_path}")


def test_truncated_pictures_are_bad_input_at_every_length(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    for suffix in ("png", "jpg", "gif", "bmp", "webp"):
        path = tmp_path / f"a.{suffix}"
        Image.fromarray(noise).save(path)
        whole = path.read_bytes()
        for part in range(12):
            path.write_bytes(whole[: len(whole) * part // 16])
            with pytest.raises(BadInputError, match=f"a.{suffix}: not a readable picture"):
                data.load(f"folder:{tmp_path}")
        path.unlink()


def test_empty_and_absent_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="no pictures found"):
        data.load(f"folder:{tmp_path}")
    with pytest.raises(MissingDataError, match="is not a folder"):
        data.load(f"folder:{tmp_path}/absent")
