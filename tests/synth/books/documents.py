"""Make small EPUBs for tests: as they should be, or with one thing wrong."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from synth.books.book import Block, BlockKind, Book, count_chars
from synth.books.documents.parsing import parse_document
from synth.books.documents.xhtml import document_of
from synth.books.epub.reader import read_epub
from synth.books.plan import Plan, plan_book
from synth.books.rules import Rules

CONTAINER = (
    '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container" version="1.0"><rootfiles>'
    '<rootfile full-path="OPS/book.opf" media-type="application/oebps-package+xml"/>'
    "</rootfiles></container>"
)
METADATA = (
    '<dc:identifier id="uid">urn:x</dc:identifier><dc:title>A Book</dc:title>'
    "<dc:language>en</dc:language><dc:creator>Ann Author</dc:creator>"
)
XHTML = (
    '<?xml version="1.0" encoding="utf-8"?><!DOCTYPE html>\n'
    '<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops">'
    "<head><title>x</title></head>{body}</html>"
)
PROSE = "It was a long and quiet afternoon, and nobody in the house had anything to say about it. "
LONG = f"<p>{PROSE * 40}</p>"
TIME_MACHINE = Path("tests/data/books/the-time-machine_standardebooks.epub")


def page(inner: str, *, kind: str = "") -> str:
    attribute = f' epub:type="{kind}"' if kind else ""
    return XHTML.format(body=f"<body{attribute}>{inner}</body>")


@dataclass
class Epub:
    """Say what is in an EPUB; every field may be made wrong.

    `pages` are documents by name in the order of the spine; `nav` and `ncx` contents by (title,
    link), or the document itself.
    """

    pages: Mapping[str, str]
    spine: Sequence[str] | None = None  # names; "name!" is not linear
    nav: Sequence[tuple[str, str]] | str | None = None
    ncx: str | None = None
    landmarks: Sequence[tuple[str, str]] = ()
    metadata: str = METADATA
    guide: str = ""
    manifest: str = ""  # more items
    files: Mapping[str, bytes] = field(default_factory=dict)
    mimetype: bytes = b"application/epub+zip"
    version: str = "3.0"

    def bytes(self) -> bytes:
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("mimetype", self.mimetype, zipfile.ZIP_STORED)
            archive.writestr("META-INF/container.xml", CONTAINER)
            archive.writestr("OPS/book.opf", self._package())
            if self.nav is not None:
                archive.writestr("OPS/nav.xhtml", self._nav())
            if self.ncx is not None:
                archive.writestr("OPS/toc.ncx", self.ncx)
            for name, content in self.pages.items():
                archive.writestr(f"OPS/{name}", content)
            for name, raw in self.files.items():
                archive.writestr(name, raw)
        return stream.getvalue()

    def _package(self) -> str:
        kind = "application/xhtml+xml"
        items = [f'<item id="{n}" href="{n}" media-type="{kind}"/>' for n in self.pages]
        if self.nav is not None:
            items.append(f'<item id="nav" href="nav.xhtml" properties="nav" media-type="{kind}"/>')
        if self.ncx is not None:
            items.append('<item id="ncx" href="toc.ncx" media-type="application/x-dtbncx+xml"/>')
        names = list(self.pages) if self.spine is None else self.spine
        spine = []
        for name in names:
            linear = ' linear="no"' if name.endswith("!") else ""
            spine.append(f'<itemref idref="{name.rstrip("!")}"{linear}/>')
        return (
            f'<package xmlns="http://www.idpf.org/2007/opf" version="{self.version}" '
            'unique-identifier="uid">'
            '<metadata xmlns:dc="http://purl.org/dc/elements/1.1/" '
            f'xmlns:opf="http://www.idpf.org/2007/opf">{self.metadata}</metadata>'
            f"<manifest>{''.join(reversed(items))}{self.manifest}</manifest>"
            f'<spine toc="ncx">{"".join(spine)}</spine>{self.guide}</package>'
        )

    def _nav(self) -> str:
        if isinstance(self.nav, str):
            return self.nav
        entries = "".join(
            f'<li><a href="{link}">{title}</a></li>' for title, link in self.nav or ()
        )
        marks = "".join(
            f'<li><a epub:type="{kind}" href="{link}">x</a></li>' for kind, link in self.landmarks
        )
        return page(
            f'<nav epub:type="toc"><ol>{entries}</ol></nav>'
            f'<nav epub:type="landmarks"><ol>{marks}</ol></nav>'
        )


def blocks_of(inner: str, *, language: str = "en") -> tuple[Block, ...]:
    """Return the blocks of a page with this in its body."""
    root = parse_document(page(inner).encode()).root
    num_chars = count_chars("".join(next(root.iter("{*}body")).itertext()))
    document = document_of(root, "text/a.xhtml", language=language)
    assert document.source_chars == num_chars
    assert sum(block.source_chars for block in document.blocks) == num_chars
    return document.blocks


def line_of(block: Block) -> str:
    """Return "kind speaker|text" of a block; a paragraph of nobody's is its text alone."""
    if block.kind is BlockKind.PARAGRAPH and not block.speaker:
        return block.text
    return f"{' '.join(filter(None, (block.kind, block.speaker)))}|{block.text}"


def said(inner: str) -> list[str]:
    return list(map(line_of, blocks_of(inner)))


def tells(found: Book | Plan, *words: str) -> bool:
    """Say whether one of the warnings of a book or plan has all these words."""
    return any(all(word in warning for word in words) for warning in found.warnings)


def plan_of(epub: Epub, **rules: Any) -> Plan:
    return plan_book(read_epub(epub.bytes()), Rules(**rules))


def titles(plan: Plan) -> list[str]:
    """Return the titles of the chapters that are spoken."""
    return [chapter.title for chapter in plan.included]


def left_out(plan: Plan) -> dict[str, str]:
    """Return why chapters are not spoken, by their titles."""
    return {c.title: str(c.reason) for c in plan.chapters if not c.included}


def repacked(content: bytes, change: Callable[[str, bytes], tuple[str, bytes]]) -> bytes:
    """Return an archive with other names and contents of its files."""
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(stream, "w") as made:
        for name in old.namelist():
            other, raw = change(name, old.read(name))
            entry = zipfile.ZipInfo(other)
            entry.filename = other  # as it is: the constructor cuts names at NULs
            made.writestr(entry, raw)
    return stream.getvalue()


def with_file(content: bytes, name: str, raw: bytes) -> bytes:
    """Return an archive with something else in one of its files."""
    return repacked(content, lambda one, old: (one, raw if one == name else old))


def ncx(*entries: tuple[str, str]) -> str:
    """Return a list of contents of EPUB 2 with these titles and links."""
    points = "".join(
        f"<navPoint><navLabel><text>{title}</text></navLabel><content src='{link}'/></navPoint>"
        for title, link in entries
    )
    return f'<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/"><navMap>{points}</navMap></ncx>'
