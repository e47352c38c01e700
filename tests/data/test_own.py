"""Data of the user's own: files, folders and functions, opened as a named set is, or refused in one line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from leakscope import data
from leakscope.data.load import open_set
from leakscope.errors import BadInputError, LeakscopeError, MissingDataError, UsageError

PICTURES = np.random.default_rng(0).integers(0, 256, (6, 4, 5, 3), dtype=np.uint8)
LABELS = np.array([0, 1, 2, 0, 1, 3])
ROWS = np.random.default_rng(1).random((6, 7)).astype(np.float32)

MODULE = """
import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from leakscope import Batch

CALLS = []
PICTURES = torch.arange(6 * 48, dtype=torch.float32).reshape(6, 3, 4, 4) / 300
LABELS = torch.tensor([0, 1, 2, 0, 1, 4])

class Items(Dataset):
    def __init__(self, change=lambda position, item: item, length=6):
        self.change, self.length = change, length

    def __len__(self):
        return self.length

    def __getitem__(self, position):
        return self.change(position, (PICTURES[position], int(LABELS[position])))

class Stream(IterableDataset):
    def __iter__(self):
        yield PICTURES[0], 0

def pair():
    CALLS.append("pair")
    return PICTURES, LABELS

def arrays():
    return (PICTURES.permute(0, 2, 3, 1).numpy() * 255).astype(np.uint8), LABELS.numpy()

def batch():
    return Batch(PICTURES * 4 - 2, LABELS, bounds=None)

def dataset():
    return Items()

def tensors():
    return TensorDataset(PICTURES, LABELS)

def both():
    return {"train": (PICTURES[:4], LABELS[:4]), "test": (PICTURES[4:], LABELS[4:])}

def raises():
    raise KeyError("no such table")

def needs(count):
    return count

def text():
    return "inputs"

def odd_keys():
    return {"validation": pair()}

def triple():
    return PICTURES, LABELS, LABELS

def wide():
    return PICTURES * 300, LABELS

def nan():
    return PICTURES * float("nan"), LABELS

def integers():
    return (PICTURES * 100).long(), LABELS

def float_labels():
    return PICTURES, LABELS.float()

def few_labels():
    return PICTURES, LABELS[:5]

def negative_labels():
    return PICTURES, LABELS - 1

def huge_labels():
    return PICTURES, LABELS + 10**9

def objects():
    return np.array([object()] * 6), LABELS.numpy()

def stream():
    return Stream()

def empty():
    return Items(length=0)

def item_raises():
    return Items(lambda position, item: item if position < 3 else 1 / 0)

def item_alone():
    return Items(lambda position, item: item[0])

def item_list():
    return Items(lambda position, item: ([1.0], item[1]))

def item_shapes():
    return Items(lambda position, item: (item[0][:, position // 5 :], item[1]))

def item_range():
    return Items(lambda position, item: (item[0] * (1 + 4 * (position == 5)), item[1]))

def item_label():
    return Items(lambda position, item: (item[0], 0.5 if position == 2 else 1))

def item_flag():
    return Items(lambda position, item: (item[0], True))

def item_huge_label():
    return Items(lambda position, item: (item[0], 10**30))

def item_random():
    return Items(lambda position, item: (torch.rand(3, 4, 4), item[1]))
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "owndata", raising=False)
    (tmp_path / "owndata.py").write_text(MODULE)
    return tmp_path


def save(folder: Path, **arrays: np.ndarray) -> str:
    path = folder / "mine.npz"
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return str(path)


@pytest.mark.parametrize("names", [("inputs", "targets"), ("x", "y"), ("images", "labels")])
def test_a_file_of_pictures_by_any_names(tmp_path: Path, names: tuple[str, str]) -> None:
    path = save(tmp_path, **{names[0]: PICTURES, names[1]: LABELS, "notes": np.zeros(3)})
    batch = data.load(path)
    assert (batch.inputs * 255).round().byte().permute(0, 2, 3, 1).numpy().tobytes() == PICTURES.tobytes()
    assert batch.targets.tolist() == LABELS.tolist()
    assert data.load(path, indices=[5]).targets.tolist() == [3], "as they lie in the file, none set apart"
    assert torch.equal(data.load(path, split="all").inputs, batch.inputs)
    facts = data.info(path)
    assert (facts.num_classes, facts.channels, facts.image_size, facts.input_shape) == (4, 3, (4, 5), (3, 4, 5))


@pytest.mark.parametrize(
    "pictures",
    [PICTURES.transpose(0, 3, 1, 2), (PICTURES / 255).astype(np.float32), (PICTURES / 255).transpose(0, 3, 1, 2)],
)
def test_floats_and_channels_first_are_the_same_pictures(tmp_path: Path, pictures: np.ndarray) -> None:
    batch = data.load(save(tmp_path, x=np.ascontiguousarray(pictures), y=LABELS))
    expected = torch.from_numpy(PICTURES).permute(0, 3, 1, 2) / 255
    assert torch.allclose(batch.inputs, expected, atol=1e-6)


def test_grey_pictures_get_a_channel(tmp_path: Path) -> None:
    assert data.load(save(tmp_path, x=PICTURES[..., 0], y=LABELS)).inputs.shape == (6, 1, 4, 5)


def test_rows_stay_rows(tmp_path: Path) -> None:
    path = save(tmp_path, x=ROWS, y=LABELS)
    assert torch.equal(data.load(path).inputs, torch.from_numpy(ROWS))
    assert data.info(path).input_shape == (7,)
    assert data.info(path).channels == 0


def test_splits_of_a_file(tmp_path: Path) -> None:
    path = save(tmp_path, x_train=ROWS[:4], y_train=LABELS[:4], x_test=ROWS[4:], y_test=LABELS[4:])
    assert [len(data.load(path, split=split)) for split in ("train", "test", "all")] == [4, 2, 6]
    assert data.info(path).num_classes == 4
    with pytest.raises(MissingDataError, match=r"has no train part.*use split='test'"):
        data.load(save(tmp_path, x=ROWS, y=LABELS), split="train")


@pytest.mark.parametrize(("text", "bounds"), [("none", None), ("-9,9", (-9.0, 9.0))])
def test_bounds_are_carried_along(tmp_path: Path, text: str, bounds: tuple[float, float] | None) -> None:
    path = save(tmp_path, x=ROWS * 16 - 8, y=LABELS)
    with pytest.raises(BadInputError, match="--bounds"):
        data.load(path)
    batch = data.load(path, bounds=text)
    assert batch.bounds == bounds == data.info(path, bounds=text).bounds
    assert torch.equal(batch.inputs, torch.from_numpy(ROWS * 16 - 8))
    assert open_set(path, "test", bounds=text).subset([0]).bounds == bounds


@pytest.mark.parametrize("text", ["", "1", "1,0", "0,0", "nan,1", "0,inf", "0,1,2", "low,high"])
def test_bounds_that_are_no_range_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--bounds must be"):
        data.parse_bounds(text)


@pytest.mark.parametrize("name", ["digits", "."])
def test_bounds_have_no_effect_on_named_sets_and_folders(here: Path, name: str) -> None:
    Image.fromarray(PICTURES[0]).save(here / "one.png")
    with pytest.raises(UsageError, match="--bounds none has no effect"):
        data.load(name, bounds="none")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": ROWS}, "expected arrays inputs and targets, .*, got x; save them"),
        ({"x": ROWS[0], "y": LABELS}, r"inputs need shape \[n, …\]"),
        ({"x": ROWS[:0], "y": LABELS[:0]}, r"with n ≥ 1, got \[0, 7\]"),
        ({"x": ROWS, "y": LABELS[:5]}, "expected 6 whole-number labels"),
        ({"x": ROWS, "y": LABELS[:, None]}, r"got torch.int64 of shape \[6, 1\]"),
        ({"x": ROWS, "y": LABELS / 2}, "got torch.float64"),
        ({"x": ROWS, "y": LABELS == 1}, "got torch.bool"),
        ({"x": ROWS, "y": LABELS - 1}, "got -1 to 2"),
        ({"x": ROWS.astype(np.int64), "y": LABELS}, "inputs must be floats"),
        ({"x": ROWS.astype(np.uint8), "y": LABELS}, "inputs must be floats"),
        ({"x": ROWS * np.nan, "y": LABELS}, "NaN or Inf"),
        ({"x": PICTURES[:, :3], "y": LABELS}, "two axes of 1 or 3"),
        ({"x": PICTURES[..., :2], "y": LABELS}, "no axis of 1 or 3"),
        ({"x": np.array([object()] * 6), "y": LABELS}, "holds Python objects"),
    ],
)
def test_a_file_that_does_not_fit_is_named(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    path = save(tmp_path, **arrays)
    with pytest.raises(BadInputError, match=message) as caught:
        data.load(path)
    assert "mine.npz" in str(caught.value)


def test_bounds_have_no_effect_on_8_bit_pictures(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--bounds has no effect"):
        data.load(save(tmp_path, x=PICTURES, y=LABELS), bounds="none")


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"absent.npz': no such file"):
        data.load(str(tmp_path / "absent.npz"))


def test_labels_in_order_may_compress_well(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).random((20_000, 2)).astype(np.float32)
    np.savez_compressed(tmp_path / "mine.npz", x=rows, y=np.zeros(20_000, np.int64))
    assert len(data.load(str(tmp_path / "mine.npz"))) == 20_000


def test_a_bare_path_is_a_folder_and_a_known_name_is_the_set(here: Path) -> None:
    for folder in (here / "pictures", here / "digits"):
        folder.mkdir()
        Image.fromarray(PICTURES[0]).save(folder / "one.png")
    for name in ("pictures", "./pictures", str(here / "pictures"), "folder:pictures", "./digits"):
        assert len(data.load(name)) == 1, name
        assert data.info(name).num_classes == 1
    assert len(data.load("digits")) > 100
    with pytest.raises(MissingDataError, match="not a folder"):
        data.load("./absent")
    with pytest.raises(UsageError, match=r"unknown data set 'picturse'.*\.npz"):
        data.load("picturse")


def test_size_brings_own_pictures_to_one_square(tmp_path: Path) -> None:
    path = save(tmp_path, x=PICTURES, y=LABELS)
    assert data.load(path, size=8).inputs.shape == (6, 3, 8, 8)
    with pytest.raises(UsageError, match="leave size out"):
        data.load(save(tmp_path, x=ROWS, y=LABELS), size=8)


def own(function: str, **options: object) -> data.SetInfo:
    return data.info(f"owndata:{function}", allow_code=True, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("function", ["pair", "arrays", "dataset", "tensors", "both"])
def test_functions_that_return_examples(here: Path, function: str) -> None:
    name = f"owndata:{function}"
    batch = data.load(name, split="all", allow_code=True)
    expected = torch.arange(6 * 48, dtype=torch.float32).reshape(6, 3, 4, 4) / 300
    assert torch.allclose(batch.inputs, expected, atol=1 / 255 if function == "arrays" else 0)
    assert batch.targets.tolist() == [0, 1, 2, 0, 1, 4]
    assert batch.bounds == (0.0, 1.0)
    assert (own(function).num_classes, own(function).input_shape) == (5, (3, 4, 4))
    assert len(data.load(name, allow_code=True)) == (2 if function == "both" else 6)
    assert data.load(name, split="all", indices=[4, 0], allow_code=True).targets.tolist() == [1, 0]


def test_a_batch_keeps_its_own_bounds(here: Path) -> None:
    assert data.load("owndata:batch", allow_code=True).bounds is None
    assert own("batch", bounds="none").bounds is None
    with pytest.raises(UsageError, match="whose bounds are None; drop --bounds 0,1"):
        own("batch", bounds="0,1")


def test_one_call_serves_the_whole_process(here: Path) -> None:
    for _ in range(2):
        own("pair")
        data.load("owndata:pair", allow_code=True)
    assert sys.modules["owndata"].CALLS == ["pair"]


def test_code_runs_only_where_the_caller_allows_it(here: Path) -> None:
    calls: list[Callable[[], object]] = [
        lambda: data.load("owndata:pair"),
        lambda: data.info("owndata:pair"),
        lambda: open_set("owndata:pair", "test"),
    ]
    for call in calls:
        with pytest.raises(UsageError, match="never from a configuration file"):
            call()
    assert "owndata" not in sys.modules


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        ("absent", UsageError, "cannot import.*AttributeError"),
        ("raises", UsageError, r"KeyError: 'no such table' \(owndata.py, line \d+\)"),
        ("needs", UsageError, "missing 1 required positional argument"),
        ("LABELS", UsageError, "cannot be called, it is of type Tensor"),
        ("text", UsageError, "returned a str; expected"),
        ("odd_keys", UsageError, r"the keys \['validation'\]"),
        ("triple", UsageError, "returned a tuple of Tensor, Tensor, Tensor"),
        ("wide", BadInputError, r"got \[0, 287\]; .*--bounds low,high"),
        ("nan", BadInputError, "NaN or Inf"),
        ("integers", BadInputError, "inputs must be floats"),
        ("float_labels", BadInputError, "got torch.float32"),
        ("few_labels", BadInputError, r"expected 6 .* got torch.int64 of shape \[5\]"),
        ("negative_labels", BadInputError, "got -1 to 3"),
        ("huge_labels", BadInputError, "below 1,000,000"),
        ("objects", BadInputError, "expected arrays of numbers, got object"),
        ("stream", UsageError, "returned a Stream"),
        ("empty", BadInputError, "the Dataset is empty"),
        ("item_raises", UsageError, r"item 3 cannot be read: ZeroDivisionError: .*\(owndata.py, line \d+\)"),
        ("item_alone", UsageError, r"item 0 must be a pair \(input, label\), got Tensor"),
        ("item_list", UsageError, "got list; convert it in the Dataset"),
        ("item_shapes", BadInputError, r"item 5 is torch.float32 of shape \[3, 3, 4\], item 0 .* \[3, 4, 4\]"),
        ("item_range", BadInputError, r"item 5: inputs must lie in \[0, 1\].*--bounds"),
        ("item_label", BadInputError, "item 2: the label must be one whole number, got float"),
        ("item_flag", BadInputError, "item 0: the label must be one whole number, got bool"),
        ("item_huge_label", BadInputError, "below 1,000,000"),
        ("item_random", UsageError, "switch its random transformations off"),
    ],
)
def test_functions_that_do_not_fit_end_in_one_line(
    here: Path, function: str, error: type[LeakscopeError], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        own(function)
    assert "\n" not in str(caught.value)
    assert "owndata:" in str(caught.value)


def test_a_range_can_be_named_for_a_function_too(here: Path) -> None:
    assert own("wide", bounds="0,300").bounds == (0.0, 300.0)
    assert own("item_range", bounds="none").bounds is None
