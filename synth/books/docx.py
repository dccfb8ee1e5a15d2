"""Read a Word document (DOCX) as a book: its headings, notes, tables and properties."""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from xml.parsers.expat import ExpatError

import mammoth
from lxml import etree

from synth.books import markup
from synth.books.book import Book, BookRejectedError, Metadata, count_chars
from synth.books.markup import Element
from synth.books.markup_book import book_of_tree, parse_text
from synth.books.parsing import parse_xml

MAX_PART_BYTES = 40_000_000  # of one XML part; its tree takes some twenty times as much
_MAX_PARTS = 10_000
_STYLES = """
p[style-name='Title'] => p.book-title:fresh
p[style-name='Subtitle'] => p.book-title:fresh
p[style-name='TOC Heading'] => p.contents-list:fresh
p[style-name^='toc '] => p.contents-list:fresh
p[style-name^='TOC '] => p.contents-list:fresh
p[style-name='header'] => p.page-number:fresh
"""
_ROLES = {"book-title": "titlepage", "contents-list": "toc"}
_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
# What a damaged file makes zipfile, expat, lxml and mammoth raise.
_BROKEN = (
    zipfile.BadZipFile,
    ExpatError,
    etree.XMLSyntaxError,
    zlib.error,
    LookupError,
    ValueError,
    AttributeError,
    TypeError,
    OSError,
    EOFError,
    RuntimeError,
)
_TEXTS = re.compile(r"[^\W_]")


def read_docx(raw: bytes, filename: str) -> Book:
    """Return the book that a DOCX holds.

    Raises:
        BookRejectedError: `book_broken`, `book_too_large`, `book_encrypted`, `book_empty`.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            _check_parts(archive)
            metadata = _metadata(archive)
            num_letters = _count_letters(archive)
        result = mammoth.convert_to_html(
            io.BytesIO(raw),
            style_map=_STYLES,
            include_embedded_style_map=False,
            convert_image=mammoth.images.img_element(lambda _: {"src": ""}),
        )
    except BookRejectedError:
        raise
    except _BROKEN as error:
        raise BookRejectedError(
            "book_broken", f"The DOCX is damaged ({error}). Open it in Word and save it again."
        ) from error
    root = parse_text(f"<html><body>{result.value}</body></html>")
    _set_roles(root)
    warnings = _losses(root, num_letters)
    return book_of_tree(root, filename, metadata, warnings=warnings)


def _check_parts(archive: zipfile.ZipFile) -> None:
    """Refuse a document before any of it is unpacked; zipfile never reads past a stated size."""
    parts = archive.infolist()
    if len(parts) > _MAX_PARTS:
        raise BookRejectedError("book_too_large", f"The DOCX has more than {_MAX_PARTS} parts.")
    for part in parts:
        if part.flag_bits & 1:
            raise BookRejectedError(
                "book_encrypted",
                "The DOCX is protected by a password: save a copy without one and send that.",
            )
        if not part.filename.endswith((".xml", ".rels")):
            continue
        if part.file_size > MAX_PART_BYTES:
            raise BookRejectedError(
                "book_too_large",
                f"{part.filename} in the DOCX has {part.file_size} bytes; {MAX_PART_BYTES} are "
                "allowed. Split the book into several files.",
            )
        with archive.open(part) as opened:
            head = opened.read(4096)
        if b"<!DOCTYPE" in head or b"<\0!\0D\0" in head:
            raise BookRejectedError(
                "book_broken", "The DOCX declares a document type, which no Word document does."
            )


def _metadata(archive: zipfile.ZipFile) -> Metadata:
    names = archive.namelist()
    found: dict[str, str] = {}
    if "docProps/core.xml" in names:
        for element in parse_xml(archive.read("docProps/core.xml")).iter():
            text = markup.squeeze(element.text or "")
            if text:
                found.setdefault(markup.name_of(element), text)
    language = found.get("language", "")
    if not language and "word/styles.xml" in names:
        tags = parse_xml(archive.read("word/styles.xml")).iter(f"{_W}lang")
        language = next((tag.get(f"{_W}val") for tag in tags if tag.get(f"{_W}val")), "")
    authors = tuple(name.strip() for name in found.get("creator", "").split(";") if name.strip())
    return Metadata(
        title=found.get("title", ""),
        authors=authors,
        language=language,
        description=found.get("description", ""),
        date=found.get("created", "")[:10],
    )


def _count_letters(archive: zipfile.ZipFile) -> int:
    """Return the letters of the text itself, twice-told drawings and deleted words left out."""
    if "word/document.xml" not in archive.namelist():
        raise BookRejectedError("book_broken", "The DOCX holds no text part. Save it again.")
    root = parse_xml(archive.read("word/document.xml"))
    texts = root.xpath("//*[local-name()='t'][not(ancestor::*[local-name()='AlternateContent'])]")
    return sum(len(_TEXTS.findall(element.text or "")) for element in texts)


def _set_roles(root: Element) -> None:
    for element in root.iter():
        for name in markup.classes_of(element):
            if name in _ROLES:
                element.set("role", _ROLES[name])


def _losses(root: Element, num_letters: int) -> tuple[str, ...]:
    read = len(_TEXTS.findall(markup.text_of(root)))
    if read >= num_letters:
        return ()
    return (
        f"{num_letters - read} letters of the DOCX stand in forms that are not read; compare the "
        f"plan with the document ({count_chars(markup.text_of(root))} characters were read).",
    )
