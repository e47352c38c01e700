"""Reading a zip directory before anything is unpacked."""

from __future__ import annotations

import zipfile

from leakscope.files.names import name_problem
from leakscope.files.opening import ByteSource

MAX_RATIO = 20
# Below this size a ratio says nothing: a header next to a few hundred zeros already exceeds 20.
RATIO_FLOOR = 64 * 2**10
# About 40,000 members. zipfile holds some ten times the directory in memory.
MAX_DIRECTORY = 4 * 2**20
_TAIL = 22 + 2**16


def open_zip(source: ByteSource, *, ratio_floor: int = RATIO_FLOOR) -> zipfile.ZipFile:
    """Open the archive after bounding its directory, and check every member's declared size."""
    _check_directory(source)
    source.file.seek(0)
    archive = zipfile.ZipFile(source.file)
    members = archive.infolist()
    if not members:
        raise source.error("expected tensors, got an empty archive")
    _check_names(source, members)
    _check_overlap(source, members)
    for member in members:
        _check_member(source, member)
        if member.file_size > ratio_floor:
            _check_ratio(source, member.file_size, member.compress_size, member.filename)
    total = sum(member.file_size for member in members)
    if total > ratio_floor:
        _check_ratio(source, total, sum(member.compress_size for member in members), None)
    return archive


def _check_directory(source: ByteSource) -> None:
    tail = source.read(max(0, source.size - _TAIL), min(source.size, _TAIL))
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) - at < 22:
        raise source.error("the zip directory is missing: the file is cut short; copy it again")
    size = int.from_bytes(tail[at + 12 : at + 16], "little")
    wide = tail.rfind(b"PK\x06\x06", 0, at)
    if wide >= 0 and at - wide >= 56:
        size = max(size if size != 2**32 - 1 else 0, int.from_bytes(tail[wide + 40 : wide + 48], "little"))
    if size > MAX_DIRECTORY:
        raise source.error(f"expected a zip directory of at most {MAX_DIRECTORY:,} bytes, got {size:,}")


def _check_names(source: ByteSource, members: list[zipfile.ZipInfo]) -> None:
    seen: set[str] = set()
    for member in members:
        # zipfile cuts names at NUL and rewrites separators; the original must already be clean.
        problem = name_problem(member.orig_filename)
        if problem or member.orig_filename != member.filename or member.is_dir():
            raise source.error(
                f"the archive member {problem or 'is not a plain file'}; write the file again",
                tensor=member.orig_filename,
            )
        if member.filename in seen:
            raise source.error("the archive holds this member twice; write the file again", tensor=member.filename)
        seen.add(member.filename)


def _check_overlap(source: ByteSource, members: list[zipfile.ZipInfo]) -> None:
    reached = 0
    for member in sorted(members, key=lambda item: item.header_offset):
        if member.header_offset < reached:
            raise source.error("archive members overlap; write the file again", tensor=member.filename)
        # 30 bytes are the least a local header takes.
        reached = member.header_offset + 30 + member.compress_size
    if reached > source.size:
        raise source.error(f"members reach to byte {reached:,}, the file has {source.size:,}; copy it again")


def _check_member(source: ByteSource, member: zipfile.ZipInfo) -> None:
    if member.flag_bits & 0x1:
        raise source.error("the archive member is encrypted; write the file without a password", tensor=member.filename)
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise source.error("expected stored or deflated data; write the file again", tensor=member.filename)
    if member.compress_type == zipfile.ZIP_STORED and member.file_size != member.compress_size:
        raise source.error("stored data has two different sizes; write the file again", tensor=member.filename)


def _check_ratio(source: ByteSource, plain: int, packed: int, name: str | None) -> None:
    if plain > MAX_RATIO * packed:
        raise source.error(
            f"expands {plain / max(packed, 1):,.0f} times ({packed:,} → {plain:,} bytes), at most {MAX_RATIO} is "
            "allowed; if it really holds mostly zeros, save it uncompressed (numpy.savez, or safetensors)",
            tensor=name,
        )
