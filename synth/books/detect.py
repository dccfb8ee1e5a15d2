"""Find out what a file is, by its content before its name, and read it as a book."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable
from pathlib import Path, PurePath

from synth.books.book import Book, BookRejectedError
from synth.books.documents.docx import read_docx
from synth.books.documents.html import read_html, read_markdown
from synth.books.documents.pdf import read_pdf
from synth.books.epub.package import DAMAGE, open_book_archive
from synth.books.epub.reader import read_epub
from synth.books.txt.reader import read_txt

MAX_BOOK_BYTES = 100_000_000
FORMATS = ("epub", "docx", "pdf", "html", "markdown", "txt")
_HOW = "Send an EPUB, DOCX, PDF, HTML, Markdown or TXT."
_READERS: dict[str, Callable[[bytes, str], Book]] = {
    "epub": lambda raw, _: read_epub(raw),
    "docx": read_docx,
    "pdf": read_pdf,
    "html": read_html,
    "markdown": read_markdown,
    "txt": read_txt,
}
_MARKDOWN = frozenset({".md", ".markdown", ".mdown", ".mkd"})
_HTML = frozenset({".html", ".htm", ".xhtml"})
# Names that promise what their content must then be.
_PROMISES = frozenset({".epub", ".docx", ".pdf"})
_HTML_START = re.compile(
    rb"\s*(?:<\?xml[^>]*\?>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html)[\s>]", re.I | re.S
)
_TAG = re.compile(rb"<(?:html|head|body|p|div|h[1-6])[\s>]", re.IGNORECASE)
_SNIFFED_BYTES = 4096
_VIDEO = "a sound or video file"
_FOREIGN = {
    "an RTF file; save it as DOCX": (b"{\\rtf",),
    "a PostScript file; convert it to PDF": (b"%!PS",),
    "a picture": (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"II*\0", b"MM\0*"),
    "a DjVu file; send an EPUB or a PDF with text": (b"AT&TFORM",),
    "a gzip archive; unpack it": (b"\x1f\x8b",),
    "a bzip2 archive; unpack it": (b"BZh",),
    "an xz archive; unpack it": (b"\xfd7zXZ",),
    "a 7z archive; unpack it": (b"7z\xbc\xaf",),
    "a RAR archive; unpack it": (b"Rar!",),
    "a program": (b"\x7fELF", b"MZ\x90"),
    "a sound file": (b"ID3", b"OggS", b"fLaC"),
    _VIDEO: (b"RIFF",),
    "a database": (b"SQLite format 3\0",),
}
_WORD_97 = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


def read_book(source: Path | bytes, filename: str = "") -> Book:
    """Read a file, by its path or its bytes, as a book.

    Args:
        filename: the name that it came under; that of the path if empty.

    Raises:
        BookRejectedError: `book_empty`, `book_too_large`, `book_format_unknown`, `book_drm`,
            `book_encrypted`, `book_not_text`, `pdf_without_text` and what the readers raise.
        OSError: the file cannot be read.
    """
    if isinstance(source, Path):
        filename = filename or source.name
    num_bytes = source.stat().st_size if isinstance(source, Path) else len(source)
    if num_bytes == 0:
        raise BookRejectedError("book_empty", "The file is empty; send a book with words in it.")
    if num_bytes > MAX_BOOK_BYTES:
        raise BookRejectedError(
            "book_too_large",
            f"The file has {num_bytes} bytes; at most {MAX_BOOK_BYTES} are allowed. Remove its "
            "pictures, or split the book.",
        )
    source = source.read_bytes() if isinstance(source, Path) else source
    # A name is a label: what is not printable in it has no meaning here.
    filename = "".join(c for c in PurePath(filename).name if c.isprintable()) or "book"
    return _READERS[detect_format(source, filename)](source, filename)


def detect_format(raw: bytes, filename: str) -> str:
    """Return which of `FORMATS` a file has; its content decides, its name only between texts.

    Raises:
        BookRejectedError: `book_format_unknown`, `book_drm`, `book_encrypted`.
    """
    found = _binary_format(raw)
    if found is not None:
        return found
    suffix = PurePath(filename).suffix.lower()
    if suffix in _PROMISES:
        raise BookRejectedError(
            "book_format_unknown",
            f"The file's name ends in {suffix}, but its content is not {suffix[1:].upper()}. "
            f"Check that the download was complete. {_HOW}",
        )
    head = raw[:_SNIFFED_BYTES].replace(b"\0", b"")
    head = head.removeprefix(b"\xef\xbb\xbf").lstrip(b"\xff\xfe")
    if _HTML_START.match(head) or (suffix in _HTML and _TAG.search(head)):
        return "html"
    if suffix in _MARKDOWN:
        return "markdown"
    return "html" if suffix in _HTML else "txt"


def _binary_format(raw: bytes) -> str | None:
    """Return the format of a file that is no text, or None for one that may be."""
    if raw.startswith((b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")):
        return _archive_format(raw)
    if b"%PDF-" in raw[:1024]:
        return "pdf"
    if raw.startswith(_WORD_97):
        if "EncryptedPackage".encode("utf-16-le") in raw:
            raise BookRejectedError(
                "book_encrypted",
                "The document is protected by a password; save a copy without one and send that.",
            )
        raise _unknown("a document of an old version of Word (DOC); save it as DOCX")
    if raw.startswith((b"\xeaDRMION\xee", b"TPZ0")):
        raise BookRejectedError(
            "book_drm", f"This is a Kindle book with DRM, which cannot be read. {_HOW}"
        )
    if raw[60:68] in {b"BOOKMOBI", b"TEXtREAd"}:
        raise _unknown("a Kindle book (MOBI or AZW); convert it to EPUB")
    if raw[4:8] == b"ftyp":
        raise _unknown(_VIDEO)
    for what, starts in _FOREIGN.items():
        if raw.startswith(starts):
            raise _unknown(what)
    return None


def _archive_format(raw: bytes) -> str:
    with open_book_archive(io.BytesIO(raw), "archive", damaged="book_not_epub") as archive:
        names = {name.replace("\\", "/") for name in archive.namelist()}
        kind = ""
        if "mimetype" in names:
            with contextlib.suppress(*DAMAGE), archive.open("mimetype") as opened:
                kind = opened.read(100).decode("ascii", "replace").strip()
    if "META-INF/container.xml" in names or kind == "application/epub+zip":
        return "epub"
    if "word/document.xml" in names:
        return "docx"
    if "opendocument" in kind:
        raise _unknown("an OpenDocument file; save it as DOCX or EPUB")
    if any(name.startswith(("xl/", "ppt/")) for name in names):
        raise _unknown("a table or a set of slides")
    if "[Content_Types].xml" in names:
        return "docx"
    raise _unknown("an archive; unpack it and send the book that is in it")


def _unknown(what: str) -> BookRejectedError:
    return BookRejectedError("book_format_unknown", f"The file is {what}. {_HOW}")
