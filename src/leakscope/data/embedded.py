"""Sets that come inside scikit-learn and scikit-image: always there, no network."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from leakscope.data.source import Source, every_fifth, from_arrays
from leakscope.errors import MissingDataError, MissingExtraError


def open_digits(split: str) -> Source:
    """1797 handwritten digits, 8×8, one channel (UCI optical recognition, in scikit-learn)."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise MissingExtraError("the set 'digits' lies in scikit-learn: pip install scikit-learn") from None
    pixels, targets = load_digits(return_X_y=True)
    # Pixels are counts 0 … 16 of a 4×4 cell.
    images = (np.asarray(pixels, np.float32) / 16).reshape(-1, 8, 8)
    return every_fifth(from_arrays(images, np.asarray(targets)), split)


def open_faces(split: str) -> Source:
    """100 faces (class 1) and 100 other patches (class 0), 25×25, one channel (LFW subset, in scikit-image)."""
    try:
        import skimage.data
    except ImportError:
        raise MissingExtraError("the set 'faces' lies in scikit-image: pip install scikit-image") from None
    # Read the packaged file itself: scikit-image's own function may go to the network.
    file = Path(skimage.data.__file__).with_name("lfw_subset.npy")
    if not file.is_file():
        raise MissingDataError("the installed scikit-image lacks lfw_subset.npy: pip install 'scikit-image>=0.20'")
    images = np.load(file, allow_pickle=False).astype(np.float32)
    targets = np.repeat([1, 0], 100)
    return every_fifth(from_arrays(images, targets), split)
