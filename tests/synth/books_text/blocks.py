"""Look at what a reader made of a book, as tests ask for it."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from synth.books.book import Block, BlockKind, Book, BookRejectedError
from tests.synth.books.documents import line_of


def texts(book: Book, kind: BlockKind, *, role: str | None = None) -> list[str]:
    """Return the texts of the blocks of a kind, and of a role if one is given."""
    return [
        block.text
        for *_, block in book.blocks()
        if block.kind is kind and (role is None or block.role == role)
    ]


def with_role(book: Book, role: str) -> list[str]:
    return [block.text for *_, block in book.blocks() if block.role == role]


def block_of(book: Book, start: str) -> Block:
    """Return the one block whose text begins so."""
    (found,) = [block for *_, block in book.blocks() if block.text.startswith(start)]
    return found


def outline(book: Book) -> list[str]:
    """Return each block as "role: kind|text", without what is usual: no role, a paragraph."""
    return [
        f"{block.role}: {line_of(block)}" if block.role else line_of(block)
        for *_, block in book.blocks()
    ]


def refusal_of(read: Callable[..., object], *arguments: object) -> BookRejectedError:
    with pytest.raises(BookRejectedError) as refused:
        read(*arguments)
    return refused.value


def assert_complete(book: Book) -> None:
    """Assert that the blocks of each document hold all its characters."""
    for document in book.documents:
        assert sum(block.source_chars for block in document.blocks) == document.source_chars


_W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
_RELS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"

_TYPES = f"""<?xml version="1.0"?><Types xmlns="{_PACKAGE}/content-types">
<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>
<Default Extension="xml" ContentType="application/xml"/></Types>"""
_PACKAGE_RELS = f"""<?xml version="1.0"?><Relationships xmlns="{_PACKAGE}/relationships">
<Relationship Id="r1" Type="{_RELS}/officeDocument" Target="word/document.xml"/></Relationships>"""
_DOCUMENT_RELS = f"""<?xml version="1.0"?><Relationships xmlns="{_PACKAGE}/relationships">
<Relationship Id="r1" Type="{_RELS}/styles" Target="styles.xml"/>
<Relationship Id="r2" Type="{_RELS}/footnotes" Target="footnotes.xml"/></Relationships>"""
_STYLE = '<w:style w:type="paragraph" w:styleId="{id}"><w:name w:val="{name}"/></w:style>'
_STYLES = f"""<?xml version="1.0"?><w:styles {_W}><w:docDefaults><w:rPrDefault><w:rPr>
<w:lang w:val="de-DE"/></w:rPr></w:rPrDefault></w:docDefaults>
{_STYLE.format(id="berschrift1", name="heading 1")}{_STYLE.format(id="Titel", name="Title")}
{_STYLE.format(id="Verzeichnis1", name="toc 1")}</w:styles>"""
_CORE = """<?xml version="1.0"?><cp:coreProperties
xmlns:cp="http://schemas.openxmlformats.org/package/2006/metadata/core-properties"
xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>Die Uhr</dc:title>
<dc:creator>Jana Doe; Hans Roe</dc:creator></cp:coreProperties>"""


def paragraph(text: str, style: str = "", *, note: int = 0) -> str:
    """Return a paragraph, with the mark of a footnote at its end if one is given."""
    kind = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    mark = f'<w:r><w:footnoteReference w:id="{note}"/></w:r>' if note else ""
    return f'<w:p>{kind}<w:r><w:t xml:space="preserve">{text}</w:t></w:r>{mark}</w:p>'


def make_docx(body: str, *, notes: dict[int, str] | None = None, start: str = "") -> bytes:
    """Return a document with this body.

    Args:
        start: what stands in document.xml before its root, such as a document type.
    """
    answer = "".join(
        f'<w:footnote w:id="{number}">{paragraph(text)}</w:footnote>'
        for number, text in (notes or {}).items()
    )
    parts = {
        "[Content_Types].xml": _TYPES,
        "_rels/.rels": _PACKAGE_RELS,
        "docProps/core.xml": _CORE,
        "word/_rels/document.xml.rels": _DOCUMENT_RELS,
        "word/styles.xml": _STYLES,
        "word/footnotes.xml": f'<?xml version="1.0"?><w:footnotes {_W}>{answer}</w:footnotes>',
        "word/document.xml": (
            f'<?xml version="1.0"?>{start}<w:document {_W}><w:body>{body}</w:body></w:document>'
        ),
    }
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return made.getvalue()


@dataclass(frozen=True)
class Text:
    """Hold one line of a page: its place in points from the left and the bottom, and its size."""

    words: str
    left: float
    bottom: float
    size: float = 11.0


def page_of_lines(
    lines: Sequence[str], *, top: float = 700.0, left: float = 72.0, gap: float = 14.0
) -> list[Text]:
    """Return lines under one another; an empty one leaves a gap, a leading tab indents."""
    return [
        Text(line.lstrip("\t"), left + 18.0 * line.startswith("\t"), top - gap * number)
        for number, line in enumerate(lines)
        if line
    ]


def make_pdf(
    pages: Sequence[Sequence[Text]],
    *,
    outline: Sequence[tuple[str, int]] = (),
    title: str = "",
    trailer: str = "",
) -> bytes:
    """Return a PDF of A4 pages in Helvetica.

    Args:
        outline: titles with the page, from 0, that they lead to.
        trailer: more entries of the trailer, such as `/Encrypt 99 0 R`.
    """
    objects: dict[int, bytes] = {}
    num_pages = len(pages)
    first_page, first_text = 10, 10 + num_pages
    first_mark = first_text + num_pages
    kids = " ".join(f"{first_page + i} 0 R" for i in range(num_pages))
    outlines = " /Outlines 4 0 R" if outline else ""
    objects[1] = f"<< /Type /Catalog /Pages 2 0 R{outlines} >>".encode()
    objects[2] = f"<< /Type /Pages /Kids [{kids}] /Count {num_pages} >>".encode()
    objects[3] = (
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"
    )
    objects[5] = f"<< /Title ({title}) >>".encode("cp1252")
    for number, texts in enumerate(pages):
        objects[first_page + number] = (
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Resources "
            f"<< /Font << /F1 3 0 R >> >> /Contents {first_text + number} 0 R >>"
        ).encode()
        drawn = b"\n".join(map(_drawn, texts))
        objects[first_text + number] = (
            b"<< /Length %d >>\nstream\n" % len(drawn) + drawn + b"\nendstream"
        )
    if outline:
        last = first_mark + len(outline) - 1
        objects[4] = f"<< /Type /Outlines /First {first_mark} 0 R /Last {last} 0 R >>".encode()
        for number, (words, page) in enumerate(outline):
            following = f" /Next {first_mark + number + 1} 0 R" if number + 1 < len(outline) else ""
            objects[first_mark + number] = (
                f"<< /Title ({words}) /Parent 4 0 R /Dest [{first_page + page} 0 R /Fit]"
                f"{following} >>"
            ).encode("cp1252")
    return _file(objects, trailer)


def _drawn(text: Text) -> bytes:
    words = text.words.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")
    place = f"BT /F1 {text.size} Tf {text.left} {text.bottom} Td ("
    return place.encode() + words.encode("cp1252") + b") Tj ET"


def _file(objects: dict[int, bytes], trailer: str) -> bytes:
    made = b"%PDF-1.7\n"
    places: dict[int, int] = {}
    for number, content in sorted(objects.items()):
        places[number] = len(made)
        made += b"%d 0 obj\n" % number + content + b"\nendobj\n"
    size = max(objects) + 1
    start = len(made)
    made += f"xref\n0 {size}\n0000000000 65535 f \n".encode()
    for number in range(1, size):
        place = places.get(number)
        made += (f"{place:010d} 00000 n \n" if place else "0000000000 65535 f \n").encode()
    made += f"trailer << /Size {size} /Root 1 0 R /Info 5 0 R {trailer} >>\n".encode()
    return made + f"startxref\n{start}\n%%EOF\n".encode()
