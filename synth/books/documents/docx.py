"""Read a Word document (DOCX) as a book: its headings, notes, tables and properties."""

from __future__ import annotations

import io
import re
import zipfile
from dataclasses import replace
from xml.parsers.expat import ExpatError

import mammoth
from lxml import etree

from synth.books.book import Book, BookRejectedError, Loss, Metadata, count_chars
from synth.books.documents import markup
from synth.books.documents.html import book_of_tree, parse_text
from synth.books.documents.markup import Element
from synth.books.documents.parsing import parse_xml
from synth.books.epub.package import DAMAGE, open_book_archive

MAX_PART_BYTES = 40_000_000  # of one XML part; its tree takes some twenty times as much
_STYLES = """
p[style-name='Title'] => p.book-title:fresh
p[style-name='Subtitle'] => p.book-title:fresh
p[style-name='TOC Heading'] => p.contents-list:fresh
p[style-name^='toc '] => p.contents-list:fresh
p[style-name^='TOC '] => p.contents-list:fresh
p[style-name='header'] => p.page-number:fresh
r.TtsHidden => span.hidden-text
"""
_HIDDEN_STYLE, _HIDDEN_CLASS = "TtsHidden", "hidden-text"
_MAX_STYLES = 100  # that are based on each other
# What mammoth does not know, though its text is the document's; of the first kind it reads.
_UNKNOWN = ("fldSimple", "dir", "bdo")
_ROLES = {"book-title": "titlepage", "contents-list": "toc"}
_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
# What a damaged file makes zipfile, expat, lxml and mammoth raise.
_BROKEN = (*DAMAGE, ExpatError, etree.XMLSyntaxError, LookupError, AttributeError, TypeError)
_TEXTS = re.compile(r"[^\W_]")


def read_docx(raw: bytes, filename: str) -> Book:
    """Return the book that a DOCX holds.

    Raises:
        BookRejectedError: `book_broken`, `book_too_large`, `book_encrypted`, `book_empty`.
    """
    try:
        with open_book_archive(io.BytesIO(raw), "DOCX", damaged="book_broken") as archive:
            _check_parts(archive)
            metadata = _metadata(archive)
            num_letters = _count_letters(archive)
            marked = _mark_hidden(archive)
        result = mammoth.convert_to_html(
            marked,
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
    root, _ = parse_text(f"<html><body>{result.value}</body></html>")
    for element in root.iter():
        for name in markup.classes_of(element):
            if name in _ROLES:
                element.set("role", _ROLES[name])
            elif name == _HIDDEN_CLASS:
                element.set("hidden", "hidden")
    text = markup.text_of(root)
    lost = num_letters - len(_TEXTS.findall(text))
    why = (
        f"{lost} letters of the DOCX are in elements that cannot be read. Compare the plan with "
        f"the document ({count_chars(text)} characters were read)."
    )
    losses = (Loss("word/document.xml", why, lost),) if lost > 0 else ()
    warnings = tuple(loss.why for loss in losses)
    return replace(book_of_tree(root, filename, metadata, warnings=warnings), losses=losses)


def _check_parts(archive: zipfile.ZipFile) -> None:
    """Refuse a document with a part that is too large before any of it is unpacked."""
    # A part that shrinks may be text under any name; pictures hardly shrink.
    parts = [
        part
        for part in archive.infolist()
        if part.filename.endswith((".xml", ".rels")) or part.file_size > 2 * part.compress_size
    ]
    for part in parts:
        if part.file_size > MAX_PART_BYTES:
            raise BookRejectedError(
                "book_too_large",
                f"{part.filename} in the DOCX has {part.file_size} bytes; at most "
                f"{MAX_PART_BYTES} are allowed. Split the book into several files.",
            )
    for part in parts:
        with archive.open(part) as opened:
            head = opened.read(4096)
        if b"<!DOCTYPE" in head or b"<\0!\0D\0" in head:
            raise BookRejectedError(
                "book_broken",
                "The DOCX declares a document type, which Word never does. Save it again "
                "with Word.",
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
        raise BookRejectedError(
            "book_broken", "The DOCX has no text part; save it again with Word."
        )
    root = parse_xml(archive.read("word/document.xml"))
    texts = root.xpath(
        "//*[local-name()='t'][not(ancestor::*[local-name()='AlternateContent'])]"
        "[not(ancestor::*[local-name()='moveFrom' or local-name()='del'])]"
    )
    return sum(len(_TEXTS.findall(element.text or "")) for element in texts)


def _mark_hidden(archive: zipfile.ZipFile) -> io.BytesIO:
    """Return the document, without its pictures, in which hidden text has a style that says so."""
    styles = _hidden_styles(archive)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as packed:
        for part in archive.infolist():
            if not part.filename.endswith((".xml", ".rels")):
                continue
            content = archive.read(part)
            if part.filename.rpartition("/")[0] == "word" and part.filename.endswith(".xml"):
                content = _mark_part(content, styles)
            packed.writestr(part.filename, content)
    made.seek(0)
    return made


def _hidden_styles(archive: zipfile.ZipFile) -> dict[str, bool]:
    """Return whether the text of a style is hidden, by the styles' ids; "" is the default's."""
    if "word/styles.xml" not in archive.namelist():
        return {}
    root = parse_xml(archive.read("word/styles.xml"))
    default = _vanish(root.find(f"{_W}docDefaults/{_W}rPrDefault/{_W}rPr"))
    own: dict[str, bool | None] = {}
    bases: dict[str, str] = {}
    for style in root.iterfind(f"{_W}style"):
        name = style.get(f"{_W}styleId") or ""
        own[name] = _vanish(style.find(f"{_W}rPr"))
        bases[name] = _value(style, "basedOn")
        if style.get(f"{_W}default") in {"1", "true"} and style.get(f"{_W}type") == "paragraph":
            default = default if own[name] is None else own[name]
    found = {"": bool(default)}
    for name in own:
        base = name
        for _ in range(_MAX_STYLES):
            if own.get(base) is not None or not base:
                break
            base = bases.get(base, "")
        if own.get(base) is not None:
            found[name] = bool(own[base])
    return found


def _value(element: Element | None, path: str) -> str:
    """Return what an element at a path below another says; empty where there is none."""
    found = None if element is None else element.find("/".join(f"{_W}{x}" for x in path.split("/")))
    return "" if found is None else found.get(f"{_W}val") or ""


def _vanish(properties: Element | None) -> bool | None:
    """Return whether properties of text hide it; None where they do not say."""
    hidden = None if properties is None else properties.find(f"{_W}vanish")
    if hidden is None:
        return None
    return (hidden.get(f"{_W}val") or "true").lower() not in {"0", "false", "off", "none"}


def _mark_part(content: bytes, styles: dict[str, bool]) -> bytes:
    """Return a part whose hidden runs, and the codes of whose fields, have the style of such."""
    root = parse_xml(content)
    if markup.name_of(root) not in {"document", "footnotes", "endnotes"}:
        return content
    for name in _UNKNOWN:
        for element in list(root.iter(f"{_W}{name}")):
            element.tag = f"{_W}smartTag"
    codes: list[bool] = []  # of the fields that are open: whether their code goes on
    for run in root.iter(f"{_W}r"):
        properties = run.find(f"{_W}rPr")
        if any(codes) or _is_hidden(run, properties, styles):
            if properties is None:
                properties = etree.Element(f"{_W}rPr")
                run.insert(0, properties)
            for old in properties.findall(f"{_W}rStyle"):
                properties.remove(old)
            properties.insert(0, etree.Element(f"{_W}rStyle", {f"{_W}val": _HIDDEN_STYLE}))
        for mark in run.iter(f"{_W}fldChar"):
            kind = mark.get(f"{_W}fldCharType")
            if kind == "begin":
                codes.append(True)
            elif kind == "separate" and codes:
                codes[-1] = False
            elif kind == "end" and codes:
                codes.pop()
    return bytes(etree.tostring(root, encoding="utf-8", xml_declaration=True))


def _is_hidden(run: Element, properties: Element | None, styles: dict[str, bool]) -> bool:
    own = _vanish(properties)
    if own is not None:
        return own
    paragraph = next(run.iterancestors(f"{_W}p"), None)
    row = next(run.iterancestors(f"{_W}tr"), None)
    if row is not None and row.find(f"{_W}trPr/{_W}hidden") is not None:
        return True
    names = (_value(properties, "rStyle"), _value(paragraph, "pPr/pStyle"), "")
    return next((styles[name] for name in names if name in styles and name), styles.get("", False))
