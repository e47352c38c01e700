"""Named sets and the user's own data, as batches."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path

from torch import Tensor
from torch.nn import functional

from leakscope.catalogue import find_folder
from leakscope.data.cifar import LAYOUTS, find_cifar, open_cifar
from leakscope.data.embedded import open_digits, open_faces, open_photos
from leakscope.data.folders import open_folder
from leakscope.data.idx import FOLDERS, find_idx, open_idx
from leakscope.data.labelled_words import holds_words, open_labelled
from leakscope.data.npz import open_npz
from leakscope.data.own import is_own, open_own
from leakscope.data.sets import FOLDER_PREFIX, SETS, SetInfo, candidates, lookup, search_roots, ways_to_get
from leakscope.data.source import Source, join, select
from leakscope.data.words import open_rendered
from leakscope.errors import BadInputError, MissingDataError, MissingExtraError, UsageError, suggest
from leakscope.picture_size import LARGEST_SIDE, PictureSize, height_width
from leakscope.types import Batch

Root = str | PathLike[str] | None

_EMBEDDED = {
    "digits": open_digits,
    "faces": open_faces,
    "sample-photos": open_photos,
    "words-plain": partial(open_rendered, "plain"),
    "words-scene": partial(open_rendered, "scene"),
}
_PICTURE_FOLDERS = {
    "tiny-imagenet": ("tiny-imagenet", "tiny-imagenet-200"),
    "imagenet": ("imagenet", "imagenet-samples"),
}
_WORDS = "iiit5k"
# These may be without a training split.
_MAY_BE_TEST_ONLY = (*_PICTURE_FOLDERS, _WORDS)
_SPLITS = ("train", "test", "all")


def load(
    name: str,
    *,
    split: str = "test",
    indices: Sequence[int] | Tensor | None = None,
    count: int | None = None,
    seed: int = 0,
    size: PictureSize | None = None,
    root: Root = None,
    bounds: str | None = None,
    one_hot: str | None = None,
    allow_code: bool = False,
) -> Batch:
    """Load examples of a named set or of the user's own data.

    Args:
        name: One of `names()`, the path of a folder of pictures (also as "folder:<path>") or of an .npz file,
            or `package.module:function`.
        split: "train", "test" or "all".
        indices: Which examples, in this order; None for all of them (or `count`).
        count: How many distinct examples to draw by `seed` instead.
        seed: For `count`.
        size: Side of the square, or (height, width), to bring the images to; None keeps the native size.
        root: Folder to search instead of the one LEAKSCOPE_DATA names.
        bounds: Range of the user's own inputs: "low,high", or "none" for data without one; [0, 1] unless given.
        one_hot: Columns of the user's own table that are one-hot, "2-5,6-8", beside those that its file names.
        allow_code: Whether `name` comes from the command line, so that the user's own code may run.

    Returns:
        float32 inputs [n, …] (images [n, C, H, W] in [0, 1]) and int64 targets [n]; of words, texts [n, length] as
        `leakscope.data.decode_texts` spells them.

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
        size = height_width(size, largest=LARGEST_SIDE)
    source = open_set(name, split, size=size, root=root, bounds=bounds, one_hot=one_hot, allow_code=allow_code)
    chosen = select(len(source), indices=indices, count=count, seed=seed)
    return Batch(_resize(source.read(chosen), size), source.targets[chosen], source.bounds)


def info(
    name: str,
    *,
    root: Root = None,
    bounds: str | None = None,
    one_hot: str | None = None,
    allow_code: bool = False,
) -> SetInfo:
    """Return the facts about a set: classes, channels, size, splits, range and the ways to get it.

    The classes of the user's own data are counted; a named set never has fewer than it is known for.
    """
    if is_own(name):
        return _describe_own(name, open_own(name, "all", bounds=bounds, one_hot=one_hot, allow_code=allow_code))
    _refuse_bounds(name, bounds, one_hot)
    if is_folder(name) and holds_words(find_folder(name)):
        return replace(lookup(_WORDS), name=name, description="words of your own")
    if is_folder(name):
        classes = int(open_set(name, "all").targets.max()) + 1
        return SetInfo(name, "pictures of your own", num_classes=classes, channels=3, image_size=None)
    facts = lookup(name)
    if name in _PICTURE_FOLDERS and is_available(name, root=root):
        classes = int(open_set(name, "test", root=root).targets.max()) + 1
        return replace(facts, num_classes=max(facts.num_classes, classes))
    return facts


def _describe_own(name: str, source: Source) -> SetInfo:
    shape = tuple(source.read([0]).shape[1:])
    is_picture = len(shape) == 3
    return SetInfo(
        name,
        "data of your own",
        num_classes=int(source.targets.max()) + 1,
        channels=shape[0] if is_picture else 0,
        image_size=(shape[1], shape[2]) if is_picture else None,
        bounds=source.bounds,
        input_shape=shape,
    )


def is_folder(name: str) -> bool:
    """Whether `name` is a folder of pictures: "folder:<path>", or a path. A known set's name always means the set."""
    if name.startswith(FOLDER_PREFIX):
        return True
    return (
        name not in SETS
        and not is_own(name)
        and ("/" in name or "\\" in name or os.path.isdir(os.path.expanduser(name)))
    )


def _refuse_bounds(name: str, bounds: str | None, one_hot: str | None) -> None:
    if one_hot is not None:
        raise UsageError(f"{name!r} holds pictures, which have no columns, so --one-hot has no effect; drop it")
    if bounds is not None:
        raise UsageError(f"{name!r} holds pictures, which are in [0, 1], so --bounds {bounds} has no effect; drop it")


def is_available(name: str, *, root: Root = None) -> bool:
    """Whether the test split of a set can be opened on this machine."""
    try:
        return len(open_set(name, "test", root=root)) > 0
    except (MissingDataError, MissingExtraError, BadInputError):
        return False


def open_set(
    name: str,
    split: str,
    *,
    size: PictureSize | None = None,
    root: Root = None,
    bounds: str | None = None,
    one_hot: str | None = None,
    allow_code: bool = False,
) -> Source:
    """Open a set without reading its pixels where the format allows it; arguments as for `load`."""
    if is_own(name):
        source = open_own(name, split, bounds=bounds, one_hot=one_hot, allow_code=allow_code)
        return source if size is None else _check_resizable(name, source)
    _refuse_bounds(name, bounds, one_hot)
    if split == "all":
        return _open_all(name, size=size, root=root)
    if is_folder(name):
        return _open_pictures(find_folder(name), split, size=size)
    facts = lookup(name)
    if name in _EMBEDDED:
        return _EMBEDDED[name](split)
    source = _find(facts, split, size=size, root=root)
    if source is None:
        raise MissingDataError(
            f"the data set {name!r} ({split}) is not on this machine. Ways to get it:{ways_to_get(facts)}"
        )
    return _check_known_labels(source, facts)


def _open_pictures(folder: Path, split: str, *, size: PictureSize | None) -> Source:
    """A folder of the user's own: words where there is a table of texts, else pictures of classes."""
    return (open_labelled if holds_words(folder) else open_folder)(folder, split, size=size)


def _check_resizable(name: str, source: Source) -> Source:
    if source.read([0]).ndim != 4 or source.bounds != (0.0, 1.0):
        raise UsageError(f"size= resizes pictures in [0, 1], and {name!r} holds other inputs; leave size out")
    return source


def _check_known_labels(source: Source, facts: SetInfo) -> Source:
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
        if is_folder(name) or name in _MAY_BE_TEST_ONLY:
            return test
        raise


def _find(facts: SetInfo, split: str, *, size: PictureSize | None, root: Root) -> Source | None:
    roots, name = search_roots(root), facts.name
    for path in candidates(roots, (f"{name}.npz",)):
        return open_npz(path, split)
    for folder in candidates(roots, _PICTURE_FOLDERS.get(name, ())):
        # Photographs differ in size; the set's own size makes them one batch.
        return open_folder(folder, split, size=size or facts.image_size)
    for folder in candidates(roots, (_WORDS,) if name == _WORDS else ()):
        return open_labelled(folder, split, size=size)
    if name in FOLDERS and (pair := find_idx(name, split, roots=roots, explicit=root is not None)):
        return open_idx(*pair)
    if name in LAYOUTS and (files := find_cifar(name, split, roots=roots)):
        return open_cifar(name, files)
    return None


def _resize(images: Tensor, size: PictureSize | None) -> Tensor:
    if size is None or images.shape[-2:] == height_width(size):
        return images
    changed = functional.interpolate(images, height_width(size), mode="bilinear", align_corners=False, antialias=True)
    return changed.clamp(0, 1)
