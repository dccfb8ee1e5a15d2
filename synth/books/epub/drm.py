"""Find out whether a book is locked to a shop's readers."""

from __future__ import annotations

import itertools
import re

from synth.books.book import BookRejectedError
from synth.books.documents.parsing import decode
from synth.books.epub.archive import Archive, EntryError

# They scramble fonts so that these cannot be copied out; texts stay as they are.
_FONT_OBFUSCATION = frozenset(
    {"http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC"}
)
_URI = re.compile(r"<(?:[\w.-]+:)?CipherReference\b[^>]*?\bURI\s*=\s*[\"']([^\"']*)")
_ALGORITHM = re.compile(r"<(?:[\w.-]+:)?EncryptionMethod\b[^>]*?\bAlgorithm\s*=\s*[\"']([^\"']*)")
_ENCRYPTED = re.compile(r"<(?:[\w.-]+:)?EncryptedData\b")
_LICENCES = ("META-INF/rights.xml", "META-INF/sinf.xml", "META-INF/license.lcpl")
# What a listener does not need; shops have scrambles of their own for fonts.
_UNHEARD = (
    *(".ttf", ".otf", ".woff", ".woff2", ".ttc", ".css", ".js"),
    *(".jpg", ".jpeg", ".png", ".gif", ".webp", ".svg", ".mp3", ".m4a", ".mp4"),
)
_DOCUMENTS = (".xhtml", ".html", ".htm", ".opf")
_MAX_LOOKED_AT = 5


def refuse_drm(archive: Archive) -> None:
    """Pass a book that anybody may read.

    Raises:
        BookRejectedError: book_drm.
    """
    is_licensed = any(archive.find(name) for name in _LICENCES)
    if _has_locked_files(archive) or (is_licensed and not _is_open(archive)):
        raise BookRejectedError(
            "book_drm",
            "This book is protected by DRM and cannot be read. Send a file without DRM, for "
            "example from the publisher or from a shop without DRM.",
        )


def _has_locked_files(archive: Archive) -> bool:
    name = archive.find("META-INF/encryption.xml")
    if name is None:
        return False
    try:
        text, _ = decode(archive.read(name, max_bytes=256 * 1024))
    except EntryError:
        return True  # something is encrypted, and nobody can say what
    starts = [found.start() for found in _ENCRYPTED.finditer(text)]
    return any(_is_lock(text[a:b]) for a, b in itertools.pairwise([*starts, len(text)]))


def _is_lock(entry: str) -> bool:
    """Say whether an entry of the list of encrypted files keeps a listener from the text."""
    algorithms = [found.strip() for found in _ALGORITHM.findall(entry)]
    if algorithms and _FONT_OBFUSCATION.issuperset(algorithms):
        return False
    uris = _URI.findall(entry)
    return not uris or not all(uri.partition("?")[0].lower().endswith(_UNHEARD) for uri in uris)


def _is_open(archive: Archive) -> bool:
    """Say whether documents are markup to be seen: some shops add licences to open books."""
    names = [name for name in archive.names if name.lower().endswith(_DOCUMENTS)]
    try:
        texts = [decode(archive.read(name))[0] for name in names[:_MAX_LOOKED_AT]]
    except EntryError:
        return False
    return bool(texts) and all(text.lstrip("\ufeff \t\r\n").startswith("<") for text in texts)
