"""The gallery: worst example first, as many as fit the page.

Every distinct picture is stored once and drawn by reference, so the same original beside ten
reconstructions costs one copy, and slider and difference view cost none.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from leakscope.errors import BadInputError
from leakscope.files import unpack_tensors
from leakscope.files.images import encode_png
from leakscope.report.evidence import Example

Images = Mapping[str, tuple[Tensor, Tensor]]
# Markup of one card without names and of one picture without pixels, measured and rounded up.
_CARD_BYTES = 1_900
_PICTURE_BYTES = 110
# Keys become file names; anything but hex could point outside the run's directory.
_KEY = re.compile(r"[0-9a-f]{1,128}")
# Beyond this side the page would hold a handful of pictures at most.
LARGEST_SIDE = 256
# Escaping turns a quotation mark into five bytes.
_ESCAPED = 5


@dataclass(frozen=True)
class Card:
    """One example with the names of its two pictures."""

    example: Example
    truth: str
    reconstruction: str
    width: int
    height: int


@dataclass
class Gallery:
    """Cards, the pictures they refer to, and how many examples were left out."""

    cards: list[Card] = field(default_factory=list)
    pictures: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    left_out: int = 0
    without_image: int = 0


def build_gallery(examples: Iterable[Example], images: Images, *, budget: int) -> Gallery:
    """Choose the worst examples whose pictures fit into `budget` bytes of HTML."""
    gallery, spent, full = Gallery(), 0, False
    for example in sorted(examples, key=lambda item: item.badness, reverse=True):
        # Once one does not fit, stop looking: "the worst N" must not have gaps.
        if full:
            gallery.left_out += 1
            continue
        pair = _pair(example, images)
        if pair is None:
            gallery.without_image += 1
            continue
        card, new = _card(example, pair, gallery.pictures)
        cost = _markup_bytes(example) + sum(_PICTURE_BYTES + len(uri) for uri, _, _ in new.values())
        full = spent + cost > budget
        if full:
            gallery.left_out += 1
            continue
        spent += cost
        gallery.pictures.update(new)
        gallery.cards.append(card)
    return gallery


def _markup_bytes(example: Example) -> int:
    cell = example.cell
    names = "".join([cell.attack, cell.defence, cell.model, cell.data, cell.scenario, str(cell.seed)])
    return _CARD_BYTES + _ESCAPED * len(names.encode("utf-8", "replace"))


def _pair(example: Example, images: Images) -> tuple[Tensor, Tensor] | None:
    stored = images.get(example.cell.key)
    if stored is None:
        return None
    truth, reconstruction = stored
    # Only stacks of images can be drawn; other data keeps its scores in the table.
    drawable = truth.ndim == 4 and truth.shape[1:] == reconstruction.shape[1:]
    if not drawable or example.index >= min(len(truth), len(reconstruction)):
        return None
    return truth[example.index], reconstruction[example.index]


def _card(
    example: Example,
    pair: tuple[Tensor, Tensor],
    known: Mapping[str, tuple[str, int, int]],
) -> tuple[Card, dict[str, tuple[str, int, int]]]:
    names, new, width, height = [], {}, 0, 0
    for image in pair:
        pixels = to_pixels(image)
        height, width = int(pixels.shape[0]), int(pixels.shape[1])
        name = "p" + hashlib.sha256(pixels.numpy().tobytes() + f"{pixels.shape}".encode()).hexdigest()[:16]
        names.append(name)
        if name not in known:
            new[name] = (data_uri(pixels), width, height)
    return Card(example, names[0], names[1], width, height), new


def to_pixels(image: Tensor) -> Tensor:
    """Turn one [C, H, W] image in [0, 1] into uint8 [H, W, 1 or 3] on the CPU.

    Channels that are neither grey nor RGB are averaged to grey; NaN shows as black.
    """
    values = image.detach().to(device="cpu", dtype=torch.float32)
    values = torch.nan_to_num(values, nan=0.0, posinf=1.0, neginf=0.0).clamp(0, 1)
    if values.shape[0] not in (1, 3):
        values = values.mean(dim=0, keepdim=True)
    side = max(values.shape[1:])
    if side > LARGEST_SIDE:
        size = [max(1, round(length * LARGEST_SIDE / side)) for length in values.shape[1:]]
        values = functional.interpolate(values[None], size=size, mode="area")[0]
    return (values * 255).round().to(torch.uint8).permute(1, 2, 0).contiguous()


def data_uri(pixels: Tensor) -> str:
    """Encode uint8 [H, W, 1 or 3] as a PNG data URI."""
    return "data:image/png;base64," + base64.b64encode(encode_png(pixels)).decode("ascii")


class CellImages(Mapping[str, tuple[Tensor, Tensor]]):
    """The image pairs of a run, read one cell at a time."""

    def __init__(self, folder: Path) -> None:
        """Look for `<key>.safetensors` in `folder`."""
        self._folder = folder
        # Neighbouring examples often belong to one cell; memory holds no more than that.
        self._last: tuple[str, tuple[Tensor, Tensor]] | None = None

    def __getitem__(self, key: str) -> tuple[Tensor, Tensor]:
        if self._last is None or self._last[0] != key:
            path = self._path(key)
            pair = _read_pair(path) if path.is_file() else None
            # Not every run keeps images: a cell without them is simply not in this mapping.
            if pair is None:
                raise KeyError(key)
            self._last = key, pair
        return self._last[1]

    def __iter__(self) -> Iterator[str]:
        return (path.stem for path in sorted(self._folder.glob("*.safetensors")) if _KEY.fullmatch(path.stem))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _path(self, key: str) -> Path:
        if not _KEY.fullmatch(key):
            raise BadInputError(f"a cell key must be lower-case hex, got {key[:80]!r}; the summary was edited")
        path = self._folder / f"{key}.safetensors"
        if path.is_symlink():
            raise BadInputError(f"{path} is a symbolic link; expected a file of this run, remove the link")
        return path


def _read_pair(path: Path) -> tuple[Tensor, Tensor] | None:
    try:
        tensors = unpack_tensors(path.read_bytes(), name=str(path))[0]
    except (OSError, BadInputError) as error:
        raise BadInputError(f"{path} is not a readable safetensors file: {error}; delete it and resume") from error
    missing = {"truth", "reconstruction"} - tensors.keys()
    if len(missing) == 1:
        raise BadInputError(
            f"{path} lacks {missing.pop()}; it holds {', '.join(sorted(tensors))}; delete it and resume"
        )
    return None if missing else (tensors["truth"], tensors["reconstruction"])
