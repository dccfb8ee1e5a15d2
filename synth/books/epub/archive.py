"""Read files of a ZIP archive that a stranger made; nothing is ever written to disk."""

from __future__ import annotations

import io
import lzma
import struct
import unicodedata
import zipfile
import zlib
from typing import IO
from urllib.parse import unquote

from synth.books.book import BookRejectedError
from ttsweb.zips import ZipLimits, ZipRefusedError, open_zip

LIMITS = ZipLimits(
    entries=10_000,
    directory_bytes=4 * 1024**2,
    growth_bytes=128 * 1024**2,  # a long novel has 2 MiB in all
    ratio=50,
    ratio_from_bytes=8 * 1024**2,
)
# The codes of refusals, and what helps.
_REFUSALS = {
    "too_large": (
        "book_archive_too_large",
        "Leave out everything that is not part of the book, or split the book.",
    ),
    "unsafe": ("book_archive_unsafe", "Make the file again with another program."),
    "encrypted": ("book_encrypted", "Send it without a password."),
}


def open_book_archive(source: IO[bytes], what: str, *, damaged: str) -> zipfile.ZipFile:
    """Open an archive by its directory; none of its entries is read.

    Args:
        what: what the archive is to be, such as "EPUB".
        damaged: the code for a file that is no archive, or a damaged one.

    Raises:
        BookRejectedError: `damaged`, book_archive_too_large, book_archive_unsafe, book_encrypted.
    """
    try:
        return open_zip(source, LIMITS)
    except ZipRefusedError as error:
        unknown = (damaged, "Send the file again, or save it again first.")
        code, remedy = _REFUSALS.get(error.code, unknown)
        raise BookRejectedError(code, f"This {what} {error.why}. {remedy}") from error


MAX_ENTRY_BYTES = 16 * 1024**2
MAX_TOTAL_BYTES = LIMITS.growth_bytes
_CHUNK_BYTES = 256 * 1024
# What zipfile raises for files that are damaged; NotImplementedError, for a way of packing that it
# does not know, is a RuntimeError, and a name that is no UTF-8 a ValueError.
DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    OSError,
    RuntimeError,
    ValueError,
)


class EntryError(Exception):
    """One file of the archive cannot be read; the message says why."""


class Archive:
    """Hold an open archive.

    Attributes:
        names: the usable names, in the order of the archive.
        warnings: what was odd about it.
    """

    def __init__(self, raw: bytes) -> None:
        """Open an archive.

        Raises:
            BookRejectedError: book_not_epub, book_encrypted, book_archive_unsafe or
                book_archive_too_large.
        """
        self.warnings: list[str] = []
        self._total_bytes = 0
        self._zip = open_book_archive(io.BytesIO(raw), "EPUB", damaged="book_not_epub")
        self._entries: dict[str, zipfile.ZipInfo] = {}
        for entry in self._zip.infolist():
            name = entry.filename.replace("\\", "/")  # so do old programs part folders
            if name.endswith("/"):
                continue
            if not name:
                self.warnings.append("The book contains a file without a name, which is not read.")
            elif name.startswith("/") or ".." in name.split("/") or ":" in name[:2]:
                self.warnings.append(f"The file {name!r} has a name that points outside the book.")
            elif name in self._entries:
                self.warnings.append(
                    f"The book contains the file {name!r} twice; the first one is read."
                )
            else:
                self._entries[name] = entry
        self.names = list(self._entries)
        self._loose: dict[str, str] = {}
        for name in self.names:
            self._loose.setdefault(loosely(name), name)

    def close(self) -> None:
        self._zip.close()

    def find(self, name: str) -> str | None:
        """Return the name under which a file is in the archive; letters' case may differ."""
        return name if name in self._entries else self._loose.get(loosely(name))

    def read(self, name: str, *, max_bytes: int = MAX_ENTRY_BYTES) -> bytes:
        """Return a file's bytes, which are counted as they come: stated sizes may be lies.

        Raises:
            EntryError: there is no such file, or it is damaged or too large.
            BookRejectedError: book_archive_too_large, it is a bomb, or all files together are.
        """
        found = self.find(name)
        if found is None:
            raise EntryError("the book does not contain the file")
        entry = self._entries[found]
        too_large = EntryError(f"it has more than {max_bytes // 1024**2} MiB")
        if entry.file_size > max_bytes:
            raise too_large
        chunks: list[bytes] = []
        num_bytes = 0
        try:
            with self._zip.open(entry) as opened:
                while chunk := opened.read(_CHUNK_BYTES):
                    num_bytes += len(chunk)
                    self._total_bytes += len(chunk)
                    is_bomb = num_bytes > LIMITS.ratio * max(entry.compress_size, 1)
                    if self._total_bytes > MAX_TOTAL_BYTES:
                        most = MAX_TOTAL_BYTES // 1024**2
                        raise _too_large(f"unpacks to more than {most} MiB of text")
                    if num_bytes > max_bytes:
                        raise too_large
                    chunks.append(chunk)
                    if is_bomb and num_bytes > LIMITS.ratio_from_bytes:  # the directory may lie
                        packed = f"is packed by more than {LIMITS.ratio} to 1"
                        raise _too_large(f"has a file, {found!r}, that {packed}")
        except DAMAGE as error:
            raise EntryError(f"it is damaged: {error}") from error
        return b"".join(chunks)

    def first(self) -> tuple[str, bool]:
        """Return the first file's name and whether it is stored as it is."""
        entries = self._zip.infolist()
        return (entries[0].filename, not entries[0].compress_type) if entries else ("", False)


def loosely(name: str) -> str:
    """Return a name without what may differ between a link and the file that it means."""
    return unicodedata.normalize("NFC", unquote(name)).casefold()


def _too_large(why: str) -> BookRejectedError:
    return BookRejectedError("book_archive_too_large", f"This EPUB {why}, so it is not read.")
