"""Read a zip that somebody sent: nothing that it says of itself is believed, nothing is unpacked.

Names and sizes come from the archive's own tables, which may lie. So the directory is bounded
before it is read, each entry is counted while it is read, and no entry is ever written under its
name.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from voices.portable.errors import invalid, too_large

MAX_ENTRIES = 400
MAX_DIRECTORY_BYTES = 128 * 1024
_END = struct.Struct("<4s4H2LH")  # the end of central directory record, without a comment
_CHUNK_BYTES = 128 * 1024
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, ValueError,
           struct.error, KeyError, UnicodeError)  # fmt: skip


class Archive:
    """The entries of an opened archive; all that is read of it counts against one budget."""

    def __init__(self, opened: zipfile.ZipFile, *, max_bytes: int) -> None:
        self._opened, self._left = opened, max_bytes
        self._entries = _entries_of(opened)

    @property
    def names(self) -> frozenset[str]:
        """Return the names of all entries that are files."""
        return frozenset(self._entries)

    def read(self, name: str, *, max_bytes: int) -> bytes:
        """Return an entry's bytes.

        Raises:
            ImportRefusedError: archive_invalid for an entry that is missing or damaged;
                archive_too_large for one that has more than `max_bytes`, or more than is left of
                the budget.
        """
        entry = self._entries.get(name)
        if entry is None:
            raise invalid(f"The archive has no entry {name!r}, which its manifest names.")
        limit = min(max_bytes, self._left)
        parts: list[bytes] = []
        size = 0
        try:
            with self._opened.open(entry) as file:
                while part := file.read(_CHUNK_BYTES):
                    size += len(part)
                    if size > limit:
                        raise too_large(f"The entry {name!r} has more than {limit} bytes.")
                    parts.append(part)
        except _BROKEN as error:
            raise invalid(f"The entry {name!r} is damaged: send the file again.") from error
        self._left -= size
        return b"".join(parts)


@contextmanager
def open_archive(file: IO[bytes], *, max_bytes: int) -> Iterator[Archive]:
    """Give the archive in a seekable file, of which `max_bytes` may be read after unpacking.

    Raises:
        ImportRefusedError: archive_invalid, or archive_too_large for too many entries.
    """
    _check_end(file)
    try:
        opened = zipfile.ZipFile(file)
    except _BROKEN as error:
        raise invalid("The archive's list of entries is damaged: send the file again.") from error
    with opened:
        yield Archive(opened, max_bytes=max_bytes)


def _check_end(file: IO[bytes]) -> None:
    """Bound the directory before anything makes objects of its entries."""
    length = file.seek(0, 2)
    if length < _END.size:
        raise invalid("The file is not a zip archive.")
    file.seek(length - _END.size)
    signature, disk, first, here, entries, size, start, comment = _END.unpack(file.read(_END.size))
    if signature != b"PK\5\6" or comment:
        raise invalid("The file is not a whole zip archive, or has a comment at its end.")
    if disk or first or here != entries or start + size != length - _END.size:
        raise invalid("The zip archive is in parts, has something around it, or is of 64 bits.")
    if entries > MAX_ENTRIES or size > MAX_DIRECTORY_BYTES:
        raise too_large(f"The archive has {entries} entries; a voice has {MAX_ENTRIES} at most.")


def _entries_of(opened: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Return the files by their names; folders, which some programs add, are left out."""
    entries: dict[str, zipfile.ZipInfo] = {}
    for entry in opened.infolist():
        if entry.is_dir() and not entry.file_size:
            continue
        if entry.filename in entries:
            raise invalid(f"The archive has two entries {entry.filename!r}.")
        if entry.flag_bits & 0x1 or entry.compress_type not in _METHODS:
            raise invalid(f"The entry {entry.filename!r} is encrypted or packed in a rare way.")
        entries[entry.filename] = entry
    return entries
