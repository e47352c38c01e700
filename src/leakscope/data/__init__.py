"""Named data sets and the user's own data as batches, and how they are dealt out to clients."""

from leakscope.data.load import info, is_available, load
from leakscope.data.partitions import partition
from leakscope.data.ranges import parse_bounds
from leakscope.data.sets import SetInfo, names
from leakscope.data.texts import load_texts
from leakscope.data.word_texts import decode_texts, encode_texts
from leakscope.data.words import RenderedWords

__all__ = [
    "RenderedWords",
    "SetInfo",
    "decode_texts",
    "encode_texts",
    "info",
    "is_available",
    "load",
    "load_texts",
    "names",
    "parse_bounds",
    "partition",
]
