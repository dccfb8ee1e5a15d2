"""Make small EPUBs for tests: as they should be, or with one thing wrong."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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


def page(inner: str, *, kind: str = "") -> str:
    """Return an XHTML document with this in its body."""
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

    def bytes(self) -> bytes:
        """Return the archive."""
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
            '<package xmlns="http://www.idpf.org/2007/opf" version="3.0" unique-identifier="uid">'
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
