"""Make small PDFs with embedded text, by hand: objects, pages, an outline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


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
