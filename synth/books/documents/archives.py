"""Open the archives that books are (EPUB, DOCX) within bounds, or say why they are not read."""

from __future__ import annotations

import zipfile
from typing import IO

from synth.books.book import BookRejectedError
from ttsweb.zips import ZipLimits, ZipRefusedError, open_zip

LIMITS = ZipLimits(
    entries=10_000,
    directory_bytes=4 * 1024**2,
    growth_bytes=128 * 1024**2,  # a long novel has 2 MiB in all
    ratio=50,
    ratio_from_bytes=8 * 1024**2,
)
_CODES = {
    "too_large": "book_archive_too_large",
    "unsafe": "book_archive_unsafe",
    "encrypted": "book_encrypted",
}
_REMEDIES = {
    "too_large": "Leave out everything that is not part of the book, or split the book.",
    "unsafe": "Make the file again with another program.",
    "encrypted": "Send it without a password.",
}


def open_book_archive(
    source: IO[bytes], what: str, *, damaged: str, limits: ZipLimits = LIMITS
) -> zipfile.ZipFile:
    """Open an archive by its directory; none of its entries is read.

    Args:
        what: what the archive is to be, such as "EPUB".
        damaged: the code for a file that is no archive, or a damaged one.

    Raises:
        BookRejectedError: `damaged`, book_archive_too_large, book_archive_unsafe, book_encrypted.
    """
    try:
        return open_zip(source, limits)
    except ZipRefusedError as error:
        code = _CODES.get(error.code, damaged)
        remedy = _REMEDIES.get(error.code, "Send the file again, or save it again first.")
        raise BookRejectedError(code, f"This {what} {error.why}. {remedy}") from error
