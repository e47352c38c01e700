"""Decode one picture file with Pillow, within limits, and bring it to a size."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from leakscope.errors import BadInputError
from leakscope.files.opening import follow_links, open_regular
from leakscope.picture_size import PictureSize, height_width

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})

# Formats that only hold pixels; EPS and PDF, for example, would start another program.
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
MAX_PIXELS = 64_000_000


def decode(path: Path, size: PictureSize | None = None) -> np.ndarray:
    """Return the picture as uint8 [H, W, 3], upright; with `size`, resized and cropped to it."""
    with _open(path) as picture:
        picture = _rgb(ImageOps.exif_transpose(picture))
        return np.asarray(picture if size is None else _fit(picture, size))


def read_size(path: Path) -> tuple[int, int]:
    """Height and width of a picture as it is stored; only its header is read."""
    with _open(path) as picture:
        return picture.height, picture.width


@contextmanager
def _open(path: Path) -> Iterator[Image.Image]:
    """A picture that is not too large; whatever goes wrong with it in the block is one BadInputError."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            # Opened here: a FIFO or a device under this name would never end.
            with open_regular(follow_links(path)) as file, Image.open(file, formats=_FORMATS) as picture:
                _check_pixels(path, picture)
                yield picture
    except BadInputError:
        raise
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        raise _too_large(path) from None
    # Pillow's decoders raise many kinds on broken files, some of them plain SyntaxError or struct.error.
    except Exception as error:
        raise BadInputError(
            f"{path.name}: not a readable picture ({type(error).__name__}); expected one of {', '.join(_FORMATS)}"
        ) from None


def _check_pixels(path: Path, picture: Image.Image) -> None:
    # The header is enough: nothing has been decoded yet.
    if picture.width * picture.height > MAX_PIXELS:
        raise _too_large(path)


def _too_large(path: Path) -> BadInputError:
    return BadInputError(f"{path.name}: more than {MAX_PIXELS // 10**6} million pixels; scale the picture down first")


def _rgb(picture: Image.Image) -> Image.Image:
    if picture.mode.startswith("I"):
        # 16-bit gray: scale to 8 bits instead of cutting off everything above 255.
        values = np.asarray(picture).astype(np.float64) / 257
        picture = Image.fromarray(values.round().clip(0, 255).astype(np.uint8))
    if picture.mode == "P":
        # A palette may carry transparency that a direct conversion warns about.
        picture = picture.convert("RGBA")
    return picture.convert("RGB")


def _fit(picture: Image.Image, size: PictureSize) -> Image.Image:
    """Scale until both sides suffice and cut the middle out of the side that is too long."""
    height, width = height_width(size)
    return ImageOps.fit(picture, (width, height), method=Image.Resampling.BICUBIC)
