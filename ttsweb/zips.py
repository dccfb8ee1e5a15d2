"""Open the ZIP archives of strangers: what their directory says is judged before they are read.

A directory may lie as well, so whoever reads an entry counts its bytes. A size that is stated too
small is no danger: zipfile never reads past it.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from typing import IO

_END = struct.Struct("<4s4H2LH")
_END_64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR_64 = struct.Struct("<4sLQL")
_ENTRY = struct.Struct("<4s4B4HL2L5H2L")
_LOCAL_HEADER_BYTES = 30
_MOST_COMMENT_BYTES = 65535
# Of an entry that is encrypted, in a strong way, or in a directory that is encrypted.
_ENCRYPTED_FLAGS = 0x1 | 0x40 | 0x2000
_AES = 99  # a way of packing
_MIB = 1024**2


@dataclass(frozen=True, slots=True)
class ZipLimits:
    """Bound an archive by what its directory states.

    `growth_bytes` is by how much all entries together may grow when they are unpacked; `ratio` how
    many times as large an entry, or all of them, may become once that is more than
    `ratio_from_bytes`: a small text that repeats itself shrinks more than that.
    """

    entries: int
    directory_bytes: int
    growth_bytes: int
    ratio: int = 50
    ratio_from_bytes: int = 16 * _MIB
    entry_growth_bytes: int | None = None


class ZipRefusedError(Exception):
    """An archive that is not opened.

    Attributes:
        code: `damaged`, `too_large`, `unsafe` or `encrypted`.
        why: goes on after "The archive …".
    """

    def __init__(self, code: str, why: str) -> None:
        super().__init__(why)
        self.code, self.why = code, why


def open_zip(source: IO[bytes], limits: ZipLimits) -> zipfile.ZipFile:
    """Open an archive of which nothing but the directory has been read.

    Args:
        source: can be searched; it stays its owner's to close.

    Raises:
        ZipRefusedError: with the code and the reason.
    """
    _check_end(source, limits)
    try:
        opened = zipfile.ZipFile(source)
    except (zipfile.BadZipFile, OSError, ValueError, struct.error, NotImplementedError) as error:
        raise ZipRefusedError("damaged", f"has a damaged directory ({error})") from error
    try:
        check_entries(opened.infolist(), limits, directory_at=opened.start_dir)
    except ZipRefusedError:
        opened.close()
        raise
    return opened


def check_entries(
    entries: Iterable[zipfile.ZipInfo], limits: ZipLimits, *, directory_at: int
) -> None:
    """Refuse entries by what the directory states of them.

    Raises:
        ZipRefusedError: encrypted, unsafe (entries that share bytes) or too_large.
    """
    packed = unpacked = growth = end = 0
    ordered = sorted(entries, key=lambda entry: entry.header_offset)
    for entry in ordered:
        if entry.flag_bits & _ENCRYPTED_FLAGS or entry.compress_type == _AES:
            raise ZipRefusedError("encrypted", "is locked with a password")
    for entry in ordered:
        if entry.header_offset < end:
            raise ZipRefusedError("unsafe", f"has entries that overlap, as {entry.filename!r} does")
        end = entry.header_offset + _LOCAL_HEADER_BYTES + entry.compress_size
        grown = max(0, entry.file_size - entry.compress_size)
        _check_ratio(f"an entry, {entry.filename!r},", entry.file_size, entry.compress_size, limits)
        if limits.entry_growth_bytes is not None and grown > limits.entry_growth_bytes:
            raise ZipRefusedError(
                "too_large", f"has an entry, {entry.filename!r}, of {entry.file_size} bytes"
            )
        packed, unpacked = packed + entry.compress_size, unpacked + entry.file_size
        growth += grown
    if end > directory_at:
        raise ZipRefusedError("unsafe", "has entries that overlap its directory")
    if growth > limits.growth_bytes:
        raise ZipRefusedError("too_large", f"unpacks to {unpacked // _MIB} MiB")
    _check_ratio("entries that are", unpacked, packed, limits)


def fixed_entry(name: str) -> zipfile.ZipInfo:
    """Return an entry with a fixed date and fixed rights: same files, same zip."""
    entry = zipfile.ZipInfo(name)  # its date is the earliest that a zip can have
    entry.create_system = 3  # the one of Unix on every system
    entry.external_attr = 0o644 << 16
    return entry


def _check_ratio(what: str, unpacked: int, packed: int, limits: ZipLimits) -> None:
    if unpacked > limits.ratio_from_bytes and unpacked > limits.ratio * max(packed, 1):
        raise ZipRefusedError("too_large", f"has {what} packed by more than {limits.ratio} to 1")


def _check_end(source: IO[bytes], limits: ZipLimits) -> None:
    """Look at the directory before zipfile makes an object of each of its entries."""
    size = source.seek(0, 2)
    start = max(size - _MOST_COMMENT_BYTES - _END.size, 0)
    source.seek(start)
    tail = source.read()
    place = _end_place(tail)
    if place is None:
        raise ZipRefusedError("damaged", "is not a ZIP archive, or it is cut short")
    _, _, _, _, count, directory_bytes, _, _ = _END.unpack_from(tail, place)
    end_at = start + place
    if (found := _end_64(source, end_at)) is not None:
        count, directory_bytes, end_at = found
    if count > limits.entries:
        raise ZipRefusedError("too_large", f"holds {count} files; {limits.entries} are allowed")
    if directory_bytes > limits.directory_bytes:
        raise ZipRefusedError("too_large", "has a list of files that is too long")
    if directory_bytes > end_at:
        raise ZipRefusedError("damaged", "is cut short")
    source.seek(end_at - directory_bytes)
    _count_entries(source.read(directory_bytes), limits)
    source.seek(0)


def _end_place(tail: bytes) -> int | None:
    """Return where the end record is, as zipfile finds it: without a comment, else the last one."""
    place = len(tail) - _END.size
    if place < 0:
        return None
    if tail.startswith(b"PK\5\6", place) and tail.endswith(b"\0\0"):
        return place
    place = tail.rfind(b"PK\5\6")
    return place if 0 <= place <= len(tail) - _END.size else None


def _end_64(source: IO[bytes], end_at: int) -> tuple[int, int, int] | None:
    """Return what an end record of 64 bits says: count, bytes and end of the directory."""
    place = end_at - _LOCATOR_64.size
    if place < _END_64.size:
        return None
    source.seek(place)
    if source.read(4) != b"PK\6\7":
        return None
    place -= _END_64.size
    source.seek(place)
    record = source.read(_END_64.size)
    if not record.startswith(b"PK\6\6"):
        sentence = "has a 64-bit directory that is not at its stated position"
        raise ZipRefusedError("damaged", sentence)
    fields = _END_64.unpack(record)
    return fields[7], fields[8], place


def _count_entries(directory: bytes, limits: ZipLimits) -> None:
    """Count the entries themselves: the number that the end record states may be a lie."""
    place = count = 0
    while place + _ENTRY.size <= len(directory) and directory.startswith(b"PK\1\2", place):
        fields = _ENTRY.unpack_from(directory, place)
        place += _ENTRY.size + sum(fields[12:15])
        count += 1
        if count > limits.entries:
            raise ZipRefusedError(
                "too_large", f"holds more than {limits.entries} files, which is the limit"
            )
