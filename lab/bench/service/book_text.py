"""Read the chapters of an EPUB as plain text, as a benchmark needs them.

Only what the spine lists as reading order and what is not front or back matter counts: a document
is left out when its body or a section directly in it says so by `epub:type`, or when it holds
fewer than `FEWEST_WORDS` words. Headings and paragraphs become paragraphs.
"""

from __future__ import annotations

import posixpath
import zipfile
from html.parser import HTMLParser
from pathlib import Path
from typing import IO
from urllib.parse import unquote
from xml.etree import ElementTree

from synth.books.book import BookRejectedError
from synth.books.epub.archive import open_book_archive
from ttsweb.commands.errors import StepError

FEWEST_WORDS = 50
MOST_BYTES = 20_000_000  # of one document; a larger one is no chapter
_DAMAGE = (
    BookRejectedError,
    zipfile.BadZipFile,
    ElementTree.ParseError,
    OSError,
    KeyError,
    ValueError,
)
_CONTAINER = "META-INF/container.xml"
_OPF = "{http://www.idpf.org/2007/opf}"
_ROOTFILE = "{urn:oasis:names:tc:opendocument:xmlns:container}rootfile"
_PARAGRAPHS = frozenset({"p", "h1", "h2", "h3", "h4", "h5", "h6", "li", "blockquote", "div", "br"})
_SILENT = frozenset({"head", "script", "style", "svg", "nav", "title"})
_LEFT_OUT = frozenset(
    {"frontmatter", "backmatter", "titlepage", "halftitlepage", "imprint", "colophon", "toc"}
    | {"copyright-page", "dedication", "endnotes", "footnotes", "loi"}
)


def read_chapters(path: Path, *, count: int) -> list[str]:
    """Return the text of the first `count` chapters of an EPUB, paragraphs parted by blank lines.

    Raises:
        StepError: book_not_read, when the file is no EPUB that can be read; book_too_short, when it
            has fewer chapters.
    """
    try:
        with path.open("rb") as file, open_book_archive(file, "EPUB", damaged="") as book:
            chapters: list[str] = []
            for name in _spine(book):
                if len(chapters) == count:
                    break
                text = _document(_read(book, name))
                if len(text.split()) >= FEWEST_WORDS:
                    chapters.append(text)
    except _DAMAGE as error:
        raise StepError("book_not_read", f"{path} is not a readable EPUB: {error}.") from error
    if len(chapters) < count:
        raise StepError(
            "book_too_short",
            f"{path} has only {len(chapters)} chapters, not {count}; give a smaller number.",
        )
    return chapters


def _spine(book: zipfile.ZipFile) -> list[str]:
    """Return the names of the documents in reading order."""
    rootfile = _xml(book, _CONTAINER).find(f".//{_ROOTFILE}")
    if rootfile is None:
        raise ValueError("its container names no package")
    package_name = rootfile.attrib["full-path"]
    package = _xml(book, package_name)
    folder = posixpath.dirname(package_name)
    items = {item.attrib["id"]: item.attrib["href"] for item in package.iter(f"{_OPF}item")}
    return [
        posixpath.normpath(posixpath.join(folder, unquote(items[row.attrib["idref"]])))
        for row in package.iter(f"{_OPF}itemref")
        if row.attrib.get("linear", "yes") != "no"
    ]


def _xml(book: zipfile.ZipFile, name: str) -> ElementTree.Element:
    return ElementTree.fromstring(_read(book, name))


def _read(book: zipfile.ZipFile, name: str) -> bytes:
    """Return a member's bytes, counted while they are unpacked: headers may lie."""
    member: IO[bytes]
    with book.open(name) as member:
        content = member.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"{name} is larger than {MOST_BYTES} bytes")
    return content


def _document(content: bytes) -> str:
    """Return a document's text, or "" when it is front or back matter."""
    reader = _TextReader()
    reader.feed(content.decode("utf-8"))
    reader.close()
    return "" if reader.is_left_out else reader.text


class _TextReader(HTMLParser):
    """Gather the paragraphs of one XHTML document."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.is_left_out = False
        self._paragraphs: list[list[str]] = [[]]
        self._silent_depth = 0

    @property
    def text(self) -> str:
        """Return the paragraphs, blanks collapsed."""
        lines = (" ".join("".join(parts).split()) for parts in self._paragraphs)
        return "\n\n".join(line for line in lines if line)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a paragraph, or note what kind of matter this is."""
        if tag in ("body", "section"):
            kinds = (dict(attrs).get("epub:type") or "").split()
            self.is_left_out = self.is_left_out or bool(_LEFT_OUT & set(kinds))
        if tag in _SILENT:
            self._silent_depth += 1
        elif tag in _PARAGRAPHS:
            self._paragraphs.append([])

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Heed an empty element without opening anything that nothing would close."""
        if tag in _PARAGRAPHS:
            self._paragraphs.append([])

    def handle_endtag(self, tag: str) -> None:
        """End a paragraph or a silent part."""
        if tag in _SILENT:
            self._silent_depth = max(0, self._silent_depth - 1)
        elif tag in _PARAGRAPHS:
            self._paragraphs.append([])

    def handle_data(self, data: str) -> None:
        """Keep what is read aloud."""
        if not self._silent_depth:
            self._paragraphs[-1].append(data)
