"""Sets that come inside scikit-learn and scikit-image: always there, no network.

Their packaged files are read, and the packages themselves are not imported: scikit-learn alone takes two seconds, which
every worker of an audit would wait for, and scikit-image's own functions may go to the network.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from PIL import Image

from leakscope.data.pictures import decode
from leakscope.data.source import Source, every_fifth, from_arrays
from leakscope.errors import MissingDataError, MissingExtraError


def open_digits(split: str) -> Source:
    """1797 handwritten digits, 8×8, one channel (UCI optical recognition, in scikit-learn)."""
    file = _folder("sklearn", "digits") / "datasets" / "data" / "digits.csv.gz"
    if not file.is_file():
        raise MissingDataError("the installed scikit-learn lacks digits.csv.gz: pip install 'scikit-learn>=1.0'")
    table = np.loadtxt(file, np.float32, delimiter=",")
    pixels, targets = table[:, :-1], table[:, -1].astype(np.int64)
    # Pixels are counts 0 … 16 of a 4×4 cell.
    return every_fifth(from_arrays((pixels / 16).reshape(-1, 8, 8), targets), split)


def open_faces(split: str) -> Source:
    """100 faces (class 1) and 100 other patches (class 0), 25×25, one channel (LFW subset, in scikit-image)."""
    file = _folder("skimage", "faces") / "data" / "lfw_subset.npy"
    if not file.is_file():
        raise MissingDataError("the installed scikit-image lacks lfw_subset.npy: pip install 'scikit-image>=0.20'")
    images = np.load(file, allow_pickle=False).astype(np.float32)
    targets = np.repeat([1, 0], 100)
    return every_fifth(from_arrays(images, targets), split)


# Class names and files, in the order of the labels; licences: docs/reference/models-and-data.md.
PHOTOS = (
    ("astronaut", "astronaut.png"),
    ("cat", "chelsea.png"),
    ("coffee", "coffee.png"),
    ("rocket", "rocket.jpg"),
    ("retina", "retina.jpg"),
    ("temple", "china.jpg"),
    ("flower", "flower.jpg"),
)
PHOTO_SIDE = 32
# (share of the shorter side, places along each side): large windows, so that every crop shows what it is of.
_WINDOWS = ((1.0, 3), (0.8, 3), (0.6, 4))


def open_photos(split: str) -> Source:
    """Colour crops, 32×32, of seven photographs inside scikit-image and scikit-learn; the photograph is the class."""
    crops = [_crop_photo(file) for _, file in PHOTOS]
    targets = np.repeat(np.arange(len(crops)), [len(part) for part in crops])
    return every_fifth(from_arrays(np.concatenate(crops), targets), split)


@cache
def _crop_photo(file: str) -> np.ndarray:
    """Windows of one photograph, from wide to narrow, as uint8 [n, 32, 32, 3]."""
    photo = Image.fromarray(decode(find_photo(file)))
    boxes: dict[tuple[int, int, int, int], None] = {}
    for share, places in _WINDOWS:
        side = round(share * min(photo.size))
        for top in np.linspace(0, photo.height - side, places):
            for left in np.linspace(0, photo.width - side, places):
                boxes[(round(left), round(top), round(left) + side, round(top) + side)] = None
    size = (PHOTO_SIDE, PHOTO_SIDE)
    return np.stack([np.asarray(photo.resize(size, Image.Resampling.BOX, box=box)) for box in boxes])


def find_photo(file: str) -> Path:
    """Where the packaged file of a photograph is."""
    homes = (_folder("skimage", "sample-photos") / "data", _folder("sklearn", "sample-photos") / "datasets" / "images")
    for path in (home / file for home in homes):
        if path.is_file():
            return path
    raise MissingDataError(
        f"the installed scikit-image and scikit-learn lack {file}: pip install 'scikit-image>=0.20' 'scikit-learn>=1.0'"
    )


# Modules by the names under which they are installed.
_INSTALLED_AS = {"skimage": "scikit-image", "sklearn": "scikit-learn"}


def _folder(module: str, wanted: str) -> Path:
    """Where a package lies, found without importing it; `wanted` is the set that needs it."""
    found = find_spec(module)
    if found is None or found.origin is None:
        name = _INSTALLED_AS[module]
        raise MissingExtraError(f"the set {wanted!r} lies in {name}: pip install {name}")
    return Path(found.origin).parent
