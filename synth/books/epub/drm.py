"""Find out whether a book is locked to a shop's readers."""

from __future__ import annotations

import re

from synth.books.book import BookRejectedError
from synth.books.epub.archive import Archive, EntryError
from synth.books.parsing import decode

# They scramble fonts so that these cannot be copied out; texts stay as they are.
_FONT_OBFUSCATION = frozenset(
    {"http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC"}
)
_ALGORITHM = re.compile(r"<(?:[\w.-]+:)?EncryptionMethod\b[^>]*?\bAlgorithm\s*=\s*[\"']([^\"']*)")
_ENCRYPTED = re.compile(r"<(?:[\w.-]+:)?EncryptedData\b")
_LICENCES = ("META-INF/rights.xml", "META-INF/sinf.xml", "META-INF/license.lcpl")


def refuse_drm(archive: Archive) -> None:
    """Pass a book that anybody may read.

    Raises:
        BookRejectedError: book_drm.
    """
    if any(archive.find(name) for name in _LICENCES) or _has_locked_files(archive):
        raise BookRejectedError(
            "book_drm",
            "This book is protected by DRM and cannot be read: send a file without DRM, for "
            "example from a shop that sells such, or from the publisher.",
        )


def _has_locked_files(archive: Archive) -> bool:
    name = archive.find("META-INF/encryption.xml")
    if name is None:
        return False
    try:
        text, _ = decode(archive.read(name, max_bytes=256 * 1024))
    except EntryError:
        return True  # something is encrypted, and nobody can say what
    algorithms = [found.strip() for found in _ALGORITHM.findall(text)]
    is_known = len(algorithms) >= len(_ENCRYPTED.findall(text))
    return not is_known or not _FONT_OBFUSCATION.issuperset(algorithms)
