"""Two ways to make a picture of a word, 32×100 in colour: on paper, and as found in a photograph of a street.

`plain` stands for Synth90K (Jaderberg et al., 2014): grey text on grey paper, upright or slanted, clean. `scene`
stands for SynthText (Gupta et al., 2016): text of any colour in perspective on pieces of photographs, with shadows,
uneven light, blur and noise. All choices of a picture come from one row of numbers in [0, 1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

import numpy as np
from PIL import Image, ImageFilter

from leakscope.data.embedded import PHOTOS, find_photo
from leakscope.data.pictures import decode

HEIGHT, WIDTH = 32, 100
# Numbers that one picture takes.
NUMBERS = 40

_LEAST_CONTRAST = 0.4
# Columns beside a word that slanting it may take.
_SIDE_ROOM = 2
_PHOTO_SCALES = (1.0, 0.5, 0.25)
_NOISE_SHAPE = (64, 256, 3)
# Pictures that every decoder reads alike; those in JPEG differ by its version.
_LOSSLESS = ".png"

Numbers = Iterator[float]
WordStyle = Callable[[np.ndarray, Numbers], np.ndarray]


def plain(ink: np.ndarray, numbers: Numbers) -> np.ndarray:
    """Grey on grey: a gradient of paper, text darker or lighter, slanted by up to 17°."""
    slant = _between(numbers, -0.3, 0.3) if next(numbers) < 0.5 else 0.0
    cover = _place(ink, numbers).transform(
        (WIDTH, HEIGHT), Image.Transform.AFFINE, (1, slant, -slant * HEIGHT / 2, 0, 1, 0), Image.Resampling.BILINEAR
    )
    if next(numbers) < 0.3:
        cover = cover.filter(ImageFilter.BoxBlur(_between(numbers, 0.3, 0.8)))
    alpha = np.asarray(cover, dtype=np.float32) / 255
    dark, light = _between(numbers, 0.0, 0.3), _between(numbers, 0.3 + _LEAST_CONTRAST, 1.0)
    text, paper = (dark, light) if next(numbers) < 0.6 else (light, dark)
    grey = paper + _ramp(numbers, 0.1)
    grey = grey + alpha * (text - grey)
    grey += _between(numbers, 0.0, 0.03) * _noise(numbers)[:, :, 0]
    return np.repeat(_to_bytes(grey)[:, :, None], 3, axis=2)


def scene(ink: np.ndarray, numbers: Numbers) -> np.ndarray:
    """Any colour on a piece of a photograph, in perspective, with a shadow, uneven light, blur and noise."""
    cover = _place(ink, numbers).transform(
        (WIDTH, HEIGHT), Image.Transform.PERSPECTIVE, _perspective(numbers), Image.Resampling.BILINEAR
    )
    alpha = np.asarray(cover, dtype=np.float32)[:, :, None] * np.float32(_between(numbers, 0.8, 1.0) / 255)
    ground = _ground(numbers)
    colour = _contrasting(ground.mean((0, 1)), numbers)
    if next(numbers) < 0.4:
        # Shifted by a pixel or two; np.roll would let it come in again on the other side.
        down, right = 1 + int(next(numbers) * 2), 1 + int(next(numbers) * 2)
        shadow = np.zeros_like(alpha)
        shadow[down:, right:] = alpha[:-down, :-right]
        ground = ground * (1 - np.float32(0.6) * shadow)
    picture = ground + alpha * (colour - ground)
    picture = picture * (1 + _ramp(numbers, 0.25)[:, :, None])
    picture += _between(numbers, 0.0, 0.07) * _noise(numbers)
    found = _to_bytes(picture)
    if next(numbers) < 0.4:
        found = np.asarray(Image.fromarray(found).filter(ImageFilter.BoxBlur(_between(numbers, 0.2, 0.8))))
    return found


STYLES: dict[str, WordStyle] = {"plain": plain, "scene": scene}


def _between(numbers: Numbers, low: float, high: float) -> float:
    return low + (high - low) * next(numbers)


def _place(ink: np.ndarray, numbers: Numbers) -> Image.Image:
    """Scale the ink of a word into a picture: as wide as it comes, or over the whole width as often."""
    margin = int(_between(numbers, 2, 6))
    side = margin + _SIDE_ROOM
    height = HEIGHT - 2 * margin
    natural = ink.shape[1] * height / ink.shape[0] * _between(numbers, 0.75, 1.35)
    most = WIDTH - 2 * side
    width = most if next(numbers) < 0.5 else max(1, min(most, round(natural)))
    word = Image.fromarray(ink).resize((width, height), Image.Resampling.BILINEAR)
    picture = Image.new("L", (WIDTH, HEIGHT))
    left = side + int(next(numbers) * (most - width + 1))
    picture.paste(word, (left, margin + int(_between(numbers, -1, 2))))
    return picture


def _perspective(numbers: Numbers) -> tuple[float, ...]:
    """Coefficients that take the corners of the picture to places near the corners of the word's own."""
    corners = ((0, 0), (WIDTH, 0), (WIDTH, HEIGHT), (0, HEIGHT))
    rows, goals = [], []
    tilt = _between(numbers, -3.0, 3.0)
    for x, y in corners:
        u = x + _between(numbers, -4.0, 4.0)
        v = y + _between(numbers, -3.0, 3.0) + (tilt if x else -tilt)
        rows += [(x, y, 1, 0, 0, 0, -u * x, -u * y), (0, 0, 0, x, y, 1, -v * x, -v * y)]
        goals += [u, v]
    return tuple(np.linalg.solve(np.array(rows, dtype=np.float64), np.array(goals)))


def _ground(numbers: Numbers) -> np.ndarray:
    """A piece of a photograph, faded towards one colour so that text on it can be read."""
    photos = _photographs()
    photo = photos[int(next(numbers) * len(photos))]
    top = int(next(numbers) * (photo.shape[0] - HEIGHT))
    left = int(next(numbers) * (photo.shape[1] - WIDTH))
    piece = photo[top : top + HEIGHT, left : left + WIDTH]
    if next(numbers) < 0.5:
        piece = piece[:, ::-1]
    colour = np.array([next(numbers), next(numbers), next(numbers)], dtype=np.float32)
    share = np.float32(_between(numbers, 0.3, 0.85))
    return piece + share * (colour - piece)


def _contrasting(ground: np.ndarray, numbers: Numbers) -> np.ndarray:
    """A colour whose brightness differs from that of the ground."""
    weights = np.array([0.299, 0.587, 0.114], dtype=np.float32)
    colour = np.array([next(numbers), next(numbers), next(numbers)], dtype=np.float32)
    behind = float(ground @ weights)
    lighter = behind < 0.5
    room = (1 - behind if lighter else behind) - _LEAST_CONTRAST
    change = _LEAST_CONTRAST + max(0.0, room) * next(numbers)
    wanted = behind + change if lighter else behind - change
    return (colour + (wanted - float(colour @ weights))).clip(0, 1)


def _ramp(numbers: Numbers, most: float) -> np.ndarray:
    """Light that falls off in some direction, [height, width], from −most to most."""
    down, right = _between(numbers, -most, most), _between(numbers, -most, most)
    rows, columns = _axes()
    return (np.float32(down / 2) * rows)[:, None] + np.float32(right / 2) * columns


@lru_cache(maxsize=1)
def _axes() -> tuple[np.ndarray, np.ndarray]:
    return np.linspace(-1, 1, HEIGHT, dtype=np.float32), np.linspace(-1, 1, WIDTH, dtype=np.float32)


def _noise(numbers: Numbers) -> np.ndarray:
    """A piece of a fixed field of noise: drawing new one takes longer than all the rest."""
    field = _noise_field()
    top, left = (int(next(numbers) * (side - own)) for side, own in zip(field.shape, (HEIGHT, WIDTH), strict=False))
    return field[top : top + HEIGHT, left : left + WIDTH]


@lru_cache(maxsize=1)
def _noise_field() -> np.ndarray:
    return np.random.Generator(np.random.PCG64(0)).standard_normal(_NOISE_SHAPE, dtype=np.float32)


@lru_cache(maxsize=1)
def _photographs() -> tuple[np.ndarray, ...]:
    """The photographs inside scikit-image at three scales, float32 in [0, 1]."""
    found = []
    for file in (file for _, file in PHOTOS if file.endswith(_LOSSLESS)):
        photo = Image.fromarray(decode(find_photo(file)))
        for scale in _PHOTO_SCALES:
            size = (round(photo.width * scale), round(photo.height * scale))
            found.append(np.asarray(photo.resize(size, Image.Resampling.BOX), dtype=np.float32) / 255)
    return tuple(found)


def _to_bytes(values: np.ndarray) -> np.ndarray:
    return (values.clip(0, 1) * 255 + 0.5).astype(np.uint8)
