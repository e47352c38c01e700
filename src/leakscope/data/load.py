"""Named sets as batches of images in [0, 1]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path

from torch import Tensor
from torch.nn import functional

from leakscope.data.cifar import LAYOUTS, find_cifar, open_cifar
from leakscope.data.embedded import open_digits, open_faces
from leakscope.data.folders import open_folder
from leakscope.data.idx import FOLDERS, find_idx, open_idx
from leakscope.data.npz import open_npz
from leakscope.data.roots import candidates, search_roots
from leakscope.data.selection import select
from leakscope.data.sets import FOLDER_PREFIX, SetInfo, lookup, ways_to_get
from leakscope.data.source import Source, join
from leakscope.errors import BadInputError, MissingDataError, MissingExtraError, UsageError, suggest
from leakscope.types import Batch, PictureSize, height_width

Root = str | PathLike[str] | None

_EMBEDDED = {"digits": open_digits, "faces": open_faces}
_PICTURE_FOLDERS = {
    "tiny-imagenet": ("tiny-imagenet", "tiny-imagenet-200"),
    "imagenet": ("imagenet", "imagenet-samples"),
}
_SPLITS = ("train", "test", "all")
_LARGEST_SIDE = 4096


def load(
    name: str,
    *,
    split: str = "test",
    indices: Sequence[int] | Tensor | None = None,
    count: int | None = None,
    seed: int = 0,
    size: PictureSize | None = None,
    root: Root = None,
) -> Batch:
    """Load examples of a named set, or of a folder of pictures.

    Args:
        name: One of `names()`, or "folder:<path>".
        split: "train", "test" or "all".
        indices: Which examples, in this order; None for all of them (or `count`).
        count: How many distinct examples to draw by `seed` instead.
        seed: For `count`.
        size: Side of the square, or (height, width), to bring the images to; None keeps the native size.
        root: Folder to search instead of the one LEAKSCOPE_DATA names.

    Returns:
        float32 images [n, C, H, W] in [0, 1] and int64 targets [n].

    Raises:
        MissingDataError: The set is not on this machine; the message lists the ways to get it.
        BadInputError: A file is damaged or not what its name says.
        UsageError: An unknown name, split or index.

    Example:
        >>> batch = load("digits", indices=[0, 1])
        >>> batch.inputs.shape
        torch.Size([2, 1, 8, 8])
    """
    if split not in _SPLITS:
        raise UsageError(f"unknown split {split!r}.{suggest(split, _SPLITS)}")
    if size is not None:
        size = height_width(size, largest=_LARGEST_SIDE)
    source = open_set(name, split, size=size, root=root)
    chosen = select(len(source), indices=indices, count=count, seed=seed)
    return Batch(_resized(source.read(chosen), size), source.targets[chosen])


def info(name: str, *, root: Root = None) -> SetInfo:
    """Return the facts about a set: classes, channels, size, splits and the ways to get it.

    The classes of a folder of pictures are counted; a named set never has fewer than it is known for.
    """
    if name.startswith(FOLDER_PREFIX):
        classes = int(open_set(name, "all").targets.max()) + 1
        return SetInfo(name, "pictures of your own", num_classes=classes, channels=3, image_size=None)
    facts = lookup(name)
    if name in _PICTURE_FOLDERS and is_available(name, root=root):
        classes = int(open_set(name, "test", root=root).targets.max()) + 1
        return replace(facts, num_classes=max(facts.num_classes, classes))
    return facts


def is_available(name: str, *, root: Root = None) -> bool:
    """Whether the test split of a set can be opened on this machine."""
    try:
        return len(open_set(name, "test", root=root)) > 0
    except (MissingDataError, MissingExtraError, BadInputError):
        return False


def open_set(name: str, split: str, *, size: PictureSize | None = None, root: Root = None) -> Source:
    """Open a set without reading its pixels where the format allows it."""
    if split == "all":
        return _open_all(name, size=size, root=root)
    if name.startswith(FOLDER_PREFIX):
        return open_folder(_own_folder(name), split, size=size)
    facts = lookup(name)
    if name in _EMBEDDED:
        return _EMBEDDED[name](split)
    source = _find(facts, split, size=size, root=root)
    if source is None:
        raise MissingDataError(
            f"the data set {name!r} ({split}) is not on this machine. Ways to get it:{ways_to_get(facts)}"
        )
    return _checked(source, facts)


def _checked(source: Source, facts: SetInfo) -> Source:
    largest = int(source.targets.max())
    # Folders come in variants with more or fewer classes: `info` counts them.
    if largest >= facts.num_classes and facts.name not in _PICTURE_FOLDERS:
        raise BadInputError(
            f"the files of {facts.name!r} hold label {largest}; expected 0 … {facts.num_classes - 1}, "
            "so these are the files of another set"
        )
    return source


def _open_all(name: str, *, size: PictureSize | None, root: Root) -> Source:
    test = open_set(name, "test", size=size, root=root)
    try:
        return join(open_set(name, "train", size=size, root=root), test)
    except MissingDataError:
        # Only a folder of pictures may be without a training split.
        if name.startswith(FOLDER_PREFIX) or name in _PICTURE_FOLDERS:
            return test
        raise


def _own_folder(name: str) -> Path:
    folder = Path(name.removeprefix(FOLDER_PREFIX)).expanduser()
    if not folder.is_dir():
        raise MissingDataError(f"{str(folder)!r} is not a folder; write folder:<path of a folder with pictures>")
    return folder


def _find(facts: SetInfo, split: str, *, size: PictureSize | None, root: Root) -> Source | None:
    roots, name = search_roots(root), facts.name
    for path in candidates(roots, (f"{name}.npz",)):
        return open_npz(path, split)
    for folder in candidates(roots, _PICTURE_FOLDERS.get(name, ())):
        # Photographs differ in size; the set's own size makes them one batch.
        return open_folder(folder, split, size=size or facts.image_size)
    if name in FOLDERS and (pair := find_idx(name, split, roots=roots, explicit=root is not None)):
        return open_idx(*pair)
    if name in LAYOUTS and (files := find_cifar(name, split, roots=roots)):
        return open_cifar(name, files)
    return None


def _resized(images: Tensor, size: PictureSize | None) -> Tensor:
    if size is None or images.shape[-2:] == height_width(size):
        return images
    resized = functional.interpolate(images, height_width(size), mode="bilinear", align_corners=False, antialias=True)
    return resized.clamp(0, 1)
