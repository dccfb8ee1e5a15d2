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

from ttsweb.refusals import RefusedError
from ttsweb.zips import ZipLimits, ZipRefusedError, check_entries


class ImportRefusedError(RefusedError):
    """An archive or codes from outside are not taken."""


def invalid(message: str) -> ImportRefusedError:
    """Return the error for a file that is no archive of ours, or not a whole one."""
    return ImportRefusedError("archive_invalid", message)


def too_large(message: str) -> ImportRefusedError:
    """Return the error for an archive that holds more than is taken."""
    return ImportRefusedError("archive_too_large", message)


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
            raise invalid(f"The archive has no entry {name!r}, although its manifest names it.")
        limit = min(max_bytes, self._left)
        if entry.file_size > limit:
            raise too_large(f"The entry {name!r} is too large: at most {limit} bytes are allowed.")
        parts: list[bytes] = []
        size = 0
        try:
            with self._opened.open(entry) as file:
                while part := file.read(_CHUNK_BYTES):
                    size += len(part)
                    if size > limit:
                        raise too_large(
                            f"The entry {name!r} is too large: at most {limit} bytes are allowed."
                        )
                    parts.append(part)
        except _BROKEN as error:
            raise invalid(f"The entry {name!r} is damaged; send the file again.") from error
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
        raise invalid("The archive's list of entries is damaged; send the file again.") from error
    with opened:
        try:
            check_entries(opened.infolist(), _limits(max_bytes), directory_at=opened.start_dir)
        except ZipRefusedError as error:
            refuse = too_large if error.code == "too_large" else invalid
            raise refuse(f"The archive {error.why}.") from error
        yield Archive(opened, max_bytes=max_bytes)


def _limits(max_bytes: int) -> ZipLimits:
    """Return what the directory may state; clips hardly shrink, silence does."""
    return ZipLimits(
        entries=MAX_ENTRIES, directory_bytes=MAX_DIRECTORY_BYTES, growth_bytes=max_bytes, ratio=1000
    )


def _check_end(file: IO[bytes]) -> None:
    """Bound the directory before anything makes objects of its entries."""
    length = file.seek(0, 2)
    if length < _END.size:
        raise invalid("The file is not a zip archive; send a file that was exported from a voice.")
    file.seek(length - _END.size)
    signature, disk, first, here, entries, size, start, comment = _END.unpack(file.read(_END.size))
    if signature != b"PK\5\6" or comment:
        raise invalid(
            "The zip archive is not complete, or has a comment at its end; export the voice again."
        )
    if disk or first or here != entries or start + size != length - _END.size:
        raise invalid(
            "The zip archive is split into parts, contains other data, or is a 64-bit archive; "
            "export the voice again."
        )
    if entries > MAX_ENTRIES or size > MAX_DIRECTORY_BYTES:
        raise too_large(f"The archive has {entries} entries; a voice has at most {MAX_ENTRIES}.")


def _entries_of(opened: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Return the files by their names; folders, which some programs add, are left out."""
    entries: dict[str, zipfile.ZipInfo] = {}
    for entry in opened.infolist():
        if entry.is_dir() and not entry.file_size:
            continue
        if entry.filename in entries:
            raise invalid(f"The archive has two entries named {entry.filename!r}.")
        if entry.compress_type not in _METHODS:
            raise invalid(
                f"The entry {entry.filename!r} uses an unsupported compression; export the "
                "voice again."
            )
        entries[entry.filename] = entry
    return entries
