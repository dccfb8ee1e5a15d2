"""A cover is a picture that players can show; one that is not is told and left out."""

from __future__ import annotations

import struct

import pytest

from synth.books.book import Book
from synth.books.epub import read_epub
from tests.synth.books.made_epub import Epub, page

PAGES = {"a.xhtml": page("<p>Text.</p>")}
JPEG = b"\xff\xd8\xff\xc0\0\x11\x08" + struct.pack(">HH", 900, 600) + bytes(10)


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", width, height) + bytes(9)


def with_cover(content: bytes | None, *, name: str = "c.png", kind: str = "image/png") -> Book:
    manifest = f'<item id="c" href="{name}" properties="cover-image" media-type="{kind}"/>'
    files = {} if content is None else {f"OPS/{name}": content}
    return read_epub(Epub(PAGES, manifest=manifest, files=files).bytes())


def test_a_cover_is_what_its_bytes_are_whatever_it_is_called() -> None:
    book = with_cover(JPEG, name="c.svg", kind="image/svg+xml")

    assert book.cover is not None
    assert book.cover.media_type == "image/jpeg"
    assert book.warnings == ()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (png(30_000, 30_000), "30000 x 30000"),
        (b"BM" + bytes(60), "known picture format"),
        (None, "not in the book"),
    ],
    ids=["huge", "unknown", "missing"],
)
def test_a_cover_that_cannot_be_shown_is_told(content: bytes | None, told: str) -> None:
    book = with_cover(content)

    assert book.cover is None
    assert len(book.warnings) == 1
    assert told in book.warnings[0]
    assert "c.png" in book.warnings[0]


@pytest.mark.parametrize("drawing", [b"<svg/>", b"<?xml version='1.0'?>\n<svg/>"])
def test_a_drawn_cover_is_none_and_nothing_is_wrong(drawing: bytes) -> None:
    book = with_cover(drawing, name="c.svg", kind="image/svg+xml")

    assert (book.cover, book.warnings) == (None, ())


def test_the_second_cover_is_used_where_the_first_cannot_be() -> None:
    manifest = (
        '<item id="a" href="a.png" properties="cover-image" media-type="image/png"/>'
        '<item id="b" href="b.png" properties="cover-image" media-type="image/png"/>'
    )
    files = {"OPS/a.png": png(30_000, 30_000), "OPS/b.png": png(600, 900)}

    book = read_epub(Epub(PAGES, manifest=manifest, files=files).bytes())

    assert book.cover is not None
    assert book.cover.content == png(600, 900)
